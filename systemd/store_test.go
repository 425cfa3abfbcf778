package systemd

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// reach connects and sees its line come back from the listener.
func reach(t *testing.T, l net.Listener, address string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer(t, l, c)
}

// answer accepts one connection and sees that it is the client's.
func answer(t *testing.T, l net.Listener, client net.Conn) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	if err := l.(*net.TCPListener).SetDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatalf("accept: %v", err)
	}
	defer s.Close()
	if err := errors.Join(s.SetDeadline(deadline), client.SetDeadline(deadline)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(client).ReadString('\n'); line != "hello\n" {
		t.Fatalf("the client read %q, %v", line, err)
	}
}

func listen(t *testing.T, m *Manager, name, address string, wantRestored bool) net.Listener {
	t.Helper()
	l, restored, err := m.Listen(name, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if restored != wantRestored {
		t.Errorf("%s on %s: restored is %v", name, address, restored)
	}
	return l
}

func TestListenAcrossRestarts(t *testing.T) {
	systemd := startManager(t)
	port := freePort(t)
	address, at := hostPort("", port), hostPort("127.0.0.1", port)

	first := Open(nil)
	l := listen(t, first, "iperf3", address, false)
	systemd.until("stored", func() bool { return slices.Equal(systemd.names(), []string{"iperf3"}) })
	reach(t, l, at)

	// A part that starts anew within the process gets the same socket, and whoever came between waits.
	l.Close()
	between, err := net.DialTimeout("tcp", at, 5*time.Second)
	if err != nil {
		t.Fatalf("refused while no part listens: %v", err)
	}
	defer between.Close()
	l = listen(t, first, "iperf3", address, true)
	answer(t, l, between)

	// The process dies; a client connects meanwhile; the next process serves it.
	l.Close()
	die(first)
	waiting, err := net.DialTimeout("tcp", at, 5*time.Second)
	if err != nil {
		t.Fatalf("refused while the process was dead: %v", err)
	}
	defer waiting.Close()
	second := systemd.restart()
	l = listen(t, second, "iperf3", "[::]:"+at[len("127.0.0.1:"):], true) // the same address, written otherwise
	answer(t, l, waiting)
	reach(t, l, hostPort("::1", port))

	// Another address: the old one is free at once, and the new one is stored.
	l.Close()
	die(second)
	third := systemd.restart()
	l = listen(t, third, "iperf3", at, false) // the same port: possible only because the old socket is gone
	reach(t, l, at)
	if c, err := net.DialTimeout("tcp", hostPort("::1", port), time.Second); err == nil {
		c.Close()
		t.Error("the old address still answers")
	}
	systemd.until("only the new one is stored", func() bool { return slices.Equal(systemd.names(), []string{"iperf3"}) })
	l.Close()
	die(third)
	fourth := systemd.restart()
	listen(t, fourth, "iperf3", at, true)

	// What nobody wants any more is given up.
	other := freePort(t)
	listen(t, fourth, "nuttcp", hostPort("", other), false).Close()
	fourth.Keep("iperf3")
	if got := systemd.names(); !slices.Equal(got, []string{"iperf3"}) {
		t.Errorf("stored: %q", got)
	}
	if c, err := net.DialTimeout("tcp", hostPort("127.0.0.1", other), time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port that is given up: %v", err)
		if c != nil {
			c.Close()
		}
	}
}

// Things under our name that are no such listener must not be served.
func TestStrangeThingsInTheStore(t *testing.T) {
	systemd := startManager(t)
	m := Open(nil)
	port := freePort(t)
	c, restored, err := m.ListenPacket("iperf3", hostPort("127.0.0.1", port))
	if err != nil || restored {
		t.Fatal(err, restored)
	}
	c.Close()
	die(m)
	m = systemd.restart()
	l := listen(t, m, "iperf3", hostPort("127.0.0.1", port), false) // a UDP socket on the same port
	reach(t, l, l.Addr().String())
	l.Close()
	die(m)

	m = systemd.restart()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	m.kept["iperf3"] = append(m.kept["iperf3"], r) // two under one name, one of them no socket
	l = listen(t, m, "iperf3", hostPort("127.0.0.1", port), false)
	reach(t, l, l.Addr().String())
}

func TestListenPacketAcrossRestarts(t *testing.T) {
	systemd := startManager(t)
	m := Open(nil)
	address := hostPort("127.0.0.1", freePort(t))
	c, _, err := m.ListenPacket("probe", address)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	die(m)
	client, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Write([]byte("waits")); err != nil {
		t.Fatalf("refused while the process was dead: %v", err)
	}
	m = systemd.restart()
	c, restored, err := m.ListenPacket("probe", address)
	if err != nil || !restored {
		t.Fatal(err, restored)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if n, _, err := c.ReadFrom(buf); string(buf[:n]) != "waits" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
}

func TestListenWithoutSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	m := Open(nil)
	if m.Present() {
		t.Fatal("somebody listens")
	}
	address := hostPort("127.0.0.1", freePort(t))
	for range 2 { // closing frees the address
		l := listen(t, m, "iperf3", address, false)
		reach(t, l, address)
		l.Close()
	}
	m.Keep()
	// An address that the box does not have yet.
	l := listen(t, m, "iperf3", "192.0.2.77:0", false)
	l.Close()
	l = listen(t, m, "iperf3", "[2001:db8::77]:0", false)
	l.Close()
	for _, wrong := range []string{"", "5201", ":99999", "1.2.3:4:5"} {
		l, _, err := m.Listen("iperf3", wrong)
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "listen on") {
			t.Errorf("address %q: %v, %v", wrong, l, err)
		}
	}
}

