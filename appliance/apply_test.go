package appliance

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func at(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }

// box is a State with two test ports and one target.
func box() State {
	cfg := config.Default()
	cfg.Targets = []config.Target{{Name: "core", Host: "192.0.2.10", Engine: "iperf3", Expect: 2.3e9}}
	s := New("1.0", "nanopi-r5s", "linerate-1", cfg)
	return Apply(s, PortsSeen{At: noon, Ports: []Port{
		{Name: "eth0", Role: "wan", Index: 2, Link: LinkDown, Duplex: DuplexUnknown},
		{Name: "eth2", Role: "lan2", Index: 4, Link: LinkDown, Duplex: DuplexUnknown, Test: true},
		{Name: "eth1", Role: "lan1", Index: 3, Link: LinkUp, SpeedMbps: new(2500), Duplex: DuplexFull, Test: true,
			Addresses: []string{"192.0.2.1/24", "fe80::1/64"}, VLANs: []VLAN{{Name: "eth1.130", ID: 130, Addresses: []string{"198.51.100.1/24"}}}},
	}})
}

func do(s State, events ...Event) State {
	for _, e := range events {
		s = Apply(s, e)
	}
	return s
}

func press1(s State, keys ...Key) State {
	for _, k := range keys {
		s = Apply(s, ButtonPressed{At: s.Now, Key: k})
	}
	return s
}

func started(id string, role throughput.Role) TestStarted {
	return TestStarted{At: noon, Test: Test{ID: id, Role: role, Peer: "192.0.2.7", Local: "192.0.2.1", Direction: throughput.RX, Seconds: 10, Streams: 1}}
}

func finished(id string, role throughput.Role, last bool) TestFinished {
	return TestFinished{At: noon, ID: id, Last: last, Record: results.Record{
		Stamp: results.Stamp{ID: id}, Result: throughput.Result{Role: role, Peer: "192.0.2.7", Valid: true, BPS: 2.3e9, Intervals: make([]throughput.Interval, 10)},
	}}
}

func TestPortsAreOrderedAndAged(t *testing.T) {
	s := box()
	if got := fmt.Sprint(s.Ports[0].Label(), s.Ports[1].Label(), s.Ports[2].Label()); got != "lan1lan2wan" {
		t.Errorf("order %s, want test ports first", got)
	}
	ports := append([]Port{}, s.Ports...)
	ports[1].Link = LinkUp
	s = Apply(s, PortsSeen{At: at(5), Ports: ports})
	if !s.Ports[0].Since.Equal(noon) || !s.Ports[1].Since.Equal(at(5)) {
		t.Errorf("since %v and %v, want noon and 5 s later", s.Ports[0].Since, s.Ports[1].Since)
	}
	ports = append([]Port{}, s.Ports...)
	ports[1].Index = 9 // unplugged and back: another port of the same name
	s = Apply(s, PortsSeen{At: at(7), Ports: ports})
	if !s.Ports[1].Since.Equal(at(7)) {
		t.Error("a re-plugged adapter kept its old age")
	}
}

func TestPortOf(t *testing.T) {
	s := box()
	for _, c := range []struct {
		address, port string
		vlan          int
	}{
		{"192.0.2.1", "eth1", 0}, {"::ffff:192.0.2.1", "eth1", 0}, {"198.51.100.1", "eth1", 130},
		{"fe80::1%eth1", "eth1", 0}, {"fe80::1%eth2", "", 0}, {"203.0.113.1", "", 0}, {"nonsense", "", 0},
	} {
		p, vlan, ok := s.PortOf(c.address)
		if p.Name != c.port || vlan != c.vlan || ok != (c.port != "") {
			t.Errorf("%s: port %q vlan %d, want %q %d", c.address, p.Name, vlan, c.port, c.vlan)
		}
	}
}

