package systemd

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// manager is the other end of NOTIFY_SOCKET: it keeps what is stored, as systemd does, and notes all messages.
type manager struct {
	t    *testing.T
	conn *net.UnixConn

	mu       sync.Mutex
	messages []string
	store    map[string][]int
	pending  []string // names to remove: systemd is not bound to do it before the next message
	deaf     bool     // does not answer barriers
}

func startManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{t: t, conn: conn, store: map[string][]int{}}
	done := make(chan struct{})
	go func() { defer close(done); m.serve() }()
	t.Cleanup(func() {
		conn.Close()
		<-done
		for name := range m.store {
			m.remove(name)
		}
	})
	t.Setenv("NOTIFY_SOCKET", path)
	return m
}

func (m *manager) serve() {
	buf, oob := make([]byte, 4096), make([]byte, 256)
	for {
		n, on, _, _, err := m.conn.ReadMsgUnix(buf, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			m.t.Errorf("read a message: %v", err)
			return
		}
		var fds []int
		if messages, err := unix.ParseSocketControlMessage(oob[:on]); err == nil && len(messages) > 0 {
			fds, err = unix.ParseUnixRights(&messages[0])
			if err != nil {
				m.t.Errorf("file descriptors: %v", err)
			}
		}
		m.handle(string(buf[:n]), fds)
	}
}

func (m *manager) handle(message string, fds []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.messages = append(m.messages, message)
	for _, name := range m.pending {
		m.remove(name)
	}
	m.pending = nil
	lines := strings.Split(message, "\n")
	name := ""
	for _, line := range lines {
		name = strings.TrimPrefix(line, "FDNAME=")
		if name != line {
			break
		}
	}
	switch {
	case slices.Contains(lines, "FDSTORE=1"):
		m.store[name] = append(m.store[name], fds...)
		return
	case slices.Contains(lines, "FDSTOREREMOVE=1"):
		m.pending = append(m.pending, name)
	case message == "BARRIER=1" && m.deaf:
		return
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func (m *manager) remove(name string) {
	for _, fd := range m.store[name] {
		unix.Close(fd)
	}
	delete(m.store, name)
}

func (m *manager) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []string
	for name, fds := range m.store {
		for range fds {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

func (m *manager) count(message string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, got := range m.messages {
		if strings.HasPrefix(got, message) {
			n++
		}
	}
	return n
}

func (m *manager) all() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.messages, "\n")
}

func (m *manager) until(what string, ok func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("not within 10 s: %s; the messages:\n%s", what, m.all())
		}
	}
}

// restart is the next life of the process: it gets copies of what is stored. LISTEN_FDS promises file descriptors from 3 on,
// which a test cannot have; so they are put into the new Manager as activation.Files would.
func (m *manager) restart() *Manager {
	m.t.Helper()
	next := Open(nil)
	next.socket = m.conn.LocalAddr().String()
	if err := next.barrier(); err != nil { // as systemd, which reads all messages of a process before it starts another
		m.t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, fds := range m.store {
		for _, fd := range fds {
			own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				m.t.Fatal(err)
			}
			next.kept[name] = append(next.kept[name], os.NewFile(uintptr(own), name))
		}
	}
	m.t.Cleanup(func() { die(next) })
	return next
}

// die closes all that a process has, as its end does.
func die(m *Manager) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, files := range m.kept {
		for _, f := range files {
			f.Close()
		}
	}
	m.kept = nil
}

// freePort is a port that nobody has at the moment, for TCP or UDP.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		if c, err := net.ListenPacket("udp", hostPort("", port)); err == nil {
			c.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
