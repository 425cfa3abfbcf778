// Command box runs the virtual NanoPi R5S for a person: its panel in this terminal, its keys on this keyboard, its throughput
// server on a port of 127.0.0.1. `make vm` builds and starts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/term"

	"linerate/display"
	"linerate/image/vm"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binary := flag.String("binary", "bin/linux-arm64/linerate", "linerate for linux/arm64")
	port := flag.Int("port", 5201, "port of 127.0.0.1 that leads to the box's throughput server")
	dir := flag.String("dir", "bin/vm", "folder of the log, and of the panel's picture where there is no terminal")
	flag.Parse()
	if err := run(ctx, *binary, *port, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "make vm:", err)
		os.Exit(1)
	}
}

// config of the box: what a press of k1, or select twice, tests against.
const config = "[[target]]\nname = \"this machine\"\nhost = \"192.168.2.2\"\n"

func run(ctx context.Context, binary string, port int, dir string) error {
	if err := vm.Available(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, "vm.log"))
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Println("making the box ready; the first time this fetches and builds for about a minute ...")
	box, err := vm.Prepare(ctx, vm.Options{
		Binary: binary, Forward: map[string]int{"lan1": port}, Lifetime: 12 * time.Hour,
		Files: map[string]string{"etc/linerate/linerate.toml": config}, Log: slog.New(slog.NewTextHandler(file, nil)),
	})
	if err != nil {
		return err
	}
	defer box.Close()
	m, err := box.Boot()
	if err != nil {
		return fmt.Errorf("%w (is port %d free? make vm ARGS=\"--port 5301\" takes another)", err, port)
	}
	defer m.Kill()
	fmt.Println("the box boots; its first picture comes in half a minute")

	ctx, quit := context.WithCancel(ctx)
	defer quit()
	panel, leave, err := screen(m, port, dir, quit)
	if err != nil {
		return err
	}
	defer leave()
	err = show(ctx, m, panel)
	leave()
	if err != nil {
		fmt.Fprint(os.Stderr, m.Console())
	}
	return err
}

// screen is where the panel is shown: the terminal with its keys, else a file.
func screen(m *vm.Machine, port int, dir string, quit func()) (p display.Panel, leave func(), err error) {
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		path := filepath.Join(dir, "panel.png")
		fmt.Printf("no terminal: the panel's picture is kept in %s; iperf3 -c 127.0.0.1 -p %d\n", path, port)
		return display.NewFile(path), func() {}, nil
	}
	caption := "arrows, Enter, Backspace: keys   1: k1   q: end   iperf3 -c 127.0.0.1"
	if port != 5201 {
		caption += " -p " + strconv.Itoa(port)
	}
	before, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return nil, nil, fmt.Errorf("keys of the terminal: %w", err)
	}
	t, err := display.OpenTerminal(os.Stdout, caption)
	if err != nil {
		return nil, nil, errors.Join(err, term.Restore(int(os.Stdin.Fd()), before))
	}
	go func() { // ends with the process, which is waiting for nothing else then
		buf := make([]byte, 64)
		for {
			n, err := os.Stdin.Read(buf)
			if err != nil {
				return
			}
			for _, key := range vm.Typed(buf[:n]) {
				if key == vm.Quit || m.Press(key) != nil {
					quit()
				}
			}
		}
	}()
	left := false
	return t, func() {
		if !left {
			left = true
			_ = errors.Join(t.Close(), term.Restore(int(os.Stdin.Fd()), before)) // nobody is left to see it
		}
	}, nil
}

// show follows the panel until ctx ends or the box switches itself off.
func show(ctx context.Context, m *vm.Machine, p display.Panel) error {
	off := make(chan error, 1)
	go func() { off <- m.Wait(ctx) }()
	for {
		changed := m.Panel.Changed()
		if err := p.Draw(m.Panel.Picture()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-off:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-changed:
		}
		select { // a picture is drawn in many messages
		case <-ctx.Done():
		case <-time.After(30 * time.Millisecond):
		}
	}
}
