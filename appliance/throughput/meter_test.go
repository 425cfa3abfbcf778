package throughput

import (
	"math"
	"testing"
	"time"
)

// fakeFlow is a Flow whose counters the test sets.
type fakeFlow struct {
	dir   Direction
	c     Counters
	adapt []float64
}

func (f *fakeFlow) Direction() Direction     { return f.dir }
func (f *fakeFlow) Counters() Counters       { return f.c }
func (f *fakeFlow) Adapt(bps float64, _ int) { f.adapt = append(f.adapt, bps) }
func (f *fakeFlow) move(n int64)             { f.c.Bytes += n; f.c.Moved += n }
func near(a, b float64) bool                 { return math.Abs(a-b) <= 1e-6*math.Max(1, math.Abs(b)) }
func at(start time.Time, ms int) time.Time   { return start.Add(time.Duration(ms) * time.Millisecond) }

func TestMeterMeasures(t *testing.T) {
	t0 := time.Unix(1000, 0)
	rx, tx := &fakeFlow{dir: RX}, &fakeFlow{dir: TX}
	m := NewMeter([]Flow{rx, tx}, time.Second, t0)
	// 1 s that is omitted: everything in it must vanish.
	for ms := 100; ms <= 1000; ms += 100 {
		rx.move(1e6)
		tx.move(5e6)
		tx.c.Retransmits += 3
		tx.c.RTT = 50 * time.Millisecond
		m.Tick(at(t0, ms))
	}
	m.Reset(at(t0, 1000))
	for ms := 1100; ms <= 3500; ms += 100 {
		rx.move(100e3)
		tx.move(200e3)
		tx.c.Retransmits++
		tx.c.RTT, tx.c.MinRTT = 2*time.Millisecond, time.Millisecond
		p := m.Tick(at(t0, ms))
		if !near(p.RXBPS, 8e6) || !near(p.TXBPS, 16e6) || !near(p.BPS(), 24e6) || !near(*p.RTTMS, 2) {
			t.Fatalf("at %d ms: %+v", ms, p)
		}
		if !near(p.ElapsedS, float64(ms)/1000) {
			t.Fatalf("elapsed %g s at %d ms: the omitted seconds are part of it", p.ElapsedS, ms)
		}
		if want := int64((ms - 1000) / 100); *p.Retransmits != want {
			t.Fatalf("%d retransmits at %d ms, want %d", *p.Retransmits, ms, want)
		}
	}
	rx.move(400) // came after the last tick
	got := m.Finish(at(t0, 3500))
	if got.Seconds != 2.5 || got.RXBytes != 25*100e3+400 || got.TXBytes != 25*200e3 || *got.Retransmits != 25 {
		t.Errorf("totals %+v", got)
	}
	if !near(*got.RTTMS, 2) || !near(*got.RTTMinMS, 1) {
		t.Errorf("round-trip times %g and %g ms, want 2 and 1", *got.RTTMS, *got.RTTMinMS)
	}
	if len(got.Intervals) != 3 {
		t.Fatalf("%d intervals, want 3: %+v", len(got.Intervals), got.Intervals)
	}
	for i, iv := range got.Intervals {
		end := math.Min(float64(i+1), 2.5)
		if iv.StartS != float64(i) || !near(iv.EndS, end) || math.Abs(iv.BPS-24e6) > 1e5 {
			t.Errorf("interval %d: %+v", i, iv)
		}
	}
	if rx.adapt == nil || tx.adapt != nil {
		t.Error("receivers, and only they, are to be adapted")
	}
}

func TestMeterIdle(t *testing.T) {
	t0 := time.Unix(1000, 0)
	for _, c := range []struct {
		name  string
		flows []Flow
		idle  bool
	}{
		{"a receiver without bytes", []Flow{&fakeFlow{dir: RX}}, true},
		{"a sender with something due", []Flow{&fakeFlow{dir: TX, c: Counters{Due: true}}}, true},
		{"a sender whose pacing has nothing", []Flow{&fakeFlow{dir: TX}}, false},
		{"both, the sender paced", []Flow{&fakeFlow{dir: TX}, &fakeFlow{dir: RX}}, true},
	} {
		m := NewMeter(c.flows, 0, t0)
		for s := 1; s <= 20; s++ {
			m.Tick(at(t0, 1000*s))
		}
		if got := m.Idle(); (got == 20*time.Second) != c.idle {
			t.Errorf("%s: idle for %v", c.name, got)
		}
	}
	f := &fakeFlow{dir: RX}
	m := NewMeter([]Flow{f}, 0, t0)
	f.move(1)
	m.Tick(at(t0, 5000))
	m.Tick(at(t0, 9000))
	if got := m.Idle(); got != 4*time.Second || m.Moving() != at(t0, 5000) {
		t.Errorf("idle for %v since %v, want 4 s", got, m.Moving())
	}
}

func TestMeterShortRestJoinsItsNeighbour(t *testing.T) {
	t0 := time.Unix(1000, 0)
	f := &fakeFlow{dir: RX}
	m := NewMeter([]Flow{f}, time.Second, t0)
	for ms := 100; ms <= 2000; ms += 100 {
		f.move(1000)
		m.Tick(at(t0, ms))
	}
	f.move(20)
	iv := m.Finish(at(t0, 2010)).Intervals
	if len(iv) != 2 || iv[1].EndS != 2.01 || !near(iv[1].BPS*1.01/8, 10020) {
		t.Errorf("intervals %+v, want two, the second until 2.01 s", iv)
	}
	// A test that stalled is over when the last byte came.
	m = NewMeter([]Flow{f}, time.Second, t0)
	for ms := 100; ms <= 9000; ms += 100 {
		if ms <= 1500 {
			f.move(1000)
		}
		m.Tick(at(t0, ms))
	}
	got := m.Finish(m.Moving())
	if got.Seconds != 1.5 || len(got.Intervals) != 2 {
		t.Errorf("%g s in %d intervals, want 1.5 in 2", got.Seconds, len(got.Intervals))
	}
}

func TestMeterStaysSmallOverDays(t *testing.T) {
	t0 := time.Unix(1000, 0)
	f := &fakeFlow{dir: RX}
	m := NewMeter([]Flow{f}, time.Second, t0)
	const days = 2 * 86400
	for s := 1; s <= days; s++ {
		f.move(10)
		m.Tick(t0.Add(time.Duration(s) * time.Second))
		if len(m.intervals) > 2*MaxIntervals {
			t.Fatalf("%d intervals are kept", len(m.intervals))
		}
	}
	got := m.Finish(t0.Add(days * time.Second)).Intervals
	if len(got) > MaxIntervals || got[len(got)-1].EndS != days || !near(got[0].BPS, 80) {
		t.Errorf("%d intervals, the last until %g s", len(got), got[len(got)-1].EndS)
	}
}

func TestMeterMakesNoGarbage(t *testing.T) {
	t0 := time.Unix(1000, 0)
	flows := make([]Flow, 128)
	for i := range flows {
		flows[i] = &fakeFlow{dir: TX}
	}
	m := NewMeter(flows, time.Minute, t0)
	n := 0
	if got := testing.AllocsPerRun(100, func() { n++; m.Tick(at(t0, 100*n)) }); got > 4 {
		t.Errorf("%g allocations a tick of 128 flows, want no more than the progress itself", got)
	}
}
