package systemd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"linerate/appliance"
)

// roleVariable makes this test program be a service: what `linerate serve` and `linerate netcfg` are to systemd, with a
// Hub, the Task Notify and a kept listener, and with a report on its sandbox in place of throughput.
const roleVariable = "LINERATE_TEST_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "" {
		os.Exit(m.Run())
	}
	var err error
	switch os.Args[1] {
	case "serve":
		err = serve()
	case "netcfg":
		err = keep()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// about is what a service says of itself and its sandbox. An error is "" where the thing worked.
type about struct {
	PID           int
	UID           int
	Groups        []int
	Capabilities  string // CapEff
	NoNewPrivs    bool
	Restored      bool   // the listener was systemd's
	Affinity      string // sched_setaffinity on every thread
	Interrupts    string // /proc/interrupts
	Stat          string // /proc/stat
	WriteState    string // /var/lib/linerate
	WriteRequest  string // /run/linerate/request
	WriteEtc      string
	WriteSystem   string // /usr
	WriteNetworkd string // /run/systemd/network
	RemoveOther   string // the other process's file in /run/linerate
	Request       string // what the keeper read of the server's request, and removed
	Mount         string // a privilege nobody may have
	Netlink       string
}

func look() about {
	text := func(err error) string {
		if err != nil {
			return err.Error()
		}
		return ""
	}
	write := func(path string) string {
		return text(os.WriteFile(path, []byte("{}\n"), 0o644))
	}
	a := about{PID: os.Getpid(), UID: os.Getuid()}
	a.Groups, _ = os.Getgroups()
	status, err := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			a.Capabilities = strings.TrimSpace(value)
		}
		a.NoNewPrivs = a.NoNewPrivs || strings.HasPrefix(line, "NoNewPrivs:\t1")
	}
	a.Affinity = text(errors.Join(err, pin()))
	_, err = os.ReadFile("/proc/interrupts")
	a.Interrupts = text(err)
	_, err = os.ReadFile("/proc/stat")
	a.Stat = text(err)
	a.WriteEtc = write("/etc/linerate-was-here")
	a.WriteSystem = write("/usr/bin/linerate-was-here")
	a.WriteNetworkd = write("/run/systemd/network/05-linerate-test.network")
	a.Mount = text(unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""))
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	a.Netlink = text(err)
	_ = unix.Close(fd)
	return a
}

// pin puts every thread on one core and back on all, as a test on one port does.
func pin() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := range runtime.NumCPU() {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	for _, set := range []*unix.CPUSet{&one, &all} {
		for _, thread := range threads {
			var tid int
			if _, err := fmt.Sscan(thread.Name(), &tid); err != nil {
				return err
			}
			if err := unix.SchedSetaffinity(tid, set); err != nil && err != unix.ESRCH {
				return err
			}
		}
	}
	return nil
}

func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	m := Open(slog.Default())
	listen, err := os.ReadFile("/etc/linerate/listen") // in place of a config
	if err != nil {
		listen = []byte(":5201")
	}
	l, restored, err := m.Listen("iperf3", strings.TrimSpace(string(listen)))
	if err != nil {
		return err
	}
	a := look()
	a.Restored = restored
	a.WriteState = problem(os.WriteFile("/var/lib/linerate/results.jsonl", nil, 0o644))
	a.WriteRequest = problem(os.WriteFile("/run/linerate/request/1.json", []byte("confirm"), 0o644))
	a.RemoveOther = problem(os.Remove("/run/linerate/netcfg.json"))
	go func() {
		<-ctx.Done()
		l.Close()
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func(c net.Conn) {
				defer c.Close()
				_ = json.NewEncoder(c).Encode(a) // the client sees what is missing
			}(c)
		}
	}()
	hub := newHub()
	hangs := make(chan os.Signal, 1)
	signal.Notify(hangs, syscall.SIGUSR1)
	go func() {
		<-hangs
		hangHub(hub)
	}()
	appliance.Run(ctx, hub, slog.Default(), m.Notify(nil))
	return nil
}

func problem(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func keep() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	const request = "/run/linerate/request/1.json"
	for every := time.NewTicker(20 * time.Millisecond); ; {
		if _, err := os.Stat(request); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
	}
	a := look()
	wish, err := os.ReadFile(request)
	a.Request = string(wish) + problem(errors.Join(err, os.Remove(request)))
	a.WriteState = problem(os.WriteFile("/var/lib/linerate-netcfg/originals.json", nil, 0o644))
	a.RemoveOther = problem(os.WriteFile("/var/lib/linerate/by-the-keeper", nil, 0o644))
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := os.WriteFile("/run/linerate/netcfg.json.new", data, 0o644); err != nil {
		return err
	}
	if err := os.Rename("/run/linerate/netcfg.json.new", "/run/linerate/netcfg.json"); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
