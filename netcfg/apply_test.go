package netcfg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/appliance/config"
)

func apply(t *testing.T, k *Keeper, w Wanted) Report {
	t.Helper()
	r, err := k.Apply(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The main job: two ports in a bridge become two ports, the address and its routes move, and then nothing changes.
func TestFreesTwoPorts(t *testing.T) {
	bridged(t)
	w := wants(generic, "eth1", "eth2")
	w.Ports.MTU = 9000
	k := keeper(t)

	plan, err := k.Plan("/", w)
	if err != nil {
		t.Fatal(err)
	}
	before := picture(t)
	r := apply(t, k, w)
	if !r.Good() || len(r.Faults) > 0 {
		t.Fatalf("report: %s%v", r.Text(), r.Errors())
	}
	if len(plan.Steps) != len(r.Done) {
		t.Errorf("planned:\n%s\ndone:\n%s", plan.Text(), r.Text())
	}
	for _, port := range []string{"eth1", "eth2"} {
		l := byName(t, port).Attrs()
		if l.MasterIndex != 0 || l.MTU != 9000 || l.RawFlags&unix.IFF_UP == 0 {
			t.Errorf("%s: master %d, MTU %d, flags %#x; want alone, 9000, up", port, l.MasterIndex, l.MTU, l.RawFlags)
		}
	}
	if !holds(t, "eth1", "192.168.2.1/24") || holds(t, "eth2", "192.168.2.1/24") {
		t.Error("the address is not on eth1 alone")
	}
	if dev := defaultVia(t); dev != "eth1" {
		t.Errorf("the default route leaves by %q, want eth1", dev)
	}
	if _, err := netlink.LinkByName("br0"); err == nil {
		t.Error("the bridge is still there, without member and address")
	}

	after := picture(t)
	if again := apply(t, k, w); len(again.Done) > 0 || !again.Good() {
		t.Errorf("the second run: %s%v", again.Text(), again.Errors())
	}
	if d := diff(after, picture(t)); d != "" {
		t.Errorf("the second run changed:\n%s", d)
	}

	restored, err := k.Restore(t.Context(), w)
	if err != nil || !restored.Good() || len(restored.Faults) > 0 {
		t.Fatalf("restore: %s%v, %v", restored.Text(), restored.Errors(), err)
	}
	if d := diff(before, picture(t)); d != "" {
		t.Errorf("after --restore this differs from what was found:\n%s", d)
	}
	if _, err := os.Stat(filepath.Join(k.dir, originalsFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the originals are still kept: %v", err)
	}
}

// IPv6, several addresses of one subnet, a multipath route and a table of its own: all of it moves and comes back.
func TestMovesAllKindsOfAddresses(t *testing.T) {
	bridged(t)
	addAddress(t, "br0", "192.168.2.7/24") // secondary
	addAddress(t, "br0", "10.9.0.1/16")
	addAddress(t, "br0", "2001:db8:5::1/64")
	addRoute(t, "br0", "203.0.113.0/24", "10.9.0.254", 50)
	addRoute(t, "br0", "2001:db8:77::/48", "2001:db8:5::fe", 0)
	table := &netlink.Route{Dst: mustNet(t, "198.51.100.0/24"), Table: 130, LinkIndex: byName(t, "br0").Attrs().Index,
		Gw: mustNet(t, "192.168.2.9/32").IP, MTU: 1400}
	must(t, netlink.RouteAdd(table))

	before := picture(t)
	k, w := keeper(t), wants(generic, "eth1", "eth2")
	if r := apply(t, k, w); !r.Good() {
		t.Fatalf("report: %v", r.Errors())
	}
	want := slices.Clone(before)
	for i := range want {
		switch {
		case strings.HasPrefix(want[i], "address br0"):
			want[i] = strings.NewReplacer("address br0", "address eth1", `"br0"`, `"eth1"`).Replace(want[i])
		case strings.HasPrefix(want[i], "route"):
			want[i] = strings.ReplaceAll(want[i], "Interface:br0", "Interface:eth1")
		}
	}
	for _, line := range picture(t) {
		if !strings.HasPrefix(line, "link") && !slices.Contains(want, line) {
			t.Errorf("after the move there is also: %s", line)
		}
	}
	for _, line := range want {
		if !strings.HasPrefix(line, "link") && !slices.Contains(picture(t), line) {
			t.Errorf("after the move there is no: %s", line)
		}
	}
	if r, err := k.Restore(t.Context(), w); err != nil || !r.Good() {
		t.Fatalf("restore: %v, %v", r.Errors(), err)
	}
	if d := diff(before, picture(t)); d != "" {
		t.Errorf("after --restore this differs from what was found:\n%s", d)
	}
}

// A bridge that is made again is set as before, and so are its members.
func TestRestoresBridgeSettings(t *testing.T) {
	bridged(t)
	settings := map[string]string{
		"br0/bridge/forward_delay": "400", "br0/bridge/stp_state": "1", "br0/bridge/multicast_snooping": "0",
		"eth1/brport/path_cost": "7", "eth2/brport/isolated": "1", "eth2/brport/hairpin_mode": "1",
	}
	for file, value := range settings {
		err := os.WriteFile("/sys/class/net/"+file, []byte(value), 0)
		if errors.Is(err, fs.ErrPermission) {
			t.Skip("the bridge's files in sysfs are not ours to write in a user namespace")
		}
		must(t, err)
	}
	mac := byName(t, "br0").Attrs().HardwareAddr.String()
	k, w := keeper(t), wants(generic, "eth1", "eth2")
	if r := apply(t, k, w); !r.Good() {
		t.Fatal(r.Errors())
	}
	if r, err := k.Restore(t.Context(), w); err != nil || !r.Good() {
		t.Fatalf("restore: %v, %v", r.Errors(), err)
	}
	for file, want := range settings {
		b, err := os.ReadFile("/sys/class/net/" + file)
		if got := strings.TrimSpace(string(b)); err != nil || got != want {
			t.Errorf("%s is %q, %v; it was %q", file, got, err, want)
		}
	}
	if got := byName(t, "br0").Attrs().HardwareAddr.String(); got != mac {
		t.Errorf("its MAC is %s, it was %s", got, mac)
	}
}

// A bridge that filters by VLAN does so as before when it is made again.
func TestRestoresVLANFilter(t *testing.T) {
	bridged(t)
	if err := os.WriteFile("/sys/class/net/br0/bridge/vlan_filtering", []byte("1"), 0); err != nil {
		t.Skip("no VLAN filter in this kernel, or not ours to set: ", err)
	}
	must(t, netlink.BridgeVlanAdd(byName(t, "eth2"), 130, true, true, false, true))
	must(t, netlink.BridgeVlanDel(byName(t, "eth2"), 1, false, true, false, true))
	state := func() string {
		vlans, err := netlink.BridgeVlanList()
		must(t, err)
		var out []string
		for _, name := range []string{"br0", "eth1", "eth2"} {
			for _, v := range vlans[int32(byName(t, name).Attrs().Index)] {
				out = append(out, name, v.String())
			}
		}
		return strings.Join(out, " ")
	}
	before := state()
	k, w := keeper(t), wants(generic, "eth1", "eth2")
	if r := apply(t, k, w); !r.Good() {
		t.Fatal(r.Errors())
	}
	if r, err := k.Restore(t.Context(), w); err != nil || !r.Good() {
		t.Fatalf("restore: %v, %v", r.Errors(), err)
	}
	if after := state(); after != before {
		t.Errorf("the bridge has\n%s, it had\n%s", after, before)
	}
}

// A port that does not exist is a fault, and the rest goes on.
func TestMissingPortIsAFault(t *testing.T) {
	bridged(t)
	r := apply(t, keeper(t), wants(generic, "eth1", "eth2", "lan9"))
	if len(r.Faults) != 1 || !strings.HasPrefix(r.Faults[0], "no port lan9") {
		t.Errorf("faults: %q", r.Faults)
	}
	if !r.Good() || masterOf(t, "eth1") != "" {
		t.Errorf("the rest did not go on: %s%v", r.Text(), r.Errors())
	}
}

func TestMTUOverLimitIsClamped(t *testing.T) {
	addVeth(t, "eth1", "far1")
	w := wants(generic, "eth1")
	w.Port = []config.Port{gives("eth1", 70000)}
	r := apply(t, keeper(t), w)
	if got := byName(t, "eth1").Attrs().MTU; got != 65535 || !r.Good() {
		t.Errorf("MTU %d, %v; want veth's limit of 65535", got, r.Errors())
	}
	if !strings.Contains(r.Text(), "MTU 70000 is more than its driver (veth) allows") {
		t.Errorf("nothing was said of it: %q", r.Notes)
	}
	w.Port[0].MTU = config.MTULeave
	if r := apply(t, NewKeeper(t.TempDir(), t.TempDir(), nil), w); len(r.Done) > 0 {
		t.Errorf("a keeper that never set the MTU changed it: %v", r.Text())
	}
}

// An MTU that nobody wants any more is put back, since we set it.
func TestMTULeaveTakesOursBack(t *testing.T) {
	addVeth(t, "eth1", "far1")
	k, w := keeper(t), wants(generic, "eth1")
	w.Ports.MTU = 4000
	apply(t, k, w)
	w.Ports.MTU = config.MTULeave
	r := apply(t, k, w)
	if got := byName(t, "eth1").Attrs().MTU; got != 1500 {
		t.Errorf("MTU %d after leave, want 1500: %v", got, r.Text())
	}
	must(t, netlink.LinkSetMTU(byName(t, "eth1"), 3000))
	if r := apply(t, k, w); len(r.Done) > 0 {
		t.Errorf("somebody's own MTU was changed: %v", r.Text())
	}
}

// Under "auto" a bridge with a container in it is left as it is, whatever its ports are; "free" takes them out.
func TestBridgeWithForeignMember(t *testing.T) {
	for _, test := range []struct {
		name string
		add  func(t *testing.T)
		says string
	}{
		{"veth", func(t *testing.T) {
			addVeth(t, "vnet0", "far3")
			must(t, netlink.LinkSetMaster(byName(t, "vnet0"), byName(t, "br0")))
		}, "also holds vnet0 (a veth)"},
		{"tap", func(t *testing.T) {
			tap := &netlink.Tuntap{LinkAttrs: attrs("tap0"), Mode: netlink.TUNTAP_MODE_TAP}
			if err := netlink.LinkAdd(tap); errors.Is(err, fs.ErrPermission) {
				t.Skip("/dev/net/tun may not be opened by this user")
			} else if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { remove("tap0") })
			must(t, netlink.LinkSetMaster(byName(t, "tap0"), byName(t, "br0")))
		}, "also holds tap0 (a tap)"},
		{"on top", func(t *testing.T) {
			a := attrs("mv0")
			a.ParentIndex = byName(t, "br0").Attrs().Index
			must(t, netlink.LinkAdd(&netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE, LinkAttrs: a}))
			t.Cleanup(func() { remove("mv0") })
		}, "is busy: mv0 (a macvlan) is on top of it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bridged(t)
			test.add(t)
			before := picture(t)
			k, w := keeper(t), wants(r5s, "eth1", "eth2")
			w.Ports.MTU = 9000
			r := apply(t, k, w)
			if d := diff(before, picture(t)); d != "" || !r.Good() {
				t.Errorf("it was changed:\n%s%v", d, r.Errors())
			}
			if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], test.says) {
				t.Errorf("said: %q, want %q", r.Notes, test.says)
			}
			w.Ports.Bridge = config.BridgeFree
			r = apply(t, k, w)
			if masterOf(t, "eth1") != "" || masterOf(t, "eth2") != "" || !r.Good() {
				t.Errorf("bridge = free left the ports in: %v %v", r.Text(), r.Errors())
			}
			if _, err := netlink.LinkByName("br0"); err != nil {
				t.Error("the bridge that others use is gone")
			}
		})
	}
}

