package netcfg

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/netcfg/manager"
)

func TestPlacesMeanThePorts(t *testing.T) {
	r5s, errs := board.Detect("/", "nanopi-r5s")
	if r5s.Name != "nanopi-r5s" {
		t.Fatal(errs)
	}
	roles := map[string]board.Port{}
	for _, p := range r5s.Ports {
		roles[p.Role] = p
	}
	for id, want := range map[string]string{ // as udev's path_id names them on the R5S
		"platform-3c0000000.pcie-pci-0000:01:00.0": "lan1", "platform-fe260000.pcie-pci-0000:01:00.0": "lan1",
		"platform-3c0400000.pcie-pci-0001:01:00.0": "lan2", "platform-3c0400000.pcie-pci-0001:11:00.0": "lan2",
		"platform-fe2a0000.ethernet": "wan", "platform-3c0800000.pcie-pci-0002:21:00.0": "",
		"platform-fd800000.usb-usb-0:1:1.0": "", "pci-0001:11:00.0": "lan2",
	} {
		var got []string
		for role, p := range roles {
			if paths := pathsOf(id, p); slices.Equal(paths, placesOf(p)) {
				got = append(got, role)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
	if got := pathsOf("pci-0000:[2]", board.Port{}); !slices.Equal(got, []string{`pci-0000:\[2]`}) {
		t.Errorf("a place that no profile names: %q", got)
	}
	if got := pathsOf("", roles["lan1"]); got != nil {
		t.Errorf("without udev: %q", got)
	}
}

func TestStableMAC(t *testing.T) {
	a := stableMAC("serial", "pci0000:00/0000:01:00.0")
	if b := stableMAC("serial", "pci0000:00/0000:01:00.0"); a.String() != b.String() {
		t.Error("another at the second call")
	}
	if a[0]&3 != 2 {
		t.Errorf("%v is no locally administered unicast address", a)
	}
	if a.String() == stableMAC("serial", "pci0001:00").String() || a.String() == stableMAC("other", "pci0000:00/0000:01:00.0").String() {
		t.Error("two ports share one")
	}
	if stableMAC("", "x") != nil {
		t.Error("made without a seed: every box would have the same")
	}
	port := appliance.Port{Name: "eth1", Path: "pci0000:00/0000:01:00.0"}
	m := managed{seed: "serial", random: map[string]bool{"eth1": true}, macs: map[string]string{"eth1": "06:00:00:00:00:01"}}
	if got := m.ownMAC(port); got.String() != a.String() {
		t.Errorf("a random one becomes %v", got)
	}
	m.random["eth1"] = false
	if got := m.ownMAC(port); got != nil {
		t.Errorf("one that is its own becomes %v", got)
	}
	m.macs["eth1"] = a.String()
	if got := m.ownMAC(port); got.String() != a.String() {
		t.Errorf("ours does not stay: %v", got)
	}
}

// When the manager does not take the order, the files are as before, and it is told so.
func TestFilesAreUndone(t *testing.T) {
	dir := t.TempDir()
	old := "as it was\n"
	must(t, os.WriteFile(filepath.Join(dir, "b"), []byte(old), 0o644))
	file := func(name, content string) manager.File {
		return manager.File{Path: filepath.Join(dir, name), Content: content, Mode: 0o644}
	}
	steps := changeSteps([]change{
		{key: "eth1", group: "br0", name: "m", file: file("a", "new"), indexes: []int{3}},
		{key: "eth2", group: "br0", name: "m", file: file("b", "new"), old: &old, indexes: []int{4}},
		{key: "br0", group: "br0", name: "m", file: file("c", "new"), indexes: []int{5}},
	})
	m := &fakeManager{fail: 1}
	done, failed := run(steps, doer{managers: []manager.Manager{m}}.do)
	if len(done) > 0 || len(failed) != 1 || !strings.Contains(failed[0].Text, "no answer") {
		t.Errorf("done %v, failed %v", done, failed)
	}
	got := filesIn(t, dir)
	if len(got) != 1 || got["b"] != old {
		t.Errorf("files after it: %v", got)
	}
	if len(m.told) != 2 || !slices.Equal(m.told[1], []int{3, 4, 5}) {
		t.Errorf("the manager was told of %v", m.told)
	}
}

// fakeManager answers as a manager that hangs would make the bus answer.
type fakeManager struct {
	manager.Manager
	fail int
	told [][]int
}

func (*fakeManager) Name() string { return "m" }

func (m *fakeManager) Load(_ context.Context, indexes []int) error {
	m.told = append(m.told, indexes)
	if m.fail--; m.fail >= 0 {
		return errors.New("no answer")
	}
	return nil
}
