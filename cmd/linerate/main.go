// Command linerate is the appliance and everything a person at a shell does with it.
//
// This page wires and nothing else: serve.go shows the data flow of the whole box, each further file one or a few
// commands. Errors go to stderr in one line that says what to do. Exit status: 0 good; 1 the thing asked for failed; 2
// wrong usage or config.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"linerate/appliance/config"
	"linerate/appliance/web"
)

// command is one word after `linerate`.
type command struct {
	name    string
	args    string // as the usage line shows them
	short   string
	example string
	// flags defines the command's own flags and returns what runs it.
	flags func(*pflag.FlagSet) func(ctx context.Context, e env, args []string) error
}

// commands in the order in which help lists them.
var commands = []command{
	serveCommand, demoCommand, netcfgCommand,
	testCommand, resultsCommand, statusCommand, portsCommand,
	pressCommand, screenshotCommand, watchCommand,
	boardCommand, collectCommand, configCommand, checkConfigCommand, unitsCommand, confirmCommand, versionCommand,
}

// env is where a command finds the box, and where it writes.
type env struct {
	root, config, stateDir, runDir string
	out, err                       io.Writer
}

func (e env) socket() string { return filepath.Join(e.runDir, "linerate.sock") }

// usageError is a call that is wrong in itself: exit status 2.
type usageError struct{ error }

// configError is a config that is wrong in itself: exit status 2 as well, but no command's help could help.
type configError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errFailed ends a command with status 1 after it has said everything itself.
var errFailed = errors.New("failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // who is not patient presses Ctrl-C again
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs one command line and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		help(stdout)
		if len(args) == 0 {
			return 2
		}
		return 0
	}
	if args[0] == "--version" {
		args[0] = "version"
	}
	var c *command
	for i := range commands {
		if commands[i].name == args[0] {
			c = &commands[i]
		}
	}
	if c == nil {
		fmt.Fprintf(stderr, "linerate: there is no command %q: `linerate help` lists them\n", args[0])
		return 2
	}
	e := env{out: stdout, err: stderr}
	set := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.SortFlags = false
	do := c.flags(set)
	set.StringVar(&e.root, "root", "/", "folder, or archive of 'linerate collect', that holds the box's /sys, /proc, /etc and /boot")
	set.StringVar(&e.config, "config", "", "config file in place of /etc/linerate/linerate.toml")
	set.StringVar(&e.stateDir, "state-dir", defaultStateDir, "folder of results and settings")
	set.StringVar(&e.runDir, "run-dir", defaultRunDir, "folder of the API's socket")
	err := set.Parse(args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(stdout, "linerate %s: %s\n\nUsage: linerate %s\nExample: %s\n\n%s", c.name, c.short,
			strings.TrimSpace(c.name+" "+c.args), c.example, set.FlagUsages())
		return 0
	case err != nil:
		err = usageError{err}
	default:
		var done func()
		if done, err = openRoot(&e); err == nil {
			err = do(ctx, e, set.Args())
		}
		done()
	}
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFailed):
		return 1
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "linerate %s: %v (`linerate %s --help` shows how)\n", c.name, err, c.name)
		return 2
	}
	fmt.Fprintf(stderr, "linerate %s: %v\n", c.name, err)
	if isWrong(err) {
		return 2
	}
	return 1
}

// isWrong says whether the config, or what the appliance was asked for, is wrong in itself.
func isWrong(err error) bool {
	var bad configError
	var setting *config.SettingError
	var problem *web.Problem
	return errors.As(err, &bad) || errors.As(err, &setting) ||
		errors.As(err, &problem) && problem.Status == http.StatusBadRequest
}

func help(w io.Writer) {
	fmt.Fprint(w, "Linerate makes a small box a throughput test appliance.\n\nUsage: linerate COMMAND [FLAGS] [ARGUMENTS]\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-14s %s\n", c.name, c.short)
	}
	fmt.Fprint(w, "\n`linerate COMMAND --help` shows a command's flags and an example.\n")
}

// noArgs refuses arguments where there can be none.
func noArgs(args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}
