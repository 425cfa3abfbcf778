package appliance

import (
	"context"
	"sync"
)

// Hub owns the present State. All its methods may be called from any goroutine.
type Hub struct {
	mu       sync.Mutex
	state    State
	watchers map[chan State]struct{}
}

// NewHub starts from the given State.
func NewHub(first State) *Hub {
	return &Hub{state: first, watchers: map[chan State]struct{}{}}
}

// Publish applies the event and returns the State it made. It never waits for a watcher.
func (h *Hub) Publish(e Event) State {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = Apply(h.state, e)
	for ch := range h.watchers {
		offer(ch, h.state)
	}
	return h.state
}

// State returns the present State.
func (h *Hub) State() State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// Watch gives the present State at once and then the newest whenever there is a new one. States that come faster than
// they are taken are skipped, never the last. The channel is closed when ctx ends.
func (h *Hub) Watch(ctx context.Context) <-chan State {
	ch := make(chan State, 1)
	h.mu.Lock()
	h.watchers[ch] = struct{}{}
	offer(ch, h.state)
	h.mu.Unlock()
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, ch)
		close(ch)
	})
	return ch
}

// offer puts s into a channel of one, in place of what still waits there. The caller holds the lock, so nobody else
// sends.
func offer(ch chan State, s State) {
	select {
	case <-ch:
	default:
	}
	ch <- s
}
