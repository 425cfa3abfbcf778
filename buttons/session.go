package buttons

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"linerate/appliance"
	"linerate/appliance/board"
)

// lookAgain is how often the box looks for keys that fsnotify has missed or that could not be opened.
const lookAgain = 10 * time.Second

// session reads the keys under one config. One goroutine, that of run, owns all of it; the readers only send.
type session struct {
	inputs  string      // the folder of the input devices
	wanted  []string    // [buttons] devices
	root    string      // for the paths among them
	profile []board.Key //
	publish func(appliance.Event)
	log     *slog.Logger

	openDevice func(path string) (*os.File, control, error)
	openLine   func(board.Line) (line, error)
	watch      func(ctx context.Context, folder string, log *slog.Logger, changed chan<- struct{})

	readers  sync.WaitGroup
	news     chan news
	switches map[switchID]*keySwitch // of everything that is open
	devices  map[string]*device      // open ones by path
	known    map[string]sight        // all that were looked at, by path
	denied   map[string]time.Time    // since when a device cannot be opened, by path
	lines    map[string]string       // open ones by source, with the title of their fault
	lives    map[string]int          // which reader of a source counts

	said   map[string][]string // what was said about each source, so that nothing is said twice
	faults map[string]string   // what is wrong with each source
	told   []string            // the faults as last published
}

// switchID names one switch: the source is the path of a device or the name of a GPIO line.
type switchID struct {
	source string
	code   uint16 // of an input device
}

// keySwitch is one switch and what it means.
type keySwitch struct {
	*Contact
	means    meaning
	debounce time.Duration
}

// news is what a reader has seen: how a key was found, an edge, or why there will be no more.
type news struct {
	switchID
	life  int // of the source: a reader that was let go meanwhile has nothing to say
	at    time.Time
	down  bool
	first bool // this is how the key was found, not an edge
	ended bool
	err   error
}

func newSession(o Options, wanted []string, publish func(appliance.Event)) *session {
	return &session{
		inputs: filepath.Join(o.Root, "dev/input"), wanted: wanted, root: o.Root,
		profile: o.Profile.Keys,
		publish: publish, log: o.Log,
		openDevice: openEvdev, openLine: openLine, watch: watchFolder,
		news: make(chan news), switches: map[switchID]*keySwitch{}, devices: map[string]*device{}, known: map[string]sight{},
		denied: map[string]time.Time{}, lines: map[string]string{}, lives: map[string]int{},
		said: map[string][]string{}, faults: map[string]string{},
	}
}

// run reads all keys until ctx ends, and then lets go of them.
func (s *session) run(ctx context.Context) {
	defer s.readers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer s.closeAll()
	defer cancel()
	changed := make(chan struct{}, 1)
	s.readers.Go(func() { s.watch(ctx, s.inputs, s.log, changed) })
	s.lookForDevices(ctx)
	s.lookForLines(ctx)
	again, due := time.NewTimer(lookAgain), time.NewTimer(0)
	defer again.Stop()
	defer due.Stop()
	for {
		if len(s.switches) == 0 {
			s.say("keys", slog.LevelInfo, "no keys: plug in a keypad, or press them with linerate press")
		}
		if s.settling() {
			again.Reset(settle)
		}
		s.publishFaults(time.Now())
		due.Reset(s.untilDue(time.Now()))
		select {
		case <-ctx.Done():
			return
		case n := <-s.news:
			s.take(n)
		case <-due.C:
			s.pass(time.Now())
		case <-changed:
			s.lookForDevices(ctx)
		case <-again.C:
			s.lookForDevices(ctx)
			s.lookForLines(ctx)
			again.Reset(lookAgain)
		}
	}
}

// send hands news to run, as long as it runs.
func (s *session) send(ctx context.Context, n news) {
	select {
	case s.news <- n:
	case <-ctx.Done():
	}
}

func (s *session) take(n news) {
	if n.life != s.lives[n.source] {
		return
	}
	if n.ended {
		if title, isLine := s.lines[n.source]; isLine {
			s.faults[n.source] = title
		}
		s.forget(n.source)
		s.say(n.source, slog.LevelInfo, fmt.Sprintf("%s: no more keys from it: %v", n.source, n.err))
		return
	}
	k := s.switches[n.switchID]
	if n.first {
		k.Contact = NewContact(k.means.short, k.means.long, k.debounce, n.at, n.down)
	} else {
		s.press(n.at, k.Edge(n.at, n.down))
	}
}

func (s *session) pass(now time.Time) {
	for _, k := range s.switches {
		s.press(now, k.Pass(now))
	}
}

func (s *session) press(at time.Time, keys []appliance.Key) {
	for _, key := range keys {
		s.publish(appliance.ButtonPressed{At: at, Key: key})
	}
}

// untilDue is the time until a key has been held long enough for something.
func (s *session) untilDue(now time.Time) time.Duration {
	wait := time.Hour
	for _, k := range s.switches {
		if at, ok := k.Next(); ok {
			wait = min(wait, at.Sub(now))
		}
	}
	return max(wait, 0)
}

// adopt makes the switches of a source before its reader starts, and returns what the reader signs its news with.
func (s *session) adopt(source string, keys map[uint16]meaning, debounce time.Duration) (life int) {
	for code, m := range keys {
		s.switches[switchID{source, code}] = &keySwitch{NewContact(m.short, m.long, debounce, time.Now(), false), m, debounce}
	}
	s.lives[source]++
	return s.lives[source]
}

// forget lets go of a source.
func (s *session) forget(source string) {
	maps.DeleteFunc(s.switches, func(id switchID, _ *keySwitch) bool { return id.source == source })
	delete(s.lines, source)
	if d := s.devices[source]; d != nil {
		d.file.Close()
		delete(s.devices, source)
	}
	s.lives[source]++
}

// closeAll lets go of everything; what is not read has no faults.
func (s *session) closeAll() {
	for path := range s.devices {
		s.forget(path)
	}
	clear(s.switches)
	clear(s.faults)
	s.publishFaults(time.Now())
}

// say logs a line about a source unless it was said before.
func (s *session) say(source string, level slog.Level, text string) {
	if !slices.Contains(s.said[source], text) {
		s.said[source] = append(s.said[source], text)
		s.log.Log(context.Background(), level, text)
	}
}

// fault says a line about a source and shows the title until the source works.
func (s *session) fault(source, title, text string) {
	s.say(source, slog.LevelWarn, text)
	s.faults[source] = title
}

// publishFaults tells of what is wrong, if that has changed.
func (s *session) publishFaults(now time.Time) {
	titles := slices.Collect(maps.Values(s.faults))
	for id, k := range s.switches {
		if k.Stuck() {
			titles = append(titles, "key "+k.means.name()+" stuck down")
			s.say("stuck "+id.source+k.means.name(), slog.LevelWarn, fmt.Sprintf("key %s of %s has been down for %v: free it",
				k.means.name(), id.source, StuckAfter))
		}
	}
	slices.Sort(titles)
	if !slices.Equal(titles, s.told) {
		s.told = titles
		s.publish(appliance.FaultsSeen{At: now, Task: taskName, Titles: titles})
	}
}

func (m meaning) name() string {
	if m.label != "" {
		return m.label
	}
	return string(m.short)
}
