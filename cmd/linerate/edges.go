package main

import (
	"context"
	"errors"
	"fmt"
	"image"
	"os"
	"slices"
	"time"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/appliance/config"
	"linerate/appliance/cpu"
	"linerate/buttons"
	"linerate/display"
	"linerate/display/panel"
	"linerate/netcfg"
)

// smallPanel is the size of the picture where no panel says another.
var smallPanel = image.Pt(128, 64)

// edges are the parts that touch the real box.
func (b *box) edges() []appliance.Task {
	return []appliance.Task{
		{Name: "config", Run: b.followConfig},
		{Name: "settings", Run: b.storeSettings},
		cpu.Watch(b.env.root),
		netcfg.Watch(b.wantedPorts, b.log),
		netcfg.Follow(b.env.runDir, b.log),
		appliance.Follow("buttons", boardName, func(name string) func(context.Context, *appliance.Hub) error {
			return buttons.Task(buttons.Options{Root: b.env.root, Profile: b.boardOf(name).profile, Log: b.log}).Run
		}),
		b.drive(),
	}
}

// boardName is what the config calls the board.
func boardName(s appliance.State) string { return s.Config.Board.Profile }

// detected is a board, and what is wrong with its files.
type detected struct {
	profile board.Profile
	errs    []error
}

// boardOf is the board by the name that the config gives it. It is looked at once: boards do not change while they run.
func (b *box) boardOf(name string) detected {
	if d, ok := b.boards.Load(name); ok {
		return d.(detected)
	}
	profile, errs := board.Detect(b.env.root, name)
	b.boards.Store(name, detected{profile, errs})
	return detected{profile, errs}
}

// drive is the display's Task: the panel that the config or the board's profile names.
func (b *box) drive() appliance.Task {
	type choice struct{ board, panel string }
	chosen := func(s appliance.State) choice { return choice{boardName(s), s.Config.Display.Panel} }
	return appliance.Follow("display", chosen, func(c choice) func(context.Context, *appliance.Hub) error {
		size, opts := smallPanel, display.Options{Log: b.log}
		open := func() (display.Panel, error) { return display.OpenTerminal(os.Stdout, "") }
		if c.panel != config.PanelTerminal {
			spec, err := panelSpec(b.env, c.board, c.panel)
			if spec == nil || err != nil {
				return func(ctx context.Context, hub *appliance.Hub) error {
					titles := []string{}
					if err != nil { // another config mends it, not another try
						titles = append(titles, err.Error())
						b.log.Error("no panel", "error", err)
					} else {
						b.log.Info("no panel: pages, keys and screen.png work all the same", "panel", c.panel)
					}
					hub.Publish(appliance.FaultsSeen{At: time.Now(), Task: "display", Titles: titles})
					<-ctx.Done()
					hub.Publish(appliance.FaultsSeen{At: time.Now(), Task: "display"})
					return nil
				}
			}
			size = image.Pt(spec.Width, spec.Height)
			open = func() (display.Panel, error) { return panel.Open(*spec) }
			if spec.Optional {
				opts.Absent = func(err error) bool { return errors.Is(err, panel.ErrAbsent) }
			}
		}
		b.size.Store(&size)
		return display.Task(open, size, opts).Run
	})
}

// panelSpec describes the panel to drive; nil where there is none.
func panelSpec(e env, profile, name string) (*board.Panel, error) {
	switch name {
	case config.PanelNone, config.PanelTerminal:
		return nil, nil
	case config.Auto:
		p, _ := board.Detect(e.root, profile)
		return p.Panel, nil
	}
	p, errs := board.Detect(e.root, profile, name)
	if p.Panel == nil || !slices.Contains(p.HATs, name) {
		why := errors.New("it brings no panel")
		if len(errs) > 0 {
			why = errs[len(errs)-1] // those before are of the board's files, and said elsewhere
		}
		return nil, fmt.Errorf("[display] panel = %q: %w", name, why)
	}
	return p.Panel, nil
}

func (b *box) wantedPorts(s appliance.State) netcfg.Wanted {
	return wanted(b.boardOf(boardName(s)).profile, s.Config)
}

// followConfig publishes each change of the config's files. A bad one leaves the last good one in force.
func (b *box) followConfig(ctx context.Context, hub *appliance.Hub) error {
	return config.Watch(ctx, configPaths(b.env), b.log, func(loaded config.Loaded, err error) {
		for _, note := range loaded.Notes {
			b.log.Info(note)
		}
		if err != nil {
			b.log.Error("config not used, the last good one stays in force", "error", err)
			hub.Publish(appliance.ConfigRejected{At: time.Now(), Err: err.Error()})
			return
		}
		before, found := boardName(hub.State()), b.boardOf(loaded.Config.Board.Profile)
		state := hub.Publish(appliance.ConfigLoaded{
			At: time.Now(), Config: loaded.Config, Keys: loaded.Keys, Board: found.profile.Name,
		})
		if boardName(state) != before {
			hub.Publish(appliance.FaultsSeen{At: time.Now(), Task: "board", Titles: titles(found.errs, b.log)})
		}
		if len(loaded.Stale) > 0 {
			if err := b.settings.DropStale(); err != nil {
				b.log.Warn("dropped settings stay in the file", "error", err)
			}
		}
	})
}

// storeSettings stores what somebody chose with the keys. The config with it is in force before the wish is gone.
func (b *box) storeSettings(ctx context.Context, hub *appliance.Hub) error {
	for state := range hub.Watch(ctx) {
		if len(state.Wishes) == 0 {
			continue
		}
		values, keys := map[string]any{}, []string{}
		for _, w := range state.Wishes {
			values[w.Key] = w.Value
			keys = append(keys, w.Key)
		}
		stored := appliance.SettingsStored{Keys: keys}
		if _, err := b.patchSettings(values); err != nil {
			b.log.Error("settings not saved", "error", err)
			stored.Err = err.Error()
		}
		stored.At = time.Now()
		hub.Publish(stored)
	}
	return nil
}

// patchSettings stores settings, all or none, and puts the config with them in force; a nil value takes one away.
func (b *box) patchSettings(values map[string]any) ([]config.Key, error) {
	if err := b.settings.Patch(values); err != nil {
		return nil, err
	}
	loaded, err := config.Load(configPaths(b.env))
	if err != nil {
		return nil, fmt.Errorf("saved, but the config is not in force: %w", err)
	}
	return b.hub.Publish(appliance.ConfigLoaded{At: time.Now(), Config: loaded.Config, Keys: loaded.Keys}).Keys, nil
}

// picture draws the page shown at the panel's size, as PNG.
func (b *box) picture(s appliance.State) ([]byte, error) {
	return display.EncodePNG(display.Page(s, *b.size.Load()))
}