// A member that is not wanted keeps the bridge and its address, and the freed port is said to be without one.
func TestOneOfTwoPorts(t *testing.T) {
	bridged(t)
	w := wants(generic, "eth1")
	w.Ports.Bridge = config.BridgeFree
	r := apply(t, keeper(t), w)
	if masterOf(t, "eth1") != "" || masterOf(t, "eth2") != "br0" || !holds(t, "br0", "192.168.2.1/24") ||
		defaultVia(t) != "br0" {
		t.Errorf("want eth1 alone, and eth2 in br0 with its address and route: %s%v", r.Text(), r.Errors())
	}
	want := []string{
		"br0: keeps its addresses, since it has other members",
		"eth1: has no address but IPv6 link-local; give it one with address = [\"192.0.2.1/24\"]",
	}
	if !slices.Equal(r.Notes, want) {
		t.Errorf("notes: %q", r.Notes)
	}
}

// With a second half that fails (this port may not have IPv6 addresses), the first is undone: the bridge works as
// before.
func TestFailedMoveIsRolledBack(t *testing.T) {
	bridged(t)
	addAddress(t, "br0", "2001:db8:5::1/64")
	before := picture(t)
	for _, port := range []string{"eth1", "eth2"} {
		must(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+port+"/disable_ipv6", []byte("1"), 0))
	}
	w := wants(generic, "eth1", "eth2")
	w.Ports.MTU = 9000
	k := keeper(t)
	r := apply(t, k, w)
	if len(r.Failed) != 1 || r.Good() {
		t.Fatalf("report: %v %v", r.Text(), r.Errors())
	}
	for _, want := range []string{"eth1", "2001:db8:5::1/64", "sysctl net.ipv6.conf.eth1.disable_ipv6=0"} {
		if !strings.Contains(r.Failed[0].Text, want) {
			t.Errorf("the error does not name %q: %s", want, r.Failed[0].Text)
		}
	}
	if d := diff(before, picture(t)); d != "" {
		t.Errorf("not as before:\n%s", d)
	}
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/eth1/disable_ipv6", []byte("0"), 0))
	if r := apply(t, k, w); !r.Good() || !holds(t, "eth1", "2001:db8:5::1/64") {
		t.Errorf("after the remedy: %v", r.Errors())
	}
}

