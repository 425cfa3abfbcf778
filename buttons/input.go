package buttons

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

const (
	settle     = time.Second // udev sets the rights of a device after it has appeared
	maxDevices = 64          // that are looked at; a box has a handful
)

// sight is a device as it was when it was looked at. A path with another file behind it is another device.
type sight struct {
	file os.FileInfo
	info deviceInfo
}

// lookForDevices opens input devices that have come and lets go of those that may not be read any longer.
func (s *session) lookForDevices(ctx context.Context) {
	all := s.survey()
	wanted := resolve(s.root, s.wanted)
	for _, d := range all {
		keys, why := choose(d, all, wanted, s.profile)
		switch {
		case len(keys) == 0:
			s.forget(d.path)
			s.say(d.path, slog.LevelDebug, fmt.Sprintf("%s (%s): left alone: %s", d.path, d.name, why))
		case s.devices[d.path] == nil:
			s.openInput(ctx, d, keys, why)
		}
	}
	for i, w := range wanted {
		if w == auto {
			continue
		}
		source := "device " + w
		if slices.ContainsFunc(all, func(d deviceInfo) bool { return w == d.name || w == d.path }) {
			delete(s.faults, source)
			delete(s.said, source)
		} else {
			s.fault(source, "no keys "+s.wanted[i], fmt.Sprintf("[buttons] devices: no input device %q: plug it in, or "+
				"correct the name (see /proc/bus/input/devices)", s.wanted[i]))
		}
	}
}

// survey returns what all devices say of themselves. What cannot be asked is said and left out.
func (s *session) survey() []deviceInfo {
	paths, _ := filepath.Glob(filepath.Join(s.inputs, "event*")) // the pattern is good, nothing else is an error
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	if len(paths) > maxDevices {
		s.say(s.inputs, slog.LevelWarn, fmt.Sprintf("%s: %d devices, only the first %d are looked at", s.inputs, len(paths),
			maxDevices))
		paths = paths[:maxDevices]
	}
	known, denied := map[string]sight{}, map[string]time.Time{}
	var all []deviceInfo
	for _, path := range paths {
		file, err := os.Stat(path)
		if old, ok := s.known[path]; err == nil && ok && os.SameFile(old.file, file) {
			known[path] = old
			all = append(all, old.info)
			continue
		}
		s.forget(path) // another device than before, if there was one
		info, err := s.ask(path)
		if err != nil {
			denied[path] = time.Now()
			if since, before := s.denied[path]; before {
				denied[path] = since
			}
			if time.Since(denied[path]) >= settle {
				s.fault(path, "cannot read "+filepath.Base(path), fmt.Sprintf("keys: %v: %s", err, advice(err)))
			}
			continue
		}
		delete(s.faults, path)
		known[path] = sight{file, info}
		all = append(all, info)
	}
	for path := range s.said {
		if filepath.Dir(path) == s.inputs && !slices.Contains(paths, path) { // gone
			delete(s.faults, path)
			delete(s.said, path)
		}
	}
	s.known, s.denied = known, denied
	return all
}

// settling says whether a device that has just come could not be opened yet.
func (s *session) settling() bool {
	for _, since := range s.denied {
		if time.Since(since) < settle {
			return true
		}
	}
	return false
}

func advice(err error) string {
	switch {
	case errors.Is(err, os.ErrPermission):
		return "the server's user must be in the group input (linerate units)"
	case errors.Is(err, unix.EBUSY):
		return "another program has taken these keys: stop it"
	}
	return "tried again every " + lookAgain.String()
}

func (s *session) ask(path string) (deviceInfo, error) {
	file, control, err := s.openDevice(path)
	if err != nil {
		return deviceInfo{}, err
	}
	defer file.Close()
	return control.describe()
}

// openInput takes a device and starts its reader.
func (s *session) openInput(ctx context.Context, info deviceInfo, keys map[uint16]meaning, why string) {
	file, control, err := s.openDevice(info.path)
	if err == nil && !info.sharesSystem() {
		if err = control.grab(); err != nil {
			file.Close()
			err = fmt.Errorf("take %s for the box alone: %w", info.path, err)
		}
	}
	if err != nil {
		s.fault(info.path, "cannot use "+info.name, fmt.Sprintf("keys: %v: %s", err, advice(err)))
		return
	}
	d := &device{info: info, file: file, control: control, meanings: keys}
	s.devices[info.path] = d
	delete(s.faults, info.path)
	life := s.adopt(info.path, keys, 0) // the kernel's drivers have debounced already
	s.say(info.path, slog.LevelInfo, fmt.Sprintf("keys: %s (%s): %s", info.name, info.path, why))
	s.readers.Go(func() {
		err := d.read(func(code uint16, at time.Time, down, first bool) {
			s.send(ctx, news{switchID: switchID{info.path, code}, life: life, at: at, down: down, first: first})
		})
		if !errors.Is(err, os.ErrClosed) {
			s.send(ctx, news{switchID: switchID{source: info.path}, life: life, ended: true, err: err})
		}
	})
}

// watchFolder tells of devices that come and go, and of their rights, until ctx ends. Without a folder it watches the one
// above: the kernel makes /dev/input with the first device. Only then, since every write to a device there is an event.
func watchFolder(ctx context.Context, folder string, log *slog.Logger, changed chan<- struct{}) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("keys: cannot watch for new devices, looking every "+lookAgain.String(), "error", err)
		return
	}
	defer w.Close()
	above := filepath.Dir(folder)
	watch := func() {
		if w.Add(folder) == nil {
			_ = w.Remove(above) // an error: it was not watched
			return
		}
		err := w.Add(above)
		if w.Add(folder) == nil { // made meanwhile
			_ = w.Remove(above)
		} else if err != nil {
			log.Warn("keys: cannot watch for new devices, looking every "+lookAgain.String(), "folder", above, "error", err)
		}
	}
	watch()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			if e.Name == folder || filepath.Dir(e.Name) == above && filepath.Base(e.Name) == filepath.Base(folder) {
				watch()
			} else if !strings.HasPrefix(filepath.Base(e.Name), "event") || e.Op == fsnotify.Write {
				continue
			}
		case _, ok := <-w.Errors: // an overflow: look
			if !ok {
				return
			}
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}
