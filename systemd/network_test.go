package systemd

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A box whose systemd-networkd puts two ports into a bridge, on a real systemd: the keeper frees them, within its sandbox,
// and from the second boot on they never join it.
func TestPortsStayFreeOverReboots(t *testing.T) {
	needMachine(t)
	top := networkBox(t, "")
	m := boot(t, top, networkd)
	free := func() bool {
		links, _ := m.try("ip", "-o", "link", "show")
		address, _ := m.try("ip", "-o", "-4", "address", "show", "dev", "eth1")
		return strings.Contains(links, ": eth1@") && strings.Contains(links, ": eth2@") &&
			!strings.Contains(links, "master br0") && strings.Contains(address, "192.168.2.1/24")
	}
	enslaved := func() string {
		log := m.run("journalctl", "--no-pager", "--quiet", "-b", "-o", "cat", "-u", "systemd-networkd.service")
		if !strings.Contains(log, "eth1: ") {
			t.Fatalf("networkd's journal says nothing of eth1:\n%s", log)
		}
		var out []string
		for line := range strings.Lines(log) {
			if strings.Contains(line, "20-lan.network") || strings.Contains(line, "ttached to master") {
				out = append(out, line)
			}
		}
		return strings.Join(out, "")
	}
	m.up()
	m.until("the keeper has freed the ports", free)
	if enslaved() == "" {
		t.Error("at the first boot the ports were never in the bridge: this test shows nothing")
	}
	mac := m.run("cat", "/sys/class/net/eth1/address")
	for range 2 {
		m = m.reboot(top, []string{"etc/systemd/network", "var/lib/linerate-netcfg", "etc/machine-id"}, networkd)
		m.up()
		m.until("the ports are free", free)
		if lines := enslaved(); lines != "" {
			t.Errorf("a port joined the bridge:\n%s", lines)
		}
		if state := m.property("linerate-netcfg-early.service", "Result"); state != "success" {
			t.Errorf("the early pass: %s", state)
		}
		if got := m.run("cat", "/sys/class/net/eth1/address"); got != mac {
			t.Errorf("eth1 has the MAC %s, at the first boot %s", got, mac)
		}
	}
	if out := m.run("systemctl", "--failed", "--no-legend", "--plain"); strings.Contains(out, "linerate") {
		t.Errorf("failed: %s", out)
	}
}

const (
	networkd    = "systemd-networkd.service"
	portsConfig = "[ports]\nselect = [\"eth1\", \"eth2\"]\n"
)

