package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"linerate/appliance"
)

// HoldLock is the Task that holds a shared lock on the file (flock) while tests run. Whoever could disturb a test takes the
// lock alone first: the keeper of the network does.
func HoldLock(path string) appliance.Task {
	return appliance.Task{Name: "test-lock", Run: func(ctx context.Context, hub *appliance.Hub) error {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("folder of the lock that keeps the network still during tests: %w", err)
		}
		f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
		if err != nil {
			return fmt.Errorf("lock that keeps the network still during tests: %w", err)
		}
		defer f.Close() // which also gives the lock back
		held := false
		for state := range hub.Watch(ctx) {
			want := len(state.Active()) > 0
			if want == held {
				continue
			}
			how := unix.LOCK_UN
			if want {
				how = unix.LOCK_SH
			}
			if err := flock(f, how); err != nil {
				return fmt.Errorf("lock %s: %w", path, err)
			}
			held = want
		}
		return nil
	}}
}

// flock may wait a moment: the keeper looks at the lock and lets go.
func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err != unix.EINTR {
			return err
		}
	}
}
