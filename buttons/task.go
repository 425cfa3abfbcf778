package buttons

import (
	"context"
	"log/slog"
	"strings"

	"linerate/appliance"
	"linerate/appliance/board"
)

// Options say which keys there are.
type Options struct {
	Root    string        // below it are dev/input and the paths of [buttons] devices; "" is /
	Profile board.Profile // its Keys are read
	Log     *slog.Logger  // nil: nothing is said
}

const taskName = "buttons"

// Task reads the keys and publishes each press as appliance.ButtonPressed, and what is wrong with them as
// appliance.FaultsSeen. It follows [buttons] of the config in the State. Its name is "buttons".
func Task(o Options) appliance.Task {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	type choice struct {
		enable  bool
		devices string // with NUL between them, which is in no name
	}
	pick := func(s appliance.State) choice {
		return choice{s.Config.Buttons.Enable, strings.Join(s.Config.Buttons.Devices, "\x00")}
	}
	return appliance.Follow(taskName, pick, func(c choice) func(context.Context, *appliance.Hub) error {
		return func(ctx context.Context, hub *appliance.Hub) error {
			if !c.enable {
				o.Log.Info("keys are off: [buttons] enable = false")
				<-ctx.Done()
				return nil
			}
			publish := func(e appliance.Event) { hub.Publish(e) }
			newSession(o, strings.Split(c.devices, "\x00"), publish).run(ctx)
			return nil
		}
	})
}