// Wherever a run breaks off, as if the power went, the next one ends in the same place, and --restore finds what there
// was before the first.
func TestFinishesABrokenRun(t *testing.T) {
	w := wants(generic, "eth1", "eth2")
	w.Ports.MTU = 9000
	var steps int
	var want []string
	for n := 0; n == 0 || n <= steps; n++ {
		t.Run(fmt.Sprintf("after %d steps", n), func(t *testing.T) {
			bridged(t)
			addAddress(t, "br0", "2001:db8:5::1/64")
			before := picture(t)
			k := keeper(t)
			if n > 0 {
				did, real := 0, k.do
				k.do = func(s Step) error {
					if did == n-1 {
						panic("the power goes")
					}
					did++
					return real(s)
				}
				func() {
					defer func() {
						if recover() == nil {
							t.Error("it did not break off")
						}
					}()
					_, _ = k.Apply(t.Context(), w)
				}()
			}
			again := NewKeeper(k.dir, t.TempDir(), nil)
			r := apply(t, again, w)
			if !r.Good() {
				t.Errorf("the next run: %s%v", r.Text(), r.Errors())
			}
			if n == 0 {
				steps, want = len(r.Done), picture(t)
			} else if d := diff(want, picture(t)); d != "" {
				t.Errorf("it ended elsewhere:\n%s", d)
			}
			if r, err := again.Restore(t.Context(), w); err != nil || !r.Good() {
				t.Errorf("restore: %s%v, %v", r.Text(), r.Errors(), err)
			}
			if d := diff(before, picture(t)); d != "" {
				t.Errorf("after --restore this differs:\n%s", d)
			}
		})
	}
}

