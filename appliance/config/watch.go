package config

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// How a change is taken up: when nothing has happened for quiet, but at most patience after the first sign. An editor
// writes a file in several steps.
const (
	quiet    = 100 * time.Millisecond
	patience = time.Second
)

// look is how often the files are looked at without any sign. The kernel tells nothing of a boot partition that is
// mounted over a watched folder, nor of a change made by another box on a network file system.
const look = 5 * time.Second

// Watch reads all layers at once and again whenever one of them may have changed, until ctx ends. It calls report, from
// one goroutine, with what Load returns: the first time always, then only when the files say another thing than before,
// so that a bad file is reported once. Watching needs no file and no folder to exist.
//
// Where the kernel gives no notification (too many watches), Watch says so once and looks every few seconds.
func Watch(ctx context.Context, p Paths, log *slog.Logger, report func(Loaded, error)) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w := &folderWatch{paths: p, log: log}
	var err error
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		log.Warn("no notification of changed config files, looking every few seconds", "error", err)
	} else {
		defer w.notify.Close()
	}
	signs := make(chan struct{}, 1)
	w.follow()
	if w.notify != nil {
		go w.relay(ctx, signs)
	}
	follow(ctx, signs, func() []source {
		w.follow() // first the folders, then the files: what changes between is a sign
		return read(p)
	}, report)
	return nil
}

// follow is the part of Watch that knows no file system.
func follow(ctx context.Context, signs <-chan struct{}, read func() []source, report func(Loaded, error)) {
	var last [sha256.Size]byte
	first := true
	poll := time.NewTicker(look)
	defer poll.Stop()
	for {
		sources := read()
		if now := fingerprint(sources); first || now != last {
			first, last = false, now
			report(load(sources))
		}
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			continue
		case <-signs:
		}
		if !settle(ctx, signs) {
			return
		}
	}
}

// settle waits until the signs are over; false when ctx ended.
func settle(ctx context.Context, signs <-chan struct{}) bool {
	end := time.After(patience)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-end:
			return true
		case <-time.After(quiet):
			return true
		case <-signs:
		}
	}
}

// folderWatch watches the folders that the files are in, or will be in.
type folderWatch struct {
	paths  Paths
	log    *slog.Logger
	notify *fsnotify.Watcher
	failed bool
}

// follow watches each file's folder and the one above it, which tells when the folder is replaced, and for a folder that
// does not exist the nearest one above that does. A file that is a link is watched where it leads, too.
func (w *folderWatch) follow() {
	if w.notify == nil {
		return
	}
	want := map[string]bool{}
	for _, file := range w.files() {
		dir := filepath.Dir(file)
		for !isDir(dir) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
		}
		want[dir] = true
		want[filepath.Dir(dir)] = true
	}
	for _, dir := range w.notify.WatchList() {
		if !want[dir] {
			_ = w.notify.Remove(dir)
		}
	}
	for dir := range want {
		// Adding a folder again follows the name to the folder that has it now.
		if err := w.notify.Add(dir); err != nil && !w.failed && isDir(dir) {
			w.failed = true
			w.log.Warn("config folder cannot be watched, looking every few seconds", "folder", dir, "error", err)
		}
	}
}

func (w *folderWatch) files() []string {
	var files []string
	for _, file := range w.paths.candidates() {
		if whole, err := filepath.Abs(file); err == nil {
			file = whole
		}
		files = append(files, file)
		if real, err := filepath.EvalSymlinks(file); err == nil && real != file {
			files = append(files, real)
		}
	}
	return files
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// relay turns events into signs. Events of foreign files (results, an editor's temporary files) are none.
func (w *folderWatch) relay(ctx context.Context, signs chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.notify.Events:
			if !ok {
				return
			}
			if !w.concerns(e.Name) {
				continue
			}
		case _, ok := <-w.notify.Errors:
			if !ok {
				return
			}
			// The queue overflowed: anything may have changed.
		}
		select {
		case signs <- struct{}{}:
		default:
		}
	}
}

// concerns says whether a path is one of the files, or a folder on the way to one.
func (w *folderWatch) concerns(path string) bool {
	return slices.ContainsFunc(w.files(), func(file string) bool {
		return file == path || strings.HasPrefix(file, strings.TrimSuffix(path, "/")+"/")
	})
}