func TestServedTest(t *testing.T) {
	s := do(box(), started("1", throughput.Server))
	if s.Page != PageTest || s.Running[0].Port != "eth1" {
		t.Fatalf("page %s, port %q; want the test page and eth1", s.Page, s.Running[0].Port)
	}
	for i := 1; i <= 70; i++ {
		s = Apply(s, TestProgressed{At: at(i), ID: "1", Progress: throughput.Progress{ElapsedS: float64(i), RXBPS: 1e9}})
	}
	if n := len(s.Running[0].Points); n != MaxPoints {
		t.Errorf("%d points, want %d", n, MaxPoints)
	}
	s = Apply(s, finished("1", throughput.Server, false))
	if s.Page != PageResult || s.View.Shown != "1" || len(s.Running) != 0 || len(s.Results) != 1 || s.Results[0].Intervals != nil {
		t.Errorf("page %s shows %q, %d running, %d results", s.Page, s.View.Shown, len(s.Running), len(s.Results))
	}
	s = Apply(s, Ticked{At: at(200)})
	if s.Page != PageHome {
		t.Errorf("page %s after a while, want home", s.Page)
	}
	for i := range 20 {
		s = Apply(s, finished(fmt.Sprint(i+2), throughput.Server, false))
	}
	if len(s.Results) != MaxResults || s.Results[0].ID != "21" {
		t.Errorf("%d results, the first %s; want %d and the newest", len(s.Results), s.Results[0].ID, MaxResults)
	}
}

func TestRequestedRun(t *testing.T) {
	s := press1(do(box(), Ticked{At: at(20)}), Select, Select)
	if s.Request == nil || len(s.Request.Specs) != 2 || s.Page != PageTest {
		t.Fatalf("select select on the home page: request %v, page %s", s.Request, s.Page)
	}
	if spec := s.Request.Specs[0]; spec.Host != "192.0.2.10" || spec.Direction != throughput.RX || spec.ExpectBPS != 2.3e9 {
		t.Errorf("spec %+v", spec)
	}
	again := Apply(s, TestRequested{At: noon, Specs: s.Request.Specs})
	if again.Request.Number != s.Request.Number {
		t.Error("a second request was taken while one is there")
	}
	s = do(s, started("5", throughput.Client), finished("5", throughput.Client, false))
	if s.Page != PageTest || s.Request == nil {
		t.Errorf("page %s after the first direction, want the test page until the run is done", s.Page)
	}
	s = do(s, started("6", throughput.Client), finished("6", throughput.Client, true))
	if s.Page != PageResult || s.Request != nil {
		t.Errorf("page %s, request %v after the run", s.Page, s.Request)
	}
	s = press1(s, Select, Select)
	if s.Request == nil || s.Request.Number != 2 {
		t.Error("select select on the result did not start another run")
	}
	s = Apply(s, TestFailed{At: noon, Err: "died"})
	if s.Request != nil || s.Page != PageMessage {
		t.Errorf("after TestFailed: request %v, page %s", s.Request, s.Page)
	}
}

func TestOwnRunStaysShownWhileAClientComes(t *testing.T) {
	s := do(press1(do(box(), Ticked{At: at(20)}), K1, K1), started("5", throughput.Client), started("6", throughput.Server))
	if s.View.Shown != "5" {
		t.Errorf("test %q is shown, want our own", s.View.Shown)
	}
	if s = do(s, finished("6", throughput.Server, false)); s.Page != PageTest {
		t.Errorf("page %s after a client's test, want our own to stay", s.Page)
	}
	if s = do(s, finished("5", throughput.Client, true)); s.Page != PageResult || s.View.Shown != "5" {
		t.Errorf("page %s shows %q, want our own result", s.Page, s.View.Shown)
	}
}

func TestCancelWithKeys(t *testing.T) {
	s := do(press1(do(box(), Ticked{At: at(20)}), K1, K1), started("5", throughput.Client))
	s = press1(s, Select)
	if s.View.Ask != AskCancel || s.Running[0].Cancelled {
		t.Fatalf("ask %q", s.View.Ask)
	}
	if no := press1(s, Down); no.View.Ask != AskNothing || no.Running[0].Cancelled {
		t.Error("another key than select did not mean no")
	}
	s = press1(s, Select)
	if !s.Running[0].Cancelled || !s.Request.Cancelled {
		t.Error("select select did not cancel the test and its run")
	}
}

