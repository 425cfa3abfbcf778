package appliance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// Task is a named part that runs for long. Run returns nil when its context ends and an error when it cannot go on; it
// is then started again, so it takes its picture of the world from the Hub, not from a run before.
type Task struct {
	Name string
	Run  func(ctx context.Context, hub *Hub) error
}

// How a failed Task is started again: after 1 s, then twice as long each time, up to 30 s. One that ran for settled counts
// as mended.
const (
	firstBackOff = time.Second
	maxBackOff   = 30 * time.Second
	settled      = 10 * time.Second
)

var errEnded = errors.New("ended by itself")

// Run runs the tasks until ctx ends and all of them have returned. A Task that fails, panics or returns early becomes
// a fault in the State (TaskDown), is started again with back-off, and the fault goes (TaskUp) once it has run for a
// while. One Task never takes another down.
func Run(ctx context.Context, hub *Hub, log *slog.Logger, tasks ...Task) {
	var wg sync.WaitGroup
	for _, t := range tasks {
		wg.Go(func() { supervise(ctx, hub, log, t) })
	}
	wg.Wait()
}

func supervise(ctx context.Context, hub *Hub, log *slog.Logger, t Task) {
	backOff, last := firstBackOff, ""
	for {
		mended := time.AfterFunc(settled, func() { hub.Publish(TaskUp{At: time.Now(), Task: t.Name}) })
		started := time.Now()
		err := runOnce(ctx, hub, t)
		mended.Stop()
		if ctx.Err() != nil {
			if err != nil && !errors.Is(err, context.Canceled) {
				log.Warn("task ended with an error", "task", t.Name, "error", err)
			}
			return
		}
		if err == nil {
			err = errEnded
		}
		if time.Since(started) >= settled {
			backOff, last = firstBackOff, ""
		}
		// The same reason again and again is one line: an absent panel must not fill the log.
		if err.Error() != last {
			log.Error("task failed, starting it again", "task", t.Name, "error", err)
			last = err.Error()
		}
		hub.Publish(TaskDown{At: time.Now(), Task: t.Name, Err: err.Error()})
		select {
		case <-ctx.Done():
			return
		case <-time.After(backOff):
		}
		backOff = min(2*backOff, maxBackOff)
	}
}

// runOnce turns a panic into an error, so that a fault in one part stays there.
func runOnce(ctx context.Context, hub *Hub, t Task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return t.Run(ctx, hub)
}

// Follow returns a Task that runs what start makes for the value that pick sees in the State, and in its place another when
// that value changes. The one before has ended by then.
func Follow[T comparable](name string, pick func(State) T, start func(T) func(context.Context, *Hub) error) Task {
	return Task{Name: name, Run: func(ctx context.Context, hub *Hub) error {
		states := hub.Watch(ctx)
		state, open := <-states
		for open {
			value := pick(state)
			inner, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- runOnce(inner, hub, Task{Name: name, Run: start(value)}) }()
			for open && pick(state) == value {
				select {
				case state, open = <-states:
				case err := <-ended:
					stop()
					if err == nil && ctx.Err() == nil {
						err = errEnded
					}
					return err
				}
			}
			stop()
			if err := <-ended; err != nil {
				return err
			}
		}
		return nil
	}}
}
