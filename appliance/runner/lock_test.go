package runner

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/appliance/throughput"
)

// free says whether somebody could take the lock alone.
func free(t *testing.T, path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

func TestLockIsHeldWhileATestRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "testing")
	b := newBench(ten)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- HoldLock(path).Run(ctx, b.hub) }()
	until := func(want bool) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); free(t, path) != want; {
			if time.Now().After(end) {
				t.Fatalf("the lock is free: %v, want %v", !want, want)
			}
			time.Sleep(time.Millisecond) // between two looks at the file
		}
	}
	until(true)
	id := b.rep.Started(throughput.Start{Peer: "192.0.2.7", Local: "192.0.2.1"})
	until(false)
	b.rep.Finished(id, throughput.Result{})
	until(true)
	b.rep.Started(throughput.Start{Peer: "192.0.2.7", Local: "192.0.2.1"})
	until(false)
	cancel() // a server that ends holds nothing back
	if err := <-done; err != nil {
		t.Error(err)
	}
	until(true)
}

func TestLockMakesItsFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "testing")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := HoldLock(path).Run(ctx, appliance.NewHub(appliance.State{})); err != nil {
		t.Error(err)
	}
}

func TestLockFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "testing")); err != nil {
		t.Fatal(err)
	}
	if err := HoldLock(filepath.Join(dir, "testing")).Run(t.Context(), appliance.NewHub(appliance.State{})); err == nil {
		t.Error("a symbolic link was followed")
	}
}
