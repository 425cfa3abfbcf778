package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/appliance/config"
	"linerate/appliance/cpu"
	"linerate/netcfg"
)

var netcfgCommand = command{
	name: "netcfg", short: "keep ports and processor as the config wants them", example: "linerate netcfg --plan",
	flags: func(set *pflag.FlagSet) func(context.Context, env, []string) error {
		once := set.Bool("once", false, "apply, and exit: 0 when all holds that can")
		plan := set.Bool("plan", false, "print what would be done, and change nothing")
		restore := set.Bool("restore", false, "put everything back as found")
		early := set.Bool("early", false, "before the network managers start: write what they shall know, touch no port")
		rollback := set.Bool("rollback", false, "put everything back as found, if a change waits that nobody confirmed")
		asJSON := set.Bool("json", false, "print as JSON")
		return func(ctx context.Context, e env, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			chosen := 0
			for _, b := range []bool{*once, *plan, *restore, *early, *rollback} {
				if b {
					chosen++
				}
			}
			if chosen > 1 {
				return usagef("--once, --plan, --restore, --early and --rollback exclude one another")
			}
			if filepath.Clean(e.root) != "/" && !*plan {
				return usagef("--root %s: of another system's tree only --plan can be told", e.root)
			}
			k := newKeeper(e)
			switch {
			case *plan:
				return k.plan(*asJSON)
			case *once:
				return k.once(ctx, *asJSON)
			case *restore:
				return k.restore(ctx, *asJSON)
			case *early:
				return k.early(ctx)
			case *rollback:
				report, err := k.ports.Rollback(ctx, k.wanted)
				return k.said(report, err, cpu.Outcome{}, nil, *asJSON)
			}
			return k.keep(ctx)
		}
	},
}

// keeper is the process that has the right to change ports and processor.
type keeper struct {
	env    env
	log    *slog.Logger
	loaded config.Loaded
	err    error // of the config
	wanted netcfg.Wanted
	ports  *netcfg.Keeper
	cpu    *cpu.Control
}

func newKeeper(e env) *keeper {
	k := &keeper{env: e, log: slog.New(slog.NewTextHandler(e.err, &slog.HandlerOptions{ReplaceAttr: withoutTime}))}
	k.loaded, k.err = config.Load(configPaths(e))
	profile, errs := board.Detect(e.root, k.loaded.Config.Board.Profile)
	titles(errs, k.log)
	k.wanted = wanted(profile, k.loaded.Config)
	dir := filepath.Join(e.stateDir, "netcfg")
	if e.stateDir == defaultStateDir {
		dir = defaultStateDir + "-netcfg" // the server owns its folder; what the keeper must trust lies elsewhere
	}
	k.ports = netcfg.NewKeeper(dir, e.runDir, k.log)
	k.cpu = cpu.NewControl(e.root, dir, k.log)
	return k
}

func wanted(profile board.Profile, c config.Config) netcfg.Wanted {
	return netcfg.Wanted{Board: profile, Ports: c.Ports, Port: c.Port}
}

func (k *keeper) plan(asJSON bool) error {
	if k.err != nil {
		return usageError{k.err}
	}
	plan, err := k.ports.Plan(k.env.root, k.wanted)
	if err != nil {
		return err
	}
	processor, err := k.cpu.Plan(k.loaded.Config.CPU)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(k.env.out, struct {
			netcfg.Plan
			CPU cpu.Outcome `json:"cpu"`
		}{plan, processor})
	}
	fmt.Fprint(k.env.out, plan.Text())
	k.tell(processor)
	return nil
}

// once applies and says what it did. Status 0 says that all holds that can.
func (k *keeper) once(ctx context.Context, asJSON bool) error {
	if k.err != nil {
		return usageError{k.err} // a port is not touched on the word of half a config
	}
	processor, cpuErr := k.cpu.Apply(k.loaded.Config.CPU)
	report, err := k.ports.Apply(ctx, k.wanted)
	return k.said(report, err, processor, cpuErr, asJSON)
}

func (k *keeper) restore(ctx context.Context, asJSON bool) error {
	processor, cpuErr := k.cpu.Restore()
	report, err := k.ports.Restore(ctx, k.wanted)
	return k.said(report, err, processor, cpuErr, asJSON)
}

// early tells the managers before they start. A config that cannot be used changes nothing: what was told at an earlier
// boot stays.
func (k *keeper) early(ctx context.Context) error {
	if k.err != nil {
		return usageError{k.err}
	}
	report, err := k.ports.Early(ctx, k.wanted)
	if err != nil {
		return err
	}
	for _, line := range report.Errors() {
		fmt.Fprintln(k.env.err, "linerate netcfg:", line)
	}
	if !report.Good() {
		return errFailed
	}
	return nil
}

// said tells what became of ports and processor; what of either failed makes the status 1.
func (k *keeper) said(report netcfg.Report, err error, processor cpu.Outcome, cpuErr error, asJSON bool) error {
	if err != nil {
		return errors.Join(err, cpuErr)
	}
	if asJSON {
		err = printJSON(k.env.out, struct {
			netcfg.Report
			CPU cpu.Outcome `json:"cpu"`
		}{report, processor})
	} else {
		_, err = fmt.Fprint(k.env.out, report.Text())
		k.tell(processor)
	}
	for _, line := range slices.Concat(report.Warnings, report.Errors()) {
		fmt.Fprintln(k.env.err, "linerate netcfg:", line)
	}
	if cpuErr != nil {
		fmt.Fprintln(k.env.err, "linerate netcfg:", cpuErr)
	}
	if err == nil && (!report.Good() || cpuErr != nil) {
		err = errFailed
	}
	return err
}

func (k *keeper) tell(processor cpu.Outcome) {
	for _, c := range processor.Changes {
		fmt.Fprintln(k.env.out, c)
	}
	for _, n := range processor.Notes {
		fmt.Fprintln(k.env.out, "note:", n)
	}
}

// keep holds what is wanted until ctx ends, whatever the config becomes meanwhile. Before there has been a good config it
// leaves everything as it is: a typing error at boot must not free ports that the config keeps.
func (k *keeper) keep(ctx context.Context) error {
	hub := appliance.NewHub(appliance.New(version(), k.wanted.Board.Name, "", k.loaded.Config))
	follow := &box{env: k.env, log: k.log, profile: k.wanted.Board, hub: hub}
	var config sync.WaitGroup
	config.Go(func() {
		appliance.Run(ctx, hub, k.log, appliance.Task{Name: "config", Run: follow.followConfig})
	})
	defer config.Wait()
	for state := range hub.Watch(ctx) {
		if state.Keys != nil {
			break
		}
	}
	appliance.Run(ctx, hub, k.log, k.ports.Keep(follow.wantedPorts), k.keepCPU())
	return nil
}

// keepCPU is the Task that keeps the processor as the config wants it.
func (k *keeper) keepCPU() appliance.Task {
	wanted := func(s appliance.State) config.CPU { return s.Config.CPU }
	return appliance.Follow("cpu", wanted, func(want config.CPU) func(context.Context, *appliance.Hub) error {
		return func(ctx context.Context, _ *appliance.Hub) error {
			for {
				_, err := k.cpu.Apply(want)
				k.ports.Tell("cpu", errorLines(err)) // so that it is seen on the side that has no privilege
				if err != nil {
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(recheckCPU):
				}
			}
		}
	})
}

// recheckCPU is how often the processor is looked at: a distribution's own tuning may come after ours.
const recheckCPU = 30 * time.Second

// errorLines are the errors that were joined, one each.
func errorLines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}
