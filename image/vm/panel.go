package vm

import (
	"context"
	"fmt"
	"image"
	"slices"
	"sync"
	"time"

	"linerate/display/panel/paneltest"
)

// Panel is the display on the virtual box's I2C bus.
type Panel struct {
	*paneltest.SSD1306
	mu      sync.Mutex
	changed chan struct{} // closed at the next message
	watches []*watch
	last    []byte
	history []Shown
}

// Shown is a picture that stood on the panel.
type Shown struct {
	At      time.Time
	Picture *image.Gray
}

type watch struct {
	match func(*image.Gray) bool
	found chan time.Time
}

// maxHistory bounds the pictures kept: an hour of a page that changes once a second.
const maxHistory = 3600

func newPanel() *Panel {
	return &Panel{SSD1306: paneltest.NewSSD1306(128, 64), changed: make(chan struct{})}
}

// took is called after each message: it shows the picture to those who wait for one, so that none is missed however short
// it stood.
func (p *Panel) took() {
	now := time.Now()
	picture := p.Picture()
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Equal(picture.Pix, p.last) {
		return
	}
	p.last = picture.Pix
	if len(p.history) < maxHistory && slices.Max(picture.Pix) > 0 {
		p.history = append(p.history, Shown{now, picture})
	}
	close(p.changed)
	p.changed = make(chan struct{})
	p.watches = slices.DeleteFunc(p.watches, func(w *watch) bool {
		if !w.match(picture) {
			return false
		}
		w.found <- now
		return true
	})
}

// Changed is closed when the picture is another than now.
func (p *Panel) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// History are the lit pictures so far, partly drawn ones too.
func (p *Panel) History() []Shown {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.history)
}

// Watch waits for a picture, from now on, and says when it stood there: call it before what makes the picture.
func (p *Panel) Watch(match func(*image.Gray) bool) func(context.Context) (time.Time, error) {
	w := &watch{match: match, found: make(chan time.Time, 1)}
	p.mu.Lock()
	if p.last != nil && match(p.Picture()) {
		w.found <- time.Now()
	} else {
		p.watches = append(p.watches, w)
	}
	p.mu.Unlock()
	return func(ctx context.Context) (time.Time, error) {
		select {
		case at := <-w.found:
			return at, nil
		case <-ctx.Done():
			p.mu.Lock()
			defer p.mu.Unlock()
			p.watches = slices.DeleteFunc(p.watches, func(o *watch) bool { return o == w })
			return time.Time{}, fmt.Errorf("the panel never showed it: %w", context.Cause(ctx))
		}
	}
}
