package buttons

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"periph.io/x/conn/v3/gpio"
	"periph.io/x/conn/v3/gpio/gpiotest"

	"linerate/appliance"
	"linerate/appliance/board"
)

// header is a board whose lines are gpiotest pins.
type header struct {
	mu     sync.Mutex
	pins   map[int]*pin
	absent map[int]error // lines that cannot be opened
	opened []string
}

type pin struct {
	gpiotest.Pin
	closed bool
	broken bool // its waiting does not wait, as a line whose chip is gone
}

func (p *pin) Close() { p.closed = true }

func (p *pin) WaitForEdge(timeout time.Duration) bool {
	if timeout <= 0 {
		panic(fmt.Sprintf("WaitForEdge(%v): gpioioctl returns at once for a negative time and never for 0", timeout))
	}
	p.Lock()
	broken := p.broken
	p.Unlock()
	return !broken && p.Pin.WaitForEdge(timeout)
}

// In keeps the level, which gpiotest would set to what the pull makes of an open line: a key may be down.
func (p *pin) In(pull gpio.Pull, edge gpio.Edge) error {
	level := p.Read()
	err := p.Pin.In(pull, edge)
	return errors.Join(err, p.Out(level))
}

func newHeader(levels map[int]gpio.Level) *header {
	h := &header{pins: map[int]*pin{}, absent: map[int]error{}}
	for n, level := range levels {
		p := &pin{}
		p.N, p.Num, p.L, p.EdgesChan = fmt.Sprintf("line %d", n), n, level, make(chan gpio.Level)
		h.pins[n] = p
	}
	return h
}

func (h *header) open(l board.Line) (line, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.absent[l.Offset]; err != nil {
		return nil, err
	}
	h.opened = append(h.opened, fmt.Sprint(l.Offset))
	return h.pins[l.Offset], nil
}

// use makes a session read these lines. It runs in a bubble, so no folder is watched: the kernel knows no false time.
func (h *header) use(s *session) {
	s.openLine = h.open
	s.watch = func(context.Context, string, *slog.Logger, chan<- struct{}) {}
}

// waveshare is a 40-pin HAT: active low with pull-up; nanohat is active high.
func waveshare(offset int, short, long string) board.Key {
	return board.Key{Short: short, Long: long, Line: &board.Line{Chips: []string{"pinctrl-bcm2711"}, Offset: offset},
		Active: board.Low, Pull: board.PullUp, Debounce: 10 * time.Millisecond}
}

func nanohat(label string, offset int, short, long string) board.Key {
	return board.Key{Label: label, Short: short, Long: long,
		Line:   &board.Line{Chips: []string{"1c20800.pinctrl"}, Offset: offset},
		Active: board.High, Pull: board.PullNone, Debounce: 10 * time.Millisecond}
}

func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeader(map[int]gpio.Level{6: gpio.High, 19: gpio.High, 0: gpio.Low, 3: gpio.High})
		b := startBox(t, Options{Root: t.TempDir(), Profile: board.Profile{Keys: []board.Key{
			waveshare(6, "up", ""), waveshare(19, "down", "select"),
			nanohat("K1", 0, "back", "k1"), nanohat("K3", 3, "k3", ""),
		}}}, h.use)
		synctest.Wait()
		if p := h.pins[6]; p.Pull() != gpio.PullUp {
			t.Errorf("pull of line 6: %v", p.Pull())
		}
		if p := h.pins[0]; p.Pull() != gpio.PullNoChange {
			t.Errorf("pull of line 0: %v", p.Pull())
		}
		set := func(n int, level gpio.Level, hold time.Duration) {
			h.pins[n].EdgesChan <- level
			synctest.Wait()
			time.Sleep(hold)
			synctest.Wait()
		}
		set(6, gpio.Low, 2*time.Millisecond) // bounces
		set(6, gpio.High, 3*time.Millisecond)
		if got := b.pressed(); len(got) > 0 {
			t.Errorf("a bounce pressed %v", got)
		}
		set(6, gpio.Low, 20*time.Millisecond)
		set(6, gpio.High, 20*time.Millisecond)
		set(19, gpio.Low, 200*time.Millisecond)
		set(19, gpio.High, 20*time.Millisecond)
		set(19, gpio.Low, 1510*time.Millisecond) // long, before it is let go
		set(0, gpio.High, 100*time.Millisecond)
		set(0, gpio.Low, 20*time.Millisecond)
		set(0, gpio.High, 1600*time.Millisecond)
		want := []appliance.Key{appliance.Up, appliance.Down, appliance.Select, appliance.Back, appliance.K1}
		if got := b.pressed(); !slices.Equal(got, want) {
			t.Errorf("pressed %v, want %v", got, want)
		}
		if got := b.wrong(); len(got) > 0 {
			t.Errorf("faults %q", got)
		}

		// Lines 19, 0 and 3 are held on and on.
		time.Sleep(StuckAfter)
		synctest.Wait()
		stuck := []string{"key K1 stuck down", "key K3 stuck down", "key down stuck down"}
		if got := b.wrong(); !slices.Equal(got, stuck) {
			t.Errorf("faults %q, want %q", got, stuck)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := b.lines("has been down for"); n != 3 {
			t.Errorf("%d lines about three stuck keys", n)
		}
		set(3, gpio.Low, 20*time.Millisecond)
		set(0, gpio.Low, 20*time.Millisecond)
		set(19, gpio.High, 20*time.Millisecond)
		if got := b.wrong(); len(got) > 0 {
			t.Errorf("faults %q after all were let go", got)
		}
		if got := b.pressed(); !slices.Equal(got, want) {
			t.Errorf("pressed %v, want %v", got, want)
		}
		b.stop()
		for n, p := range h.pins {
			if !p.closed {
				t.Errorf("line %d was not released", n)
			}
		}
	})
}

func TestLineTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeader(map[int]gpio.Level{6: gpio.High, 19: gpio.High, 5: gpio.High})
		gone := errors.New("no GPIO chip pinctrl-bcm2711 among gpio0, gpio1")
		h.absent[6], h.absent[19] = gone, gone
		h.pins[5].EdgesChan = nil // a line that can do no edges
		b := startBox(t, Options{Root: t.TempDir(), Profile: board.Profile{Keys: []board.Key{
			waveshare(6, "up", ""), waveshare(19, "down", ""), waveshare(5, "left", ""),
		}}}, h.use)
		synctest.Wait()
		if got, want := b.wrong(), []string{"no key left", "no key up down"}; !slices.Equal(got, want) {
			t.Errorf("faults %q, want %q", got, want)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := b.lines("no GPIO chip"); n != 1 {
			t.Errorf("%d lines about one chip", n)
		}
		if !b.logged("no keys:") {
			t.Error("does not say that there are no keys")
		}
		h.mu.Lock()
		clear(h.absent)
		h.mu.Unlock()
		h.pins[5].Lock()
		h.pins[5].EdgesChan = make(chan gpio.Level)
		h.pins[5].Unlock()
		time.Sleep(lookAgain)
		synctest.Wait()
		if got := b.wrong(); len(got) > 0 {
			t.Errorf("faults %q after the chip came", got)
		}
		h.pins[19].EdgesChan <- gpio.Low
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if got := b.pressed(); !slices.Equal(got, []appliance.Key{appliance.Down}) {
			t.Errorf("pressed %v", got)
		}

		// The chip goes: waiting returns at once. That must be no busy loop, neither here nor on the box.
		began := time.Now()
		for _, p := range h.pins {
			p.Lock()
			p.broken = true
			p.Unlock()
		}
		h.pins[6].EdgesChan <- gpio.High // ends the wait that runs
		synctest.Wait()
		if !b.logged("no more keys from it") || time.Since(began) > 0 {
			t.Error("a line that does not wait was not given up at once")
		}
		h.mu.Lock()
		opened := len(h.opened)
		h.mu.Unlock()
		time.Sleep(10*lookAgain + time.Second)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.opened) - opened; n > 3*11 {
			t.Errorf("opened %d times in ten looks: %s", n, strings.Join(h.opened, " "))
		}
		if n := b.lines("no more keys from it"); n != 3 {
			t.Errorf("said %d times that three lines are gone", n)
		}
		if got, want := b.wrong(), []string{"no key down", "no key left", "no key up"}; !slices.Equal(got, want) {
			t.Errorf("faults %q, want %q", got, want)
		}
	})
}

// A line named in the profile is read only where [buttons] devices says auto.
func TestLinesWithoutAuto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeader(map[int]gpio.Level{6: gpio.High})
		profile := board.Profile{Keys: []board.Key{waveshare(6, "up", "")}}
		b := startBox(t, Options{Root: t.TempDir(), Profile: profile}, func(s *session) {
			h.use(s)
			s.wanted = []string{"Pad"}
		})
		synctest.Wait()
		if len(h.opened) > 0 {
			t.Errorf("opened %v", h.opened)
		}
		b.stop()
	})
}

// On a machine without the chip the error names it; none of this needs GPIO hardware.
func TestOpenLine(t *testing.T) {
	_, err := openLine(board.Line{Chips: []string{"no-such-chip", "nor-this"}, Offset: 3})
	if err == nil || !strings.Contains(err.Error(), "no-such-chip or nor-this") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}
