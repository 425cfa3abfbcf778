package systemd

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// patience is how long systemd may take to receive a message, and to answer where it does.
const patience = time.Second

// Manager is the service manager this process was started by, if it was. Without one everything works, and nobody is told.
type Manager struct {
	socket   string        // NOTIFY_SOCKET; "": nobody listens
	watchdog time.Duration // a ping must come within it; 0: no watchdog
	log      *slog.Logger

	mu   sync.Mutex
	kept map[string][]*os.File // our own copies of what is in the file descriptor store, by name
}

// Open takes what the service manager handed over: the socket for messages, the watchdog's time, and the sockets kept for
// this service. It takes them out of the environment too, so a second call finds nothing. log may be nil.
func Open(log *slog.Logger) *Manager {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{socket: os.Getenv("NOTIFY_SOCKET"), log: log, kept: map[string][]*os.File{}}
	os.Unsetenv("NOTIFY_SOCKET")
	if interval, err := daemon.SdWatchdogEnabled(true); err != nil {
		log.Warn("systemd: the watchdog's time cannot be read, nothing is pinged", "error", err)
	} else {
		m.watchdog = interval
	}
	for _, f := range activation.Files(true) {
		m.kept[f.Name()] = append(m.kept[f.Name()], f)
	}
	return m
}

// Present says whether a service manager listens.
func (m *Manager) Present() bool { return m.socket != "" }

// send sends one message (sd_notify(3)), with a file descriptor if fd is not negative.
func (m *Manager) send(fd int, lines ...string) (err error) {
	if m.socket == "" {
		return nil
	}
	defer func() {
		if err != nil {
			what, _, _ := strings.Cut(lines[0], "=")
			err = fmt.Errorf("tell systemd %s: %w", what, err)
		}
	}()
	// A socket that blocks, but not for long: systemd's queue is short.
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	timeout := unix.NsecToTimeval(int64(patience))
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		return err
	}
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	for {
		err = unix.Sendmsg(s, []byte(strings.Join(lines, "\n")), rights, &unix.SockaddrUnix{Name: m.socket},
			unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// barrier returns when systemd has taken in all messages before this one: it closes the pipe that is sent along.
func (m *Manager) barrier() error {
	if m.socket == "" {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	err = m.send(int(w.Fd()), "BARRIER=1")
	w.Close()
	if err != nil {
		return err
	}
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("systemd has not answered within %v: %w", patience, err)
	}
	return nil
}
