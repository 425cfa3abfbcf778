package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"linerate/appliance/board"
	"linerate/appliance/config"
	"linerate/appliance/web"
)

var boardCommand = command{
	name: "board", short: "which profile, panel, keys and LEDs were chosen, and why", example: "linerate board --check",
	flags: func(set *pflag.FlagSet) func(context.Context, env, []string) error {
		check := set.Bool("check", false, "fail where the profile does not fit this box")
		asJSON := set.Bool("json", false, "print as JSON")
		return func(_ context.Context, e env, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			loaded, err := config.Load(configPaths(e))
			if err != nil {
				fmt.Fprintf(e.err, "linerate board: config not used: %v\n", err)
			}
			var hats []string
			switch name := loaded.Config.Display.Panel; name {
			case config.Auto, config.PanelNone, config.PanelTerminal:
			default:
				hats = []string{name}
			}
			profile, wrong := board.Detect(e.root, loaded.Config.Board.Profile, hats...)
			paths, err := board.DevicePaths(e.root)
			if err != nil {
				wrong = append(wrong, err)
			}
			roles, faults := profile.AssignRoles(paths)
			wrong = append(wrong, faults...)
			if *check {
				wrong = append(wrong, missing(profile, roles)...)
			}
			if *asJSON {
				err = printJSON(e.out, profile)
			} else {
				writeBoard(e, profile, roles)
			}
			for _, w := range wrong {
				fmt.Fprintln(e.err, "linerate board:", w)
			}
			if *check && len(wrong) > 0 {
				return errors.Join(err, errFailed)
			}
			return err
		}
	},
}

// missing names the profile's ports that no interface has.
func missing(p board.Profile, roles map[string]string) []error {
	var errs []error
	has := map[string]bool{}
	for _, role := range roles {
		has[role] = true
	}
	for _, port := range p.Ports {
		if !has[port.Role] {
			errs = append(errs, fmt.Errorf("no interface is port %s (%s): its driver is missing, or the profile is another board's",
				port.Role, strings.Join(port.Match, ", ")))
		}
	}
	return errs
}

func writeBoard(e env, p board.Profile, roles map[string]string) {
	fmt.Fprintf(e.out, "profile  %s\nmodel    %s\n", p.Name, p.Model)
	panel := "none"
	if p.Panel != nil {
		panel = fmt.Sprintf("%s %dx%d on %s", p.Panel.Controller, p.Panel.Width, p.Panel.Height, p.Panel.Bus)
	}
	fmt.Fprintln(e.out, "panel   ", panel)
	names := map[string]string{}
	for name, role := range roles {
		names[role] = name
	}
	for _, port := range p.Ports {
		name := names[port.Role]
		if name == "" {
			name = "not there"
		}
		test := ""
		if port.Test {
			test = ", test port"
		}
		fmt.Fprintf(e.out, "port     %s: %s (%s)%s\n", port.Role, name, strings.Join(port.Match, ", "), test)
	}
	for _, k := range p.Keys {
		long := ""
		if k.Long != "" {
			long = ", long " + k.Long
		}
		fmt.Fprintf(e.out, "key      %s: %s%s\n", k.Label, k.Short, long)
	}
	for _, l := range p.LEDs {
		fmt.Fprintf(e.out, "led      %s: %s\n", l.Role, strings.Join(l.Names, ", "))
	}
	for _, why := range p.Why {
		fmt.Fprintln(e.out, "because ", why)
	}
}

var configCommand = command{
	name: "config", args: "[reset [KEY]]", short: "every effective key with its origin; reset takes settings away",
	example: "linerate config reset ports.mtu",
	flags: func(set *pflag.FlagSet) func(context.Context, env, []string) error {
		asJSON := set.Bool("json", false, "print as JSON")
		return func(ctx context.Context, e env, args []string) error {
			if len(args) > 0 {
				if args[0] != "reset" || len(args) > 2 {
					return usagef("unexpected argument %q: use `config`, `config reset` or `config reset KEY`", args[0])
				}
				return resetSettings(ctx, e, args[1:])
			}
			loaded, err := config.Load(configPaths(e))
			if *asJSON {
				if printed := printJSON(e.out, loaded.Keys); printed != nil {
					return printed
				}
			} else {
				for _, k := range loaded.Keys {
					fmt.Fprintf(e.out, "%-44s # %s\n", k, k.Origin)
				}
			}
			for _, note := range loaded.Notes {
				fmt.Fprintln(e.err, "linerate config:", note)
			}
			if err != nil {
				return configError{err}
			}
			return nil
		}
	},
}

// resetSettings takes settings away, through the appliance where one runs: it owns the file.
func resetSettings(ctx context.Context, e env, keys []string) error {
	client := web.NewClient(e.socket())
	values := map[string]any{}
	for _, k := range keys {
		values[k] = nil
	}
	if len(keys) == 0 {
		var all []config.Key
		if err := client.Get(ctx, "/api/v1/settings", &all); err == nil {
			for _, k := range all {
				values[k.Key] = nil
			}
		}
	}
	err := client.Send(ctx, http.MethodPatch, "/api/v1/settings", values, nil)
	if errors.Is(err, web.ErrNotRunning) {
		err = config.NewSettings(configPaths(e), nil).Reset(keys...)
	}
	return err
}
