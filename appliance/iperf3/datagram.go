package iperf3

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"linerate/appliance/throughput"
)

// A datagram begins with the time it was sent, as seconds and microseconds, and its number, counted from 1; all are big-endian.
const (
	headerBytes   = 12 // 32-bit number
	headerBytes64 = 16 // 64-bit number, where the client asks for it
)

// putHeader writes the head of a datagram.
func putHeader(wide bool) func(b []byte, number int64, now time.Time) {
	return func(b []byte, number int64, now time.Time) {
		binary.BigEndian.PutUint32(b, uint32(now.Unix()))
		binary.BigEndian.PutUint32(b[4:], uint32(now.Nanosecond()/1000))
		if wide {
			binary.BigEndian.PutUint64(b[8:], uint64(number))
		} else {
			binary.BigEndian.PutUint32(b[8:], uint32(number))
		}
	}
}

// header of a datagram.
type header struct {
	sent   time.Duration // since 1970 by the sender's clock
	number int64
}

// parseHeader returns false for what is no datagram of a test.
func parseHeader(b []byte, wide bool) (h header, ok bool) {
	if len(b) < headerBytes || wide && len(b) < headerBytes64 {
		return h, false
	}
	h.sent = time.Duration(binary.BigEndian.Uint32(b))*time.Second + time.Duration(binary.BigEndian.Uint32(b[4:]))*time.Microsecond
	if wide {
		h.number = int64(binary.BigEndian.Uint64(b[8:]))
	} else {
		h.number = int64(binary.BigEndian.Uint32(b[8:]))
	}
	return h, h.number > 0
}

// ledger counts the datagrams of one stream, as iperf3 does: what is missing when a later one comes is lost, until it comes
// after all. Not safe for concurrent use.
type ledger struct {
	bytes      int64
	highest    int64 // number seen
	lost       int64
	outOfOrder int64
	jitter     float64 // ns, RFC 1889
	transit    time.Duration
	begun      bool
}

// count takes one datagram that arrived at; timed says whether at is its own time, and not that of one it came together with.
func (l *ledger) count(h header, bytes int, at time.Duration, timed bool) {
	l.bytes += int64(bytes)
	switch {
	case h.number > l.highest:
		l.lost += h.number - 1 - l.highest
		l.highest = h.number
	default:
		l.outOfOrder++
		l.lost = max(0, l.lost-1)
	}
	if !timed {
		return
	}
	transit := at - h.sent
	if l.begun {
		d := float64(transit - l.transit)
		l.jitter += (max(d, -d) - l.jitter) / 16
	}
	l.transit, l.begun = transit, true
}

// datagramFlow is the receiving end of a UDP stream. Whoever reads the socket feeds it; the sampler reads its counters.
type datagramFlow struct {
	wide bool
	stop chan struct{}
	once sync.Once

	mu   sync.Mutex
	book ledger
	last time.Time
	off  bool
}

func newDatagramFlow(wide bool) *datagramFlow {
	return &datagramFlow{wide: wide, stop: make(chan struct{})}
}

// feed counts what came from the peer. In a bundle only the first has a time of its own.
func (f *datagramFlow) feed(d *throughput.Datagrams) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.off {
		return
	}
	for from := 0; from < d.Total; from += d.Size {
		one := d.Data[from:min(from+d.Size, len(d.Data))]
		if h, ok := parseHeader(one, f.wide); ok {
			f.book.count(h, min(d.Size, d.Total-from), d.At, from == 0)
			f.last = now
		}
	}
}

// Direction is RX.
func (f *datagramFlow) Direction() throughput.Direction { return throughput.RX }

// Adapt does nothing: all flows share one reader.
func (f *datagramFlow) Adapt(float64, int) {}

// Counters of what has come until now.
func (f *datagramFlow) Counters() throughput.Counters {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := throughput.Counters{
		Bytes: f.book.bytes, Moved: f.book.bytes, Packets: f.book.highest, Lost: f.book.lost, OutOfOrder: f.book.outOfOrder,
		Jitter: time.Duration(f.book.jitter),
	}
	if !f.last.IsZero() {
		c.LastData = time.Since(f.last)
	}
	return c
}

// ownFlow is a datagramFlow with a socket of its own, which it reads.
type ownFlow struct {
	*datagramFlow
	socket *throughput.DatagramSocket
}

// Run reads until Stop.
func (f ownFlow) Run() error {
	in := throughput.NewDatagramReceiver(f.socket, f.feed)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-f.stop
		cancel()
	}()
	err := in.Run(ctx)
	f.Stop()
	return err
}

// Run waits for Stop: somebody else reads.
func (f *datagramFlow) Run() error {
	<-f.stop
	return nil
}

// Stop ends the count.
func (f *datagramFlow) Stop() {
	f.once.Do(func() { close(f.stop) })
	f.mu.Lock()
	f.off = true
	f.mu.Unlock()
}