// systemd that does not answer must hold nobody up for long.
func TestDeafSystemd(t *testing.T) {
	systemd := startManager(t)
	m := Open(nil)
	listen(t, m, "iperf3", hostPort("127.0.0.1", freePort(t)), false).Close()
	systemd.mu.Lock()
	systemd.deaf = true
	systemd.mu.Unlock()
	began := time.Now()
	l := listen(t, m, "iperf3", hostPort("127.0.0.1", freePort(t)), false)
	if took := time.Since(began); took > 5*patience {
		t.Errorf("took %v", took)
	}
	reach(t, l, l.Addr().String())
}

// The environment is used once, by the process it was made for.
func TestOpenTakesTheEnvironment(t *testing.T) {
	startManager(t)
	t.Setenv("WATCHDOG_USEC", "3000000")
	t.Setenv("WATCHDOG_PID", "")
	os.Unsetenv("WATCHDOG_PID")
	m := Open(nil)
	if !m.Present() || m.watchdog != 3*time.Second {
		t.Errorf("present %v, watchdog %v", m.Present(), m.watchdog)
	}
	if again := Open(nil); again.Present() || again.watchdog != 0 {
		t.Errorf("the second time: present %v, watchdog %v", again.Present(), again.watchdog)
	}
	t.Setenv("WATCHDOG_USEC", "nonsense")
	if m := Open(nil); m.watchdog != 0 {
		t.Errorf("watchdog %v", m.watchdog)
	}
}

func TestAddressInUse(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, _, err = Open(nil).Listen("iperf3", l.Addr().String())
	comm, commErr := os.ReadFile("/proc/self/comm")
	if commErr != nil {
		t.Fatal(commErr)
	}
	name := strings.TrimSpace(string(comm))
	for _, want := range []string{"listen on " + l.Addr().String(), name + " (pid ", "choose another address"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not say %q", err, want)
		}
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v is not EADDRINUSE", err)
	}
}

// Debian's iperf3 is what sits on :5201 most often.
func TestAddressInUseByIperf3(t *testing.T) {
	iperf3, err := exec.LookPath("iperf3")
	if err != nil {
		t.Skip("iperf3 is not here")
	}
	port := freePort(t)
	_, number, _ := net.SplitHostPort(hostPort("", port))
	cmd := exec.CommandContext(t.Context(), iperf3, "-s", "-p", number)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if h, ok := FindHolder("/proc", "tcp", port); ok && h.PID == cmd.Process.Pid {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("iperf3 does not listen")
		}
	}
	t.Setenv("NOTIFY_SOCKET", "")
	_, _, err = Open(nil).Listen("iperf3", hostPort("", port))
	if err == nil || !strings.Contains(err.Error(), "taken by iperf3 (pid ") {
		t.Errorf("error %v", err)
	}
}
