package throughput

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	sendBatch = 8 // messages of one sendmmsg
	// With a rate asked for, no more than so many datagrams go out back to back: a path with small buffers would lose them.
	pacedSegments = 16
	// sendBuffer is the send buffer that is asked for.
	sendBuffer  = 4 << 20
	unsentPause = 10 * time.Millisecond // after the kernel refused a datagram: no route, no neighbour
)

// DatagramOptions say what a DatagramSender sends.
type DatagramOptions struct {
	To      netip.AddrPort // on a socket that is not connected; else the zero value
	From    netip.Addr     // local address to send from; the zero value: the kernel's choice
	Block   int            // bytes of a datagram, at most MaxUDPBytes
	RateBPS float64        // payload bits per second; 0: no limit
	Burst   int            // with a rate: datagrams that go back to back; 0: smooth
	TOS     int            // IP_TOS or IPV6_TCLASS; 0: the socket's
	Budget  *Budget        // ends the sender when spent; nil: no end
	// Header writes the head of the datagram with this number, counted from 1, which is sent at now.
	Header    func(b []byte, number int64, now time.Time)
	Repeating bool // digits in place of random bytes
}

// DatagramSender sends datagrams of one size to one address, which need not own its socket. It is a Flow.
type DatagramSender struct {
	socket *DatagramSocket
	opt    DatagramOptions
	scope  uint32

	sent    atomic.Int64 // datagrams
	due     atomic.Bool
	stopped atomic.Bool
	stop    chan struct{}
	frozen  *Counters

	name sockaddr
	msgs [sendBatch]mmsghdr
	iovs [sendBatch]unix.Iovec
	ctl  [sendBatch][]byte
	data []byte
	segs int // datagrams that one message may hold; 1 where the kernel does not segment
}

// NewDatagramSender prepares a sender on a socket that stays the caller's.
func NewDatagramSender(socket *DatagramSocket, opt DatagramOptions) *DatagramSender {
	s := &DatagramSender{socket: socket, opt: opt, stop: make(chan struct{}), scope: scopeOf(opt.To.Addr())}
	s.segs = max(1, min(maxSegments, MaxUDPBytes/opt.Block))
	payload := StreamOptions{Repeating: opt.Repeating}.payload()
	s.data = make([]byte, sendBatch*s.segs*opt.Block)
	for n := 0; n < len(s.data); {
		n += copy(s.data[n:], payload)
	}
	s.prepare()
	return s
}

// prepare writes what all messages have in common.
func (s *DatagramSender) prepare() {
	var nameLen uint32
	if s.opt.To.IsValid() {
		nameLen = putAddr(&s.name, s.socket.family, s.opt.To, s.scope)
	}
	for i := range s.msgs {
		h := &s.msgs[i].hdr
		if nameLen > 0 {
			h.Name, h.Namelen = (*byte)(unsafe.Pointer(&s.name)), nameLen
		}
		s.iovs[i].Base = &s.data[i*s.segs*s.opt.Block]
		h.Iov = &s.iovs[i]
		h.SetIovlen(1)
		var c cmsgs
		if s.segs > 1 {
			binary.NativeEndian.PutUint16(c.add(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2), uint16(s.opt.Block))
		}
		s.addSource(&c)
		s.ctl[i] = c.b
		h.Control, h.Controllen = nil, 0
		if len(c.b) > 0 {
			h.Control = &c.b[0]
			h.SetControllen(len(c.b))
		}
	}
}

// addSource says where the datagrams come from and what their TOS is.
func (s *DatagramSender) addSource(c *cmsgs) {
	peer := s.opt.To.Addr()
	six := peer.Is6() && !peer.Is4In6()
	c.source(s.socket.family, s.opt.From, s.scope)
	if s.opt.TOS > 0 && s.opt.To.IsValid() {
		if six {
			binary.NativeEndian.PutUint32(c.add(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 4), uint32(s.opt.TOS))
		} else {
			binary.NativeEndian.PutUint32(c.add(unix.IPPROTO_IP, unix.IP_TOS, 4), uint32(s.opt.TOS))
		}
	}
}

// Direction is TX.
func (s *DatagramSender) Direction() Direction { return TX }

// Adapt does nothing: it is for receivers.
func (s *DatagramSender) Adapt(float64, int) {}

// Counters of what was handed to the kernel: a datagram is never acknowledged.
func (s *DatagramSender) Counters() Counters {
	if s.frozen != nil {
		return *s.frozen
	}
	n := s.sent.Load()
	bytes := n * int64(s.opt.Block)
	return Counters{Bytes: bytes, Moved: bytes, Packets: n, Due: s.due.Load()}
}

