package systemd

import (
	"context"
	"encoding/json"
	"errors"
	"image/png"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// firstFrame is how soon after its start the box shows something.
const firstFrame = time.Second

// The whole way on a real systemd: `linerate units` installs, the units start the real program, a real iperf3 client is
// served, before and after restarts and kills that refuse nobody.
func TestApplianceUnderSystemd(t *testing.T) {
	needMachine(t)
	iperf3, err := exec.LookPath("iperf3")
	if err != nil {
		t.Skip("iperf3 is not here")
	}
	top := t.TempDir()
	binary := filepath.Join(t.TempDir(), "linerate")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "linerate/cmd/linerate") // as make build, from its cache
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if out, err := exec.Command(binary, "units", top).CombinedOutput(); err != nil {
		t.Fatalf("linerate units: %v\n%s", err, out)
	}
	program(t, top, binary)
	put(t, top, "etc/linerate/linerate.toml", "[ports]\nselect = [\"eth1\"]\nmtu = 1400\n")
	m := boot(t, top)
	frames := m.watchFrames()
	up := func(unit string) {
		t.Helper()
		m.until(unit+" is active", func() bool { return m.property(unit, "ActiveState") == "active" })
	}
	m.up()
	up("linerate.service")
	up("linerate-netcfg.service")

	// The keeper does its work within its sandbox.
	for _, line := range []string{
		"link add br0 type bridge", "link add eth1 type veth peer name far1", "link set eth1 master br0 up",
		"link set far1 up", "link set br0 up", "address add 192.0.2.1/24 dev br0",
	} {
		m.run(append([]string{"ip"}, strings.Fields(line)...)...)
	}
	m.until("the keeper has freed the port", func() bool {
		address := m.run("ip", "-o", "address", "show", "dev", "eth1")
		link := m.run("ip", "-o", "link", "show", "dev", "eth1")
		return !strings.Contains(link, "master br0") && strings.Contains(link, "mtu 1400") &&
			strings.Contains(address, "192.0.2.1/24")
	})

	for round := range 3 {
		frame := frames.first(m, round+1)
		t.Logf("round %d: first frame %v after the start", round, frame)
		if frame > firstFrame {
			t.Errorf("the first frame came %v after the start, want %v", frame, firstFrame)
		}
		out, err := m.try(iperf3, "-c", "127.0.0.1", "-t", "1", "-J")
		var report struct {
			Error string
			End   struct {
				Received struct {
					Bytes float64
				} `json:"sum_received"`
			}
		}
		err = errors.Join(err, json.Unmarshal([]byte(out), &report))
		if bytes := report.End.Received.Bytes; err != nil || report.Error != "" || bytes < 1e6 {
			t.Fatalf("iperf3: %v %s, %.0f bytes", err, report.Error, bytes)
		}
		m.until("the result is stored", func() bool {
			var results []struct{ Bytes float64 }
			out := m.run("linerate", "results", "--json")
			return json.Unmarshal([]byte(out), &results) == nil && len(results) == round+1
		})
		m.until("the result is in the status", func() bool {
			return strings.Contains(m.property("linerate.service", "StatusText"), "last: RX ")
		})
		if round == 2 {
			break
		}

		stop, refused := make(chan struct{}), make(chan int)
		go func() { refused <- m.knock("127.0.0.1:5201", stop) }()
		before := m.property("linerate.service", "MainPID")
		if round == 0 {
			m.run("systemctl", "restart", "linerate.service")
		} else {
			m.run("systemctl", "kill", "--signal=KILL", "linerate.service")
		}
		m.until("another process is ready", func() bool {
			pid := m.property("linerate.service", "MainPID")
			return pid != before && pid != "0" && m.property("linerate.service", "ActiveState") == "active"
		})
		close(stop)
		if n := <-refused; n != 0 {
			t.Errorf("round %d: %d connections refused", round, n)
		}
	}
	// Somebody else has the port: the box runs, says who, and serves as soon as the port is free.
	m.run("systemctl", "stop", "linerate.service")
	m.run("systemd-run", "--unit=rival", "--quiet", iperf3, "-s")
	m.until("the rival listens", func() bool {
		out, _ := m.try("ss", "-Hltn", "sport = :5201")
		return out != ""
	})
	m.run("systemctl", "start", "linerate.service") // comes back when it is ready
	if status := m.property("linerate.service", "StatusText"); !strings.Contains(status, "listen on :5201: taken by") {
		t.Errorf("status with the port taken: %s", status)
	}
	m.run("systemctl", "stop", "rival.service")
	m.until("the server has its port", func() bool {
		return !strings.Contains(m.property("linerate.service", "StatusText"), "taken by")
	})

	for _, unit := range []string{"linerate.service", "linerate-netcfg.service", "linerate-users.service"} {
		out, _ := m.try("journalctl", "--no-pager", "-o", "cat", "-u", unit)
		t.Logf("%s said:\n%s", unit, out)
		if strings.Contains(out, "panic") || strings.Contains(out, "Watchdog timeout") {
			t.Errorf("%s is not well", unit)
		}
	}
	m.run("systemctl", "poweroff")
	m.end()
}

// frames notes when each process of the server first had a picture to show.
type frames struct {
	mu    sync.Mutex
	at    time.Duration // CLOCK_MONOTONIC of the latest process's first picture
	by    int32         // that process, as this system counts
	count int           // processes so far
}

// watchFrames asks for the picture again and again.
func (m *machine) watchFrames() *frames {
	f := &frames{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for every := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
				f.look(m.path("/run/linerate/linerate.sock"))
			}
		}
	}()
	m.t.Cleanup(func() { cancel(); <-done })
	return f
}

func (f *frames) look(socket string) {
	var by int32
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
			if err != nil {
				return nil, err
			}
			raw, err := c.(*net.UnixConn).SyscallConn()
			if err == nil {
				err = errors.Join(err, raw.Control(func(fd uintptr) {
					if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
						by = cred.Pid
					}
				}))
			}
			return c, err
		},
	}}
	answer, err := client.Get("http://linerate/api/v1/screen.png")
	if err != nil {
		return
	}
	defer answer.Body.Close()
	_, err = png.Decode(answer.Body)
	var now unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if by != f.by {
		f.by, f.at = by, time.Duration(now.Nano())
		f.count++
	}
}

// first is how long after its start the server's n-th process had a picture.
func (f *frames) first(m *machine, n int) (after time.Duration) {
	m.t.Helper()
	m.until("a first frame", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.count == n
	})
	started, err := strconv.ParseInt(m.property("linerate.service", "ExecMainStartTimestampMonotonic"), 10, 64)
	if err != nil {
		m.t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at - time.Duration(started)*time.Microsecond
}

// knock connects again and again, says nothing, and counts how often it is refused.
func (m *machine) knock(address string, stop <-chan struct{}) (refused int) {
	m.inside(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, err := net.DialTimeout("tcp", address, 10*time.Second)
			if errors.Is(err, syscall.ECONNREFUSED) {
				refused++
			}
			if err == nil {
				c.Close()
			}
			time.Sleep(time.Millisecond) // a queue of connections that say nothing must not fill up
		}
	})
	return refused
}
