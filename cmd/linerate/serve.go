package main

import (
	"context"
	"image"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
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
	profile  board.Profile
	hub      *appliance.Hub
	store    *results.Store
	reporter *runner.Reporter
	server   *iperf3.Server
	size     image.Point // of the panel's picture
}

// assemble builds the box. What is wrong with config, board files or the result store becomes a fault; the box serves all
// the same.
func assemble(e env, log *slog.Logger, loaded config.Loaded, configErr error) *box {
	for _, note := range loaded.Notes {
		log.Info(note)
	}
	profile, boardErrs := board.Detect(e.root, loaded.Config.Board.Profile)
	store, storeErrs := openStore(e, log)
	host, _ := os.Hostname() // an unnamed box is no matter

	b := &box{env: e, log: log, profile: profile, store: store, size: smallPanel}
	b.hub = appliance.NewHub(appliance.New(version(), profile.Name, host, loaded.Config))
	b.reporter = &runner.Reporter{Hub: b.hub, Store: store, Log: log}
	b.server = iperf3.NewServer(serverOptions(loaded.Config.Server, b.reporter, log))

	now := time.Now()
	b.hub.Publish(appliance.ResultsSeen{At: now, Results: store.Last(appliance.MaxResults)})
	if configErr != nil {
		log.Error("config not used", "error", configErr)
		b.hub.Publish(appliance.ConfigRejected{At: now, Err: configErr.Error()})
	}
	b.hub.Publish(appliance.FaultsSeen{At: now, Task: "board", Titles: titles(boardErrs, log)})
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
	api := &web.API{Hub: b.hub, Store: b.store, Screen: b.picture, Log: b.log}
	run := &runner.Runner{Engines: engines(), Reporter: b.reporter, Log: b.log}
	tasks := append([]appliance.Task{
		{Name: "clock", Run: b.tick},
		{Name: "iperf3", Run: b.serveIperf3},
		{Name: "runner", Run: run.Run},
		runner.EndTests(b.server),
		runner.SeekServers(),
		runner.HoldLock(filepath.Join(b.env.runDir, "testing")),
		api.Task(b.env.socket()),
	}, edges...)
	b.log.Info("appliance starts", "version", version(), "board", b.profile.Name)
	appliance.Run(ctx, b.hub, b.log, tasks...)
	return nil
}

// engines are the clients by the names a Spec gives them.
func engines() map[string]throughput.Engine {
	return map[string]throughput.Engine{"iperf3": &iperf3.Client{}}
}

// serveIperf3 keeps the throughput server as the config wants it: limits change at once, another address is bound anew.
func (b *box) serveIperf3(ctx context.Context, hub *appliance.Hub) error {
	var (
		serving = make(chan error, 1)
		stop    = func() {}
		bound   string
		applied *config.Server
	)
	defer func() { stop() }()
	watch := hub.Watch(ctx)
	for {
		select {
		case err := <-serving:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case state, open := <-watch:
			if !open {
				stop()
				return nil
			}
			want := state.Config.Server
			if applied == nil || !reflect.DeepEqual(*applied, want) {
				b.server.SetOptions(serverOptions(want, b.reporter, b.log))
				applied = &want
			}
			listen := want.Listen
			if !want.Enable {
				listen = ""
			}
			if listen == bound {
				continue
			}
			stop()
			if bound = listen; listen == "" {
				continue
			}
			l, err := listenTCP(listen)
			if err != nil {
				return err
			}
			b.log.Info("throughput server accepts", "address", l.Addr().String())
			serveCtx, cancel := context.WithCancel(ctx)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				err := b.server.Serve(serveCtx, l)
				l.Close()
				if serveCtx.Err() == nil {
					serving <- err
				}
			}()
			stop = func() { cancel(); <-ended }
		}
	}
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
