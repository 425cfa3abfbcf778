package throughput

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// StreamOptions say how a Stream moves its payload. The zero value receives without copying and sends as fast as it can.
type StreamOptions struct {
	Before  int     // bytes that went in the stream's direction before the payload: a cookie
	Copy    bool    // receiving: copy the payload to user space
	MaxBPS  float64 // receiving: read no faster, in bits per second, so that TCP holds the sender back; 0: no limit
	Window  int     // bytes that were asked for as socket buffer; 0: the kernel's own
	RateBPS float64 // sending: payload bits per second; 0: no limit
	Block   int     // sending: bytes of a write, 1-MaxBlockBytes; from DefaultBlock up the loop chooses itself
	Burst   int     // sending with a rate: blocks that go back to back; 0: smooth
	Budget  *Budget // sending: ends the stream when spent; nil: no end
	// KernelPaced says that SO_MAX_PACING_RATE is set on the connection, so its queue need not be kept short.
	KernelPaced bool
	ZeroCopy    bool // sending: sendfile from a memory file
	Repeating   bool // sending: digits in place of random bytes
}

// DefaultBlock is the size of a TCP write that iperf3 uses when none is asked for.
const DefaultBlock = 128 << 10

// Stream is one TCP connection that carries payload in one direction. Run moves the payload, in a goroutine of its own,
// until Stop, the budget, the peer or an error ends it. The connection belongs to the caller, who closes it.
type Stream struct {
	conn *net.TCPConn
	raw  syscall.RawConn
	dir  Direction
	opt  StreamOptions

	moved   atomic.Int64 // payload bytes between the loop and the kernel
	due     atomic.Bool  // the pacer has let something go that is not written yet
	stopped atomic.Bool
	stop    chan struct{}

	// The sampler's own.
	info     unix.TCPInfo
	base     unix.TCPInfo
	lowWater int
	frozen   *Counters
}

// NewStream prepares a connection on which nothing but StreamOptions.Before bytes have gone in the stream's direction. Payload
// may already come in.
func NewStream(conn *net.TCPConn, dir Direction, opt StreamOptions) (*Stream, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("open stream to %v: %w", conn.RemoteAddr(), err)
	}
	s := &Stream{conn: conn, raw: raw, dir: dir, opt: opt, stop: make(chan struct{}), lowWater: 1}
	if err := readTCPInfo(raw, &s.base); err != nil {
		return nil, fmt.Errorf("read TCP_INFO of %v: %w", conn.RemoteAddr(), err)
	}
	s.info = s.base
	s.base.Bytes_received = uint64(opt.Before)
	// The kernel counts a SYN of ours as acknowledged byte, and may not have seen the cookie acknowledged yet.
	s.base.Bytes_acked = max(s.base.Bytes_acked, uint64(opt.Before))
	return s, nil
}

// Direction of the payload.
func (s *Stream) Direction() Direction { return s.dir }

// Run moves the payload and returns why it ended: nil after Stop or when the budget is spent, io.EOF when the peer has
// closed its side, else the connection's error. To be called once.
func (s *Stream) Run() error {
	var err error
	if s.dir == RX {
		err = s.receive()
	} else {
		err = s.send()
	}
	if s.stopped.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// Stop makes Run return soon; bytes that are on their way then are not read any more.
func (s *Stream) Stop() {
	if s.stopped.CompareAndSwap(false, true) {
		close(s.stop)
		_ = s.conn.SetDeadline(time.Unix(1, 0)) // wakes a loop that waits for the kernel
	}
}

// Halt is Stop for a sender, whose counters stay what they are now: what its peer still takes from the kernel's queue came after
// the end. It belongs to the goroutine that reads the counters.
func (s *Stream) Halt() {
	s.Stop()
	c := s.Counters()
	s.frozen = &c
}

// Close stops the stream and resets its connection: nothing of it stays behind in the kernel.
func (s *Stream) Close() error {
	s.Stop()
	_ = s.conn.SetLinger(0)
	return s.conn.Close()
}

// Conn is the connection the stream was made of.
func (s *Stream) Conn() *net.TCPConn { return s.conn }

// Counters reads the kernel's figures; after the connection has gone they stay what they were.
func (s *Stream) Counters() Counters {
	if s.frozen != nil {
		return *s.frozen
	}
	_ = readTCPInfo(s.raw, &s.info)
	c := Counters{
		Moved:       s.moved.Load(),
		Retransmits: int64(s.info.Total_retrans - s.base.Total_retrans),
		RTT:         time.Duration(s.info.Rtt) * time.Microsecond,
		MinRTT:      time.Duration(s.info.Min_rtt) * time.Microsecond,
		Window:      int64(s.info.Snd_cwnd) * int64(s.info.Snd_mss),
	}
	if s.info.Min_rtt == ^uint32(0) { // no sample yet
		c.MinRTT = 0
	}
	if s.dir == RX {
		c.Bytes = int64(s.info.Bytes_received - s.base.Bytes_received)
		c.LastData = time.Duration(s.info.Last_data_recv) * time.Millisecond
		// The kernel counts a FIN as one byte; what was read is exact.
		if c.Bytes == c.Moved+1 {
			c.Bytes = c.Moved
		}
	} else {
		c.Bytes = int64(s.info.Bytes_acked - s.base.Bytes_acked)
		c.Bytes = min(c.Bytes, c.Moved)
		c.Due = s.due.Load() || c.Moved > c.Bytes
	}
	return c
}

// MSS is the payload of a full segment in the stream's direction: what we may send, or the largest that came; 0 while
// nothing did. Options are not part of it.
func (s *Stream) MSS() int {
	if s.dir == RX {
		return int(s.info.Rcv_mss)
	}
	return int(s.info.Snd_mss)
}

// Timestamps says whether the segments carry the timestamp option (RFC 7323).
func (s *Stream) Timestamps() bool { return s.info.Options&tcpiTimestamps != 0 }

// Congestion names the congestion control that the kernel uses; "" where it does not say.
func (s *Stream) Congestion() string {
	var name string
	_ = s.raw.Control(func(fd uintptr) {
		name, _ = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	})
	return name
}

// Buffers returns the socket's send and receive buffer in bytes, as the kernel counts them (with its own overhead).
func (s *Stream) Buffers() (send, receive int) {
	_ = s.raw.Control(func(fd uintptr) {
		send, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		receive, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
	})
	return send, receive
}
