package main

import (
	"context"
	"image"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/appliance/config"
	"linerate/appliance/iperf3"
	"linerate/appliance/results"
	"linerate/appliance/runner"
	"linerate/appliance/throughput"
	"linerate/appliance/web"
	"linerate/systemd"
)

var serveCommand = command{
	name: "serve", short: "the appliance", example: "linerate serve --config linerate.toml",
	flags: func(*pflag.FlagSet) func(context.Context, env, []string) error {
		return func(ctx context.Context, e env, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			if filepath.Clean(e.root) != "/" {
				return usagef("--root %s: serve works on the running system alone; ports, doctor and board read other trees", e.root)
			}
			log := slog.New(slog.NewTextHandler(e.err, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
			loaded, err := config.Load(configPaths(e))
			b := assemble(e, log, loaded, err)
			return b.run(ctx, b.edges())
		}
	},
}

// withoutTime leaves the time of a log line to the journal.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// box is the appliance without its edges: what `serve` and `demo` have in common.
type box struct {
	env      env
	log      *slog.Logger
	profile  board.Profile // as the box started with it
	boards   sync.Map      // detected, by [board] profile
	hub      *appliance.Hub
	store    *results.Store
	reporter *runner.Reporter
	server   *iperf3.Server
	settings *config.Settings
	manager  *systemd.Manager
	accepts  atomic.Bool                 // the throughput server does
	size     atomic.Pointer[image.Point] // of the panel's picture
}

// assemble builds the box. What is wrong with config, board files or the result store becomes a fault; the box serves all
// the same.
func assemble(e env, log *slog.Logger, loaded config.Loaded, configErr error) *box {
	for _, note := range loaded.Notes {
		log.Info(note)
	}
	store, storeErrs := openStore(e, log)
	host, _ := os.Hostname() // an unnamed box is no matter

	b := &box{env: e, log: log, store: store, manager: systemd.Open(log)}
	found := b.boardOf(loaded.Config.Board.Profile)
	b.profile = found.profile
	b.settings = config.NewSettings(configPaths(e), log)
	b.size.Store(&smallPanel)
	if spec, _ := panelSpec(e, loaded.Config.Board.Profile, loaded.Config.Display.Panel); spec != nil {
		b.size.Store(&image.Point{X: spec.Width, Y: spec.Height})
	}
	b.hub = appliance.NewHub(appliance.New(version(), b.profile.Name, host, loaded.Config))
	b.reporter = &runner.Reporter{Hub: b.hub, Store: store, Log: log}
	b.server = iperf3.NewServer(serverOptions(loaded.Config.Server, b.reporter, log))

	now := time.Now()
	b.hub.Publish(appliance.ResultsSeen{At: now, Results: store.Last(appliance.MaxResults)})
	b.hub.Publish(appliance.ConfigLoaded{At: now, Config: loaded.Config, Keys: loaded.Keys})
	if configErr != nil {
		log.Error("config not used", "error", configErr)
		b.hub.Publish(appliance.ConfigRejected{At: now, Err: configErr.Error()})
	}
	b.hub.Publish(appliance.FaultsSeen{At: now, Task: "board", Titles: titles(found.errs, log)})
	b.hub.Publish(appliance.FaultsSeen{At: now, Task: "results", Titles: titles(storeErrs, log)})
	return b
}

func titles(errs []error, log *slog.Logger) []string {
	var list []string
	for _, err := range errs {
		log.Warn(err.Error())
		list = append(list, err.Error())
	}
	return list
}

// run runs the box with the given edges until ctx ends: facts come in from the edges and the engines, pictures go out to
// the edges and the API.
func (b *box) run(ctx context.Context, edges []appliance.Task) error {
	defer b.store.Close()
	api := &web.API{Hub: b.hub, Store: b.store, Screen: b.picture, Patch: b.patchSettings, Log: b.log}
	run := &runner.Runner{Engines: engines(), Reporter: b.reporter, Log: b.log}
	tasks := append([]appliance.Task{
		{Name: "clock", Run: b.tick},
		b.serving("iperf3", b.serveTCP),
		b.serving("iperf3-udp", b.serveUDP),
		{Name: "iperf3-limits", Run: b.limitIperf3},
		{Name: "runner", Run: run.Run},
		runner.EndTests(b.server),
		runner.SeekServers(),
		runner.HoldLock(filepath.Join(b.env.runDir, "testing")),
		api.Task(b.env.socket()),
		b.manager.Notify(b.ready),
	}, edges...)
	b.log.Info("appliance starts", "version", version(), "board", b.profile.Name)
	appliance.Run(ctx, b.hub, b.log, tasks...)
	return nil
}

// engines are the clients by the names a Spec gives them.
func engines() map[string]throughput.Engine {
	return map[string]throughput.Engine{"iperf3": &iperf3.Client{}}
}

// serving is the Task of one half of the throughput server: another address in the config is bound anew, "" serves nobody.
func (b *box) serving(name string, serve func(ctx context.Context, name, listen string) error) appliance.Task {
	address := func(s appliance.State) string {
		if !s.Config.Server.Enable {
			return ""
		}
		return s.Config.Server.Listen
	}
	return appliance.Follow(name, address, func(listen string) func(context.Context, *appliance.Hub) error {
		return func(ctx context.Context, hub *appliance.Hub) error {
			if listen == "" {
				b.manager.Keep() // nobody is to wait on a listener that systemd keeps
				<-ctx.Done()
				return nil
			}
			return serve(ctx, name, listen)
		}
	})
}

// serveTCP accepts control and data connections.
func (b *box) serveTCP(ctx context.Context, name, listen string) error {
	l, restored, err := b.manager.Listen(name, listen)
	if err != nil {
		return err
	}
	defer l.Close()
	b.accepts.Store(true)
	defer b.accepts.Store(false)
	b.log.Info("throughput server accepts", "address", l.Addr().String(), "restored", restored)
	return b.server.Serve(ctx, l)
}

// serveUDP carries the payload of UDP tests, on the same port number.
func (b *box) serveUDP(ctx context.Context, name, listen string) error {
	c, _, err := b.manager.ListenPacket(name, listen)
	if err != nil {
		return err
	}
	defer c.Close()
	return b.server.ServeUDP(ctx, c.(*net.UDPConn))
}

// ready says whether the box does all it can: its server accepts, is not wanted, or is a fault on the display. A box that
// waited for a port that another program has would be ended by systemd, display and all.
func (b *box) ready(s appliance.State) bool {
	failed := slices.ContainsFunc(s.Faults, func(f appliance.Fault) bool { return f.Task == "iperf3" })
	return b.accepts.Load() || failed || !s.Config.Server.Enable
}

// limitIperf3 keeps the server's limits as the config has them.
func (b *box) limitIperf3(ctx context.Context, hub *appliance.Hub) error {
	var applied config.Server
	for state := range hub.Watch(ctx) {
		if want := state.Config.Server; !reflect.DeepEqual(applied, want) {
			b.server.SetOptions(serverOptions(want, b.reporter, b.log))
			applied = want
		}
	}
	return nil
}

func serverOptions(c config.Server, observer throughput.Observer, log *slog.Logger) iperf3.Options {
	return iperf3.Options{
		Concurrency: iperf3.Concurrency(c.Concurrency), QueueWait: c.QueueWait, MaxTests: c.MaxTests,
		MaxDuration: c.MaxDuration, MaxRate: c.MaxRate, Stall: c.Stall, Allow: c.Allow, Copy: c.Copy,
		Observer: observer, Log: log,
	}
}

// tick moves the State's time on once a second, and lets the store know when the clock has been set.
func (b *box) tick(ctx context.Context, hub *appliance.Hub) error {
	clock, synced := results.SystemClock("/"), false
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		now := clock.Synced()
		if now && !synced {
			if err := b.store.NoteClock(); err != nil {
				b.log.Warn("times of earlier results are not corrected", "error", err)
			}
		}
		synced = now
		hub.Publish(appliance.Ticked{At: time.Now(), Uptime: clock.Uptime(), Synced: synced})
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
	}
}
