package display

import (
	"bytes"
	"context"
	"errors"
	"image"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"linerate/appliance"
	"linerate/appliance/throughput"
)

// glass is a panel that remembers what it was told, and can break.
type glass struct {
	mu sync.Mutex
	told
}

// told is what a panel was told.
type told struct {
	drawn  []image.Image
	at     []time.Time
	on     bool
	closed bool
	events []string // power and pictures in their order
	fail   error
	slow   time.Duration
}

// look waits until everything is at rest and returns what the panel was told until then.
func (g *glass) look() told {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.told
}

func (g *glass) set(fail error, slow time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail, g.slow = fail, slow
}

func (g *glass) Draw(p image.Image) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	time.Sleep(g.slow)
	if g.fail != nil {
		return g.fail
	}
	g.drawn, g.at = append(g.drawn, p), append(g.at, time.Now())
	g.events = append(g.events, "picture")
	return nil
}

func (g *glass) SetPower(on bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on = on
	g.events = append(g.events, map[bool]string{true: "on", false: "off"}[on])
	return g.fail
}

func (g *glass) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	return nil
}

// show runs the Task on a Hub until stop is called.
func show(
	t *testing.T, s appliance.State, open func() (Panel, error), log *slog.Logger,
) (hub *appliance.Hub, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	hub = appliance.NewHub(s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		appliance.Run(ctx, hub, slog.New(slog.DiscardHandler), Task(open, Mono, Options{Log: log}))
	}()
	synctest.Wait()
	return hub, func() {
		cancel()
		<-done
	}
}

func opens(g *glass) func() (Panel, error) {
	g.on = true
	return func() (Panel, error) { return g, nil }
}

// now brings a State to the time of the bubble, where time.Now is another.
func now(s appliance.State) appliance.State {
	s.Now, s.View.Opened, s.View.Input, s.Started = time.Now(), time.Now(), time.Now(), time.Now()
	return s
}

func warm(celsius float64) appliance.Event {
	return appliance.HealthSeen{At: time.Now(), Health: appliance.Health{TemperatureC: &celsius}}
}

func TestDrawsOnlyWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &glass{}
		hub, stop := show(t, now(press(box(), appliance.Back)), opens(g), nil)
		defer stop()
		if n := len(g.look().drawn); n != 1 {
			t.Fatalf("%d pictures at the start, want one", n)
		}
		for range 1200 { // ten minutes of the same measurements
			time.Sleep(time.Second / 2)
			hub.Publish(appliance.HealthSeen{At: time.Now(), Health: hub.State().Health})
		}
		if n := len(g.look().drawn); n != 1 {
			t.Errorf("%d pictures, and nothing had changed", n)
		}
		hub.Publish(warm(50))
		if n := len(g.look().drawn); n != 2 {
			t.Errorf("%d pictures after a change, want another one", n)
		}
	})
}

func TestAtMostFiveTimesASecondWhileATestRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &glass{}
		hub, stop := show(t, now(box()), opens(g), nil)
		defer stop()
		hub.Publish(appliance.TestStarted{At: time.Now(), Test: client("7", "192.168.1.50", throughput.RX)})
		for i := range 1000 { // a hundred a second for ten seconds, each another number
			time.Sleep(10 * time.Millisecond)
			hub.Publish(appliance.TestProgressed{At: time.Now(), ID: "7",
				Progress: throughput.Progress{ElapsedS: float64(i) / 100, RXBPS: 1e9 + 1e7*float64(i)}})
		}
		time.Sleep(time.Second)
		got := g.look()
		for i, at := range got.at {
			if len(got.at) > i+5 && got.at[i+5].Sub(at) < time.Second {
				t.Fatalf("six pictures in %v", got.at[i+5].Sub(at))
			}
		}
		if len(got.at) < 45 {
			t.Errorf("%d pictures in ten seconds: the display does not follow", len(got.at))
		}
		if !same(got.drawn[len(got.drawn)-1], Page(hub.State(), Mono)) {
			t.Error("the last picture is not that of the last State")
		}
	})
}

// What comes while a picture has to wait is in it.
func TestWaitingPictureIsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &glass{}
		hub, stop := show(t, run(now(box()), client("7", "192.168.1.50", throughput.RX), 1e9, 1), opens(g), nil)
		defer stop()
		n := len(g.look().drawn)
		for i, after := range []time.Duration{10, 100, 80} {
			time.Sleep(after * time.Millisecond)
			synctest.Wait()
			hub.Publish(appliance.TestProgressed{At: time.Now(), ID: "7",
				Progress: throughput.Progress{ElapsedS: 2, RXBPS: 1.5e9 + 1e8*float64(i)}})
		}
		time.Sleep(20 * time.Millisecond)
		if got := g.look(); len(got.drawn) != n+1 || !same(got.drawn[n], Page(hub.State(), Mono)) {
			t.Errorf("%d pictures after 200 ms, want the newest alone", len(got.drawn)-n)
		}
	})
}

func TestKeyIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &glass{}
		hub, stop := show(t, now(box()), opens(g), nil)
		defer stop()
		time.Sleep(time.Second)
		for _, k := range []appliance.Key{appliance.Select, appliance.Down, appliance.Down, appliance.Back} {
			n, pressed := len(g.look().drawn), time.Now()
			hub.Publish(appliance.ButtonPressed{At: time.Now(), Key: k})
			time.Sleep(50 * time.Millisecond)
			if got := g.look(); len(got.drawn) != n+1 || got.at[n].Sub(pressed) > 20*time.Millisecond {
				t.Errorf("%s: %d pictures", k, len(got.drawn)-n)
			}
		}
		// A panel on a slow bus skips pictures, and keeps nobody waiting.
		g.set(nil, 100*time.Millisecond)
		n, pressed := len(g.look().drawn), time.Now()
		for range 50 {
			hub.Publish(appliance.ButtonPressed{At: time.Now(), Key: appliance.Down})
		}
		if time.Since(pressed) != 0 {
			t.Error("the keys waited for the panel")
		}
		time.Sleep(time.Second)
		if got := g.look(); len(got.drawn) > n+3 || !same(got.drawn[len(got.drawn)-1], Page(hub.State(), Mono)) {
			t.Errorf("%d pictures for 50 keys, or the last one is not the last", len(got.drawn)-n)
		}
	})
}

func TestPanelSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &glass{}
		hub, stop := show(t, now(press(box(), appliance.Back)), opens(g), nil)
		tick := func() { hub.Publish(appliance.Ticked{At: time.Now(), Uptime: time.Hour, Synced: true}) }
		time.Sleep(9 * time.Minute)
		tick()
		if !g.look().on {
			t.Fatal("off too early")
		}
		time.Sleep(2 * time.Minute)
		tick()
		got := g.look()
		if got.on {
			t.Fatal("still on after sleep_after")
		}
		if n, _ := differs(got.drawn[len(got.drawn)-1], newCanvas(Mono, true).picture()); n != 0 {
			t.Error("asleep, and not black: it would flash up when it wakes")
		}
		asleep := len(got.events)
		for range 100 {
			time.Sleep(time.Second)
			tick()
		}
		if got := g.look(); len(got.events) != asleep {
			t.Errorf("told %v while asleep", got.events[asleep:])
		}
		hub.Publish(appliance.ButtonPressed{At: time.Now(), Key: appliance.Down})
		got = g.look()
		if !slices.Equal(got.events[asleep:], []string{"picture", "on"}) {
			t.Errorf("woken by %v, want the new picture first", got.events[asleep:])
		}
		if !same(got.drawn[len(got.drawn)-1], Page(hub.State(), Mono)) {
			t.Error("awake, and another picture")
		}
		stop()
		if got := g.look(); got.on || !got.closed {
			t.Error("the end leaves the panel shining or open")
		}
	})
}

func TestPanelThatFailsIsDrawnAnewInFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &glass{}, &glass{}
		next := make(chan *glass, 2)
		next <- first
		next <- second
		hub, stop := show(t, now(press(box(), appliance.Back)), func() (Panel, error) { return <-next, nil }, nil)
		defer stop()
		first.set(errors.New("remote I/O error"), 0)
		hub.Publish(warm(50))
		time.Sleep(20 * time.Millisecond)
		if !first.look().closed {
			t.Fatal("a panel that failed stays open")
		}
		faults := hub.State().Faults
		if len(faults) != 1 || faults[0].Task != "display" || !strings.Contains(faults[0].Title, "remote I/O error") {
			t.Errorf("faults %+v", faults)
		}
		time.Sleep(2 * time.Second) // the supervisor's back-off; nothing changes meanwhile
		if got := second.look(); len(got.drawn) != 1 || !same(got.drawn[0], Page(hub.State(), Mono)) {
			t.Fatalf("%d pictures on the panel opened anew, want the whole one", len(got.drawn))
		}
		time.Sleep(15 * time.Second)
		if faults := hub.State().Faults; len(faults) != 0 {
			t.Errorf("mended, and still %+v", faults)
		}
	})
}

func TestMissingPanelIsTriedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		g := &glass{}
		var there atomic.Bool
		tries := make(chan time.Time, 10000)
		open := func() (Panel, error) {
			tries <- time.Now()
			if !there.Load() {
				return nil, errors.New("open /dev/i2c-1: no such file or directory")
			}
			return g, nil
		}
		hub, stop := show(t, now(box()), open, slog.New(slog.NewTextHandler(&lines, nil)))
		time.Sleep(time.Hour)
		synctest.Wait()
		last := <-tries
		for range len(tries) {
			at := <-tries
			if gap := at.Sub(last); gap > 5*time.Second || gap < time.Second {
				t.Fatalf("tried again after %v", gap)
			}
			last = at
		}
		if time.Since(last) > 5*time.Second {
			t.Error("it has given up")
		}
		if faults := hub.State().Faults; len(faults) != 1 || !strings.Contains(faults[0].Title, "/dev/i2c-1") {
			t.Errorf("faults %+v", faults)
		}
		there.Store(true)
		time.Sleep(5 * time.Second)
		if len(g.look().drawn) == 0 {
			t.Error("plugged in, and not drawn on within 5 s")
		}
		if faults := hub.State().Faults; len(faults) != 0 {
			t.Errorf("plugged in, and still %+v", faults)
		}
		stop()
		if n := strings.Count(lines.String(), "no panel"); n != 1 {
			t.Errorf("%d lines in the log for an hour, want one:\n%s", n, lines.String())
		}
	})
}

