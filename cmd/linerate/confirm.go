package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"linerate/netcfg"
)

var confirmCommand = command{
	name: "confirm", short: "accept a network change before it rolls back", example: "linerate confirm",
	flags: func(*pflag.FlagSet) func(context.Context, env, []string) error {
		return func(ctx context.Context, e env, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, answerWithin)
			defer cancel()
			text, err := request(ctx, e.runDir, netcfg.Request{Request: netcfg.RequestConfirm})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(e.out, text)
			return err
		}
	},
}

// answerWithin is how long the keeper may take: it may be looking at a driver that is slow.
const answerWithin = 15 * time.Second

// request puts a wish to the keeper and waits for its answer in netcfg.json.
func request(ctx context.Context, runDir string, r netcfg.Request) (string, error) {
	name, err := netcfg.WriteRequest(runDir, r)
	if errors.Is(err, fs.ErrPermission) {
		return "", fmt.Errorf("%w: run it as root, or as a member of the group linerate", err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: no keeper runs here: systemctl start linerate-netcfg.service", err)
	}
	if err != nil {
		return "", err
	}
	for {
		status, err := netcfg.ReadStatus(runDir)
		if err == nil {
			i := slices.IndexFunc(status.Answers, func(a netcfg.Answer) bool { return a.File == name })
			if i >= 0 && status.Answers[i].OK {
				return status.Answers[i].Text, nil
			}
			if i >= 0 {
				return "", errors.New(status.Answers[i].Text)
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("the keeper has not answered: systemctl status linerate-netcfg.service")
		case <-time.After(100 * time.Millisecond):
		}
	}
}