// A change that cuts off whoever is connected: the keeper is killed, and the shipped timer takes the change back all the
// same; the keeper that is started again leaves it so.
func TestTimerTakesChangeBack(t *testing.T) {
	needMachine(t)
	top := networkBox(t, "bridge = \"keep\"\n")
	put(t, top, "etc/systemd/system/linerate-rollback.timer.d/soon.conf", "[Timer]\nOnActiveSec=\nOnActiveSec=4s\n")
	m := boot(t, top, networkd)
	m.up()
	bridged := func() bool {
		links, _ := m.try("ip", "-o", "link", "show", "type", "veth")
		address, _ := m.try("ip", "-o", "-4", "address", "show", "dev", "br0")
		return strings.Count(links, "master br0") == 2 && strings.Contains(address, "192.168.2.1/24")
	}
	m.until("the bridge is there", bridged)
	m.until("the keeper has had its first pass", func() bool {
		out, _ := m.try("cat", "/var/lib/linerate-netcfg/boots.json")
		return strings.Contains(out, `"ended":true`)
	})
	m.run("systemd-run", "--quiet", "--unit=shell", "systemd-socket-activate", "--accept", "--inetd", "--listen=2222",
		"cat")
	for _, line := range []string{
		"netns add laptop", "link set far1 netns laptop", "-n laptop link set far1 up",
		"-n laptop address add 192.168.2.50/24 dev far1",
	} {
		m.run(append([]string{"ip"}, strings.Fields(line)...)...)
	}
	m.run("systemd-run", "--quiet", "--unit=laptop", "ip", "netns", "exec", "laptop", "bash", "-c",
		"until exec 3<>/dev/tcp/192.168.2.1/2222; do sleep 0.1; done; cat <&3")
	m.until("somebody is connected", func() bool {
		out, _ := m.try("ss", "-Htn", "state", "established", "sport = :2222")
		return out != ""
	})
	if err := os.WriteFile(m.path("/etc/linerate/linerate.toml"), []byte(portsConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	m.until("the ports are free, on trial", func() bool {
		status, _ := m.try("cat", "/run/linerate/netcfg.json")
		return !bridged() && strings.Contains(status, `"until"`)
	})
	if state := m.property("linerate-rollback.timer", "ActiveState"); state != "active" {
		t.Errorf("the timer is %s", state)
	}
	m.run("systemctl", "kill", "--signal=KILL", "linerate-netcfg.service")
	m.until("the bridge is back", bridged)
	m.until("a new keeper says why it leaves it", func() bool {
		status, _ := m.try("cat", "/run/linerate/netcfg.json")
		return strings.Contains(status, "nobody confirmed")
	})
	if out := m.run("ls", "/etc/systemd/network"); strings.Contains(out, "linerate") || !bridged() {
		t.Errorf("the change was made again: %s", out)
	}
	if result := m.property("linerate-rollback.service", "Result"); result != "success" {
		t.Errorf("linerate-rollback.service: %s", result)
	}

	// With a word from a person it stays. The container's own boot id is a mount that the keeper's sandbox does not show: here
	// all see one.
	m.run("umount", "/proc/sys/kernel/random/boot_id")
	m.run("rm", "/etc/systemd/system/linerate-rollback.timer.d/soon.conf")
	m.run("systemctl", "daemon-reload")
	m.run("linerate", "netcfg", "--once")
	if state := m.property("linerate-rollback.timer", "ActiveState"); state != "active" {
		t.Errorf("the timer is %s", state)
	}
	out := m.run("linerate", "confirm")
	m.until("the change is kept", func() bool {
		files, _ := m.try("ls", "/etc/systemd/network")
		return strings.Contains(files, "01-linerate-eth1.network")
	})
	if state := m.property("linerate-rollback.timer", "ActiveState"); state != "inactive" || bridged() {
		t.Errorf("confirmed (%s), and the timer is %s", out, state)
	}
}

// networkBox is a box whose systemd-networkd puts eth1 and eth2 into a bridge, with Linerate installed; more is of its
// config's [ports].
func networkBox(t *testing.T, more string) (top string) {
	t.Helper()
	top = t.TempDir()
	binary := filepath.Join(t.TempDir(), "linerate")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "linerate/cmd/linerate")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if out, err := exec.Command(binary, "units", top).CombinedOutput(); err != nil {
		t.Fatalf("linerate units: %v\n%s", err, out)
	}
	program(t, top, binary)
	put(t, top, "etc/linerate/linerate.toml", portsConfig+more)
	for name, text := range map[string]string{
		"10-br0.netdev":   "[NetDev]\nName=br0\nKind=bridge\n",
		"10-eth1.netdev":  "[NetDev]\nName=eth1\nKind=veth\n[Peer]\nName=far1\n",
		"10-eth2.netdev":  "[NetDev]\nName=eth2\nKind=veth\n[Peer]\nName=far2\n",
		"10-br0.network":  "[Match]\nName=br0\n[Network]\nAddress=192.168.2.1/24\n",
		"20-lan.network":  "[Match]\nName=eth1 eth2\n[Network]\nBridge=br0\n",
		"30-far.network":  "[Match]\nName=far1 far2\n[Network]\nLinkLocalAddressing=no\n",
		"80-rest.network": "[Match]\nName=host0\n[Link]\nUnmanaged=yes\n",
	} {
		put(t, top, "etc/systemd/network/"+name, text)
	}
	put(t, top, "etc/systemd/system/systemd-networkd.service.d/debug.conf", "[Service]\nEnvironment=SYSTEMD_LOG_LEVEL=debug\n")
	link(t, top, "etc/systemd/system/multi-user.target.wants/systemd-networkd.service",
		"/lib/systemd/system/systemd-networkd.service")
	link(t, top, "etc/systemd/system/dbus-org.freedesktop.network1.service",
		"/lib/systemd/system/systemd-networkd.service")
	return top
}

// link makes a link of a machine to be.
func link(t *testing.T, top, name, target string) {
	t.Helper()
	put(t, top, name, "")
	path := filepath.Join(top, name)
	if err := errors.Join(os.Remove(path), os.Symlink(target, path)); err != nil {
		t.Fatal(err)
	}
}