// A panel that stays away through restarts of the Task is one line for each new reason.
func TestLogOfAPanelThatStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		l := &loop{opts: Options{Name: "display", Log: slog.New(slog.NewTextHandler(&lines, nil))}}
		hub := appliance.NewHub(box())
		for _, text := range []string{"absent", "absent", "no permission", "absent"} {
			l.open = func() (Panel, error) { return nil, errors.New(text) }
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if err := l.run(ctx, hub); err != nil {
				t.Error(err)
			}
			cancel()
		}
		if n := strings.Count(lines.String(), "\n"); n != 3 {
			t.Errorf("%d lines, want one for each new reason:\n%s", n, lines.String())
		}
	})
}

// wide is a panel that knows its size.
type wide struct{ glass }

func (*wide) Size() image.Point { return image.Pt(96, 16) }

func TestPanelKnowsItsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wide{}
		_, stop := show(t, now(box()), func() (Panel, error) { return w, nil }, nil)
		defer stop()
		if got := w.look().drawn[0].Bounds().Size(); got != w.Size() {
			t.Errorf("drawn %v on a panel of %v", got, w.Size())
		}
	})
}

func TestRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &glass{}
		s := now(press(measured(), appliance.Back))
		hub, stop := show(t, s, opens(g), nil)
		defer stop()
		cfg := s.Config
		cfg.Display.Rotate = 180
		hub.Publish(appliance.ConfigLoaded{At: time.Now(), Config: cfg})
		time.Sleep(time.Second)
		got := g.look()
		if len(got.drawn) != 2 {
			t.Fatalf("%d pictures", len(got.drawn))
		}
		upsideDown(t, got.drawn[1], got.drawn[0])
	})
	for _, size := range []image.Point{Mono, Colour, {128, 32}, {72, 40}, {100, 61}, {9, 3}, {240, 241}} {
		p := Page(measured(), size)
		rotate(p)
		upsideDown(t, p, Page(measured(), size))
		rotate(p)
		if !same(p, Page(measured(), size)) {
			t.Errorf("%v: twice around is another picture", size)
		}
	}
}

func upsideDown(t *testing.T, got, want image.Image) {
	t.Helper()
	r := want.Bounds()
	for y := range r.Dy() {
		for x := range r.Dx() {
			if got.At(x, y) != want.At(r.Dx()-1-x, r.Dy()-1-y) {
				t.Fatalf("%v: pixel %d,%d is not the opposite one", r.Max, x, y)
			}
		}
	}
}

// The first frame of a box, as a check from outside sees it.
func TestFirstFrameInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "screen.png")
	synctest.Test(t, func(t *testing.T) {
		s := now(box())
		_, stop := show(t, s, func() (Panel, error) { return NewFile(path), nil }, nil)
		stop()
		got, err := readPNG(path)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := differs(got, Page(s, Mono)); n != 0 {
			t.Errorf("%d pixels differ", n)
		}
	})
}

func TestSameTellsKindsApart(t *testing.T) {
	mono, colour := Page(box(), Mono), Page(box(), Colour)
	if same(mono, colour) || same(colour, mono) || same(image.Black, image.Black) || !same(colour, Page(box(), Colour)) {
		t.Error("pictures of different kinds are the same, or equal ones are not")
	}
}

// A panel that need not be there is no fault while it is absent; anything else that is wrong with it is.
func TestAbsentPanelThatNeedNotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		absent := errors.New("nothing answers")
		var now atomic.Value
		now.Store(absent)
		hub := appliance.NewHub(box())
		ctx, cancel := context.WithCancel(t.Context())
		task := Task(func() (Panel, error) { return nil, now.Load().(error) }, Mono,
			Options{Absent: func(err error) bool { return errors.Is(err, absent) }})
		done := make(chan error, 1)
		go func() { done <- task.Run(ctx, hub) }()
		time.Sleep(time.Minute)
		if faults := hub.State().Faults; len(faults) != 0 {
			t.Errorf("absent: faults %+v", faults)
		}
		now.Store(errors.New("no driver"))
		time.Sleep(time.Minute)
		if faults := hub.State().Faults; len(faults) != 1 {
			t.Errorf("no driver: faults %+v, want one", faults)
		}
		cancel()
		<-done
	})
}
