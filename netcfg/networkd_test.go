package netcfg

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/appliance/config"
	"linerate/netcfg/netnstest"
)

// The tests of this file run the real systemd-networkd, with a D-Bus of its own, in the namespace of this test binary.

const (
	networkdProgram = "/lib/systemd/systemd-networkd"
	theirs          = "/etc/systemd/network"
)

// networkd is a running systemd-networkd.
type networkd struct {
	t    *testing.T
	cmd  *exec.Cmd
	file *os.File // what it prints
}

func (n *networkd) log() string {
	n.t.Helper()
	b, err := os.ReadFile(n.file.Name())
	must(n.t, err)
	return string(b)
}

// own mounts an empty folder over one of the machine's.
func own(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no " + dir)
	}
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// startBus runs a system bus that lets everybody do everything.
func startBus(t *testing.T) {
	t.Helper()
	netnstest.Need(t)
	for _, program := range []string{"dbus-daemon", networkdProgram} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("not installed: " + program)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("a daemon that changes its user needs root")
	}
	own(t, "/run")
	own(t, theirs)
	must(t, os.MkdirAll("/run/dbus", 0o755))
	conf := t.TempDir() + "/bus.conf"
	must(t, os.WriteFile(conf, []byte(`<busconfig><type>system</type><listen>unix:path=/run/dbus/test</listen>
<auth>EXTERNAL</auth><policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/>
<allow receive_sender="*"/><allow send_requested_reply="true"/><allow receive_requested_reply="true"/></policy>
</busconfig>`), 0o644))
	daemon(t, exec.Command("dbus-daemon", "--nofork", "--nopidfile", "--config-file="+conf), nil)
	until(t, "the bus listens", func() bool { _, err := os.Stat("/run/dbus/test"); return err == nil })
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/run/dbus/test")
}

// daemon runs a program until the end of the test.
func daemon(t *testing.T, cmd *exec.Cmd, out *os.File) {
	t.Helper()
	if out != nil {
		cmd.Stdout, cmd.Stderr = out, out
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM) // it may have ended
		_ = cmd.Wait()
	})
}

// startNetworkd runs networkd with these files in /etc/systemd/network. It takes /sys for that of a container, where
// nobody waits for udev, if it cannot be written.
func startNetworkd(t *testing.T, files map[string]string, before ...func()) *networkd {
	t.Helper()
	startBus(t)
	user, err := exec.Command("id", "-u", "systemd-network").Output()
	if err != nil {
		t.Skip("no user systemd-network")
	}
	for name, content := range files {
		must(t, os.WriteFile(filepath.Join(theirs, name), []byte(content), 0o644))
	}
	for _, dir := range []string{"/run/systemd/netif/links", "/run/systemd/netif/leases", "/run/systemd/netif/lldp"} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	must(t, exec.Command("chown", "-R", strings.TrimSpace(string(user))+":"+strings.TrimSpace(string(user)), "/run/systemd/netif").Run())
	for _, f := range before {
		f()
	}
	file, err := os.Create(t.TempDir() + "/log")
	must(t, err)
	n := &networkd{t: t, file: file}
	n.start()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("networkd:\n%s", tail(n.log(), 60))
		}
	})
	return n
}

func (n *networkd) start() {
	n.t.Helper()
	n.cmd = exec.Command("sh", "-c", "mount -o remount,ro,bind /sys && exec "+networkdProgram)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	daemon(n.t, n.cmd, n.file)
}

func (n *networkd) restart() {
	n.t.Helper()
	must(n.t, n.cmd.Process.Signal(unix.SIGTERM))
	_ = n.cmd.Wait()
	n.start()
}

// lan is a distribution's set-up: a bridge with two ports and a static address.
var lan = map[string]string{
	"10-br0.netdev":  "[NetDev]\nName=br0\nKind=bridge\n",
	"10-br0.network": "[Match]\nName=br0\n[Network]\nAddress=192.168.2.1/24\nGateway=192.168.2.254\n",
	"20-lan.network": "[Match]\nName=eth1 eth2\n[Network]\nBridge=br0\n",
}

// networkdLAN is the box as networkd makes it of lan.
func networkdLAN(t *testing.T) *networkd {
	t.Helper()
	netnstest.Need(t)
	addVeth(t, "eth1", "far1")
	addVeth(t, "eth2", "far2")
	t.Cleanup(func() { remove("br0") })
	n := startNetworkd(t, lan)
	until(t, "networkd has made its bridge", inBridge(t, "eth1", "eth2"))
	until(t, "networkd has given it its address", func() bool { return holds(t, "br0", "192.168.2.1/24") })
	return n
}

