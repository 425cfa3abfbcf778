package config

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestFollow holds the timing: one report for what happens together, none for what changes nothing, one for each error.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var content atomic.Value
		content.Store("[test]\nseconds = 1")
		read := func() []source { return []source{{file: "f", data: []byte(content.Load().(string))}} }
		signs, reports := make(chan struct{}, 1), make(chan string, 10)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			follow(ctx, signs, read, func(l Loaded, err error) {
				if err != nil {
					reports <- "error"
				} else {
					reports <- format(int64(l.Config.Test.Seconds))
				}
			})
		}()
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for len(reports) > 0 {
				got = append(got, <-reports)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		expect("at once", "1")

		content.Store("")
		signs <- struct{}{}
		time.Sleep(quiet / 2)
		expect("in the middle of a change")
		content.Store("[test]\nseconds = 2")
		signs <- struct{}{}
		time.Sleep(quiet - 1)
		expect("just before it is over")
		time.Sleep(time.Nanosecond)
		expect("when it is over", "2")

		signs <- struct{}{}
		time.Sleep(patience)
		expect("a sign without a change")

		content.Store("nonsense")
		signs <- struct{}{}
		time.Sleep(quiet)
		expect("a bad file", "error")
		signs <- struct{}{}
		time.Sleep(quiet)
		expect("the same bad file again")
		content.Store("other nonsense")
		signs <- struct{}{}
		time.Sleep(quiet)
		expect("another bad file", "error")

		content.Store("[test]\nseconds = 3")
		start := time.Now()
		for time.Since(start) < patience-1 {
			select {
			case signs <- struct{}{}:
			default:
			}
			time.Sleep(quiet / 3)
		}
		time.Sleep(patience - time.Since(start))
		expect("while it never is over", "3")
		time.Sleep(patience)
		expect("the rest of it")

		content.Store("[test]\nseconds = 4")
		time.Sleep(look)
		expect("without any sign", "4")

		signs <- struct{}{}
		synctest.Wait()
		cancel()
		<-done
		expect("at the end")
	})
}

// TestWatch holds the kernel's part: every way in which a file changes is seen, much sooner than by looking.
func TestWatch(t *testing.T) {
	const here = "[test]\nseconds = "
	r := newTree(t)
	reports := make(chan string, 10)
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- Watch(ctx, r.Paths, slog.New(slog.NewTextHandler(&log, nil)), func(l Loaded, err error) {
			if err != nil {
				reports <- "error"
				return
			}
			reports <- format(int64(l.Config.Test.Seconds))
		})
	}()
	expect := func(what, want string) {
		t.Helper()
		select {
		case got := <-reports:
			if got != want {
				t.Fatalf("%s: %s, want %s", what, got, want)
			}
		case <-time.After(look - time.Second):
			t.Fatalf("%s: not seen", what)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	move := func(from, to string) { must(os.Rename(r.path(from), r.path(to))) }

	expect("nothing there", "10")
	r.write(etc, here+"1")
	expect("folders that appear", "1")
	r.write(etc, here+"2")
	expect("written in place", "2")
	must(WriteFile(r.path(etc), []byte(here+"3"), 0o644))
	expect("replaced", "3")
	move(etc, etc+"~")
	r.write(etc, here+"4")
	expect("an editor that keeps the old file", "4")
	r.write(etc, "nonsense")
	expect("a bad file", "error")
	r.write(etc, here+"5")
	expect("mended", "5")
	r.write("etc/new/linerate.toml", here+"6")
	move("etc/linerate", "etc/old")
	move("etc/new", "etc/linerate")
	expect("a folder that is replaced", "6")
	r.write(etc, here+"7")
	expect("a file in the new folder", "7")
	must(os.RemoveAll(r.path("etc")))
	expect("everything removed", "10")
	r.write("opt/real/linerate.toml", here+"8")
	must(os.MkdirAll(filepath.Dir(r.path(etc)), 0o755))
	must(os.Symlink("../../opt/real/linerate.toml", r.path(etc)))
	expect("a link", "8")
	r.write("opt/real/linerate.toml", here+"9")
	expect("a file behind a link", "9")
	r.write(firmware, here+"11")
	expect("the boot partition", "11")
	must(os.RemoveAll(r.path("boot/firmware")))
	expect("the boot partition is gone", "9")
	r.set("test.seconds", 12)
	expect("a setting", "12")
	r.write("etc/linerate/.linerate.toml.swp", "x")
	r.write("var/lib/linerate/results.jsonl", "x")
	must(os.Chmod(r.path(settings), 0o600))
	cancel()
	must(<-ended)
	if len(reports) > 0 || log.Len() > 0 {
		t.Errorf("%d reports too many, log %q", len(reports), log.String())
	}
}
