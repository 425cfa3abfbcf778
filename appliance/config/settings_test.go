package config

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func (r tree) settings() *Settings {
	r.t.Helper()
	if err := os.MkdirAll(r.StateDir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	return NewSettings(r.Paths, nil)
}

func (r tree) set(key string, value any) {
	r.t.Helper()
	if err := r.settings().Set(key, value); err != nil {
		r.t.Fatalf("Set(%s, %v): %v", key, value, err)
	}
}

func (r tree) read(name string) string {
	r.t.Helper()
	b, err := os.ReadFile(r.path(name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func TestSet(t *testing.T) {
	r := newTree(t)
	r.write(etc, "[[port]]\nmatch = \"lan 1\"\nmtu = 4000\n[[target]]\nname = \"core\"\nhost = \"h\"\n")
	r.set("ports.mtu", 9000)
	r.set("test.directions", []string{"both"})
	r.set("test.seconds", 30.0)
	r.set("test.target", "core")
	r.set("display.sleep_after", "600s") // what is in force already
	r.set("ports.address", []any{"192.0.2.1/24"})
	want := `# Written by linerate: what buttons and web changed, laid over the config files.
# ` + "`linerate config reset`" + ` clears it.

[ports]
mtu = 9000
address = ["192.0.2.1/24"]

[test]
target = "core"
seconds = 30
directions = ["both"]

# What the settings stand in for; one is dropped when this changes in a file.
[covered]
"port.lan 1.mtu" = 4000
"ports.address" = ["auto"]
"ports.mtu" = "leave"
"test.directions" = ["rx", "tx"]
"test.seconds" = 10
"test.target" = "auto"
`
	if diff := cmp.Diff(want, r.read(settings)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(r.path(settings)); err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	l := r.load()
	if l.Config.Ports.MTU != 9000 || l.Config.Port[0].MTU != 9000 {
		t.Errorf("mtu %v, of the port %v: the setting must win", l.Config.Ports.MTU, l.Config.Port[0].MTU)
	}
	for _, k := range l.Keys {
		if k.Key == "port.lan 1.mtu" && !strings.HasPrefix(k.Origin, r.path(settings)) {
			t.Errorf("origin of the port's mtu: %s", k.Origin)
		}
	}
	if err := r.settings().Reset("ports.mtu", "test.target"); err != nil {
		t.Fatal(err)
	}
	if l := r.load(); l.Config.Port[0].MTU != 4000 || l.Config.Test.Target != Auto || l.Config.Test.Seconds != 30 {
		t.Errorf("after Reset of two: %+v %+v", l.Config.Port, l.Config.Test)
	}
	if err := r.settings().Reset(); err != nil {
		t.Fatal(err)
	}
	if l := r.load(); l.Config.Test.Seconds != 10 {
		t.Errorf("after Reset of all: %+v", l.Config.Test)
	}
}

func TestSetRefuses(t *testing.T) {
	r := newTree(t)
	r.set("test.seconds", 20)
	before := r.read(settings)
	for _, c := range []struct {
		key   string
		value any
		want  string
	}{
		{"ports.select", []string{"eth0"}, `"ports.select" is no setting: it can only be changed in the config file`},
		{"port.lan1.mtu", 9000, `"port.lan1.mtu" is no setting: it can only be changed in the config file`},
		{"test.second", 5, `unknown setting "test.second": the nearest known one is test.seconds`},
		{"ports.mtu", 70000, `ports.mtu = 70000: want a number of bytes from 68 to 65535, "max" or "leave"`},
		{"ports.mtu", "9000", `ports.mtu = "9000": want a number of bytes from 68 to 65535, "max" or "leave"`},
		{"test.seconds", 1.5, `test.seconds = 1.5: want a whole number from 1 to 86400`},
		{"test.target", "core", `test.target = "core" names no [[target]]`},
		{"test.directions", []any{"rx", 5.0}, `test.directions = ["rx", 5]: entry 5: want "rx", "tx" or "both"`},
		{"server.concurrency", map[string]any{"a": 1.0}, `server.concurrency = { a = 1 }: want "parallel", "queue" or "exclusive"`},
	} {
		err := r.settings().Set(c.key, c.value)
		var refused *SettingError
		if !errors.As(err, &refused) || refused.Key != c.key || err.Error() != c.want {
			t.Errorf("Set(%s, %v)\n got %v\nwant %s", c.key, c.value, err, c.want)
		}
	}
	// All or nothing.
	if err := r.settings().Patch(map[string]any{"display.rotate": 180, "test.streams": 0}); err == nil {
		t.Error("a patch with one bad value passes")
	}
	if after := r.read(settings); after != before {
		t.Errorf("the file changed:\n%s", after)
	}
	if err := r.settings().Patch(map[string]any{"display.rotate": 180, "test.seconds": nil}); err != nil {
		t.Error(err)
	}
	if c := r.load().Config; c.Display.Rotate != 180 || c.Test.Seconds != 10 {
		t.Errorf("patched: %+v %+v", c.Display, c.Test)
	}
}

// TestSettingIsDropped when what it covers changes in a file, and only then.
func TestSettingIsDropped(t *testing.T) {
	base := "[ports]\nmtu = 1500\n[[port]]\nmatch = \"lan1\"\nmtu = 4000\n"
	for _, c := range []struct {
		name, etc, boot string
		note            string
	}{
		{"nothing changed", base, "", ""},
		{"something else changed", base + "[test]\nstreams = 3\n", "[web]\nenable = false", ""},
		{"written in another way", "ports.mtu = 1500\nport = [{ match = \"lan1\", mtu = 4000 }]", "", ""},
		{"the key", "[ports]\nmtu = 1400\n[[port]]\nmatch = \"lan1\"\nmtu = 4000\n", "", "ETC:2 now says ports.mtu = 1400"},
		{"the key is gone", "[[port]]\nmatch = \"lan1\"\nmtu = 4000\n", "", `default now says ports.mtu = "leave"`},
		{"in a higher file", base, "[ports]\nmtu = \"max\"", `BOOT:2 now says ports.mtu = "max"`},
		{"mtu of a port", "[ports]\nmtu = 1500\n[[port]]\nmatch = \"lan1\"\nmtu = 8000\n", "", "ETC:5 now says port.lan1.mtu = 8000"},
		{"a further port", base + "[[port]]\nmatch = \"lan2\"\nmtu = 8000\n", "", "ETC:8 now says port.lan2.mtu = 8000"},
		{"a port less", "[ports]\nmtu = 1500\n", "", "port.lan1.mtu stands in no file any more"},
		{"a file at fault", "[ports]\nmtu = 1400\nbad", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTree(t)
			r.write(etc, base)
			r.set("ports.mtu", 9000)
			r.set("test.seconds", 60)
			r.write(etc, c.etc)
			r.write(boot, c.boot)
			l, _ := Load(r.Paths)
			if c.note == "" {
				if l.Config.Ports.MTU != 9000 || len(l.Notes) > 0 {
					t.Fatalf("mtu %v, notes %q; want the setting kept", l.Config.Ports.MTU, l.Notes)
				}
				return
			}
			want := "setting ports.mtu = 9000 dropped: " + strings.NewReplacer("ETC", r.path(etc), "BOOT", r.path(boot)).Replace(c.note)
			if len(l.Notes) != 1 || l.Notes[0] != want {
				t.Errorf("notes\n got %q\nwant %q", l.Notes, want)
			}
			if l.Config.Ports.MTU == 9000 || l.Config.Test.Seconds != 60 {
				t.Errorf("mtu %v, %d s: the one goes, the other stays", l.Config.Ports.MTU, l.Config.Test.Seconds)
			}
			if err := r.settings().DropStale(); err != nil {
				t.Fatal(err)
			}
			r.write(etc, base)
			r.write(boot, "")
			if l := r.load(); l.Config.Ports.MTU != 1500 || l.Config.Test.Seconds != 60 {
				t.Errorf("after the file changed back: mtu %v, %d s; a dropped setting is gone", l.Config.Ports.MTU, l.Config.Test.Seconds)
			}
		})
	}
}

func TestSettingOfATargetThatIsGone(t *testing.T) {
	r := newTree(t)
	r.write(etc, "[[target]]\nname = \"core\"\nhost = \"h\"\n")
	r.set("test.target", "core")
	r.set("test.streams", 4)
	r.write(etc, "")
	l := r.load()
	if len(l.Notes) != 1 || l.Notes[0] != `setting test.target = "core" dropped: test.target = "core" names no [[target]]` {
		t.Errorf("notes %q", l.Notes)
	}
	if c := l.Config.Test; c.Target != Auto || c.Streams != 4 {
		t.Errorf("%+v", c)
	}
	r.set("test.streams", 2)
	if strings.Contains(r.read(settings), "core") {
		t.Errorf("still there:\n%s", r.read(settings))
	}
}

// TestSettingsWhileAFileIsAtFault: the person at the box goes on, and the settings made before keep what they covered.
func TestSettingsWhileAFileIsAtFault(t *testing.T) {
	r := newTree(t)
	r.write(etc, "[ports]\nmtu = 1500\n[[target]]\nname = \"core\"\nhost = \"h\"\n")
	r.set("ports.mtu", 9000)
	r.set("test.target", "core")
	r.write(etc, "[ports]\nmtu = 1500\n[[target]]\nname = \"core\"\nhost = \"h\"\ntypo = 1\n")
	r.set("display.rotate", 180)
	r.write(etc, "[ports]\nmtu = 1500\n[[target]]\nname = \"core\"\nhost = \"h\"\n")
	l := r.load()
	if len(l.Notes) > 0 || l.Config.Ports.MTU != 9000 || l.Config.Test.Target != "core" || l.Config.Display.Rotate != 180 {
		t.Errorf("notes %q, %+v %+v %+v", l.Notes, l.Config.Ports, l.Config.Test, l.Config.Display)
	}
}

func TestSettingsByHandStay(t *testing.T) {
	r := newTree(t)
	r.write(settings, "[ports]\nmtu = 9000\n")
	r.write(etc, "[ports]\nmtu = 1500\n")
	if l := r.load(); l.Config.Ports.MTU != 9000 || len(l.Notes) > 0 {
		t.Errorf("mtu %v, notes %q", l.Config.Ports.MTU, l.Notes)
	}
	r.set("test.seconds", 5)
	r.write(etc, "[ports]\nmtu = 1400\n")
	if l := r.load(); l.Config.Ports.MTU != 9000 {
		t.Errorf("mtu %v: nobody knows what it covered", l.Config.Ports.MTU)
	}
}

// TestBadSettingsArePutAside: nothing is lost, and the next press works.
func TestBadSettingsArePutAside(t *testing.T) {
	for name, make := range map[string]func(r tree) error{
		"link":      func(r tree) error { return os.Symlink("/etc/passwd", r.path(settings)) },
		"folder":    func(r tree) error { return os.Mkdir(r.path(settings), 0o755) },
		"huge":      func(r tree) error { r.write(settings, ""); return os.Truncate(r.path(settings), 1<<30) },
		"no TOML":   func(r tree) error { r.write(settings, "\x00\x00"); return nil },
		"forbidden": func(r tree) error { r.write(settings, "[web]\npin = \"0000\"\n"); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newTree(t)
			r.settings()
			if err := make(r); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(r.Paths); err == nil {
				t.Error("Load: want an error")
			}
			var log bytes.Buffer
			s := NewSettings(r.Paths, slog.New(slog.NewTextHandler(&log, nil)))
			if err := s.Set("test.seconds", 5); err != nil {
				t.Fatal(err)
			}
			if c := r.load().Config; c.Test.Seconds != 5 {
				t.Errorf("%+v", c.Test)
			}
			if _, err := os.Lstat(r.path(settings) + ".bad"); err != nil || strings.Count(log.String(), "\n") != 1 {
				t.Errorf("put aside: %v, log %q", err, log.String())
			}
		})
	}
}

func TestSetAtOnce(t *testing.T) {
	r := newTree(t)
	s := r.settings()
	var wg sync.WaitGroup
	for _, k := range []string{"test.seconds", "test.streams"} {
		for n := range 20 {
			wg.Go(func() {
				if err := s.Set(k, n+20); err != nil {
					t.Error(err)
				}
				if _, err := Load(r.Paths); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if c := r.load().Config.Test; c.Seconds < 20 || c.Streams < 20 {
		t.Errorf("%+v: one setting overwrote the other", c)
	}
}

func TestNoStateFolder(t *testing.T) {
	r := newTree(t)
	if err := NewSettings(r.Paths, nil).Set("test.seconds", 5); errorText(err) != "write "+r.path(settings)+": no such file or directory" {
		t.Errorf("error %v", err)
	}
	if err := NewSettings(Paths{}, nil).Set("test.seconds", 5); err == nil {
		t.Error("want an error")
	}
}

// crashDisk keeps what a disk would: content is there after Sync of the file, names after syncDir. It loses power before
// the step that brings steps to 0, and fails there if fail is set, as a full disk does.
type crashDisk struct {
	steps  int
	fail   bool
	names  map[string]*crashFile // as the running system sees them
	stored map[string]*crashFile // as they are after a power cut
}

type crashFile struct {
	d             *crashDisk
	data, durable []byte
}

var errPower = errors.New("power is off")

func (d *crashDisk) step() error {
	d.steps--
	if d.steps == 0 && d.fail {
		return &fs.PathError{Op: "x", Path: "y", Err: syscall.ENOSPC}
	}
	if d.steps <= 0 && !d.fail {
		return errPower
	}
	return nil
}

func (d *crashDisk) create(path string, _ fs.FileMode) (file, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	if d.names[path] != nil {
		return nil, fs.ErrExist
	}
	f := &crashFile{d: d}
	d.names[path] = f
	return f, nil
}

func (d *crashDisk) rename(from, to string) error {
	if err := d.step(); err != nil {
		return err
	}
	d.names[to] = d.names[from]
	delete(d.names, from)
	// A journal may write a rename at any time, before the content of the file if that was not synced.
	d.stored[to] = d.names[to]
	return nil
}

func (d *crashDisk) remove(path string) error {
	if d.names[path] == nil {
		return fs.ErrNotExist
	}
	delete(d.names, path)
	return nil
}

func (d *crashDisk) syncDir(string) error {
	if err := d.step(); err != nil {
		return err
	}
	d.stored = map[string]*crashFile{}
	for name, f := range d.names {
		d.stored[name] = f
	}
	return nil
}

func (f *crashFile) Write(b []byte) (int, error) {
	if err := f.d.step(); err != nil {
		return 0, err
	}
	f.data = append(f.data, b...)
	return len(b), nil
}

func (f *crashFile) Sync() error {
	if err := f.d.step(); err != nil {
		return err
	}
	f.durable = f.data
	return nil
}

func (f *crashFile) Close() error { return nil }

// lateDisk writes a rename only when the folder is synced: the other thing that a journal may do.
type lateDisk struct{ *crashDisk }

func (d lateDisk) rename(from, to string) error {
	before, had := d.stored[to]
	err := d.crashDisk.rename(from, to)
	delete(d.stored, to)
	if had {
		d.stored[to] = before
	}
	return err
}

// TestPowerCutWhileWriting cuts the power before each step: the file is the old one or the new one, and the new one once
// WriteFile has returned.
func TestPowerCutWhileWriting(t *testing.T) {
	const path = "/state/settings.toml"
	for _, fail := range []bool{false, true} {
		for _, late := range []bool{false, true} {
			for steps := 1; steps <= 8; steps++ {
				old := &crashFile{data: []byte("old"), durable: []byte("old")}
				left := &crashFile{data: []byte("left by a power cut")}
				d := &crashDisk{steps: steps, fail: fail,
					names:  map[string]*crashFile{path: old, "/state/.settings.toml.new": left},
					stored: map[string]*crashFile{path: old}}
				var on disk = d
				if late {
					on = lateDisk{d}
				}
				err := writeFile(on, path, []byte("new"), 0o644)
				got := string(d.stored[path].durable)
				if got != "old" && got != "new" || err == nil && got != "new" {
					t.Errorf("power cut at step %d (late %v): %q, error %v", steps, late, got, err)
				}
				if fail && err != nil && (errorText(err) != "write "+path+": no space left on device" || len(d.names) != 1) {
					t.Errorf("full disk at step %d: %v, %d names", steps, err, len(d.names))
				}
			}
		}
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	target := filepath.Join(dir, "target")
	if err := os.WriteFile(target, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, ".f.new")); err != nil {
		t.Fatal(err)
	}
	defer syscall.Umask(syscall.Umask(0o077))
	if err := WriteFile(path, []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if b, _ := os.ReadFile(target); string(b) != "untouched" {
		t.Errorf("followed a link: %q", b)
	}
	if list, _ := os.ReadDir(dir); len(list) != 2 {
		t.Errorf("left behind: %v", list)
	}
}
