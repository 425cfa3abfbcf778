package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"linerate/systemd"
)

var unitsCommand = command{
	name: "units", args: "[DIR]", short: "print or install the units, sysusers.d, tmpfiles.d and udev files",
	example: "linerate units /",
	flags: func(*pflag.FlagSet) func(context.Context, env, []string) error {
		return func(_ context.Context, e env, args []string) error {
			switch len(args) {
			case 0:
				return systemd.Print(e.out)
			case 1:
				done, err := systemd.Install(args[0])
				for _, name := range done {
					fmt.Fprintln(e.out, name)
				}
				return err
			}
			return usagef("name one folder to install below, / for this system, or none to print")
		}
	},
}
