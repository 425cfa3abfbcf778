package throughput

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DatagramSocket is a UDP socket outside Go's poller. Whoever waits for datagrams there is woken by each of them, and the sender
// on the other core pays for it; here a receiver that is busy looks when it wants to, and is not disturbed until then.
//
// It may be used by one DatagramReceiver and any number of DatagramSenders at once. Close is safe at any time.
type DatagramSocket struct {
	file   *os.File // not pollable
	raw    syscall.RawConn
	family int // AF_INET or AF_INET6
	local  netip.AddrPort
}

// NewDatagramSocket takes a connection over: conn is closed, the socket lives on.
func NewDatagramSocket(conn *net.UDPConn) (*DatagramSocket, error) {
	s := &DatagramSocket{local: conn.LocalAddr().(*net.UDPAddr).AddrPort()}
	s.local = netip.AddrPortFrom(s.local.Addr().Unmap(), s.local.Port())
	raw, err := conn.SyscallConn()
	if err == nil {
		if e := raw.Control(func(fd uintptr) { err = s.adopt(int(fd)) }); e != nil {
			err = e
		}
	}
	_ = conn.Close()
	if err != nil {
		return nil, fmt.Errorf("take over the UDP socket %v: %w", s.local, err)
	}
	return s, nil
}

func (s *DatagramSocket) adopt(fd int) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// A file in blocking mode is left alone by the poller. Every call here says MSG_DONTWAIT itself.
	if err := unix.SetNonblock(own, false); err != nil {
		_ = unix.Close(own)
		return err
	}
	s.family = familyOf(own)
	s.file = os.NewFile(uintptr(own), "udp")
	s.raw, err = s.file.SyscallConn()
	if have, e := unix.GetsockoptInt(own, unix.SOL_SOCKET, unix.SO_SNDBUF); e == nil && have < sendBuffer {
		_ = unix.SetsockoptInt(own, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
	}
	return err
}

// Close releases the socket as soon as nobody uses it any more.
func (s *DatagramSocket) Close() error { return s.file.Close() }

// Local is the address the socket is bound to; IPv4-mapped as IPv4.
func (s *DatagramSocket) Local() netip.AddrPort { return s.local }

// SetReceiveBuffer asks for a receive buffer and returns what the kernel granted, without its own overhead. To be called anew at
// the start of a test: net.core.rmem_max may have been raised.
func (s *DatagramSocket) SetReceiveBuffer(bytes int) int {
	got := 0
	_ = s.raw.Control(func(f uintptr) {
		_ = unix.SetsockoptInt(int(f), unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
		got, _ = unix.GetsockoptInt(int(f), unix.SOL_SOCKET, unix.SO_RCVBUF)
	})
	return got / 2 // socket(7): the kernel doubles it
}

// Send sends one datagram to an address, or to the peer of a connected socket if to is the zero value, from a local address of
// choice; the zero Addr leaves that to the kernel. It does not wait.
func (s *DatagramSocket) Send(b []byte, to netip.AddrPort, from netip.Addr) error {
	var name sockaddr
	var iov unix.Iovec
	var h unix.Msghdr
	var c cmsgs
	if to.IsValid() {
		h.Namelen = putAddr(&name, s.family, to, scopeOf(to.Addr()))
		h.Name = (*byte)(unsafe.Pointer(&name))
		c.source(s.family, from, scopeOf(to.Addr()))
	}
	if len(b) > 0 {
		iov.Base = &b[0]
		iov.SetLen(len(b))
	}
	h.Iov = &iov
	h.SetIovlen(1)
	if len(c.b) > 0 {
		h.Control = &c.b[0]
		h.SetControllen(len(c.b))
	}
	var errno syscall.Errno
	err := s.raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&h)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		return fmt.Errorf("send to %v: %w", to, err)
	}
	return nil
}

// nap sleeps more precisely than Go's timers, which know only milliseconds when the process is otherwise idle.
func nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}
