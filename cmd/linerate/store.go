package main

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/netcfg"
)

// Where the installed appliance keeps its files.
const (
	defaultStateDir = "/var/lib/linerate"
	defaultRunDir   = "/run/linerate"
)

func configPaths(e env) config.Paths {
	return config.Paths{Root: e.root, File: e.config, StateDir: e.stateDir}
}

// openStore opens the result store. What is wrong with it is returned for the State to show; the store works in memory
// then.
func openStore(e env, log *slog.Logger) (*results.Store, []error) {
	store, err := results.Open(e.stateDir, results.SystemClock(e.root), log)
	if err != nil {
		return store, []error{fmt.Errorf("results are kept in memory alone: %w", err)}
	}
	return store, nil
}

// readResults reads the stored results while no appliance runs.
func readResults(e env, n int) ([]results.Record, error) {
	list, report, err := results.Read(filepath.Join(e.stateDir, results.FileName), n, results.SystemClock(e.root))
	if err != nil {
		return nil, err
	}
	if report.Damaged > 0 || report.Tail > 0 {
		fmt.Fprintln(e.err, "linerate results:", report)
	}
	if list == nil {
		list = []results.Record{}
	}
	return list, nil
}

// look is the State as far as a command can see it without the appliance: config, board, ports.
func look(e env) appliance.State {
	loaded, err := config.Load(configPaths(e))
	if err != nil {
		fmt.Fprintf(e.err, "linerate: config not used: %v\n", err)
	}
	profile, _ := board.Detect(e.root, loaded.Config.Board.Profile)
	s := appliance.New(version(), profile.Name, "", loaded.Config)
	if seen, err := netcfg.Look(e.root, wanted(profile, loaded.Config)); err == nil {
		s = appliance.Apply(s, appliance.PortsSeen{Ports: seen.Ports})
	}
	return s
}

// lookPorts are the ports below the root.
func lookPorts(e env) ([]appliance.Port, error) {
	loaded, err := config.Load(configPaths(e))
	if err != nil {
		fmt.Fprintf(e.err, "linerate ports: config not used: %v\n", err)
	}
	profile, errs := board.Detect(e.root, loaded.Config.Board.Profile)
	for _, err := range errs {
		fmt.Fprintln(e.err, "linerate ports:", err)
	}
	seen, err := netcfg.Look(e.root, wanted(profile, loaded.Config))
	if err != nil {
		return nil, err
	}
	for _, fault := range seen.Faults {
		fmt.Fprintln(e.err, "linerate ports:", fault)
	}
	if seen.Ports == nil {
		seen.Ports = []appliance.Port{}
	}
	return seen.Ports, nil
}
