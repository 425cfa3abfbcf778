package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen returns a TCP listener on the address (host:port; an empty or unspecified host is every address, IPv4 and IPv6
// alike). Where systemd keeps one under this name on just this address, it is that one, with the connections that wait on
// it (restored); one on another address is given up. A new one is given to systemd to keep.
//
// The caller closes the listener; one that it had under the same name it must have closed before. Without systemd, closing
// frees the address; with it, connections wait for the next Listen.
//
// An address that the box does not have is no error: it may come. If the address is taken, the error says by whom, as
// far as /proc tells.
func (m *Manager) Listen(name, address string) (l net.Listener, restored bool, err error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, false, fmt.Errorf("listen on %q: want host:port: %w", address, err)
	}
	want, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, false, fmt.Errorf("listen on %q: %w", address, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.take(name, unix.SOCK_STREAM, want.AddrPort()); f != nil {
		if l, err := net.FileListener(f); err == nil {
			return l, true, nil
		}
		m.forget(name)
	}
	config := net.ListenConfig{Control: freeBind(want.IP)}
	l, err = config.Listen(context.Background(), "tcp", want.String())
	if err != nil {
		return nil, false, blame(err, address, "tcp", want.Port)
	}
	m.keep(name, l.(*net.TCPListener))
	return l, false, nil
}

// ListenPacket is Listen for UDP.
func (m *Manager) ListenPacket(name, address string) (c net.PacketConn, restored bool, err error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, false, fmt.Errorf("listen on %q: want host:port: %w", address, err)
	}
	want, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, false, fmt.Errorf("listen on %q: %w", address, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.take(name, unix.SOCK_DGRAM, want.AddrPort()); f != nil {
		if c, err := net.FilePacketConn(f); err == nil {
			return c, true, nil
		}
		m.forget(name)
	}
	config := net.ListenConfig{Control: freeBind(want.IP)}
	c, err = config.ListenPacket(context.Background(), "udp", want.String())
	if err != nil {
		return nil, false, blame(err, address, "udp", want.Port)
	}
	m.keep(name, c.(*net.UDPConn))
	return c, false, nil
}

// Keep gives up every socket that systemd keeps under another name than these.
func (m *Manager) Keep(names ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.kept {
		if !slices.Contains(names, name) {
			m.forget(name)
		}
	}
}

// take returns the socket kept under the name if it is of the kind and on the address. Others are given up; m.mu is held.
func (m *Manager) take(name string, kind int, want netip.AddrPort) *os.File {
	files := m.kept[name]
	if len(files) == 0 {
		return nil
	}
	if len(files) == 1 && serves(int(files[0].Fd()), kind, want) {
		return files[0]
	}
	m.forget(name)
	return nil
}

// forget closes what is kept under the name, here and in systemd's store, and returns when the address is free.
func (m *Manager) forget(name string) {
	for _, f := range m.kept[name] {
		f.Close()
	}
	delete(m.kept, name)
	if err := errors.Join(m.send(-1, "FDSTOREREMOVE=1", "FDNAME="+name), m.barrier()); err != nil {
		m.log.Warn("systemd: an old listener may stay open", "name", name, "error", err)
	}
}

// keep stores a socket with systemd, and a copy here: a part that starts anew within this process asks again.
func (m *Manager) keep(name string, socket syscall.Conn) {
	if m.socket == "" {
		return
	}
	raw, err := socket.SyscallConn()
	if err == nil {
		ctl := raw.Control(func(fd uintptr) {
			// FDPOLL=0: an error on a UDP socket must not make systemd drop it.
			if err = m.send(int(fd), "FDSTORE=1", "FDNAME="+name, "FDPOLL=0"); err != nil {
				return
			}
			var own int
			if own, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
				m.kept[name] = []*os.File{os.NewFile(uintptr(own), name)}
			}
		})
		err = errors.Join(err, ctl)
	}
	if err != nil {
		m.log.Warn("systemd: a restart will refuse connections for a moment", "name", name, "error", err)
	}
}

// serves says whether the socket is one of the kind that serves the address.
func serves(fd, kind int, want netip.AddrPort) bool {
	if k, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || k != kind {
		return false
	}
	if kind == unix.SOCK_STREAM {
		if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || on != 1 {
			return false
		}
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	var got netip.AddrPort
	scope := ""
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		got = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		if iface, err := net.InterfaceByIndex(int(a.ZoneId)); a.ZoneId != 0 && err == nil {
			scope = iface.Name
		}
		got = netip.AddrPortFrom(netip.AddrFrom16(a.Addr).WithZone(scope), uint16(a.Port))
	default:
		return false
	}
	all := func(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() }
	same := got.Addr().Unmap() == want.Addr().Unmap() || all(got.Addr()) && all(want.Addr())
	return same && got.Port() == want.Port()
}

// freeBind lets a socket be bound to an address that the box does not have yet (ip(7)).
func freeBind(ip net.IP) func(network, address string, c syscall.RawConn) error {
	if ip == nil || ip.IsUnspecified() {
		return nil
	}
	return func(network, _ string, c syscall.RawConn) error {
		var err error
		ctl := c.Control(func(fd uintptr) {
			if strings.HasSuffix(network, "6") {
				err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_FREEBIND, 1)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1)
			}
		})
		return errors.Join(err, ctl)
	}
}

// blame makes the error of a listener say who has the address.
func blame(err error, address, network string, port int) error {
	if !errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	who := "another program"
	if h, ok := FindHolder("/proc", network, port); ok {
		who = h.String()
	}
	return fmt.Errorf("listen on %s: taken by %s: stop it, or choose another address: %w", address, who, unix.EADDRINUSE)
}