func inBridge(t *testing.T, ports ...string) func() bool {
	return func() bool {
		return !slices.ContainsFunc(ports, func(p string) bool { return masterOf(t, p) != "br0" })
	}
}

func tail(s string, lines int) string {
	all := strings.Split(s, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// filesIn is the content of a folder.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		out[e.Name()] = string(b)
	}
	return out
}

// stays fails when an interface gets a master within the time.
func staysAlone(t *testing.T, what string, long time.Duration, ports ...string) {
	t.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, p := range ports {
			if m := masterOf(t, p); m != "" {
				t.Fatalf("%s: %s is in %s", what, p, m)
			}
		}
	}
}

// Without an override networkd undoes what netlink does: the reason for all of this.
func TestNetworkdTakesPortsBack(t *testing.T) {
	networkdLAN(t)
	must(t, netlink.LinkSetNoMaster(byName(t, "eth1")))
	until(t, "networkd has put eth1 back", inBridge(t, "eth1"))
}

// The main job under networkd: both ports alone, with the bridge's address and routes, through all that networkd does;
// the user's files stay as they are, and --restore brings the bridge back.
func TestFreesPortsOfNetworkd(t *testing.T) {
	n := networkdLAN(t)
	k, w := keeper(t), wants(generic, "eth1", "eth2")
	w.Ports.MTU = 4000
	before := filesIn(t, theirs)

	plan, err := k.Plan("/", w)
	must(t, err)
	r := apply(t, k, w)
	if !r.Good() || len(r.Faults) > 0 {
		t.Fatalf("report: %s%v", r.Text(), r.Errors())
	}
	after := filesIn(t, theirs)
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s was changed to:\n%s", name, after[name])
		}
		delete(after, name)
	}
	for name, content := range after { // exactly what --plan said
		for line := range strings.Lines(content) {
			if !strings.Contains(plan.Text(), "\n    "+line) {
				t.Errorf("%s has %q, which the plan does not show:\n%s", name, line, plan.Text())
			}
		}
	}
	if names := slices.Sorted(maps.Keys(after)); !slices.Equal(names, []string{
		"01-linerate-br0.network", "01-linerate-eth1.network", "01-linerate-eth2.network"}) {
		t.Errorf("our files: %v", names)
	}
	until(t, "eth1 has the bridge's address", func() bool { return holds(t, "eth1", "192.168.2.1/24") })
	until(t, "eth1 has the route", func() bool { return defaultVia(t) == "eth1" })
	if holds(t, "br0", "192.168.2.1/24") || holds(t, "eth2", "192.168.2.1/24") {
		t.Error("somebody else still has the bridge's address")
	}
	for _, port := range []string{"eth1", "eth2"} {
		if got := byName(t, port).Attrs().MTU; got != 4000 {
			t.Errorf("%s has MTU %d", port, got)
		}
	}
	staysAlone(t, "by itself", time.Second, "eth1", "eth2")
	for _, far := range []string{"far1", "far2"} {
		must(t, netlink.LinkSetDown(byName(t, far)))
	}
	staysAlone(t, "without a link", time.Second, "eth1", "eth2")
	for _, far := range []string{"far1", "far2"} {
		must(t, netlink.LinkSetUp(byName(t, far)))
	}
	staysAlone(t, "after a flap", 2*time.Second, "eth1", "eth2")
	must(t, k.managers[0].Load(t.Context(), []int{byName(t, "eth1").Attrs().Index}))
	staysAlone(t, "after a reload", 2*time.Second, "eth1", "eth2")
	n.restart()
	until(t, "networkd is back, and eth1 has its address", func() bool {
		owners, _ := k.managers[0].Owners(t.Context(), map[int]string{byName(t, "eth1").Attrs().Index: "eth1"})
		return len(owners) == 1 && holds(t, "eth1", "192.168.2.1/24")
	})
	staysAlone(t, "after a restart of networkd", 2*time.Second, "eth1", "eth2")
	if again := apply(t, k, w); len(again.Done) > 0 || !again.Good() {
		t.Errorf("the second run: %s%v", again.Text(), again.Errors())
	}

	restored, err := k.Restore(t.Context(), w)
	if err != nil || !restored.Good() || len(restored.Faults) > 0 {
		t.Fatalf("restore: %s%v, %v", restored.Text(), restored.Errors(), err)
	}
	if got := filesIn(t, theirs); !maps.Equal(got, before) {
		t.Errorf("after --restore the files are %v", slices.Sorted(maps.Keys(got)))
	}
	until(t, "the bridge has its address again", func() bool { return holds(t, "br0", "192.168.2.1/24") })
	if !inBridge(t, "eth1", "eth2")() || holds(t, "eth1", "192.168.2.1/24") {
		t.Error("the ports are not as they were")
	}
	until(t, "the MTU is as it was", func() bool { return byName(t, "eth1").Attrs().MTU == 1500 })
}

