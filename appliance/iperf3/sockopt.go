package iperf3

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"linerate/appliance/throughput"
)

// dress sets on a data connection what the parameters ask for. What the kernel or a missing right refuses is left as it
// is, as iperf3 does: congestion_used tells what came of it.
func dress(conn *net.TCPConn, p params, dir throughput.Direction, stall time.Duration) {
	_ = conn.SetNoDelay(p.NoDelay)
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	dressRaw(raw, addrOf(conn.RemoteAddr()).Is6(), p, dir, stall)
}

func dressRaw(raw syscall.RawConn, six bool, p params, dir throughput.Direction, stall time.Duration) {
	_ = raw.Control(func(f uintptr) {
		fd := int(f)
		set := func(on bool, level, opt, v int) {
			if on {
				_ = unix.SetsockoptInt(fd, level, opt, v)
			}
		}
		set(p.Window > 0, unix.SOL_SOCKET, unix.SO_RCVBUF, p.Window)
		set(p.Window > 0, unix.SOL_SOCKET, unix.SO_SNDBUF, p.Window)
		set(p.MSS > 0, unix.IPPROTO_TCP, unix.TCP_MAXSEG, p.MSS)
		set(p.TOS > 0 && six, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, p.TOS)
		set(p.TOS > 0 && !six, unix.IPPROTO_IP, unix.IP_TOS, p.TOS)
		// Unsent and unacknowledged bytes must not keep a connection alive whose peer has gone.
		set(stall > 0, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(stall.Milliseconds()))
		if p.Congest != "" {
			_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, p.Congest)
		}
		if p.FQRate > 0 && dir == throughput.TX {
			_ = unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, uint64(p.FQRate/8))
		}
	})
}

// dressDatagrams sets on a client's own UDP socket what the parameters ask for.
func dressDatagrams(raw syscall.RawConn, six bool, p params) {
	receive := throughput.DatagramBuffer
	if p.Window > 0 {
		receive = p.Window
	}
	_ = raw.Control(func(f uintptr) {
		fd := int(f)
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receive)
		if p.Window > 0 {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, p.Window)
		}
		if p.TOS > 0 && six {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, p.TOS)
		} else if p.TOS > 0 {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, p.TOS)
		}
		if p.DontFragment && !six {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		}
	})
}
