package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/appliance/throughput"
	"linerate/appliance/web"
)

// freePort is a TCP port of loopback that nobody has at this moment.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// unprivileged makes cmd run as nobody without any capability, where the test is root.
func unprivileged(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
}

// openDir is a folder that nobody may write to as well.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "linerate-demo-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// demoBox is a running demo without a terminal.
type demoBox struct {
	*web.Client
	port   string
	runDir string
	t      *testing.T
}

func startDemo(t *testing.T) demoBox {
	t.Helper()
	dir, port := openDir(t), freePort(t)
	var log bytes.Buffer
	cmd := exec.Command(program, "demo", "--port", port, "--run-dir", filepath.Join(dir, "run"), "--state-dir", filepath.Join(dir, "state"))
	cmd.Stderr = &log
	unprivileged(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("demo ended with %v", err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	run := filepath.Join(dir, "run")
	d := demoBox{web.NewClient(filepath.Join(run, "linerate.sock")), port, run, t}
	d.until("the server accepts", func() bool {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil && d.Get(t.Context(), "/healthz", new([]byte)) == nil
	})
	return d
}

func (d demoBox) until(what string, ok func() bool) {
	d.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			d.t.Fatalf("waited 20 s in vain: %s", what)
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}

func (d demoBox) state() appliance.State {
	d.t.Helper()
	var s appliance.State
	if err := d.Get(d.t.Context(), "/api/v1/state", &s); err != nil {
		d.t.Fatal(err)
	}
	return s
}

// TestDemo is what the README promises: a real iperf3 client, four ways, followed live.
func TestDemo(t *testing.T) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skipf("needs iperf3: %v", err)
	}
	d := startDemo(t)
	if s := d.state(); len(s.Ports) != 3 || len(s.Targets) != 1 {
		t.Errorf("%d ports, targets %v", len(s.Ports), s.Targets)
	}
	for i, c := range []struct {
		flags     string
		direction throughput.Direction
		streams   int
	}{
		{"", throughput.RX, 1}, {"-R", throughput.TX, 1}, {"-P 4", throughput.RX, 4}, {"--bidir", throughput.Both, 1},
		{"-u -b 100M", throughput.RX, 1}, {"-u -b 100M -R", throughput.TX, 1},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		words := append([]string{"-c", "127.0.0.1", "-p", d.port, "-t", "2", "-J"}, strings.Fields(c.flags)...)
		client := exec.CommandContext(ctx, "iperf3", words...)
		var out bytes.Buffer
		client.Stdout = &out
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		d.until("the test is shown live", func() bool {
			s := d.state()
			return s.Page == appliance.PageTest && len(s.Running) == 1 && s.Running[0].BPS > 0
		})
		_ = client.Wait()
		cancel()
		var rep report3
		if err := json.Unmarshal(out.Bytes(), &rep); err != nil || rep.Error != "" || rep.End.Received.Bytes == 0 {
			t.Errorf("iperf3 %s: %v %s\n%s", c.flags, err, rep.Error, out.String())
		}
		d.until("the result is there", func() bool { return len(d.state().Results) == i+1 })
		r := d.state().Results[0]
		if r.Direction != c.direction || r.Streams != c.streams || !r.Valid || r.Error != "" {
			t.Errorf("iperf3 %s: %s, %d streams, valid %v, %s", c.flags, r.Direction, r.Streams, r.Valid, r.Error)
		}
		if c.direction == throughput.Both && (r.RXBPS == nil || r.TXBPS == nil || *r.RXBPS == 0 || *r.TXBPS == 0) {
			t.Errorf("--bidir: rx %v, tx %v", r.RXBPS, r.TXBPS)
		}
	}
	// `linerate test` runs on the appliance, is stored there, and prints its result.
	out, err := exec.Command(program, "test", thisBox, "-t", "1", "-R", "--json", "--run-dir", d.runDir).Output()
	var r struct {
		ID, Direction, Target string
		Bytes                 int64
	}
	if err != nil || json.Unmarshal(out, &r) != nil || r.ID == "" || r.Direction != "rx" || r.Target != thisBox || r.Bytes == 0 {
		t.Errorf("linerate test: %v %s", err, out)
	}
}

// TestDemoInATerminal types at a real terminal and sees the panel's pixels in it.
func TestDemoInATerminal(t *testing.T) {
	master, slave := openPTY(t)
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	dir := openDir(t)
	cmd := exec.Command(program, "demo", "--port", freePort(t), "--run-dir", filepath.Join(dir, "run"), "--state-dir", filepath.Join(dir, "state"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	unprivileged(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()

	var mu sync.Mutex
	var seen bytes.Buffer
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			mu.Lock()
			seen.Write(buf[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	text := func() string {
		mu.Lock()
		defer mu.Unlock()
		return seen.String()
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !ok(); {
			if time.Now().After(end) {
				t.Fatalf("waited 10 s in vain: %s\n%q", what, text())
			}
			time.Sleep(20 * time.Millisecond) // between two looks
		}
	}
	braille := func(s string) bool {
		return strings.ContainsFunc(s, func(r rune) bool { return r > 0x2800 && r < 0x2900 })
	}
	until("pixels as braille", func() bool { return braille(text()) })
	client := web.NewClient(filepath.Join(dir, "run", "linerate.sock"))
	page := func() appliance.Page {
		var s struct{ Page appliance.Page }
		_ = client.Get(t.Context(), "/api/v1/state", &s)
		return s.Page
	}
	if _, err := master.Write([]byte("1")); err != nil {
		t.Fatal(err)
	}
	until("k1 opens the test page", func() bool { return page() == appliance.PageTest })
	if _, err := master.Write([]byte("\x7f")); err != nil {
		t.Fatal(err)
	}
	until("Backspace leads home", func() bool { return page() == appliance.PageHome })
	if _, err := master.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("q ended the demo with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("q did not end the demo")
	}
	after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %v", err)
	}
}

// openPTY is a terminal of 80x24 that anybody may use.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminal: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err != nil {
		t.Skipf("no pseudo terminal: %v", err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminal: %v", err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}
