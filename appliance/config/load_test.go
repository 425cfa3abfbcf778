package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree is a root with a state folder in it.
type tree struct {
	t *testing.T
	Paths
}

func newTree(t *testing.T) tree {
	root := t.TempDir()
	return tree{t, Paths{Root: root, StateDir: filepath.Join(root, "var/lib/linerate")}}
}

func (r tree) path(name string) string { return filepath.Join(r.Root, name) }

func (r tree) write(name, content string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(r.path(name)), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.path(name), []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r tree) load() Loaded {
	r.t.Helper()
	l, err := Load(r.Paths)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

const (
	etc      = "etc/linerate/linerate.toml"
	firmware = "boot/firmware/linerate.toml"
	boot     = "boot/linerate.toml"
	settings = "var/lib/linerate/settings.toml"
)

// said lists key, value and origin of what stands in a file, below the root.
func (r tree) said(l Loaded) []string {
	var out []string
	for _, k := range l.Keys {
		if k.Origin != DefaultOrigin {
			out = append(out, k.String()+" # "+strings.TrimPrefix(k.Origin, r.Root+"/"))
		}
	}
	return out
}

func TestNoFileServes(t *testing.T) {
	l := newTree(t).load()
	if diff := cmp.Diff(Default(), l.Config, comparePrefix); diff != "" {
		t.Errorf("-default +got:\n%s", diff)
	}
	if len(l.Keys) != len(schema) || len(l.Notes) > 0 || len(l.Files) > 0 {
		t.Errorf("%d keys, notes %q, files %q", len(l.Keys), l.Notes, l.Files)
	}
}

func TestLayers(t *testing.T) {
	r := newTree(t)
	r.write(etc, `[ports]
mtu = 1500
select = ["lan1", "lan2"]
[[port]]
match = "lan1"
mtu = 4000
native = false
[[port]]
match = "lan2"
vlan = [{ id = 7 }]
[[target]]
name = "core"
host = "192.0.2.10"
expect = "2.3G"
[server]
allow = ["192.0.2.0/24"]
queue_wait = "5s"
`)
	r.write(firmware, `[ports]
select = ["lan3"]
[[port]]
match = "lan2"
vlan = [{ id = 8, address = ["dhcp"] }]
[[port]]
match = "lan1"
mtu = 9000
[[target]]
name = "edge"
host = "192.0.2.20"
[[target]]
name = "core"
host = "192.0.2.11"
[web]
pin = "123456"
`)
	r.write(boot, "[ports]\nselect = [\"only without firmware\"]\n")
	r.write(settings, "[test]\ntarget = \"edge\"\n[cpu]\ngovernor = \"leave\"\n")
	l := r.load()
	want := []string{
		`ports.select = ["lan3"] # boot/firmware/linerate.toml:2`,
		`ports.mtu = 1500 # etc/linerate/linerate.toml:2`,
		`cpu.governor = "leave" # var/lib/linerate/settings.toml:4`,
		`server.queue_wait = "5s" # etc/linerate/linerate.toml:17`,
		`server.allow = ["192.0.2.0/24"] # etc/linerate/linerate.toml:16`,
		`test.target = "edge" # var/lib/linerate/settings.toml:2`,
		`web.pin = "****" # boot/firmware/linerate.toml:16`,
		`port.lan1.match = "lan1" # boot/firmware/linerate.toml:7`,
		`port.lan1.mtu = 9000 # boot/firmware/linerate.toml:8`,
		`port.lan1.native = false # etc/linerate/linerate.toml:7`,
		`port.lan2.match = "lan2" # boot/firmware/linerate.toml:4`,
		`port.lan2.mtu = 1500 # etc/linerate/linerate.toml:2`,
		`port.lan2.vlan = [{ address = ["dhcp"], id = 8 }] # boot/firmware/linerate.toml:5`,
		`target.core.name = "core" # boot/firmware/linerate.toml:13`,
		`target.core.host = "192.0.2.11" # boot/firmware/linerate.toml:14`,
		`target.core.expect = "2.3G" # etc/linerate/linerate.toml:14`,
		`target.edge.name = "edge" # boot/firmware/linerate.toml:10`,
		`target.edge.host = "192.0.2.20" # boot/firmware/linerate.toml:11`,
	}
	if diff := cmp.Diff(want, r.said(l)); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	if l.Config.Web.PIN != "123456" {
		t.Errorf("pin = %q", l.Config.Web.PIN)
	}
	if n := len(l.Files); n != 3 {
		t.Errorf("%d files read, want 3", n)
	}
}

func TestFileInPlaceOfTheMainOne(t *testing.T) {
	r := newTree(t)
	r.write(etc, "[test]\nseconds = 1\nstreams = 1")
	r.write(boot, "[test]\nstreams = 2")
	r.write("mine.toml", "[test]\nseconds = 3\nstreams = 3")
	r.Paths.File = r.path("mine.toml")
	if c := r.load().Config.Test; c.Seconds != 3 || c.Streams != 2 {
		t.Errorf("%d s, %d streams; want 3, 2", c.Seconds, c.Streams)
	}
	r.Paths.File = r.path("none.toml")
	if _, err := Load(r.Paths); errorText(err) != r.path("none.toml")+": does not exist" {
		t.Errorf("error %v", err)
	}
}

func TestBootFileSavedWithAnExtension(t *testing.T) {
	r := newTree(t)
	r.write(boot+".txt", "[test]\nseconds = 3")
	l := r.load()
	if len(l.Notes) != 1 || !strings.HasSuffix(l.Notes[0], "boot/linerate.toml.txt is not read: rename it to linerate.toml") {
		t.Errorf("notes %q", l.Notes)
	}
	r.write(firmware, "")
	if l := r.load(); len(l.Notes) != 0 {
		t.Errorf("notes %q though there is a file", l.Notes)
	}
}

// TestLinksStayInside: a tree copied from a box must be judged by its own files.
func TestLinksStayInside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.toml")
	if err := os.WriteFile(outside, []byte("[test]\nseconds = 666"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		links map[string]string // name below the root -> target
		want  int
	}{
		{"absolute link to a file", map[string]string{etc: "/opt/there.toml"}, 42},
		{"relative link", map[string]string{etc: "../../opt/there.toml"}, 42},
		{"too many steps up", map[string]string{etc: "../../../../../../../opt/there.toml"}, 42},
		{"link to a folder", map[string]string{"etc": "/opt/etc", "opt/etc/linerate": "/opt/l", "opt/l/linerate.toml": "/opt/there.toml"}, 42},
		{"out of the tree", map[string]string{etc: outside}, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTree(t)
			r.write("opt/there.toml", "[test]\nseconds = 42")
			for name, target := range c.links {
				if err := os.MkdirAll(filepath.Dir(r.path(name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(target, r.path(name)); err != nil {
					t.Fatal(err)
				}
			}
			if got := r.load().Config.Test.Seconds; got != c.want {
				t.Errorf("seconds = %d, want %d", got, c.want)
			}
		})
	}
	r := newTree(t)
	if err := os.MkdirAll(r.path("etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("linerate", r.path("etc/linerate")); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(r.Paths); err == nil || !strings.Contains(err.Error(), "too many levels of symbolic links") {
		t.Errorf("a link to itself: %v", err)
	}
}

// TestWhatRemains: a box with a bad file starts with the good ones.
func TestWhatRemains(t *testing.T) {
	good := "[test]\nseconds = 7\n[[target]]\nname = \"core\"\nhost = \"h\"\n"
	for _, c := range []struct {
		name, etc, boot, settings string
		wantErr                   string
		seconds, streams          int
	}{
		{"bad boot file", good, "[test]\nstreams = 3\nsecs = 1", "[test]\nstreams = 4", "boot/linerate.toml:3: unknown key", 7, 4},
		{"bad main file", "[test", "[test]\nstreams = 3", "", "etc/linerate/linerate.toml:1: ", 10, 3},
		{"bad settings", good, "[test]\nstreams = 3", "[ports]\nselect = [\"eth0\"]", "settings.toml:2: ports.select is no setting", 7, 3},
		{"settings that are none", good, "", "[[port]]\nmatch = \"a\"", "settings.toml:1: port is no setting", 7, 1},
		{"boot does not fit main", good, "[test]\nstreams = 3\ntarget = \"edge\"", "", `boot/linerate.toml:3: test.target = "edge" names no [[target]]`, 7, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTree(t)
			r.write(etc, c.etc)
			r.write(boot, c.boot)
			r.write(settings, c.settings)
			l, err := Load(r.Paths)
			if err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("error %v, want %s", err, c.wantErr)
			}
			if got := l.Config.Test; got.Seconds != c.seconds || got.Streams != c.streams {
				t.Errorf("%d s, %d streams; want %d, %d", got.Seconds, got.Streams, c.seconds, c.streams)
			}
		})
	}
}

func TestSettingsFileIsNotFollowed(t *testing.T) {
	r := newTree(t)
	r.write("secret", "[test]\nseconds = 5")
	if err := os.MkdirAll(r.StateDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(r.path("secret"), r.path(settings)); err != nil {
		t.Fatal(err)
	}
	l, err := Load(r.Paths)
	if errorText(err) != r.path(settings)+": is a link: want a regular file" || l.Config.Test.Seconds != 10 {
		t.Errorf("error %v, %d s", err, l.Config.Test.Seconds)
	}
}

func TestCheckFile(t *testing.T) {
	r := newTree(t)
	r.write(etc, "[test]\ntarget = \"x\"\n")
	if _, err := CheckFile(r.path(etc)); err == nil {
		t.Error("a target that is none passes")
	}
	r.write(settings, "[test]\ntarget = \"x\"\n[covered]\n\"test.target\" = \"y\"\n")
	if _, err := CheckFile(r.path(settings)); err != nil {
		t.Errorf("settings alone: %v", err)
	}
	r.write(settings, "[test]\nrate = \"1G\"\n")
	if _, err := CheckFile(r.path(settings)); err == nil {
		t.Error("a key that is no setting passes")
	}
}
