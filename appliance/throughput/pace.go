package throughput

import (
	"sync/atomic"
	"time"
)

const (
	paceTick = time.Millisecond // iperf3's own pacing timer
	// What the kernel spreads out may be handed over in larger pieces. It is told a rate with a margin for the headers, which
	// some queueing disciplines count as well.
	paceSpread = 4 * time.Millisecond
	paceMargin = 1.25
	// A sender that was held up makes up for at most this much of its time.
	paceDebt = time.Second
	// A sender of datagrams makes up slowly, with at most so many pieces a tick: a burst would be lost and look like the
	// path's loss.
	paceCatchUp = 4
	// Below this no write is cut: a full Ethernet frame's payload.
	paceFloor = 1460
)

// pacer keeps the average of a sender at a rate, in whole pieces. It reads no clock.
type pacer struct {
	rate  float64 // bytes a second
	piece int     // bytes that are sent back to back
	owed  time.Duration
}

// newPacer plans for bps payload bits a second. With burst > 0 so many blocks go back to back; else the pieces are about a
// tick's worth, at most max bytes.
func newPacer(bps float64, block, burst int, tick time.Duration, max int) *pacer {
	p := &pacer{rate: bps / 8}
	if burst > 0 {
		p.piece = block * burst
	} else {
		p.piece = int(p.rate * tick.Seconds())
		p.piece = min(max, p.piece)
		if p.piece < paceFloor {
			p.piece = min(paceFloor, block)
		}
	}
	return p
}

// next says how many bytes may go now, elapsed after the start with sent bytes gone, or how long to wait for the next.
func (p *pacer) next(elapsed time.Duration, sent int64) (n int, wait time.Duration) {
	at := func(bytes float64) time.Duration { return time.Duration(bytes / p.rate * float64(time.Second)) }
	due := at(float64(sent)) + p.owed // when the next piece may go
	if late := elapsed - due; late > paceDebt {
		p.owed += late - paceDebt
		due += late - paceDebt
	}
	if elapsed >= due {
		return p.piece, 0
	}
	return 0, due - elapsed
}

// Budget is a number of payload bytes that the streams of a test share.
type Budget struct{ left atomic.Int64 }

// NewBudget holds n bytes.
func NewBudget(n int64) *Budget {
	b := &Budget{}
	b.left.Store(n)
	return b
}

// Set makes n bytes the rest from now on.
func (b *Budget) Set(n int64) { b.left.Store(n) }

// take claims up to n bytes; 0 means that nothing is left. A nil Budget has no end.
func (b *Budget) take(n int) int {
	if b == nil {
		return n
	}
	for {
		left := b.left.Load()
		if left <= 0 {
			return 0
		}
		got := min(int64(n), left)
		if b.left.CompareAndSwap(left, left-got) {
			return int(got)
		}
	}
}

// put gives back what was claimed and not used.
func (b *Budget) put(n int) {
	if b != nil && n > 0 {
		b.left.Add(int64(n))
	}
}

// Spent says whether nothing is left to claim. A nil Budget never is.
func (b *Budget) Spent() bool { return b != nil && b.left.Load() <= 0 }
