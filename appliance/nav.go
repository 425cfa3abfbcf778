package appliance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"linerate/appliance/throughput"
)

// Key of the box. Boards with fewer keys map theirs onto these.
type Key string

// The keys there are.
const (
	Up     Key = "up"
	Down   Key = "down"
	Left   Key = "left"
	Right  Key = "right"
	Select Key = "select"
	Back   Key = "back"
	K1     Key = "k1"
	K2     Key = "k2"
	K3     Key = "k3"
)

// Keys lists them all.
var Keys = []Key{Up, Down, Left, Right, Select, Back, K1, K2, K3}

// Page names what the display shows.
type Page string

// The pages there are.
const (
	PageBoot    Page = "boot"
	PageHome    Page = "home"
	PageMenu    Page = "menu"
	PageTargets Page = "targets"
	PageTest    Page = "test" // ready to start, or running
	PageResult  Page = "result"
	PagePorts   Page = "ports"  // one port at a time, in full
	PageFaults  Page = "faults" // what does not work
	PageMessage Page = "message"

	PageSettings Page = "settings"
)

// Ask is a question the display puts; select says yes, any other key no.
type Ask string

// The questions there are.
const (
	AskNothing Ask = ""
	AskCancel  Ask = "cancel" // end the running test?
	AskStart   Ask = "start"  // start though clients test now?
)

// View is what the display shows beside the page's name.
type View struct {
	Cursor  int    // line of a list, or which port, fault or result
	Shown   string // id of the running test or of the result
	Ask     Ask
	Message Message
	Seeking bool      // a test starts as soon as a server has been found
	Asleep  bool      // the panel is off; the next key only wakes it
	Input   time.Time // of the last key, or of what else woke the display
	Opened  time.Time // since when this page is shown
}

// Message is a full page of text. Lines are wrapped by the display.
type Message struct {
	Title string
	Text  string
	From  Page // the page to go back to
}

// How long pages stay.
const (
	bootLeast   = 3 * time.Second  // the boot page can be read
	bootMost    = 15 * time.Second // a port without an address keeps nobody waiting
	resultStays = 30 * time.Second
	readyStays  = 60 * time.Second // the test page that nobody starts
)

// configTitle heads the message about a config that was not taken.
const configTitle = "Config not used"

// Item is a line of a list page.
type Item struct {
	Label string
	Value string // shown at the right; may be empty
	do    func(*State)
}

// Items are the lines of the page shown; none where the page is no list.
func (s State) Items() []Item {
	switch s.Page {
	case PageMenu:
		return s.menu()
	case PageTargets:
		return s.targetItems()
	case PageSettings:
		return s.settingItems()
	case PageTest:
		if s.ShownTest() == nil {
			return []Item{
				{Label: "Start", do: start},
				{Label: "Other target", do: func(s *State) { open(s, PageTargets) }},
				{Label: "Back", do: goHome},
			}
		}
	}
	return nil
}

func (s State) menu() []Item {
	var items []Item
	if len(s.Active()) > 0 {
		items = append(items, Item{"Running test", "", func(s *State) { open(s, PageTest) }})
	} else {
		name := "no target"
		if t, ok := s.Chosen(); ok {
			name = t.Name
		}
		items = append(items, Item{"Start test", name, start})
	}
	items = append(items, Item{"Target", fmt.Sprint(len(s.Targets)), func(s *State) { open(s, PageTargets) }})
	if len(s.Results) > 0 {
		items = append(items, Item{"Results", fmt.Sprint(len(s.Results)), func(s *State) {
			open(s, PageResult)
			s.View.Shown = s.Results[0].ID
		}})
	}
	items = append(items, Item{"Ports", fmt.Sprint(len(s.Ports)), func(s *State) { open(s, PagePorts) }})
	if len(s.Faults) > 0 {
		items = append(items, Item{"Faults", fmt.Sprint(len(s.Faults)), func(s *State) { open(s, PageFaults) }})
	}
	if len(s.Keys) > 0 {
		items = append(items, Item{"Settings", "", func(s *State) { open(s, PageSettings) }})
	}
	return append(items, Item{"Back", "", goHome})
}