// A connection to the bridge's address goes on by the port that took the address over.
func TestConnectionSurvivesNetworkd(t *testing.T) {
	networkdLAN(t)
	ask := longConnection(t, "far2")
	must(t, ask("over the bridge"))
	if r := apply(t, keeper(t), wants(generic, "eth1", "eth2")); !r.Good() {
		t.Fatal(r.Errors())
	}
	if err := ask("over the port"); err != nil {
		t.Errorf("the connection broke: %v", err)
	}
	if !holds(t, "eth2", "192.168.2.1/24") {
		t.Error("the address is not on the port that carries the connection")
	}
}

// networkd's own configuration of ports that stand alone is left to it, and so is a bridge that shall be kept.
func TestLeavesNetworkdAlone(t *testing.T) {
	networkdLAN(t)
	k, w := keeper(t), wants(generic, "eth1", "eth2")
	w.Ports.Bridge = config.BridgeKeep
	if r := apply(t, k, w); len(r.Done) > 0 || !r.Good() {
		t.Errorf("bridge = keep: %s%v", r.Text(), r.Errors())
	}
	w.Ports.Bridge = config.BridgeFree
	if r := apply(t, k, w); !r.Good() {
		t.Fatal(r.Errors())
	}
	w.Ports.Bridge = config.BridgeKeep // the wish is taken back
	if r := apply(t, k, w); !r.Good() {
		t.Fatal(r.Errors())
	}
	until(t, "the ports are back", inBridge(t, "eth1", "eth2"))
	if got := filesIn(t, theirs); !maps.Equal(got, lan) {
		t.Errorf("files that stay: %v", slices.Sorted(maps.Keys(got)))
	}
}

// The keeper frees ports that networkd puts into its bridge when they are plugged in, with a new index, and the file
// keeps meaning them.
func TestKeeperUnderNetworkd(t *testing.T) {
	networkdLAN(t)
	k := keeper(t)
	hub := start(t, k.Keep(always(wants(generic, "eth1", "eth2"))))
	await(t, hub, "both alone", alone("eth1", "eth2"))
	remove("eth2")
	await(t, hub, "eth2 gone", func(s appliance.State) bool { return portOf(s, "eth2").Name == "" })
	addVeth(t, "eth2", "far2")
	await(t, hub, "eth2 back", alone("eth1", "eth2"))
	staysAlone(t, "after hot-plug", 2*time.Second, "eth1", "eth2")
	until(t, "netcfg.json names the manager", func() bool {
		s, err := ReadStatus(k.runDir)
		return err == nil && s.Manager == "systemd-networkd" && len(s.Failed) == 0
	})
}

// The early pass, before networkd starts for the first time: the ports never join the bridge, one has its address all the
// same, and the keeper that comes later changes nothing.
func TestEarlyPassBeforeNetworkd(t *testing.T) {
	netnstest.Need(t)
	addVeth(t, "eth1", "far1")
	addVeth(t, "eth2", "far2")
	t.Cleanup(func() { remove("br0") })
	enableNetworkd(t)
	dir := t.TempDir()
	keeperHere := func() *Keeper { return NewKeeper(dir+"/state", dir, nil) } // another process at each call
	n := startNetworkd(t, lan, func() {
		k, w := keeperHere(), wants(generic, "eth1", "eth2")
		r, err := k.Early(t.Context(), w)
		if err != nil || !r.Good() || len(r.Done) != 3 {
			t.Fatalf("early: %s%v, %v", r.Text(), r.Errors(), err)
		}
		if again, err := k.Early(t.Context(), w); err != nil || len(again.Done) > 0 {
			t.Errorf("early again: %s, %v", again.Text(), err)
		}
	})
	until(t, "eth1 has the bridge's address", func() bool { return holds(t, "eth1", "192.168.2.1/24") })
	staysAlone(t, "from the start", 2*time.Second, "eth1", "eth2")
	if log := n.log(); strings.Contains(log, "20-lan.network") {
		t.Errorf("networkd went by the distribution's file:\n%s", log)
	}
	k, w := keeperHere(), wants(generic, "eth1", "eth2")
	files := filesIn(t, theirs)
	if r := apply(t, k, w); len(r.Done) > 0 || !r.Good() {
		t.Errorf("the keeper after it: %s%v", r.Text(), r.Errors())
	}
	if !maps.Equal(files, filesIn(t, theirs)) {
		t.Error("the keeper has other files")
	}
	r, err := k.Restore(t.Context(), w)
	if err != nil || !r.Good() {
		t.Fatalf("restore: %s%v, %v", r.Text(), r.Errors(), err)
	}
	until(t, "the bridge is as the files say", func() bool {
		return inBridge(t, "eth1", "eth2")() && holds(t, "br0", "192.168.2.1/24")
	})
	if got := filesIn(t, theirs); !maps.Equal(got, lan) {
		t.Errorf("files that stay: %v", slices.Sorted(maps.Keys(got)))
	}
}

