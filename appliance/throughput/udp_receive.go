package throughput

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	receiveBatch = 32 // messages of one recvmmsg; each may be a bundle of up to 64 datagrams

	// A receiver that is busy looks once a millisecond: one wake-up for some hundred datagrams in place of one for each. Where
	// the socket buffer is small it looks as often as a full 2.5 Gbit/s would fill a quarter of it.
	napMax      = time.Millisecond
	napFloor    = 100 * time.Microsecond
	napBusy     = 4      // datagrams since the last look from which it is busy
	napTruesize = 2304   // what the kernel charges the buffer for a datagram of 1400 bytes
	napRate     = 213000 // datagrams a second of 1400 bytes at 2.5 Gbit/s

	// DatagramBuffer is the receive buffer that is asked for; the kernel allows what net.core.rmem_max does.
	DatagramBuffer = 8 << 20
)

// Datagrams is what came from one address in one go: datagrams of Size bytes each, the last of which may be shorter.
type Datagrams struct {
	From netip.AddrPort // IPv4-mapped as IPv4
	Data []byte         // valid until the handler returns
	Size int            // at least 1, unless Data is empty
	At   time.Duration  // when the first arrived, by the kernel's clock, since 1970
}

// DatagramReceiver reads one UDP socket, for all who send to it. Make it with NewDatagramReceiver.
type DatagramReceiver struct {
	conn   *net.UDPConn
	raw    syscall.RawConn
	handle func(*Datagrams)

	msgs  [receiveBatch]mmsghdr
	iovs  [receiveBatch]unix.Iovec
	names [receiveBatch]sockaddr
	ctl   [receiveBatch][128]byte
	data  []byte
	zones map[uint32]string
}

// NewDatagramReceiver prepares the socket, which stays the caller's. handle is called from the goroutine that runs Run, one call
// after another; what it does holds up all datagrams.
func NewDatagramReceiver(conn *net.UDPConn, handle func(*Datagrams)) (*DatagramReceiver, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", conn.LocalAddr(), err)
	}
	r := &DatagramReceiver{conn: conn, raw: raw, handle: handle, data: make([]byte, receiveBatch*maxDatagram), zones: map[uint32]string{}}
	err = raw.Control(func(f uintptr) {
		fd := int(f)
		// Times must be those of arrival: we look late.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
		// Datagrams that arrive together come up together (Linux 5.0).
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	})
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", conn.LocalAddr(), err)
	}
	for i := range r.msgs {
		r.iovs[i].Base = &r.data[i*maxDatagram]
		r.iovs[i].SetLen(maxDatagram)
		h := &r.msgs[i].hdr
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Iov = &r.iovs[i]
		h.SetIovlen(1)
		h.Control = &r.ctl[i][0]
	}
	return r, nil
}

// SetBuffer asks for a receive buffer and returns what the kernel granted, without its own overhead. To be called anew at the
// start of a test: the limit may have been raised.
func (r *DatagramReceiver) SetBuffer(bytes int) int {
	got := 0
	_ = r.raw.Control(func(f uintptr) {
		_ = unix.SetsockoptInt(int(f), unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
		got, _ = unix.GetsockoptInt(int(f), unix.SOL_SOCKET, unix.SO_RCVBUF)
	})
	return got / 2 // socket(7): the kernel doubles it
}

// Run reads until ctx ends, and returns nil, or until the socket fails.
func (r *DatagramReceiver) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = r.conn.SetReadDeadline(time.Unix(1, 0)) })()
	var failed error
	got := 0 // datagrams since the last look
	look := func(fd uintptr) bool {
		for ctx.Err() == nil {
			for i := range r.msgs {
				h := &r.msgs[i].hdr
				h.Namelen = unix.SizeofSockaddrInet6
				h.SetControllen(len(r.ctl[i]))
			}
			n, _, errno := syscall.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&r.msgs[0])), receiveBatch,
				unix.MSG_DONTWAIT, 0, 0)
			switch errno {
			case 0:
			case unix.EINTR, unix.ECONNREFUSED: // an ICMP answer to something we sent
				continue
			case unix.EAGAIN:
				return got >= napBusy
			default:
				failed = errno
				return true
			}
			for i := range int(n) {
				got += r.take(i)
			}
			if int(n) < receiveBatch {
				return got >= napBusy
			}
		}
		return true
	}
	for {
		err := r.raw.Read(look)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read %v: %w", r.conn.LocalAddr(), err)
		case failed != nil:
			return fmt.Errorf("read %v: %w", r.conn.LocalAddr(), failed)
		}
		got = 0
		nap(r.napTime())
	}
}

// napTime follows the buffer that the socket has now.
func (r *DatagramReceiver) napTime() time.Duration {
	size := 0
	_ = r.raw.Control(func(f uintptr) { size, _ = unix.GetsockoptInt(int(f), unix.SOL_SOCKET, unix.SO_RCVBUF) })
	return napFor(size)
}

// napFor is how long the receiver may look away from a buffer of so many bytes, the kernel's overhead included.
func napFor(buffer int) time.Duration {
	d := time.Duration(buffer) * time.Second / (4 * napTruesize * napRate)
	return max(napFloor, min(napMax, d))
}

// nap sleeps more precisely than Go's timers, which know only milliseconds when the process is otherwise idle.
func nap(d time.Duration) {
	if d >= time.Millisecond {
		time.Sleep(d)
		return
	}
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}

// take hands on the i-th message and returns how many datagrams it held.
func (r *DatagramReceiver) take(i int) int {
	m := &r.msgs[i]
	d := Datagrams{
		From: addrPort(&r.names[i], r.zone),
		Data: r.data[i*maxDatagram : i*maxDatagram+int(m.n)],
		Size: int(m.n),
	}
	eachCmsg(r.ctl[i][:min(len(r.ctl[i]), int(m.hdr.Controllen))], func(level, typ int32, b []byte) {
		switch {
		case level == unix.SOL_SOCKET && typ == unix.SO_TIMESTAMPNS && len(b) == int(unsafe.Sizeof(unix.Timespec{})):
			ts := *(*unix.Timespec)(unsafe.Pointer(unsafe.SliceData(b)))
			d.At = time.Duration(ts.Nano())
		case level == unix.IPPROTO_UDP && typ == unix.UDP_GRO && len(b) >= 4:
			size := int(binary.NativeEndian.Uint32(b))
			if size > 0 && size < d.Size {
				d.Size = size
			}
		}
	})
	if d.At == 0 {
		d.At = time.Duration(time.Now().UnixNano())
	}
	r.handle(&d)
	if d.Size == 0 {
		return 1
	}
	return (len(d.Data) + d.Size - 1) / d.Size
}

// zone names an interface; the answer is kept, since a datagram may come with it each microsecond.
func (r *DatagramReceiver) zone(index uint32) string {
	if z, ok := r.zones[index]; ok {
		return z
	}
	z := strconv.Itoa(int(index))
	if i, err := net.InterfaceByIndex(int(index)); err == nil {
		z = i.Name
	}
	r.zones[index] = z
	return z
}
