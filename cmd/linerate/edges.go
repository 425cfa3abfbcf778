package main

import (
	"context"
	"image"
	"net"
	"time"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/display"
	"linerate/netcfg"
)

// smallPanel is the size of the picture where no panel says another.
var smallPanel = image.Pt(128, 64)

// edges are the parts that touch the real box.
func (b *box) edges() []appliance.Task {
	return []appliance.Task{
		{Name: "config", Run: b.followConfig},
		netcfg.Watch(b.wantedPorts, b.log),
		netcfg.Follow(b.env.runDir, b.log),
	}
}

func (b *box) wantedPorts(s appliance.State) netcfg.Wanted { return wanted(b.profile, s.Config) }

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
		hub.Publish(appliance.ConfigLoaded{At: time.Now(), Config: loaded.Config})
	})
}

// picture draws the page shown at the panel's size.
func (b *box) picture(s appliance.State) image.Image { return display.Page(s, b.size) }

// listenTCP binds a server's address and says who has it where it is taken.
func listenTCP(address string) (net.Listener, error) {
	return net.Listen("tcp", address)
}