// What the early pass must leave alone: a config that keeps the bridge, a board that nobody knows, a networkd that does
// not start, and ports that stand alone in the user's own files.
func TestEarlyPassLeavesAlone(t *testing.T) {
	netnstest.Need(t)
	addVeth(t, "eth1", "far1")
	for name, test := range map[string]struct {
		files  map[string]string
		starts bool
		bridge config.Bridge
	}{
		"keep":     {lan, true, config.BridgeKeep},
		"no start": {lan, false, config.BridgeFree},
		"stands alone": {map[string]string{"05-eth1.network": "[Match]\nName=eth1\n[Network]\nDHCP=yes\n",
			"10-br0.netdev": lan["10-br0.netdev"], "20-lan.network": lan["20-lan.network"]}, true, config.BridgeFree},
	} {
		t.Run(name, func(t *testing.T) {
			if test.starts {
				enableNetworkd(t)
			} else {
				own(t, "/etc/systemd")
			}
			must(t, os.MkdirAll(theirs, 0o755))
			own(t, theirs)
			for file, content := range test.files {
				must(t, os.WriteFile(filepath.Join(theirs, file), []byte(content), 0o644))
			}
			w := wants(generic, "eth1")
			w.Ports.Bridge = test.bridge
			r, err := keeper(t).Early(t.Context(), w)
			if err != nil || len(r.Done) > 0 || !maps.Equal(filesIn(t, theirs), test.files) {
				t.Errorf("did %s%v, %v", r.Text(), r.Errors(), err)
			}
		})
	}
}

// Ports of a known board that have not appeared get their files by their place.
func TestEarlyPassForAbsentPorts(t *testing.T) {
	netnstest.Need(t)
	enableNetworkd(t)
	own(t, theirs)
	for file, content := range lan {
		must(t, os.WriteFile(filepath.Join(theirs, file), []byte(content), 0o644))
	}
	r5s, errs := board.Detect("/", "nanopi-r5s")
	if r5s.Name != "nanopi-r5s" {
		t.Fatal(errs)
	}
	k := keeper(t)
	r, err := k.Early(t.Context(), wants(r5s, config.Auto))
	if err != nil || !r.Good() {
		t.Fatalf("%s%v, %v", r.Text(), r.Errors(), err)
	}
	got := filesIn(t, theirs)
	for name, match := range map[string]string{
		"01-linerate-lan1.network": "\nPath=*pci-0000:* platform-3c0000000.pcie",
		"01-linerate-lan2.network": "\nPath=*pci-0001:* platform-3c0400000.pcie",
		"01-linerate-br0.network":  "\nName=br0\n",
	} {
		if !strings.Contains(got[name], match) {
			t.Errorf("%s is:\n%s", name, got[name])
		}
	}
	if len(got) != len(lan)+3 {
		t.Errorf("files: %v", slices.Sorted(maps.Keys(got)))
	}
	if again, err := k.Early(t.Context(), wants(r5s, config.Auto)); err != nil || len(again.Done) > 0 {
		t.Errorf("again: %s, %v", again.Text(), err)
	}
}

// enableNetworkd makes systemd start networkd at boot, as far as can be read.
func enableNetworkd(t *testing.T) {
	t.Helper()
	own(t, "/etc/systemd")
	must(t, os.MkdirAll("/etc/systemd/system/multi-user.target.wants", 0o755))
	must(t, os.MkdirAll(theirs, 0o755))
	must(t, os.Symlink("/lib/systemd/system/systemd-networkd.service",
		"/etc/systemd/system/multi-user.target.wants/systemd-networkd.service"))
}
