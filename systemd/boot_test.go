package systemd

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The units on a real systemd: users and groups, owners and modes, what the sandboxes leave and take, the watchdog, and a
// server that is killed and restarted under fire.
func TestUnitsUnderSystemd(t *testing.T) {
	needMachine(t)
	top := t.TempDir()
	if _, err := Install(top); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program(t, top, self)
	const drop = "[Service]\nEnvironment=" + roleVariable + "=1\n"
	put(t, top, "etc/systemd/system/linerate.service.d/test.conf", drop+"WatchdogSec=2s\n")
	put(t, top, "etc/systemd/system/linerate-netcfg.service.d/test.conf", drop)
	put(t, top, "etc/linerate/empty", "")
	if _, err := os.Stat("/usr/lib/systemd/system/iperf3.service"); err == nil { // enabled, as the WLAN Pi's images have it
		put(t, top, "etc/systemd/system/multi-user.target.wants/iperf3.service", "")
		link := top + "/etc/systemd/system/multi-user.target.wants/iperf3.service"
		if err := errors.Join(os.Remove(link), os.Symlink("/usr/lib/systemd/system/iperf3.service", link)); err != nil {
			t.Fatal(err)
		}
	}
	m := boot(t, top)
	m.up()
	for _, unit := range []string{"linerate-users.service", "linerate-netcfg.service", "linerate.service"} {
		m.until(unit+" is active", func() bool { return m.property(unit, "ActiveState") == "active" })
		errs, _ := m.try("journalctl", "--no-pager", "--quiet", "-o", "cat", "-p", "warning", "-u", unit)
		if errs != "" {
			t.Errorf("warnings about %s:\n%s", unit, errs)
		}
	}
	const address = "127.0.0.1:5201"
	query := func(address string) (a about) {
		t.Helper()
		m.inside(func() {
			var err error
			if a, err = ask(address); err != nil {
				t.Errorf("ask %s: %v", address, err)
			}
		})
		return a
	}
	// present is query while the server may die: whom it has accepted it may break off, but nobody is refused.
	present := func() (a about) {
		t.Helper()
		m.inside(func() {
			var err error
			if a, err = ask(address); errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("ask %s: %v", address, err)
			}
		})
		return a
	}

	t.Run("rivals", func(t *testing.T) {
		if _, err := exec.LookPath("iperf3"); err != nil {
			t.Skip("iperf3 is not here")
		}
		if state := m.property("iperf3.service", "ActiveState"); state == "active" {
			t.Errorf("iperf3.service is %s beside us", state)
		}
	})

	t.Run("owners and modes", func(t *testing.T) {
		for path, want := range map[string]string{
			"/run/linerate": "1775 root linerate", "/run/linerate/request": "1770 root linerate",
			"/run/linerate/testing": "644 linerate linerate", "/var/lib/linerate": "755 linerate linerate",
			"/var/lib/linerate-netcfg": "755 root root",
		} {
			if got := m.run("stat", "--format=%a %U %G", path); got != want {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
		for _, group := range []string{"i2c", "spi", "gpio", "input", "video", "linerate"} {
			m.run("getent", "group", group)
		}
	})

	t.Run("the server's sandbox", func(t *testing.T) {
		a := query(address)
		if a.UID == 0 || strings.Trim(a.Capabilities, "0") != "" || !a.NoNewPrivs {
			t.Errorf("uid %d, capabilities %s, no new privileges: %v", a.UID, a.Capabilities, a.NoNewPrivs)
		}
		if len(a.Groups) < 6 {
			t.Errorf("groups %v: want the devices' too", a.Groups)
		}
		for what, problem := range map[string]string{
			"affinity": a.Affinity, "/proc/interrupts": a.Interrupts, "/proc/stat": a.Stat, "netlink": a.Netlink,
			"write its state": a.WriteState, "leave a request": a.WriteRequest,
		} {
			if problem != "" {
				t.Errorf("%s: %s", what, problem)
			}
		}
		for what, problem := range map[string]string{
			"write /etc": a.WriteEtc, "write /usr": a.WriteSystem, "write networkd's folder": a.WriteNetworkd,
			"mount": a.Mount, "remove the keeper's file": a.RemoveOther,
		} {
			if problem == "" {
				t.Errorf("the server can %s", what)
			}
		}
		if a.Restored {
			t.Error("the first start restored a listener")
		}
	})

	t.Run("the keeper's sandbox", func(t *testing.T) {
		var a about
		m.until("netcfg.json", func() bool {
			data, err := os.ReadFile(m.path("/run/linerate/netcfg.json"))
			return err == nil && json.Unmarshal(data, &a) == nil
		})
		const netAdminRaw = "0000000000003000" // bits 12 and 13 (capability.h)
		if a.UID != 0 || a.Capabilities != netAdminRaw || !a.NoNewPrivs {
			t.Errorf("uid %d, capabilities %s, no new privileges: %v", a.UID, a.Capabilities, a.NoNewPrivs)
		}
		if a.Request != "confirm" {
			t.Errorf("the server's request: %q", a.Request)
		}
		for what, problem := range map[string]string{
			"/proc/interrupts": a.Interrupts, "netlink": a.Netlink, "write its state": a.WriteState,
		} {
			if problem != "" {
				t.Errorf("%s: %s", what, problem)
			}
		}
		for what, problem := range map[string]string{
			"write /etc": a.WriteEtc, "write /usr": a.WriteSystem, "mount": a.Mount,
			"write the server's folder": a.RemoveOther,
		} {
			if problem == "" {
				t.Errorf("the keeper can %s", what)
			}
		}
	})

	t.Run("status", func(t *testing.T) {
		if got := m.property("linerate.service", "StatusText"); got != "no test yet" {
			t.Errorf("status %q", got)
		}
	})

	t.Run("killed and restarted under fire", func(t *testing.T) {
		stop := make(chan struct{})
		result := make(chan *hammer)
		const clients = 4
		for range clients {
			go func() { result <- m.hammer(address, stop) }()
		}
		pid := query(address).PID
		other := func() bool {
			now := present()
			if now.PID != pid && now.PID != 0 {
				if !now.Restored {
					t.Error("the listener was bound anew")
				}
				pid = now.PID
				return true
			}
			return false
		}
		for range 2 {
			m.run("systemctl", "kill", "--signal=KILL", "linerate.service")
			m.until("another process after kill -9", other)
		}
		m.run("systemctl", "restart", "linerate.service")
		m.until("another process after a restart", other)
		close(stop)
		var pids []int
		for range clients {
			h := <-result
			if h.refused > 0 || h.served < 10 {
				t.Errorf("%d connections served, %d refused, broken: %q", h.served, h.refused, h.broken)
			}
			t.Logf("%d connections served by %v, %d broken off by the kill", h.served, h.pids, len(h.broken))
			pids = append(pids, h.pids...)
		}
		slices.Sort(pids)
		if n := len(slices.Compact(pids)); n < 3 {
			t.Errorf("served by %d processes, want 3 and more", n)
		}
	})

	t.Run("a Hub that hangs", func(t *testing.T) {
		pid := query(address).PID
		m.run("systemctl", "kill", "--signal=USR1", "linerate.service")
		m.until("the watchdog has it started anew", func() bool {
			now := present() // answered by the old one as long as it lives
			return now.PID != pid && now.PID != 0
		})
		log := m.run("journalctl", "--no-pager", "-o", "cat", "-u", "linerate.service")
		if !strings.Contains(log, "Watchdog timeout") {
			t.Errorf("started anew, but not by the watchdog:\n%s", log)
		}
	})

	t.Run("another address", func(t *testing.T) {
		if err := os.WriteFile(m.path("/etc/linerate/listen"), []byte("127.0.0.1:5301"), 0o644); err != nil {
			t.Fatal(err)
		}
		m.run("systemctl", "restart", "linerate.service")
		if a := query("127.0.0.1:5301"); a.Restored {
			t.Error("another address restored")
		}
		m.inside(func() {
			if _, err := ask(address); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("the old address: %v", err)
			}
		})
	})

	t.Run("stopped", func(t *testing.T) {
		m.run("systemctl", "stop", "linerate.service")
		if got := m.property("linerate.service", "ActiveState"); got != "inactive" {
			t.Errorf("after a stop it is %s", got)
		}
	})
	m.run("systemctl", "poweroff")
	m.end()
}