// Without CAP_NET_ADMIN every step fails with its name, nothing changes, and the capability is named.
func TestNoPermission(t *testing.T) {
	bridged(t)
	before := picture(t)
	w := wants(generic, "eth1", "eth2")
	k := keeper(t)
	var r Report
	var err error
	unprivileged(func() { r, err = k.Apply(t.Context(), w) })
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Failed) == 0 || r.Good() {
		t.Fatalf("report: %s%v", r.Text(), r.Errors())
	}
	for _, f := range r.Failed {
		if !errors.Is(f, fs.ErrPermission) || !strings.Contains(f.Text, "CAP_NET_ADMIN") ||
			!strings.HasPrefix(f.Text, "eth1: leave bridge br0") {
			t.Errorf("failure: %s", f.Text)
		}
	}
	if d := diff(before, picture(t)); d != "" {
		t.Errorf("something changed:\n%s", d)
	}
}

// unprivileged runs f on a thread without any capability, which ends with it.
func unprivileged(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread goes with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			panic(err)
		}
		f()
	}()
	<-done
}

// An address of the config is added, replaced by the next config, and taken back.
func TestStaticAddresses(t *testing.T) {
	addVeth(t, "eth1", "far1")
	addAddress(t, "eth1", "198.51.100.9/24") // the user's own
	k, w := keeper(t), wants(generic, "eth1")
	set := func(cidrs ...string) Report {
		w.Port = []config.Port{gives("eth1", 0, cidrs...)}
		return apply(t, k, w)
	}
	r := set("192.0.2.1/24", "2001:db8::1/64")
	if !r.Good() || !holds(t, "eth1", "192.0.2.1/24") || !holds(t, "eth1", "2001:db8::1/64") {
		t.Fatalf("not added: %v %v", r.Text(), r.Errors())
	}
	if r := set("192.0.2.2/24"); !r.Good() || holds(t, "eth1", "192.0.2.1/24") || !holds(t, "eth1", "192.0.2.2/24") {
		t.Errorf("not replaced: %v %v", r.Text(), r.Errors())
	}
	if !holds(t, "eth1", "198.51.100.9/24") {
		t.Error("the user's own address is gone")
	}
	w.Port = nil
	if r := apply(t, k, w); !r.Good() || holds(t, "eth1", "192.0.2.2/24") || !holds(t, "eth1", "198.51.100.9/24") {
		t.Errorf("not taken back: %v %v", r.Text(), r.Errors())
	}
}

