package netcfg

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/netcfg/manager"
)

// A file that is being replaced is never seen half-written, and a link in its place is replaced, not followed.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path, victim := dir+"/netcfg.json", dir+"/victim"
	must(t, os.WriteFile(victim, []byte("precious"), 0o600))
	must(t, os.Symlink(victim, path))
	must(t, writeFile(path, []byte("new"), 0o644, true))
	if b, _ := os.ReadFile(victim); string(b) != "precious" {
		t.Errorf("the link was followed: %q", b)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("it is %v, %v; want a regular file of mode 0644", info.Mode(), err)
	}
	old, err := os.Open(path)
	must(t, err)
	defer old.Close()
	must(t, writeFile(path, []byte("newer"), 0o644, false))
	b := make([]byte, 8)
	if n, _ := old.Read(b); string(b[:n]) != "new" {
		t.Errorf("who had it open reads %q now", b[:n])
	}
	if err := writeFile(dir+"/nowhere/x", nil, 0o644, true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into a folder that is not there: %v", err)
	}
	must(t, os.Mkdir(dir+"/folder", 0o755))
	if err := writeFile(dir+"/folder", nil, 0o644, false); err == nil {
		t.Error("a folder was replaced")
	}
	if left, _ := filepath.Glob(dir + "/.*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What must outlive a power cut is on the disk before it takes the old one's name, and then the name is.
func TestWriteFileSyncs(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/originals.json"
	must(t, os.WriteFile(path, []byte("old"), 0o644))
	var calls []string
	real := fsync
	t.Cleanup(func() { fsync = real })
	fsync = func(f *os.File) error {
		now, _ := os.ReadFile(path)
		info, err := f.Stat()
		must(t, err)
		if info.IsDir() {
			calls = append(calls, "folder while "+string(now))
		} else {
			b, _ := os.ReadFile(f.Name())
			calls = append(calls, string(b)+" while "+string(now))
		}
		return real(f)
	}
	must(t, writeFile(path, []byte("new"), 0o644, true))
	if want := []string{"new while old", "folder while new"}; !slices.Equal(calls, want) {
		t.Errorf("synced %q, want %q", calls, want)
	}
	fsync = func(*os.File) error { return unix.EIO }
	if err := writeFile(path, []byte("newer"), 0o644, true); !errors.Is(err, unix.EIO) {
		t.Errorf("a disk that fails: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "new" {
		t.Errorf("a disk that fails left %q", b)
	}
}

// What strangers may have put there is not followed, not waited for, and not read without end.
func TestReadRegular(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/file", []byte("12345"), 0o600))
	must(t, os.Symlink(dir+"/file", dir+"/link"))
	must(t, unix.Mkfifo(dir+"/fifo", 0o600))
	if b, err := readRegular(dir+"/file", 5); err != nil || string(b) != "12345" {
		t.Errorf("a file: %q, %v", b, err)
	}
	for name, limit := range map[string]int64{"file": 4, "link": 100, "fifo": 100, "nothing": 100, ".": 100} {
		done := make(chan error, 1)
		go func() { _, err := readRegular(dir+"/"+name, limit); done <- err }()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%s, at most %d bytes: no error", name, limit)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: still waiting", name)
		}
	}
}

func someOriginals() originals {
	a := manager.Given("br0", netip.MustParsePrefix("192.168.2.1/24"))
	return originals{
		Ports: []originalPort{{
			Name: "eth1", Path: "pci/1", Bridge: "br0", MTU: 1500, Up: true, Addresses: []manager.Address{},
			Member: map[string]string{"path_cost": "2"}, VLANs: []manager.MemberVLAN{{ID: 1, PVID: true, Untagged: true}},
			Given: []given{{Address: a.On("eth1"), Moved: true}}, GivenMTU: 9000,
		}},
		Bridges: []originalBridge{{
			Name: "br0", MAC: "02:00:00:00:00:01", Up: true, Settings: map[string]string{"stp_state": "1"},
			Addresses: []manager.Address{a},
			Routes: []manager.Route{{
				Destination: netip.MustParsePrefix("::/0"), Metric: 5, Table: 254, Hops: []manager.Hop{
					{Interface: "br0", Gateway: netip.MustParseAddr("fe80::1")}, {Interface: "eth9", Weight: 3},
				},
			}},
		}},
	}
}

