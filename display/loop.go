package display

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"log/slog"
	"math/bits"
	"slices"
	"time"

	"periph.io/x/devices/v3/ssd1306/image1bit"

	"linerate/appliance"
)

// Panel is what pictures are drawn on. It is used by one goroutine at a time. One that also has a method
// Size() image.Point is drawn on at its own size.
type Panel interface {
	// Draw shows the picture, or keeps it until the power is on again.
	Draw(image.Image) error
	// SetPower(false) turns the light off, SetPower(true) on again with the last picture.
	SetPower(on bool) error
	// Close lets go of the panel.
	Close() error
}

// Options of a Task.
type Options struct {
	Name string       // of the Task; "": display
	Log  *slog.Logger // nil: discard
	// Absent says whether an error means that there is no panel where there need be none: it is said in the log alone.
	// nil: every error is a fault.
	Absent func(error) bool
}

const (
	busyEvery = 200 * time.Millisecond // at most so often while a test runs: the cores have better things to do
	idleEvery = 20 * time.Millisecond  // else: at once, for what a finger can feel

	firstTry = time.Second
	lastTry  = 3 * time.Second
)

// Task draws the State on the panel that open gives, at the size given in pixels, for as long as it runs. It draws only
// what differs from what is shown, at most five times a second while a test runs, and upside down where the config says
// so. While the State is asleep, and at the end, the panel is off: a picture that nobody keeps true is worse than none.
//
// A panel that cannot be opened is tried again, every three seconds at last, for ever; that is a fault in the State and
// one line in the log for each new reason. A panel that fails is closed, and Run returns the error: the supervisor
// starts it again with a panel opened anew, since a driver may take a frame for shown that never arrived.
func Task(open func() (Panel, error), size image.Point, opts Options) appliance.Task {
	if opts.Name == "" {
		opts.Name = "display"
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	l := &loop{open: open, size: size, opts: opts}
	return appliance.Task{Name: opts.Name, Run: l.run}
}

type loop struct {
	open func() (Panel, error)
	size image.Point
	opts Options

	missing string // why there was no panel the last time, so that it is said once
}

func (l *loop) run(ctx context.Context, hub *appliance.Hub) (err error) {
	p := l.obtain(ctx, hub)
	if p == nil {
		return nil
	}
	defer func() {
		if err == nil {
			_ = p.SetPower(false) // nobody is left who could do something about an error
		}
		_ = p.Close()
	}()
	size := l.size
	if sized, ok := p.(interface{ Size() image.Point }); ok {
		size = sized.Size()
	}
	states := hub.Watch(ctx)
	var shown image.Image // nil: unknown
	var drawn time.Time
	on := true
	for s := range states {
		every := idleEvery
		if len(s.Running) > 0 {
			every = busyEvery
		}
		if wait := every - time.Since(drawn); wait > 0 {
			if !sleep(ctx, wait) {
				return nil
			}
			s = newest(states, s)
		}
		picture := Page(s, size)
		if s.Config.Display.Rotate == 180 {
			rotate(picture)
		}
		if shown == nil || !same(shown, picture) {
			if err := p.Draw(picture); err != nil {
				return fmt.Errorf("draw on panel: %w", err)
			}
			shown, drawn = picture, time.Now()
		}
		// After the picture, which is black where the State is asleep: so an old one never flashes up, and a panel
		// without a switch is dark as well.
		if on == s.View.Asleep {
			on = !s.View.Asleep
			if err := p.SetPower(on); err != nil {
				return fmt.Errorf("switch panel: %w", err)
			}
		}
	}
	return nil
}

// obtain opens the panel, however long that takes; nil when the context ended first.
func (l *loop) obtain(ctx context.Context, hub *appliance.Hub) Panel {
	for wait := firstTry; ctx.Err() == nil; wait = min(2*wait, lastTry) {
		p, err := l.open()
		if err == nil {
			if l.missing != "" {
				l.opts.Log.Info("panel is back", "task", l.opts.Name)
				l.missing = ""
			}
			hub.Publish(appliance.FaultsSeen{At: time.Now(), Task: l.opts.Name})
			return p
		}
		if text := err.Error(); text != l.missing {
			l.opts.Log.Warn("no panel, trying again", "task", l.opts.Name, "error", err)
			l.missing = text
			titles := []string{text}
			if l.opts.Absent != nil && l.opts.Absent(err) {
				titles = nil
			}
			hub.Publish(appliance.FaultsSeen{At: time.Now(), Task: l.opts.Name, Titles: titles})
		}
		if !sleep(ctx, wait) {
			break
		}
	}
	return nil
}

// sleep returns false when the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// newest takes the State that has come meanwhile, if any.
func newest(states <-chan appliance.State, s appliance.State) appliance.State {
	select {
	case later, ok := <-states:
		if ok {
			return later
		}
	default:
	}
	return s
}

// same compares two pictures that Page made.
func same(a, b image.Image) bool {
	switch a := a.(type) {
	case *image1bit.VerticalLSB:
		b, ok := b.(*image1bit.VerticalLSB)
		return ok && a.Rect == b.Rect && bytes.Equal(a.Pix, b.Pix)
	case *image.Paletted:
		b, ok := b.(*image.Paletted)
		return ok && a.Rect == b.Rect && bytes.Equal(a.Pix, b.Pix)
	}
	return false
}

// rotate turns a picture that Page made by 180 degrees, in place.
func rotate(picture image.Image) {
	switch p := picture.(type) {
	case *image.Paletted:
		slices.Reverse(p.Pix)
	case *image1bit.VerticalLSB:
		slices.Reverse(p.Pix)
		for i, b := range p.Pix {
			p.Pix[i] = bits.Reverse8(b)
		}
		// Rows that fill no whole band would now stand below the edge.
		if spare := -p.Rect.Dy() & 7; spare > 0 {
			for i, b := range p.Pix {
				b >>= spare
				if below := i + p.Stride; below < len(p.Pix) {
					b |= p.Pix[below] << (8 - spare)
				}
				p.Pix[i] = b
			}
		}
	}
}