func (s State) targetItems() []Item {
	var items []Item
	for _, t := range s.Targets {
		if t.Answers != nil && !*t.Answers && t.Source != SourceConfig {
			continue
		}
		value := ""
		if t.Name != t.Host {
			value = t.Host
		}
		items = append(items, Item{t.Name, value, func(s *State) {
			s.Picked = t.Name
			open(s, PageTest)
		}})
	}
	return append(items, Item{"Back", "", goHome})
}

// NoTarget says what to do where a test can be started to nobody.
func (s State) NoTarget() string {
	mine := s.MyAddress()
	if want := s.Config.Test.Target; want != "auto" {
		return fmt.Sprintf("Target %q is not known. Choose another.", want)
	}
	if mine == "" {
		return "No address yet. Plug a cable into a test port."
	}
	return "Run iperf3 -s on a laptop. I am " + mine
}

// ShownTest is the running test that the test page shows; nil where it shows none.
func (s State) ShownTest() *Test {
	if i := s.find(s.View.Shown); i >= 0 {
		return s.Running[i]
	}
	if active := s.Active(); len(active) > 0 {
		return active[0]
	}
	return nil
}

// press does what a key does on the page shown.
func press(s *State, k Key) {
	asleep := s.View.Asleep
	wake(s)
	if asleep {
		return // the press that wakes does nothing else
	}
	if ask := s.View.Ask; ask != AskNothing {
		s.View.Ask = AskNothing
		if k == Select || k == K1 && ask == AskStart {
			answer(s, ask)
		}
		return
	}
	if k == K1 {
		if s.Page == PageTest && s.ShownTest() == nil {
			start(s)
		} else {
			open(s, PageTest)
		}
		return
	}
	switch s.Page {
	case PageBoot:
		goHome(s)
	case PageHome:
		if k != Back {
			open(s, PageMenu)
		}
	case PageMenu, PageTargets, PageSettings:
		pressList(s, k)
	case PageTest:
		if s.ShownTest() != nil {
			pressRunning(s, k)
		} else {
			pressList(s, k)
		}
	case PageResult:
		pressResult(s, k)
	case PagePorts:
		pressPages(s, k, len(s.Ports))
	case PageFaults:
		pressPages(s, k, len(s.Faults))
	case PageMessage:
		leaveMessage(s)
	}
}

func pressList(s *State, k Key) {
	items := s.Items()
	s.View.Cursor = min(s.View.Cursor, len(items)-1)
	switch k {
	case Up:
		s.View.Cursor = (s.View.Cursor + len(items) - 1) % len(items)
	case Down:
		s.View.Cursor = (s.View.Cursor + 1) % len(items)
	case Select, Right:
		items[s.View.Cursor].do(s)
	case Back, Left:
		goHome(s)
	}
}

func pressRunning(s *State, k Key) {
	i, active := s.find(s.ShownTest().ID), s.Active()
	switch k {
	case Select:
		s.View.Shown = active[i].ID
		s.View.Ask = AskCancel
	case Down, Right:
		if i+1 == len(active) {
			goHome(s)
		} else {
			s.View.Shown = active[i+1].ID
		}
	case Up:
		s.View.Shown = active[(i+len(active)-1)%len(active)].ID
	case Back, Left:
		goHome(s)
	}
}

// pressResult turns over the results; select leads to the menu as on the home page, so that `select select` tests again.
func pressResult(s *State, k Key) {
	i := slices.Index(s.resultIDs(), s.View.Shown)
	switch {
	case k == Select:
		open(s, PageMenu)
	case k == Down && i >= 0 && i+1 < len(s.Results):
		s.View.Shown = s.Results[i+1].ID
	case k == Up && i > 0:
		s.View.Shown = s.Results[i-1].ID
	case k == Up:
	default:
		goHome(s)
	}
}

func (s State) resultIDs() []string {
	ids := make([]string, len(s.Results))
	for i, r := range s.Results {
		ids[i] = r.ID
	}
	return ids
}