// The test that was asked about ends before the answer: the answer is not meant for another.
func TestCancelMeansTheTestThatWasAskedAbout(t *testing.T) {
	s := do(press1(do(box(), Ticked{At: at(20)}), K1, K1), started("5", throughput.Client), started("6", throughput.Server))
	s = do(press1(s, Select), finished("5", throughput.Client, false))
	if s = press1(s, Select); s.Running[0].ID != "6" || s.Running[0].Cancelled {
		t.Errorf("test %s cancelled: %v; it was asked about test 5", s.Running[0].ID, s.Running[0].Cancelled)
	}
}

func TestStartAsksWhileClientsTest(t *testing.T) {
	s := press1(do(box(), started("1", throughput.Server)), Back, K1)
	s = press1(s, Back, Select)
	if items := s.Items(); items[0].Label != "Running test" {
		t.Fatalf("first entry %q", items[0].Label)
	}
	start(&s)
	if s.View.Ask != AskStart || s.Request != nil {
		t.Fatalf("ask %q, request %v; want a question", s.View.Ask, s.Request)
	}
	if s = press1(s, Select); s.Request == nil {
		t.Error("yes did not start the run")
	}
}

func TestWaitingClientsStandBehindTheOthers(t *testing.T) {
	wait := func(peers ...string) ClientsWaiting {
		e := ClientsWaiting{At: noon}
		for _, p := range peers {
			e.Tests = append(e.Tests, Test{Peer: p, Local: "192.0.2.1"})
		}
		return e
	}
	s := do(box(), started("1", throughput.Server), wait("192.0.2.8", "192.0.2.9"), started("2", throughput.Server))
	if len(s.Active()) != 2 || len(s.Waiting()) != 2 || s.Waiting()[0].Peer != "192.0.2.8" || s.Waiting()[0].Port != "eth1" {
		t.Errorf("%d active, %d waiting", len(s.Active()), len(s.Waiting()))
	}
	if s = do(s, wait()); len(s.Running) != 2 {
		t.Errorf("%d running after nobody waits", len(s.Running))
	}
}

func TestNoTargetIsSaid(t *testing.T) {
	s := do(box(), ConfigLoaded{At: noon, Config: config.Default()}, Ticked{At: at(20)})
	s = press1(s, Select, Select)
	if s.Page != PageMessage || s.View.Message.Text != "Run iperf3 -s on a laptop. I am 192.0.2.1" {
		t.Errorf("page %s says %q", s.Page, s.View.Message.Text)
	}
	if s = press1(s, Back); s.Page != PageHome {
		t.Errorf("page %s after back", s.Page)
	}
}

func TestSeekingStartsWhenAServerAnswers(t *testing.T) {
	s := do(box(), ConfigLoaded{At: noon, Config: config.Default()}, finished("1", throughput.Server, false), Ticked{At: at(60)})
	s = press1(s, Select)
	if !s.Looking() {
		t.Fatal("the menu is open and a peer is known: servers are to be looked for")
	}
	found := s.Candidates()
	found[0].Answers = new(true)
	quick := press1(s, Select) // before the answer
	if !quick.View.Seeking {
		t.Fatal("select did not wait for the search")
	}
	quick = Apply(quick, TargetsSeen{At: at(61), Found: found})
	if quick.Request == nil || quick.Request.Specs[0].Host != "192.0.2.7" {
		t.Errorf("request %v, want a run to the peer that answered", quick.Request)
	}
	found = s.Candidates()
	found[0].Answers = new(false)
	none := Apply(press1(s, Select), TargetsSeen{At: at(61), Found: found})
	if none.Request != nil || none.Page != PageMessage {
		t.Errorf("page %s, request %v; want a message", none.Page, none.Request)
	}
}

