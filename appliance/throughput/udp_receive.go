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
	receiveBatch = 64 // messages of one recvmmsg
	headBytes    = 64 // of a datagram that are read where the rest is of no interest

	// A receiver that is busy looks once a millisecond: one wake-up for some hundred datagrams in place of one for each. Where
	// the socket buffer is small it looks as often as a full 2.5 Gbit/s would fill a quarter of it.
	napMax      = time.Millisecond
	napFloor    = 50 * time.Microsecond
	napBusy     = 4      // datagrams since the last look from which it is busy
	napTruesize = 2304   // what the kernel charges the buffer for a datagram of 1400 bytes
	napRate     = 213000 // datagrams a second of 1400 bytes at 2.5 Gbit/s

	// The kernel can bring datagrams up in bundles (UDP_GRO), but then it looks at each of them twice and we must read them
	// whole. After so many datagrams it is known whether bundles come at all; if not, they are tried again after some time.
	bundleTrial = 1000
	bundleWorth = 2 // datagrams a message
	bundleAgain = 2 * time.Second

	// DatagramBuffer is the receive buffer that is asked for; the kernel allows what net.core.rmem_max does.
	DatagramBuffer = 8 << 20
)

// Datagrams is what came from one address in one go: datagrams of Size bytes each, the last of which may be shorter.
type Datagrams struct {
	From  netip.AddrPort // IPv4-mapped as IPv4
	Data  []byte         // valid until the handler returns; of a single datagram it may be the first 64 bytes alone
	Size  int            // bytes of a datagram
	Total int            // bytes of all; at most len(Data), but for a single datagram
	At    time.Duration  // when the first arrived, by the kernel's clock, since 1970
}

// DatagramReceiver reads one UDP socket, for all who send to it. Make it with NewDatagramReceiver.
type DatagramReceiver struct {
	socket *DatagramSocket
	handle func(*Datagrams)

	msgs  [receiveBatch]mmsghdr
	iovs  [receiveBatch]unix.Iovec
	names [receiveBatch]sockaddr
	ctl   [receiveBatch][128]byte
	data  []byte
	zones map[uint32]string

	bundles   bool // the kernel may send them
	whole     bool // datagrams are read whole, as bundles must be
	messages  int  // since the last trial began
	datagrams int
	tried     time.Time
}

// NewDatagramReceiver prepares the socket, which stays the caller's. handle is called from the goroutine that runs Run, one call
// after another; what it does holds up all datagrams.
func NewDatagramReceiver(s *DatagramSocket, handle func(*Datagrams)) *DatagramReceiver {
	r := &DatagramReceiver{socket: s, handle: handle, data: make([]byte, receiveBatch*maxDatagram), zones: map[uint32]string{}}
	for i := range r.msgs {
		r.iovs[i].Base = &r.data[i*maxDatagram]
		h := &r.msgs[i].hdr
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Iov = &r.iovs[i]
		h.SetIovlen(1)
		h.Control = &r.ctl[i][0]
	}
	r.readWhole(true)
	_ = s.raw.Control(func(fd uintptr) {
		// Times must be those of arrival: we look late.
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
		r.tryBundles(int(fd), true)
	})
	return r
}

func (r *DatagramReceiver) readWhole(on bool) {
	r.whole = on
	n := headBytes
	if on {
		n = maxDatagram
	}
	for i := range r.iovs {
		r.iovs[i].SetLen(n)
	}
}

// tryBundles asks the kernel for bundles, or for none.
func (r *DatagramReceiver) tryBundles(fd int, on bool) {
	v := 0
	if on {
		v = 1
		r.readWhole(true)
	}
	if unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, v) == nil || !on {
		r.bundles = on
	}
	r.messages, r.datagrams, r.tried = 0, 0, time.Now()
}

// weigh looks whether bundles are worth their price.
func (r *DatagramReceiver) weigh(fd int) {
	switch {
	case r.bundles && r.datagrams >= bundleTrial:
		if r.datagrams < bundleWorth*r.messages {
			r.tryBundles(fd, false)
		} else {
			r.messages, r.datagrams = 0, 0
		}
	case !r.bundles && time.Since(r.tried) >= bundleAgain:
		r.tryBundles(fd, true)
	}
}

// Run reads until ctx ends, and returns nil, or until the socket fails. It keeps a thread to itself.
func (r *DatagramReceiver) Run(ctx context.Context) error {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("read %v: %w", r.socket.local, err)
	}
	defer unix.Close(wake)
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !stop() {
			<-woken
		}
	}()
	var failed error
	if err := r.socket.raw.Control(func(fd uintptr) { failed = r.loop(ctx, int(fd), wake) }); err != nil {
		failed = err
	}
	if failed != nil && ctx.Err() == nil {
		return fmt.Errorf("read %v: %w", r.socket.local, failed)
	}
	return nil
}

func (r *DatagramReceiver) loop(ctx context.Context, fd, wake int) error {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
	got := 0 // datagrams since the last look
	for ctx.Err() == nil {
		n, errno := r.receive(fd)
		switch errno {
		case 0:
			for i := range n {
				got += r.take(i)
			}
			if n == receiveBatch {
				continue
			}
		case unix.EAGAIN:
			if !r.bundles && r.whole { // no bundle is left in the queue
				r.readWhole(false)
			}
		case unix.EINTR, unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH: // an ICMP answer to something we sent
			continue
		default:
			return errno
		}
		if got >= napBusy {
			got = 0
			r.weigh(fd)
			size, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
			nap(napFor(size))
			continue
		}
		got = 0
		if _, err := unix.Poll(poll, -1); err != nil && err != unix.EINTR {
			return err
		}
	}
	return nil
}

func (r *DatagramReceiver) receive(fd int) (int, syscall.Errno) {
	for i := range r.msgs {
		h := &r.msgs[i].hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(len(r.ctl[i]))
	}
	n, _, errno := syscall.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.msgs[0])), receiveBatch,
		unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// napFor is how long the receiver may look away from a buffer of so many bytes, the kernel's overhead included.
func napFor(buffer int) time.Duration {
	d := time.Duration(buffer) * time.Second / (4 * napTruesize * napRate)
	return max(napFloor, min(napMax, d))
}

// take hands on the i-th message and returns how many datagrams it held.
func (r *DatagramReceiver) take(i int) int {
	m := &r.msgs[i]
	total := int(m.n)
	from := i * maxDatagram
	d := Datagrams{
		From: addrPort(&r.names[i], r.zone), Size: total, Total: total,
		Data: r.data[from : from+min(total, int(r.iovs[i].Len))],
	}
	eachCmsg(r.ctl[i][:min(len(r.ctl[i]), int(m.hdr.Controllen))], func(level, typ int32, b []byte) {
		switch {
		case level == unix.SOL_SOCKET && typ == unix.SO_TIMESTAMPNS && len(b) == int(unsafe.Sizeof(unix.Timespec{})):
			ts := *(*unix.Timespec)(unsafe.Pointer(unsafe.SliceData(b)))
			d.At = time.Duration(ts.Nano())
		case level == unix.IPPROTO_UDP && typ == unix.UDP_GRO && len(b) >= 4:
			if size := int(binary.NativeEndian.Uint32(b)); size > 0 && size < total && len(d.Data) == total {
				d.Size = size
			}
		}
	})
	if d.At == 0 {
		d.At = time.Duration(time.Now().UnixNano())
	}
	r.handle(&d)
	n := 1
	if d.Size > 0 {
		n = (total + d.Size - 1) / d.Size
	}
	r.messages++
	r.datagrams += n
	return n
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
