package iperf3

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"linerate/appliance/throughput"
)

// dialer leaves by the address or the interface that the Spec names.
func (a *attempt) dialer(network string, dress func(raw syscall.RawConn, six bool)) net.Dialer {
	d := net.Dialer{Timeout: time.Duration(a.spec.ConnectTimeoutMS) * time.Millisecond, KeepAliveConfig: keepAlive}
	device := ""
	for _, from := range []string{a.spec.Via, a.spec.Bind} {
		ip, err := netip.ParseAddr(from)
		switch {
		case from == "":
		case err != nil:
			device = from
		case network == "udp":
			d.LocalAddr = &net.UDPAddr{IP: ip.AsSlice(), Zone: ip.Zone()}
		default:
			d.LocalAddr = &net.TCPAddr{IP: ip.AsSlice(), Zone: ip.Zone()}
		}
	}
	d.Control = func(network, _ string, raw syscall.RawConn) error {
		var err error
		if device != "" {
			_ = raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) })
		}
		if err != nil {
			return fmt.Errorf("leave by %s: %w", device, err)
		}
		if dress != nil {
			dress(raw, network[len(network)-1] == '6')
		}
		return nil
	}
	return d
}

// dial connects within the connect timeout. dress, if any, sees the socket before it connects.
func (a *attempt) dial(ctx context.Context, network, address string, dress func(raw syscall.RawConn, six bool)) (*net.TCPConn, error) {
	d := a.dialer("tcp", dress)
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// direction of the i-th stream: for both directions the senders come first, since the server tells them by their order.
func (a *attempt) direction(i int) throughput.Direction {
	if a.p.Reverse && !a.p.Bidir || a.p.Bidir && i >= a.p.Streams {
		return throughput.RX
	}
	return throughput.TX
}

// connect opens the TCP streams.
func (a *attempt) connect(ctx context.Context) error {
	address := a.ctl.conn.RemoteAddr().String()
	for i := range a.p.connections() {
		dir := a.direction(i)
		conn, err := a.dial(ctx, "tcp", address, func(raw syscall.RawConn, six bool) {
			dressRaw(raw, six, a.p, dir, a.p.patience(a.stall()))
		})
		if err != nil {
			return fmt.Errorf("open stream %d of %d: %w", i+1, a.p.connections(), err)
		}
		a.conns = append(a.conns, conn)
		_ = conn.SetNoDelay(a.p.NoDelay)
		_ = conn.SetWriteDeadline(deadline(writeTime))
		if _, err := conn.Write(a.cookie[:]); err != nil {
			return fmt.Errorf("open stream %d of %d: %w", i+1, a.p.connections(), err)
		}
		_ = conn.SetWriteDeadline(time.Time{})
		if err := a.course.add(conn, dir, 0); err != nil {
			return err
		}
	}
	return nil
}

const (
	helloEvery = time.Second // a hello or its answer may be lost
	helloTries = 10
	udpBlock   = 1460 // where the control connection does not tell its MSS
)

// measureBlock takes as default what fits a frame of the path, as iperf3 does.
func (a *attempt) measureBlock(conn *net.TCPConn) {
	if a.p.Len != 0 || a.p.Protocol != throughput.UDP {
		return
	}
	a.p.Len = udpBlock
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if mss, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG); err == nil && mss >= minUDPBlock {
				a.p.Len = min(mss, throughput.MaxUDPBytes)
			}
		})
	}
	a.course.p.Len = a.p.Len
}

// connectUDP opens the UDP streams, one after the other.
func (a *attempt) connectUDP(ctx context.Context) error {
	for i := range a.p.connections() {
		if err := a.openUDP(ctx, a.direction(i)); err != nil {
			return fmt.Errorf("open stream %d of %d: %w", i+1, a.p.connections(), err)
		}
	}
	return nil
}

func (a *attempt) openUDP(ctx context.Context, dir throughput.Direction) error {
	d := a.dialer("udp", func(raw syscall.RawConn, six bool) { dressDatagrams(raw, six, a.p) })
	// From the same address as the control connection: the server knows us by nothing else.
	if d.LocalAddr == nil {
		local := a.ctl.conn.LocalAddr().(*net.TCPAddr)
		d.LocalAddr = &net.UDPAddr{IP: local.IP, Zone: local.Zone}
	}
	c, err := d.DialContext(ctx, "udp", a.ctl.conn.RemoteAddr().String())
	if err != nil {
		return err
	}
	conn := c.(*net.UDPConn)
	if err := greet(ctx, conn); err != nil {
		_ = conn.Close()
		return err
	}
	socket, err := throughput.NewDatagramSocket(conn)
	if err != nil {
		return err
	}
	a.conns = append(a.conns, socket)
	if dir == throughput.RX {
		a.course.streams = append(a.course.streams, ownFlow{datagramFlow: newDatagramFlow(a.p.Counters64), socket: socket})
	} else {
		a.course.addSender(socket, netip.AddrPort{}, netip.Addr{}, 0)
	}
	return nil
}

// greet says hello until the server answers. Payload that comes first is not it.
func greet(ctx context.Context, conn *net.UDPConn) error {
	b := make([]byte, 1<<16)
	for range helloTries {
		if _, err := conn.Write([]byte("9876")); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return err
		}
		_ = conn.SetReadDeadline(deadline(helloEvery))
		for ctx.Err() == nil {
			n, err := conn.Read(b)
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
			case errors.Is(err, unix.ECONNREFUSED):
				return fmt.Errorf("nobody listens for UDP there: is it blocked or served without UDP?")
			case err != nil:
				return err
			case n != helloBytes:
				continue
			default:
				return conn.SetReadDeadline(time.Time{})
			}
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("the server does not answer on UDP: is a firewall between?")
}
