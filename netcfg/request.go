package netcfg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// RequestDir is the folder in the run folder where wishes are put: one small JSON file each, NAME.json.
const RequestDir = "request"

// Request is a wish to the keeper that is no setting.
type Request struct {
	Request string `json:"request"` // confirm, restore
}

// Answer says what became of a request.
type Answer struct {
	Time    time.Time `json:"time"`
	File    string    `json:"file"` // its name, without .json
	Request string    `json:"request"`
	OK      bool      `json:"ok"`
	Text    string    `json:"text"`
}

// The requests that are known.
const (
	RequestConfirm = "confirm"
	RequestRestore = "restore"
)

const (
	maxRequest  = 4096
	maxRequests = 32 // looked at in one go
	maxAnswers  = 16
)

func parseRequest(b []byte) (Request, error) {
	var r Request
	if err := json.Unmarshal(b, &r); err != nil {
		return Request{}, err
	}
	switch r.Request {
	case RequestConfirm, RequestRestore:
		return r, nil
	}
	return Request{}, fmt.Errorf("no such request: %.40q", r.Request)
}

// WriteRequest puts a wish where the keeper finds it, and returns the name by which it is answered in netcfg.json. It
// needs the right to write there: root, or the group linerate.
func WriteRequest(runDir string, r Request) (name string, err error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	name = fmt.Sprintf("%s-%d-%d", r.Request, os.Getpid(), time.Now().UnixNano())
	return name, writeFile(filepath.Join(runDir, RequestDir, name+".json"), b, 0o644, false)
}

// takeRequests reads and removes what lies there. What is no request is answered as such.
func (k *Keeper) takeRequests() (out []Request, files []string) {
	dir := filepath.Join(k.runDir, RequestDir)
	d, err := os.Open(dir)
	if err != nil {
		return nil, nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxRequests)
	for _, name := range names {
		file, ok := strings.CutSuffix(name, ".json")
		if !ok || strings.HasPrefix(name, ".") {
			continue
		}
		b, err := readRegular(filepath.Join(dir, name), maxRequest)
		var r Request
		if err == nil {
			r, err = parseRequest(b)
		}
		if gone := os.Remove(filepath.Join(dir, name)); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			k.log.Warn("a request stays, and is not done twice", "file", name, "error", gone)
			continue
		}
		if err != nil {
			k.answer(file, "", false, err.Error())
			continue
		}
		out, files = append(out, r), append(files, file)
	}
	return out, files
}

func (k *Keeper) answer(file, request string, ok bool, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answers = append(k.answers, Answer{time.Now(), file, request, ok, text})
	k.answers = k.answers[max(0, len(k.answers)-maxAnswers):]
}

// serve does what is requested.
func (k *Keeper) serve(ctx context.Context, w Wanted) {
	requests, files := k.takeRequests()
	for i, r := range requests {
		text, err := "", error(nil)
		switch r.Request {
		case RequestConfirm:
			text, err = k.Confirm(ctx)
		case RequestRestore:
			var report Report
			if report, err = k.Restore(ctx, w); err == nil && !report.Good() {
				err = errors.New(strings.Join(report.Errors(), "; "))
			}
			text = "everything is as found"
		}
		if err != nil {
			text = err.Error()
		}
		k.answer(files[i], r.Request, err == nil, text)
	}
}

// Confirm accepts the change that waits, and says what it did in a line.
func (k *Keeper) Confirm(ctx context.Context) (string, error) {
	unlock, err := k.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if b := k.readBoots(); b.Failed >= maxFailed {
		k.writeBoots(boots{Boot: b.Boot, Ended: true})
		return "the network is set up again", nil
	}
	t := k.readTrial()
	if t == nil {
		return "no change waits to be confirmed", nil
	}
	if err := k.confirm(ctx, t); err != nil {
		return "", err
	}
	return "confirmed: the change is kept", nil
}

// wake reports that something was put into the folder of requests. It ends with ctx. Where the folder cannot be watched
// requests wait for the next look.
func (k *Keeper) wake(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		k.log.Warn("cannot watch for requests", "error", err)
		return out
	}
	if err := watcher.Add(filepath.Join(k.runDir, RequestDir)); err != nil {
		k.log.Debug("cannot watch for requests", "error", err)
	}
	go func() {
		defer watcher.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case <-watcher.Errors:
			case e := <-watcher.Events:
				if !e.Has(fsnotify.Create) || !strings.HasSuffix(e.Name, ".json") {
					continue
				}
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out
}

// testing says whether a test runs: the server holds a shared lock meanwhile. The lock is looked at, and let go.
func (k *Keeper) testing() bool {
	f, err := os.OpenFile(filepath.Join(k.runDir, "testing"), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer f.Close() // which lets go
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}
