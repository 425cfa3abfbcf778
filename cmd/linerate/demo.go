package main

import (
	"context"
	"fmt"
	"image"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/appliance/cpu"
	"linerate/appliance/cpu/cputest"
	"linerate/buttons"
	"linerate/display"
	"linerate/netcfg/netcfgtest"
)

// thisBox is the demo's target: its own server, so that a test can be started with nothing else at hand.
const thisBox = "this box"

var demoCommand = command{
	name: "demo", short: "everything in one process with simulated hardware", example: "linerate demo --port 5301 --panel 128x128",
	flags: func(set *pflag.FlagSet) func(context.Context, env, []string) error {
		port := set.Int("port", 5201, "port of the throughput server")
		panel := set.String("panel", "128x64", "size of the panel: 128x64 monochrome, 128x128 in colour")
		return func(ctx context.Context, e env, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			size, err := parseSize(*panel)
			if err != nil {
				return err
			}
			if *port < 1 || *port > 65535 {
				return usagef("--port %d: want 1 to 65535", *port)
			}
			return demo(ctx, e, *port, size)
		}
	},
}

func parseSize(text string) (image.Point, error) {
	w, h, ok := strings.Cut(text, "x")
	x, errX := strconv.Atoi(w)
	y, errY := strconv.Atoi(h)
	if !ok || errX != nil || errY != nil || x < 64 || x > 512 || y < 32 || y > 512 {
		return image.Point{}, usagef("--panel %s: want WIDTHxHEIGHT, as 128x64 or 128x128", text)
	}
	return image.Pt(x, y), nil
}

func demo(ctx context.Context, e env, port int, size image.Point) error {
	// A demo leaves nothing behind, unless it is told where.
	own, err := os.MkdirTemp("", "linerate-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(own)
	if e.stateDir == defaultStateDir {
		e.stateDir = filepath.Join(own, "state")
	}
	if e.runDir == defaultRunDir {
		e.runDir = filepath.Join(own, "run")
	}
	for _, dir := range []string{e.stateDir, e.runDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	loaded := config.Loaded{Config: config.Default()}
	if e.config != "" {
		if loaded, err = config.Load(configPaths(e)); err != nil {
			return configError{err}
		}
	}
	loaded.Config.Server.Listen = net.JoinHostPort("", strconv.Itoa(port))
	loaded.Config.Targets = append(loaded.Config.Targets, config.Target{
		Name: thisBox, Host: "127.0.0.1", TCPPort: port, Engine: "iperf3",
	})

	screen := term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
	var out io.Writer = e.err
	if screen { // the log would run into the picture
		file, err := os.Create(filepath.Join(e.stateDir, "demo.log"))
		if err != nil {
			return err
		}
		defer file.Close()
		out = file
	}
	log := slog.New(slog.NewTextHandler(out, nil))
	ctx, quit := context.WithCancel(ctx)
	defer quit()

	b := assemble(e, log, loaded, nil)
	b.size.Store(&size)
	sensors := filepath.Join(own, "sensors")
	edges := []appliance.Task{
		netcfgtest.Simulate(1, time.Now),
		{Name: "sensors", Run: func(ctx context.Context, _ *appliance.Hub) error { return cputest.Simulate(ctx, sensors) }},
		cpu.Watch(sensors),
		{Name: "settings", Run: b.storeSettings},
	}
	if screen {
		caption := "arrows, Enter, Backspace: keys   1 2 3: k1 k2 k3   q: end   iperf3 -c 127.0.0.1"
		if port != 5201 {
			caption += fmt.Sprintf(" -p %d", port)
		}
		before, err := term.MakeRaw(int(os.Stdin.Fd()))
		if err != nil {
			return fmt.Errorf("keys of the terminal: %w", err)
		}
		defer term.Restore(int(os.Stdin.Fd()), before)
		open := func() (display.Panel, error) { return display.OpenTerminal(os.Stdout, caption) }
		edges = append(edges, display.Task(open, size, display.Options{Log: log}), buttons.Keyboard(os.Stdin, quit))
	} else {
		fmt.Fprintf(e.err, "no terminal: serving on port %d; see it with: linerate status --run-dir %s\n", port, e.runDir)
	}
	return b.run(ctx, edges)
}