// pressPages turns over n pages and goes home behind the last.
func pressPages(s *State, k Key, n int) {
	switch {
	case (k == Down || k == Right) && s.View.Cursor+1 < n:
		s.View.Cursor++
	case k == Up && s.View.Cursor > 0:
		s.View.Cursor--
	case k == Up:
	default:
		goHome(s)
	}
}

// start asks for a run of the chosen target in the configured directions, or says why there can be none.
func start(s *State) {
	switch {
	case s.Request != nil:
		open(s, PageTest)
	case len(s.Active()) > 0:
		open(s, PageTest)
		s.View.Ask = AskStart
	default:
		answer(s, AskStart)
	}
}

func answer(s *State, ask Ask) {
	switch ask {
	case AskCancel:
		cancel(s, s.View.Shown) // the one that was asked about; it may have ended meanwhile
	case AskStart:
		t, ok := s.Chosen()
		if !ok && s.Looking() {
			open(s, PageTest)
			s.View.Seeking = true
			return
		}
		if !ok {
			say(s, "No target", s.NoTarget())
			return
		}
		request(s, s.Specs(t), nil)
		open(s, PageTest)
	}
}

// Specs are the tests of one press: the configured directions to the target, one after the other.
func (s State) Specs(t Target) []throughput.Spec {
	c := s.Config.Test
	var specs []throughput.Spec
	for _, d := range c.Directions {
		specs = append(specs, throughput.Spec{
			Host: t.Host, Target: t.Name, TCPPort: t.TCPPort, Engine: t.Engine, Via: t.Via, ExpectBPS: t.ExpectBPS,
			Direction: d, Seconds: float64(c.Seconds), Streams: c.Streams, Protocol: c.Protocol, RateBPS: c.Rate,
		}.WithDefaults())
	}
	return specs
}

func open(s *State, p Page) {
	s.Page = p
	s.View.Cursor, s.View.Shown, s.View.Ask, s.View.Seeking = 0, "", AskNothing, false
	s.View.Opened = s.Now
}

func goHome(s *State) { open(s, PageHome) }

// browsing says whether a person is at something that a test that starts must not take away.
func browsing(p Page) bool {
	return p == PageMenu || p == PageTargets || p == PageSettings || p == PagePorts || p == PageFaults
}

// say shows a message until a key is pressed.
func say(s *State, title, text string) {
	from := s.Page
	if from == PageMessage {
		from = s.View.Message.From
	}
	if from == PageBoot || from == PageTest || from == PageMenu {
		from = PageHome
	}
	open(s, PageMessage)
	s.View.Message = Message{Title: title, Text: strings.TrimSpace(text), From: from}
	wake(s)
}

func leaveMessage(s *State) {
	if s.Page == PageMessage {
		open(s, s.View.Message.From)
	}
	s.View.Message = Message{}
}

func wake(s *State) {
	s.View.Asleep = false
	s.View.Input = s.Now
}

// passTime turns pages that have been shown long enough and puts the display to sleep.
func passTime(s *State) {
	shown := s.Now.Sub(s.View.Opened)
	switch s.Page {
	case PageBoot:
		if up := s.Now.Sub(s.Started); up >= bootMost || up >= bootLeast && s.addressed() {
			goHome(s)
		}
	case PageResult:
		if shown >= resultStays && s.Now.Sub(s.View.Input) >= resultStays {
			goHome(s)
		}
	case PageTest:
		if s.ShownTest() == nil && s.Request == nil && s.Now.Sub(s.View.Input) >= readyStays {
			goHome(s)
		}
	}
	after := s.Config.Display.SleepAfter
	if after > 0 && len(s.Running) == 0 && s.Now.Sub(s.View.Input) >= after {
		s.View.Asleep = true
	}
}

// addressed says whether there is a port with a link, and every one with a link has its address.
func (s State) addressed() bool {
	some := false
	for _, p := range s.Ports {
		if p.Link == LinkUp {
			if p.Address() == "" {
				return false
			}
			some = true
		}
	}
	return some
}
