package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/web"
	"linerate/display"
)

// printJSON prints v for people and programs alike.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

var versionCommand = command{
	name: "version", short: "print the version", example: "linerate version --json",
	flags: func(set *pflag.FlagSet) func(context.Context, env, []string) error {
		asJSON := set.Bool("json", false, "print as JSON")
		return func(_ context.Context, e env, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			if *asJSON {
				return printJSON(e.out, map[string]string{"version": version()})
			}
			fmt.Fprintln(e.out, "linerate", version())
			return nil
		}
	},
}

// stamped is set by the linker; a plain `go build` knows the commit instead.
var stamped string

func version() string {
	if stamped != "" {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "0.1.0+" + s.Value[:12]
			}
		}
	}
	return "0.1.0"
}

var statusCommand = command{
	name: "status", short: "the running appliance's state in a few lines", example: "linerate status --json",
	flags: func(set *pflag.FlagSet) func(context.Context, env, []string) error {
		asJSON := set.Bool("json", false, "print the whole state as JSON")
		return func(ctx context.Context, e env, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			client := web.NewClient(e.socket())
			if *asJSON {
				var raw json.RawMessage
				if err := client.Get(ctx, "/api/v1/state", &raw); err != nil {
					return err
				}
				return printJSON(e.out, raw)
			}
			var s appliance.State
			if err := client.Get(ctx, "/api/v1/state", &s); err != nil {
				return err
			}
			writeStatus(e.out, s)
			return nil
		}
	},
}

func writeStatus(w io.Writer, s appliance.State) {
	fmt.Fprintf(w, "%s, linerate %s on %s, up %s\n", s.Name, s.Version, s.Board,
		(time.Duration(s.UptimeS) * time.Second).String())
	for _, p := range s.Ports {
		fmt.Fprintln(w, portLine(p))
	}
	for _, t := range s.Active() {
		fmt.Fprintf(w, "test %s: %s %s with %s, %s, %.0f s\n", t.ID, directionText(t.Direction), t.Protocol, t.Peer, rateText(t.BPS), t.ElapsedS)
	}
	for _, t := range s.Waiting() {
		fmt.Fprintf(w, "%s waits for its turn\n", t.Peer)
	}
	if len(s.Results) > 0 {
		r := s.Results[0]
		what := rateText(r.BPS)
		if r.Error != "" {
			what = string(r.Error)
		}
		fmt.Fprintf(w, "last result %s: %s with %s, %s\n", r.ID, directionText(r.Direction), r.Peer, what)
	}
	for _, f := range s.Findings {
		fmt.Fprintf(w, "%s: %s %s\n", f.Severity, f.Port, f.Title)
	}
	if !s.ConfigState.Valid {
		fmt.Fprintf(w, "config not used: %s\n", s.ConfigState.Error)
	}
	for _, f := range s.Faults {
		fmt.Fprintf(w, "fault: %s: %s\n", f.Task, f.Title)
	}
}

// portLine is a port in one line.
func portLine(p appliance.Port) string {
	link := "no link"
	if p.Link == appliance.LinkUp {
		link = strings.TrimSpace(p.Speed() + " " + p.Duplex)
		if p.Speed() == "" {
			link = "up, speed unknown"
		}
	}
	line := fmt.Sprintf("%s (%s): %s, MTU %d", p.Label(), p.Name, link, p.MTU)
	if p.Master != "" {
		line += ", member of " + p.Master
	}
	if a := p.Address(); a != "" {
		line += ", " + a
	}
	if p.Test {
		line += ", test port"
	}
	return line
}

var portsCommand = command{
	name: "ports", short: "the ports as the box sees them", example: "linerate ports --json",
	flags: func(set *pflag.FlagSet) func(context.Context, env, []string) error {
		asJSON := set.Bool("json", false, "print every fact as JSON")
		return func(_ context.Context, e env, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			ports, err := lookPorts(e)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(e.out, ports)
			}
			if len(ports) == 0 {
				fmt.Fprintln(e.out, "no physical Ethernet port")
			}
			w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "PORT\tNAME\tLINK\tDUPLEX\tMTU\tDRIVER\tMASTER\tADDRESS\tTEST")
			for _, p := range ports {
				speed := "no link"
				if p.Link == appliance.LinkUp {
					speed = p.Speed()
					if speed == "" {
						speed = "up"
					}
				}
				test := ""
				if p.Test {
					test = "yes"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", p.Label(), p.Name, speed, p.Duplex, p.MTU, p.Driver, p.Master, p.Address(), test)
			}
			return w.Flush()
		}
	},
}