func TestOriginalsOnDisk(t *testing.T) {
	dir := t.TempDir()
	var none originals
	if must(t, none.load(dir)); len(none.Ports) > 0 {
		t.Errorf("from nothing: %+v", none)
	}
	want := someOriginals()
	must(t, want.save(dir))
	var got originals
	if must(t, got.load(dir)); !reflect.DeepEqual(got, want) {
		t.Errorf("read back:\n%s\nwritten:\n%s", asJSON(t, got), asJSON(t, want))
	}
	for name, content := range map[string]string{
		"cut short": `{"ports": [`, "a path for a name": `{"ports": [{"name": "../../x"}]}`, "no name": `{"bridges": [{}]}`,
		"no address":    `{"ports": [{"name": "eth1", "given": [{}]}]}`,
		"no hop":        `{"bridges": [{"name": "br0", "routes": [{"destination": "::/0"}]}]}`,
		"a bad address": `{"ports": [{"name": "eth1", "addresses": [{"prefix": "1.2.3.4/99"}]}]}`,
	} {
		must(t, os.WriteFile(filepath.Join(dir, originalsFile), []byte(content), 0o644))
		if err := got.load(dir); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStatusOnDisk(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadStatus(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	s := Status{Time: time.Unix(1e9, 0).UTC(), Manager: "none", Ports: []appliance.Port{{Name: "eth1"}},
		Failed: []Failure{{Port: "eth1", Text: "eth1: it broke: mend it"}}}
	for i := range 2 * maxDone {
		s.Done = append(s.Done, Done{s.Time, Step{Kind: SetMTU, Port: "eth1", Text: strings.Repeat("x", i)}})
	}
	for range 2 * maxLines {
		s.Notes = append(s.Notes, "n")
	}
	must(t, writeStatus(dir, s))
	got, err := ReadStatus(dir)
	must(t, err)
	if len(got.Done) != maxDone || got.Done[maxDone-1].Text != s.Done[2*maxDone-1].Text || len(got.Notes) != maxLines {
		t.Errorf("%d steps, %d notes; want the last %d and the first %d", len(got.Done), len(got.Notes), maxDone, maxLines)
	}
	if f := got.Faults(); len(f) != 1 || f[0] != "eth1: it broke: mend it" {
		t.Errorf("faults: %q", f)
	}
	b, err := os.ReadFile(filepath.Join(dir, StatusFile))
	must(t, err)
	var raw map[string]any
	must(t, json.Unmarshal(b, &raw))
	for _, key := range []string{"time", "manager", "held", "ports", "done", "failed", "not_applicable", "notes"} {
		if v, ok := raw[key]; !ok || v == nil {
			t.Errorf("key %q: %v", key, v)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, StatusFile), []byte("{"), 0o644))
	if _, err := ReadStatus(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a damaged file: %v", err)
	}
}

// FuzzOriginals: a damaged file is an error or something that could have been kept, and what is read is written the
// same.
func FuzzOriginals(f *testing.F) {
	b, err := json.Marshal(someOriginals())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseOriginals(b)
		if err != nil {
			return
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseOriginals(text)
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if twice, _ := json.Marshal(again); string(twice) != string(text) {
			t.Errorf("%s\nbecomes\n%s", text, twice)
		}
		_ = restorePlan(box().Seen, o)
		_ = makePlan(box().Seen, wants(r5s, "auto"), o)
	})
}

// FuzzStatus: a damaged file is an error or within the bounds.
func FuzzStatus(f *testing.F) {
	f.Add([]byte(`{"manager":"none","ports":[{"name":"eth1","speed_mbps":null}],
		"done":[{"step":"set-up","port":"eth1"}],"failed":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseStatus(b); err == nil && (len(s.Done) > maxDone || len(s.Faults()) > maxLines) {
			t.Errorf("%d steps, %d faults", len(s.Done), len(s.Faults()))
		}
	})
}