// TestOneKey shows that a box with one key (short: down, long: select) can do everything.
func TestOneKey(t *testing.T) {
	s := do(box(), Ticked{At: at(20)})
	s = press1(s, Down, Select)
	if s.Request == nil {
		t.Fatal("a test cannot be started with one key")
	}
	s = do(s, started("5", throughput.Client))
	if s = press1(s, Select, Select); !s.Running[0].Cancelled {
		t.Error("a test cannot be cancelled with one key")
	}
	s = do(s, finished("5", throughput.Client, true))
	// Every page leads home by "down" or by its own entry Back.
	for _, page := range []Page{PageMenu, PageTargets, PageSettings, PageTest, PageResult, PagePorts, PageFaults} {
		p := s
		open(&p, page)
		if page == PageResult {
			p.View.Shown = "5"
		}
		for range 10 {
			if items := p.Items(); len(items) > 0 && items[p.View.Cursor].Label == "Back" {
				p = press1(p, Select)
			} else {
				p = press1(p, Down)
			}
			if p.Page == PageHome {
				break
			}
		}
		if p.Page != PageHome {
			t.Errorf("from page %s one key does not lead home", page)
		}
	}
}

func TestSettingsPage(t *testing.T) {
	keys := []config.Key{
		{Key: "ports.mtu", Value: "leave", Settable: true, Choices: []any{"leave", int64(9000)}},
		{Key: "test.directions", Value: []any{"rx", "tx"}, Settable: true, Choices: []any{[]any{"rx", "tx"}, []any{"rx"}}},
		{Key: "server.listen", Value: ":5201"},
	}
	s := do(box(), ConfigLoaded{At: noon, Config: config.Default(), Keys: keys}, Ticked{At: at(20)})
	s = press1(s, Select, Up, Up, Select)
	if s.Page != PageSettings {
		t.Fatalf("page %s, want the settings behind the menu's last entry but one", s.Page)
	}
	if items := s.Items(); len(items) != 4 || items[0].Label != "Direction" || items[0].Value != "RX,TX" || items[1].Value != "leave" {
		t.Fatalf("items %v", items)
	}
	s = press1(s, Select, Down, Select)
	if len(s.Wishes) != 2 || s.Items()[0].Value != "RX" || s.Items()[1].Value != "9000" {
		t.Errorf("wishes %v", s.Wishes)
	}
	if s = press1(s, Select); len(s.Wishes) != 2 || s.Items()[1].Value != "leave" {
		t.Errorf("wishes %v after a further press; want the last choice alone", s.Wishes)
	}
	s = Apply(s, SettingsStored{At: at(21), Keys: []string{"ports.mtu", "test.directions"}})
	if len(s.Wishes) != 0 || s.Page != PageSettings {
		t.Errorf("wishes %v, page %s after they are stored", s.Wishes, s.Page)
	}
	s = press1(s, Down, Select)
	if len(s.Wishes) != 2 || s.Wishes[0].Value != nil {
		t.Errorf("wishes %v; want a reset of every settable key", s.Wishes)
	}
	s = Apply(s, SettingsStored{At: at(22), Keys: []string{"ports.mtu", "test.directions"}, Err: "disk full"})
	if s.Page != PageMessage || len(s.Wishes) != 0 {
		t.Errorf("page %s: what could not be stored must be said", s.Page)
	}
}

func TestSleepAndWake(t *testing.T) {
	s := do(box(), Ticked{At: at(20)}, Ticked{At: at(1000)})
	if !s.View.Asleep {
		t.Fatal("the display does not sleep")
	}
	woken := press1(s, Select)
	if woken.View.Asleep || woken.Page != PageHome {
		t.Errorf("the key that wakes did more: page %s", woken.Page)
	}
	ports := append([]Port{}, s.Ports...)
	ports[1].Link = LinkUp
	if woken := Apply(s, PortsSeen{At: at(1001), Ports: ports}); woken.View.Asleep {
		t.Error("a new link did not wake the display")
	}
	if again := Apply(s, PortsSeen{At: at(1001), Ports: s.Ports}); !again.View.Asleep {
		t.Error("nothing new woke the display")
	}
	if woken := do(s, started("1", throughput.Server)); woken.View.Asleep {
		t.Error("a test did not wake the display")
	}
}

