package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"linerate/appliance/collect"
	"linerate/appliance/web"
)

var collectCommand = command{
	name: "collect", args: "FILE.tar.gz", short: "pack all that a doctor needs of this box; no secrets", example: "linerate collect box.tar.gz",
	flags: func(*pflag.FlagSet) func(context.Context, env, []string) error {
		return func(ctx context.Context, e env, args []string) error {
			if len(args) != 1 {
				return usagef("name the file to write, as box.tar.gz")
			}
			more := map[string][]byte{}
			keep := func(name string, v any, err error) {
				if err != nil {
					fmt.Fprintf(e.err, "linerate collect: without %s: %v\n", name, err)
					return
				}
				if data, err := json.MarshalIndent(v, "", "  "); err == nil {
					more["linerate/"+name] = append(data, '\n')
				}
			}
			keep("version.json", map[string]string{"version": version()}, nil)
			ports, err := lookPorts(e)
			keep("ports.json", ports, err)
			var state json.RawMessage
			err = web.NewClient(e.socket()).Get(ctx, "/api/v1/state", &state)
			keep("state.json", state, err)
			list, err := stored(ctx, e, 50)
			keep("results.json", list, err)

			// The archive appears whole or not at all.
			f, err := os.CreateTemp(filepath.Dir(args[0]), ".linerate-collect-*")
			if err != nil {
				return err
			}
			defer os.Remove(f.Name())
			defer f.Close()
			if err := collect.Pack(f, e.root, more); err != nil {
				return fmt.Errorf("write %s: %w", args[0], err)
			}
			if err := f.Chmod(0o644); err != nil {
				return err
			}
			if err := os.Rename(f.Name(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(e.out, "%s: read it with: linerate board --root %s\n", args[0], args[0])
			return nil
		}
	},
}

// openRoot makes an archive of `linerate collect` that was given as the root a folder; done removes it again.
func openRoot(e *env) (done func(), err error) {
	done = func() {}
	info, err := os.Stat(e.root)
	if err != nil {
		return done, usagef("--root %s: %v", e.root, err)
	}
	if info.IsDir() {
		e.root, err = filepath.Abs(e.root)
		return done, err
	}
	f, err := os.Open(e.root)
	if err != nil {
		return done, err
	}
	defer f.Close()
	dir, err := os.MkdirTemp("", "linerate-root")
	if err != nil {
		return done, err
	}
	done = func() { os.RemoveAll(dir) }
	if err := collect.Unpack(f, dir); err != nil {
		return done, usagef("--root %s: %v", e.root, err)
	}
	e.root = dir
	return done, nil
}