// Stop makes Run return soon.
func (s *DatagramSender) Stop() {
	if s.stopped.CompareAndSwap(false, true) {
		close(s.stop)
	}
}

// Halt is Stop; the counters stay what they are now.
func (s *DatagramSender) Halt() {
	s.Stop()
	c := s.Counters()
	s.frozen = &c
}

// Run sends until Stop, the end of the budget, or an error that does not pass.
func (s *DatagramSender) Run() error {
	var pace *pacer
	segs := s.segs
	if s.opt.RateBPS > 0 {
		burst := s.opt.Burst
		if burst == 0 {
			burst = max(1, int(s.opt.RateBPS/8*paceTick.Seconds())/s.opt.Block)
			segs = min(segs, pacedSegments)
		}
		pace = newPacer(s.opt.RateBPS, s.opt.Block, burst, paceTick, 0)
	}
	start, pieces := time.Now(), 0
	for !s.stopped.Load() {
		want := sendBatch * segs
		if pace != nil {
			bytes, wait := pace.next(time.Since(start), s.sent.Load()*int64(s.opt.Block))
			if bytes == 0 || pieces == paceCatchUp {
				s.due.Store(bytes > 0)
				if !s.sleep(max(wait, paceTick)) {
					break
				}
				pieces = 0
				continue
			}
			want = bytes / s.opt.Block
			pieces++
		}
		bytes := s.opt.Budget.take(want * s.opt.Block)
		if bytes == 0 {
			break
		}
		want = (bytes + s.opt.Block - 1) / s.opt.Block // the last may be whole though less is asked for
		s.due.Store(true)
		if err := s.push(want, min(segs, s.segs)); err != nil {
			return err
		}
	}
	s.due.Store(false)
	return nil
}

// push sends so many datagrams, in messages of up to segs.
func (s *DatagramSender) push(want, segs int) error {
	for want > 0 && !s.stopped.Load() {
		n := s.fill(want, segs)
		sent, errno, err := s.sendmmsg(n)
		for i := range sent {
			done := int(s.iovs[i].Len) / s.opt.Block
			s.sent.Add(int64(done))
			want -= done
		}
		switch {
		case err != nil:
			return err
		case errno == 0:
		case segs > 1 && (errno == unix.EINVAL || errno == unix.EMSGSIZE || errno == unix.EIO || errno == unix.EOPNOTSUPP):
			// The datagram does not fit the path's frames, or the kernel cannot segment: one by one, in fragments.
			segs, s.segs = 1, 1
			s.prepare()
		case errno == unix.EMSGSIZE, errno == unix.EACCES, errno == unix.EINVAL, errno == unix.EAFNOSUPPORT:
			return fmt.Errorf("send datagrams of %d bytes: %w", s.opt.Block, errno)
		default: // unreachable, refused, no buffers: as on the wire, it may pass
			if !s.sleep(unsentPause) {
				return nil
			}
		}
		runtime.Gosched()
	}
	return nil
}

// fill makes messages of the next datagrams and returns how many.
func (s *DatagramSender) fill(want, segs int) int {
	number := s.sent.Load()
	now := time.Now()
	n := 0
	for ; n < sendBatch && want > 0; n++ {
		k := min(segs, want)
		want -= k
		from := n * s.segs * s.opt.Block
		for i := range k {
			number++
			at := from + i*s.opt.Block
			s.opt.Header(s.data[at:at+s.opt.Block], number, now)
		}
		s.iovs[n].SetLen(k * s.opt.Block)
	}
	return n
}

// fullPause bounds the wait for room in the send buffer, so that Stop is seen soon.
const fullPause = 20 // ms

// sendmmsg sends the first n messages; it waits until the kernel takes at least one, or the sender is stopped.
func (s *DatagramSender) sendmmsg(n int) (sent int, errno syscall.Errno, err error) {
	err = s.socket.raw.Control(func(fd uintptr) {
		for !s.stopped.Load() {
			got, _, e := syscall.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&s.msgs[0])), uintptr(n),
				unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
			switch e {
			case 0:
				sent = int(got)
				return
			case unix.EINTR:
			case unix.EAGAIN:
				_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, fullPause)
			default:
				errno = e
				return
			}
		}
	})
	return sent, errno, err
}

// sleep returns false when the sender was stopped meanwhile.
func (s *DatagramSender) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.stop:
		return false
	case <-t.C:
		return true
	}
}