func TestConfigRejectedIsShownAndGoes(t *testing.T) {
	s := do(box(), Ticked{At: at(20)}, ConfigRejected{At: at(21), Err: "linerate.toml:3: no such key"})
	if s.ConfigState.Valid || s.Page != PageMessage || len(s.Config.Targets) != 1 {
		t.Errorf("state %+v, page %s; want the last good config and the error shown", s.ConfigState, s.Page)
	}
	s = Apply(s, ConfigLoaded{At: at(30), Config: config.Default()})
	if !s.ConfigState.Valid || s.Page != PageHome {
		t.Errorf("state %+v, page %s after a good one", s.ConfigState, s.Page)
	}
}

func TestFaultsOfTaskAndPartAreApart(t *testing.T) {
	s := do(box(),
		FaultsSeen{At: noon, Task: "netcfg", Titles: []string{"lan9: no such port"}},
		TaskDown{At: at(1), Task: "netcfg", Err: "netlink closed\nstack"},
		FaultsSeen{At: at(2), Task: "netcfg", Titles: []string{"lan9: no such port", "lan1: no permission"}},
		TaskUp{At: at(3), Task: "netcfg"})
	if len(s.Faults) != 2 || !s.Faults[0].Since.Equal(noon) {
		t.Errorf("faults %v", s.Faults)
	}
}

// TestApplyKeepsTheOldState holds that nothing of a State changes once it is published.
func TestApplyKeepsTheOldState(t *testing.T) {
	s := do(box(), Ticked{At: at(20)}, started("1", throughput.Server), started("2", throughput.Client), finished("0", throughput.Server, false),
		FaultsSeen{At: noon, Task: "a", Titles: []string{"x"}})
	before, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	points := len(s.Running[0].Points)
	for _, e := range []Event{
		PortsSeen{At: at(30), Ports: []Port{{Name: "eth7"}}},
		TestProgressed{At: at(30), ID: "1", Progress: throughput.Progress{ElapsedS: 9, RXBPS: 5}},
		CancelRequested{At: at(30), ID: "1"},
		finished("1", throughput.Server, false), finished("2", throughput.Client, true),
		FaultsSeen{At: at(30), Task: "a"}, TaskDown{At: at(30), Task: "b", Err: "y"},
		ConfigRejected{At: at(30), Err: "z"}, ConfigLoaded{At: at(30), Config: config.Default()},
		ButtonPressed{At: at(30), Key: Select}, Ticked{At: at(3000)},
	} {
		Apply(s, e)
	}
	after, _ := json.Marshal(s)
	if string(before) != string(after) || len(s.Running[0].Points) != points {
		t.Errorf("the old State changed:\n%s\n%s", before, after)
	}
}

func BenchmarkProgress(b *testing.B) {
	s := box()
	for i := range 16 {
		s = Apply(s, started(fmt.Sprint(i), throughput.Server))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s = Apply(s, TestProgressed{At: s.Now, ID: fmt.Sprint(i % 16), Progress: throughput.Progress{ElapsedS: float64(i) / 160, RXBPS: 1e9}})
	}
}

// A box that has just begun, and has no port yet to wake it, is not asleep.
func TestFirstTickLeavesTheDisplayOn(t *testing.T) {
	s := Apply(New("0.1.0", "generic", "box", config.Default()), Ticked{At: noon})
	if s.View.Asleep {
		t.Error("asleep at the first tick")
	}
	if s = Apply(s, Ticked{At: noon.Add(s.Config.Display.SleepAfter)}); !s.View.Asleep {
		t.Error("awake after sleep_after without a key")
	}
}
