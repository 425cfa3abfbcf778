package systemd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// machine is a container whose init is the real systemd: an overlay of this system's root with our files on top. All of it,
// mounts too, goes with the process that started it.
type machine struct {
	t       *testing.T
	leader  int // its init, as this system counts processes
	console *bytes.Buffer
	end     func() // waits until it is off
}

// masked are units of the build machine that a test has no use for.
var masked = []string{
	"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
	"fstrim.timer", "man-db.timer", "postgresql.service", "systemd-networkd.service", "systemd-resolved.service",
	"systemd-timesyncd.service", "ssh.service", "cron.service",
}

// needMachine skips a test where no machine can be started.
func needMachine(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a container")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root for a container")
	}
	for _, program := range []string{"systemd-nspawn", "unshare", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not here", program)
		}
	}
}

// boot starts a machine with the files of a folder on top, without the masked units but those that are wanted. The folder
// is the caller's and is copied.
func boot(t *testing.T, top string, wanted ...string) *machine {
	t.Helper()
	for _, unit := range masked {
		if slices.Contains(wanted, unit) {
			continue
		}
		put(t, top, "etc/systemd/system/"+unit, "")
		path := filepath.Join(top, "etc/systemd/system", unit)
		if err := errors.Join(os.Remove(path), os.Symlink("/dev/null", path)); err != nil {
			t.Fatal(err)
		}
	}
	// A mount namespace of its own. Upper and lower layer of an overlay must not contain each other, hence the tmpfs.
	const script = `set -e
		mount -t tmpfs -o mode=755 tmpfs "$2"
		mkdir "$2/upper" "$2/work" "$2/root"
		cp -a "$1/." "$2/upper"
		mount -t overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" overlay "$2/root"
		exec systemd-nspawn --quiet --directory="$2/root" --boot --register=no --keep-unit --private-network \
			--link-journal=no --resolv-conf=off --timezone=off --machine="$3" --console=pipe`
	name := fmt.Sprintf("linerate-test-%d", os.Getpid())
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh",
		top, t.TempDir(), name)
	m := &machine{t: t, console: &bytes.Buffer{}}
	cmd.Stdout, cmd.Stderr = m.console, m.console
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the signal at our death is that of this thread
		err := cmd.Start()
		started <- err
		if err == nil {
			done <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	m.end = sync.OnceFunc(func() { <-over })
	go func() { <-done; close(over) }()
	t.Cleanup(func() {
		if m.leader > 0 {
			_ = unix.Kill(m.leader, unix.Signal(34+14)) // SIGRTMIN+14, systemd(1): power off at once
		}
		select {
		case <-over:
		case <-time.After(5 * time.Second):
		}
		cancel()
		<-over
		if t.Failed() {
			t.Logf("the console:\n%s", m.console)
		}
	})

	for deadline := time.Now().Add(30 * time.Second); m.leader == 0; time.Sleep(10 * time.Millisecond) {
		m.leader = initBelow(cmd.Process.Pid)
		select {
		case <-over:
			t.Skipf("no container here: %s", strings.TrimSpace(m.console.String()))
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("the container has no init within 30 s")
		}
	}
	return m
}

// reboot turns the machine off and starts another whose disk holds what these folders and files of it held.
func (m *machine) reboot(top string, kept []string, wanted ...string) *machine {
	m.t.Helper()
	for _, name := range kept {
		to := filepath.Join(top, name)
		out, err := exec.Command("sh", "-c", `rm -rf "$2" && mkdir -p "$(dirname "$2")" && cp -a "$1" "$2"`, "sh",
			m.path(name), to).CombinedOutput()
		if err != nil {
			m.t.Fatalf("keep %s: %v\n%s", name, err, out)
		}
	}
	m.run("systemctl", "--no-block", "poweroff")
	m.end()
	m.leader = 0
	return boot(m.t, top, wanted...)
}

// up waits until systemd has started all it starts at boot.
func (m *machine) up() {
	m.t.Helper()
	m.until("systemd is up", func() bool {
		state, _ := m.try("systemctl", "is-system-running")
		return state == "running" || state == "degraded"
	})
}

// initBelow finds the child that is process 1 of a namespace and runs systemd.
func initBelow(pid int) int {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0
	}
	for child := range strings.FieldsSeq(string(children)) {
		status, err := os.ReadFile(filepath.Join("/proc", child, "status"))
		if err != nil {
			continue
		}
		if strings.Contains(string(status), "Name:\tsystemd\n") && strings.Contains(string(status), "\t1\n") {
			n, _ := strconv.Atoi(child) // the kernel wrote it
			return n
		}
	}
	return 0
}

// try runs a program inside and returns what it prints.
func (m *machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(m.leader), "-a", "--"}, args...)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", args, err, out)
	}
	return out
}

// property of a unit, as systemctl show gives it.
func (m *machine) property(unit, name string) string {
	m.t.Helper()
	return m.run("systemctl", "show", "--value", "--property="+name, unit)
}

func (m *machine) until(what string, ok func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(40 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			journal, _ := m.try("journalctl", "--no-pager", "-n", "60", "-o", "cat")
			m.t.Fatalf("not within 40 s: %s; the journal:\n%s", what, journal)
		}
	}
}

// path of a file inside.
func (m *machine) path(name string) string {
	return filepath.Join("/proc", strconv.Itoa(m.leader), "root", name)
}

// The first thread stays in this system's network: /proc/net is the one of that thread, and it cannot end with a goroutine.
func init() { runtime.LockOSThread() }

// inside calls f in the machine's network, on a thread that ends with it.
func (m *machine) inside(f func()) {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		ns, err := os.Open(m.path("/proc/1/ns/net"))
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		m.t.Errorf("enter the machine's network: %v", err)
	}
}

// ask connects to the server and reads what it says of itself.
func ask(address string) (about, error) {
	var a about
	c, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return a, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return a, err
	}
	data, err := io.ReadAll(io.LimitReader(c, 1<<16))
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(data, &a)
}

// hammer connects again and again until it is told to stop.
type hammer struct {
	served  int
	refused int
	broken  []string // other errors
	pids    []int    // who answered
}

func (m *machine) hammer(address string, stop <-chan struct{}) *hammer {
	h := &hammer{}
	m.inside(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			a, err := ask(address)
			switch {
			case errors.Is(err, syscall.ECONNREFUSED):
				h.refused++
			case err != nil: // accepted by the process that was killed
				h.broken = append(h.broken, err.Error())
			default:
				h.served++
				if !slices.Contains(h.pids, a.PID) {
					h.pids = append(h.pids, a.PID)
				}
			}
		}
	})
	return h
}

// put writes a file of a machine to be.
func put(t *testing.T, top, name, text string) {
	t.Helper()
	path := filepath.Join(top, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// program copies an executable file to /usr/bin/linerate of a machine to be.
func program(t *testing.T, top, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	put(t, top, "usr/bin/linerate", "")
	path := filepath.Join(top, "usr/bin/linerate")
	if err := errors.Join(os.WriteFile(path, data, 0o755), os.Chmod(path, fs.FileMode(0o755))); err != nil {
		t.Fatal(err)
	}
}
