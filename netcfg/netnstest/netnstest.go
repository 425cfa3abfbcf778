// Package netnstest runs a test binary in a network namespace of its own, with a sysfs that shows it, so that tests may
// make bridges, veths and addresses without touching the machine. It needs no root.
//
// Only tests import it. It leaves nothing behind: the namespaces end with the process.
package netnstest

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// marker holds, in the environment of the inner process, the network namespace that the outer one is in.
const marker = "LINERATE_TEST_NETNS"

// missing is why there is no namespace; "" inside one.
var missing = "TestMain did not call netnstest.Run"

// Run is the body of a TestMain: `os.Exit(netnstest.Run(m))`. It starts the test binary again inside new network and
// mount namespaces (without root in a user namespace too, which gives the rights) and returns its exit code. Where the
// kernel refuses that, the tests run outside, and those that call Need are skipped.
func Run(m interface{ Run() int }) int {
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		missing = err.Error()
		return m.Run()
	}
	if outer := os.Getenv(marker); outer == "" || outer == here {
		code, err := again(here)
		if err == nil {
			return code
		}
		missing = err.Error()
		return m.Run()
	}
	missing = ""
	if err := prepare(); err != nil {
		missing = err.Error()
	}
	return m.Run()
}

// Need skips the test, with the reason, outside of a namespace of its own.
func Need(t interface {
	Helper()
	Skip(args ...any)
}) {
	t.Helper()
	if missing != "" {
		t.Skip("no network namespace of our own: " + missing)
	}
}

func again(here string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	one := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
	}
	sys := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if os.Geteuid() != 0 {
		sys.Cloneflags |= unix.CLONE_NEWUSER
		sys.UidMappings, sys.GidMappings = one(os.Getuid()), one(os.Getgid())
	}
	p, err := os.StartProcess(self, os.Args, &os.ProcAttr{
		Env:   append(os.Environ(), marker+"="+here),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   sys,
	})
	if err != nil {
		return 0, err
	}
	// The test runner's signals reach both; the one inside decides (a fuzz worker ends in good order).
	signal.Ignore(os.Interrupt)
	state, err := p.Wait()
	if err != nil {
		return 0, err
	}
	if code := state.ExitCode(); code >= 0 {
		return code, nil
	}
	return 1, nil
}

func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// sysfs shows the network namespace of whoever mounted it.
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
