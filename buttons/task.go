package buttons

import (
	"context"
	"log/slog"
	"reflect"

	"linerate/appliance"
	"linerate/appliance/board"
)

// Options say which keys there are.
type Options struct {
	Root    string        // below it are dev/input and the paths of [buttons] devices; "" is /
	Profile board.Profile // its Keys are read
	Log     *slog.Logger  // nil: nothing is said
}

// Task reads the keys and publishes each press as appliance.ButtonPressed, and what is wrong with them as
// appliance.FaultsSeen. It follows [buttons] of the config in the State. Its name is "buttons".
func Task(o Options) appliance.Task {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return appliance.Task{Name: taskName, Run: func(ctx context.Context, hub *appliance.Hub) error {
		states := hub.Watch(ctx)
		state, open := <-states
		for open {
			cfg := state.Config.Buttons
			running, stop := context.WithCancel(ctx)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if !cfg.Enable {
					o.Log.Info("keys are off: [buttons] enable = false")
					return
				}
				newSession(o, cfg.Devices, func(e appliance.Event) { hub.Publish(e) }).run(running)
			}()
			for open && reflect.DeepEqual(state.Config.Buttons, cfg) {
				state, open = <-states
			}
			stop()
			<-done
		}
		return nil
	}}
}

const taskName = "buttons"
