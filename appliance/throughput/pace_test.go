package throughput

import (
	"testing"
	"time"
)

func TestPacerKeepsTheAverage(t *testing.T) {
	for _, c := range []struct {
		name         string
		bps          float64
		block, burst int
		piece        int
	}{
		{"2.35 Gbit/s in pieces of a millisecond", 2.35e9, DefaultBlock, 0, 293750},
		{"50 kbit/s in frames, not in blocks of 21 s", 50e3, DefaultBlock, 0, paceFloor},
		{"small blocks", 50e3, 100, 0, 100},
		{"a burst stays whole", 10e6, 1000, 50, 50000},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPacer(c.bps, c.block, c.burst, paceTick, sendBytes)
			if p.piece != c.piece {
				t.Fatalf("pieces of %d bytes, want %d", p.piece, c.piece)
			}
			var now time.Duration
			var sent int64
			for now < 30*time.Second {
				n, wait := p.next(now, sent)
				if n == 0 && wait <= 0 {
					t.Fatal("neither sends nor waits")
				}
				sent += int64(n)
				now += wait
			}
			want := c.bps / 8 * 30
			if diff := float64(sent) - want; diff < -float64(c.piece) || diff > 2*float64(c.piece) {
				t.Errorf("sent %d bytes in 30 s, want %.0f within a piece of %d", sent, want, c.piece)
			}
		})
	}
}

func TestPacerMakesUpForAtMostASecond(t *testing.T) {
	p := newPacer(8e6, DefaultBlock, 0, paceTick, sendBytes) // 1 MB/s
	sent := int64(0)
	for n, _ := p.next(10*time.Second, sent); n > 0; n, _ = p.next(10*time.Second, sent) {
		sent += int64(n)
	}
	if sent < 1e6-2000 || sent > 1e6+2000 {
		t.Errorf("after 10 s of nothing %d bytes go at once, want those of 1 s", sent)
	}
}

func TestBudget(t *testing.T) {
	b := NewBudget(100)
	if got := b.take(60); got != 60 {
		t.Errorf("took %d of 60", got)
	}
	if got := b.take(60); got != 40 || !b.Spent() {
		t.Errorf("took %d of the last 40, spent %v", got, b.Spent())
	}
	b.put(10)
	if got := b.take(60); got != 10 {
		t.Errorf("took %d of the 10 put back", got)
	}
	if got := b.take(1); got != 0 {
		t.Errorf("took %d of nothing", got)
	}
	var none *Budget
	if none.take(7) != 7 || none.Spent() {
		t.Error("no budget must have no end")
	}
}

func TestLowWater(t *testing.T) {
	for _, c := range []struct {
		bps    float64
		flows  int
		copies bool
		want   int
	}{
		{1e3, 1, false, 1}, {0, 0, false, 1}, {99e6, 1, false, 1}, {99e6, 128, false, 1},
		{100e6, 1, false, 25000}, {1e9, 1, false, 250000}, {2.35e9, 1, false, lowWaterMax}, {0.6e9, 4, false, lowWaterMax},
		{100e6, 4, false, 100000}, {8e9, 1, false, lowWaterMax / 2}, {2e9, 4, false, lowWaterMin}, {0.2e9, 128, false, lowWaterMin},
		{4e9, 1, true, 1000000}, {4.9e9, 1, true, 2 * lowWaterMax}, {8e9, 1, true, lowWaterMax / 2},
	} {
		if got := lowWater(c.bps, c.flows, c.copies); got != c.want {
			t.Errorf("low water at %g bit/s, %d flows, copies %v: %d, want %d", c.bps, c.flows, c.copies, got, c.want)
		}
	}
}