// The disk is full: the ports are freed all the same, nothing half-written is left, and it is said.
func TestFullDisk(t *testing.T) {
	bridged(t)
	disk := t.TempDir()
	must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=4096"))
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	must(t, os.WriteFile(disk+"/full", make([]byte, 4096), 0o600))
	k, w := NewKeeper(disk+"/netcfg", t.TempDir(), nil), wants(generic, "eth1", "eth2")
	r := apply(t, k, w)
	if masterOf(t, "eth1") != "" || !holds(t, "eth1", "192.168.2.1/24") {
		t.Errorf("the ports were not freed: %v", r.Errors())
	}
	if r.Good() || !errors.Is(r.Failed[0], unix.ENOSPC) || !strings.Contains(r.Failed[0].Text, "make room in "+disk) {
		t.Errorf("it was not said: %v", r.Errors())
	}
	entries, err := os.ReadDir(disk + "/netcfg")
	if must(t, err); len(entries) != 1 || entries[0].Name() != lockFile {
		t.Errorf("left behind: %v", entries)
	}
	if r, err := k.Restore(t.Context(), w); err == nil || masterOf(t, "eth1") != "" {
		t.Errorf("a restore that a running keeper would undo went on: %s%v", r.Text(), r.Errors())
	}
	must(t, os.Remove(disk+"/full"))
	if r, err := k.Restore(t.Context(), w); err != nil || !r.Good() || masterOf(t, "eth1") != "br0" {
		t.Errorf("restore with what was only in memory: %s%v, %v", r.Text(), r.Errors(), err)
	}
}

// A file of originals that cannot be read is not written over.
func TestDamagedOriginalsAreKept(t *testing.T) {
	bridged(t)
	k, w := keeper(t), wants(generic, "eth1", "eth2")
	must(t, os.MkdirAll(k.dir, 0o755))
	path := filepath.Join(k.dir, originalsFile)
	must(t, os.WriteFile(path, []byte(`{"ports": [{`), 0o644))
	r := apply(t, k, w)
	if b, _ := os.ReadFile(path); string(b) != `{"ports": [{` {
		t.Errorf("the file holds %q now", b)
	}
	if masterOf(t, "eth1") != "" || r.Good() || !strings.Contains(r.Failed[0].Text, path) {
		t.Errorf("report: %v %v", r.Text(), r.Errors())
	}
	if _, err := k.Restore(t.Context(), w); err == nil {
		t.Error("restore went on without the originals")
	}
}

func TestSeenAfterwards(t *testing.T) {
	bridged(t)
	k, w := keeper(t), wants(generic, "eth1", "eth2")
	apply(t, k, w)
	s, err := ReadStatus(k.runDir)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Ports) != 2 || s.Ports[0].Master != "" || s.Ports[0].Link != appliance.LinkUp || len(s.Done) == 0 ||
		len(s.Failed) > 0 {
		t.Errorf("netcfg.json: done %v, failed %v, ports %d", s.Done, s.Failed, len(s.Ports))
	}
	if info, _ := os.Stat(filepath.Join(k.runDir, StatusFile)); info.Mode() != 0o644 {
		t.Errorf("its mode is %v", info.Mode())
	}
}