var resultsCommand = command{
	name: "results", short: "stored results, newest first", example: "linerate results -n 20 --csv",
	flags: func(set *pflag.FlagSet) func(context.Context, env, []string) error {
		n := set.IntP("number", "n", 0, "how many (default: all)")
		asCSV := set.Bool("csv", false, "print as CSV")
		asJSON := set.Bool("json", false, "print as JSON")
		return func(ctx context.Context, e env, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			if *n < 0 {
				return usagef("-n %d: want a positive number", *n)
			}
			list, err := stored(ctx, e, *n)
			if err != nil {
				return err
			}
			switch {
			case *asJSON:
				return printJSON(e.out, list)
			case *asCSV:
				return results.WriteCSV(e.out, list)
			}
			return results.WriteTable(e.out, list, results.SystemClock(e.root))
		}
	},
}

var pressCommand = command{
	name: "press", args: "KEY", short: "press a key of the running appliance", example: "linerate press select",
	flags: func(set *pflag.FlagSet) func(context.Context, env, []string) error {
		asJSON := set.Bool("json", false, "print the page that the key led to")
		return func(ctx context.Context, e env, args []string) error {
			if len(args) != 1 || !slices.Contains(appliance.Keys, appliance.Key(args[0])) {
				return usagef("name one key: %v", appliance.Keys)
			}
			var answer map[string]string
			if err := web.NewClient(e.socket()).Send(ctx, http.MethodPost, "/api/v1/keys/"+args[0], nil, &answer); err != nil {
				return err
			}
			if *asJSON {
				return printJSON(e.out, answer)
			}
			return nil
		}
	},
}

var screenshotCommand = command{
	name: "screenshot", args: "FILE.png", short: "take the picture of the running appliance's panel", example: "linerate screenshot panel.png",
	flags: func(*pflag.FlagSet) func(context.Context, env, []string) error {
		return func(ctx context.Context, e env, args []string) error {
			if len(args) != 1 {
				return usagef("name the file to write, - for standard output")
			}
			var picture []byte
			if err := web.NewClient(e.socket()).Get(ctx, "/api/v1/screen.png", &picture); err != nil {
				return err
			}
			if args[0] == "-" {
				_, err := e.out.Write(picture)
				return err
			}
			return os.WriteFile(args[0], picture, 0o644)
		}
	},
}

var checkConfigCommand = command{
	name: "check-config", args: "[FILE]", short: "check a config without using it", example: "linerate check-config linerate.toml",
	flags: func(*pflag.FlagSet) func(context.Context, env, []string) error {
		return func(_ context.Context, e env, args []string) error {
			if len(args) > 1 {
				return usagef("name one file, or none to check the box's own")
			}
			name, check := "config", func() (config.Loaded, error) { return config.Load(configPaths(e)) }
			if len(args) == 1 {
				name, check = args[0], func() (config.Loaded, error) { return config.CheckFile(args[0]) }
			}
			loaded, err := check()
			wrong := []error{err}
			if all, ok := err.(config.Errors); ok {
				wrong = nil
				for _, one := range all {
					wrong = append(wrong, one)
				}
			}
			if err == nil {
				wrong = unknownNames(e, loaded.Config)
			}
			for _, err := range wrong[:max(0, len(wrong)-1)] {
				fmt.Fprintln(e.err, "linerate check-config:", err)
			}
			if len(wrong) > 0 {
				return configError{wrong[len(wrong)-1]}
			}
			fmt.Fprintln(e.out, name+": good")
			return nil
		}
	},
}

// unknownNames says what is wrong with the names of board and panel, which only the boards' files know.
func unknownNames(e env, c config.Config) []error {
	_, errs := board.Detect(e.root, c.Board.Profile)
	if _, err := panelSpec(e, c.Board.Profile, c.Display.Panel); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// stored reads results from the appliance, or from the file when it is down.
func stored(ctx context.Context, e env, n int) ([]results.Record, error) {
	path := "/api/v1/results"
	if n > 0 {
		path += fmt.Sprintf("?limit=%d", n)
	}
	var list []results.Record
	err := web.NewClient(e.socket()).Get(ctx, path, &list)
	if err == nil || !errors.Is(err, web.ErrNotRunning) {
		return list, err
	}
	return readResults(e, n)
}

var watchCommand = command{
	name: "watch", short: "follow the panel of the running appliance in the terminal", example: "linerate watch",
	flags: func(*pflag.FlagSet) func(context.Context, env, []string) error {
		return func(ctx context.Context, e env, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			client := web.NewClient(e.socket())
			if err := client.Get(ctx, "/api/v1/state", nil); err != nil {
				return err
			}
			terminal, err := display.OpenTerminal(os.Stdout, "Ctrl-C ends; `linerate press KEY` presses keys")
			if err != nil {
				return err
			}
			defer terminal.Close()
			var failed error
			err = client.Events(ctx, func([]byte) bool {
				failed = mirror(ctx, client, terminal)
				return failed == nil
			})
			if ctx.Err() != nil {
				return nil
			}
			return errors.Join(failed, err)
		}
	},
}

// mirror draws the appliance's picture as it is now.
func mirror(ctx context.Context, client *web.Client, on display.Panel) error {
	var data []byte
	if err := client.Get(ctx, "/api/v1/screen.png", &data); err != nil {
		return err
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("picture of the panel: %w", err)
	}
	return on.Draw(picture)
}
