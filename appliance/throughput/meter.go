package throughput

import (
	"slices"
	"time"
)

// TickTime is how often the Meter of a running test wants to be ticked: often enough to wake a receiver whose sender has
// become slow, and free (0.4 us a stream).
const TickTime = 100 * time.Millisecond

// Meter measures the flows of one test: progress, intervals, totals, and whether anything moves at all. It is not safe for
// concurrent use and reads no clock: its owner ticks it.
type Meter struct {
	flows    []Flow
	interval time.Duration

	began  time.Time // the payload began to flow
	zero   time.Time // the omitted seconds were over
	last   time.Time // of the last Tick
	moving time.Time // something moved, or nothing was due

	base, prev, now []Counters
	receivers       int

	cut       edge // where the present interval began
	intervals []Interval
	detailed  bool
	details   []Detail
	cuts      []Counters // of each flow where the present interval began

	rttTime float64 // ms * s over the run
	rttOver float64 // s
	rttCut  [2]float64
	rttMin  time.Duration
}

// Detail is one interval stream by stream.
type Detail struct {
	StartS, EndS float64
	Flows        []Counters // what came in it; Window, RTT and Jitter as they were at its end
}

// maxDetails bounds intervals times flows.
const maxDetails = 8192

// Detail keeps each flow's course from now on, for Totals.Details. To be called before the first Tick.
func (m *Meter) Detail() {
	m.detailed = true
	m.cuts = make([]Counters, len(m.flows))
}

// edge of an interval.
type edge struct {
	at          time.Time
	bytes       int64
	retransmits int64
}

// NewMeter starts to measure at now, from where the flows began. Intervals shorter than 100 ms, or 0, are taken as 1 s.
func NewMeter(flows []Flow, interval time.Duration, now time.Time) *Meter {
	if interval < TickTime {
		interval = time.Second
	}
	m := &Meter{
		flows: flows, interval: interval, began: now, last: now, moving: now,
		base: make([]Counters, len(flows)), prev: make([]Counters, len(flows)), now: make([]Counters, len(flows)),
	}
	for _, f := range flows {
		if f.Direction() == RX {
			m.receivers++
		}
	}
	m.zero, m.cut.at = now, now // what came before the Meter was made counts
	return m
}

func (m *Meter) read() {
	for i, f := range m.flows {
		m.now[i] = f.Counters()
	}
}

// Reset begins anew at now: what was measured until here does not count. It is called when the omitted seconds are over.
func (m *Meter) Reset(now time.Time) {
	m.read()
	copy(m.base, m.now)
	for i := range m.base {
		// Jitter and round-trip time are no sums: nothing is taken off them.
		m.base[i].Jitter, m.base[i].RTT = 0, 0
	}
	m.zero, m.intervals = now, nil
	m.rttTime, m.rttOver, m.rttCut, m.rttMin = 0, 0, [2]float64{}, 0
	m.cut = edge{at: now, bytes: m.bytes(), retransmits: m.retransmits()}
	m.details = nil
	copy(m.cuts, m.now)
}

// Tick reads all flows, wakes receivers as late as their rate allows, and returns what has happened since the last Tick.
func (m *Meter) Tick(now time.Time) Progress {
	m.read()
	p := Progress{ElapsedS: now.Sub(m.began).Seconds()}
	over := now.Sub(m.last).Seconds()
	moved, due := false, false
	for i, f := range m.flows {
		c, before := m.now[i], m.prev[i]
		bits := float64(c.Bytes-before.Bytes) * 8
		moved = moved || c.Bytes != before.Bytes || c.Moved != before.Moved
		if over > 0 {
			bits /= over
		}
		if f.Direction() == RX {
			p.RXBPS += bits
			due = true
			f.Adapt(bits, m.receivers)
			continue
		}
		p.TXBPS += bits
		due = due || c.Due
	}
	if moved || !due {
		m.moving = now
	}
	if m.receivers < len(m.flows) {
		p.Retransmits = new(m.retransmits() - m.sum(m.base, retransmitsOf))
	}
	if ms, ok := m.rtt(); ok {
		p.RTTMS = new(ms)
		m.rttTime += ms * over
		m.rttOver += over
		m.rttCut[0] += ms * over
		m.rttCut[1] += over
	}
	copy(m.prev, m.now)
	m.last = now
	// The grid of intervals stands still; a tick that is a little early must not lose one.
	next := m.zero.Add((m.cut.at.Sub(m.zero) + m.interval + m.interval/2).Truncate(m.interval))
	if !now.Before(next) {
		m.closeInterval(now)
	}
	return p
}

// rtt is the mean round-trip time of the senders, in ms; the lowest is kept on the way.
func (m *Meter) rtt() (ms float64, ok bool) {
	n := 0
	for i, f := range m.flows {
		c := m.now[i]
		if f.Direction() != TX || c.RTT <= 0 {
			continue
		}
		ms += float64(c.RTT) / float64(time.Millisecond)
		n++
		if c.MinRTT > 0 && (m.rttMin == 0 || c.MinRTT < m.rttMin) {
			m.rttMin = c.MinRTT
		}
	}
	return ms / float64(max(1, n)), n > 0
}

// Idle is how long nothing has moved although bytes were due, as of the last Tick.
func (m *Meter) Idle() time.Duration { return m.last.Sub(m.moving) }

// Moving is when something last moved.
func (m *Meter) Moving() time.Time { return m.moving }

// Received reads what has been received until now, omitted seconds excluded.
func (m *Meter) Received() int64 {
	var n int64
	for i, f := range m.flows {
		if f.Direction() == RX {
			n += f.Counters().Bytes - m.base[i].Bytes
		}
	}
	return n
}

// Zero is when the part of the test that counts began.
func (m *Meter) Zero() time.Time { return m.zero }

func retransmitsOf(c Counters) int64 { return c.Retransmits }

func (m *Meter) sum(of []Counters, what func(Counters) int64) int64 {
	var n int64
	for _, c := range of {
		n += what(c)
	}
	return n
}

func (m *Meter) bytes() int64       { return m.sum(m.now, func(c Counters) int64 { return c.Bytes }) }
func (m *Meter) retransmits() int64 { return m.sum(m.now, retransmitsOf) }

func (m *Meter) closeInterval(now time.Time) {
	over := now.Sub(m.cut.at).Seconds()
	if over <= 0 {
		return
	}
	iv := Interval{
		StartS: m.cut.at.Sub(m.zero).Seconds(), EndS: now.Sub(m.zero).Seconds(),
		BPS: float64(m.bytes()-m.cut.bytes) * 8 / over,
	}
	if m.receivers < len(m.flows) {
		iv.Retransmits = new(m.retransmits() - m.cut.retransmits)
	}
	if m.rttCut[1] > 0 {
		iv.RTTMS = new(m.rttCut[0] / m.rttCut[1])
	}
	m.intervals = append(m.intervals, iv)
	if len(m.intervals) >= 2*MaxIntervals { // a test may run for days
		m.intervals = MergeIntervals(m.intervals, MaxIntervals)
	}
	m.rttCut = [2]float64{}
	m.cut = edge{at: now, bytes: m.bytes(), retransmits: m.retransmits()}
	if m.detailed {
		m.details = append(m.details, Detail{StartS: iv.StartS, EndS: iv.EndS, Flows: since(m.now, m.cuts)})
		copy(m.cuts, m.now)
		if len(m.details) >= 2 && len(m.details)*len(m.flows) > maxDetails {
			m.details = mergeDetails(m.details)
		}
	}
}

// since takes off what was there before.
func since(now, before []Counters) []Counters {
	all := make([]Counters, len(now))
	for i, c := range now {
		b := before[i]
		c.Bytes -= b.Bytes
		c.Moved -= b.Moved
		c.Retransmits -= b.Retransmits
		c.Packets -= b.Packets
		c.Lost -= b.Lost
		c.OutOfOrder -= b.OutOfOrder
		all[i] = c
	}
	return all
}

// mergeDetails joins neighbours.
func mergeDetails(in []Detail) (out []Detail) {
	for i := 0; i < len(in); i += 2 {
		if i+1 == len(in) {
			return append(out, in[i])
		}
		a, b := in[i], in[i+1]
		d := Detail{StartS: a.StartS, EndS: b.EndS, Flows: slices.Clone(b.Flows)}
		for k, c := range a.Flows {
			d.Flows[k].Bytes += c.Bytes
			d.Flows[k].Moved += c.Moved
			d.Flows[k].Retransmits += c.Retransmits
			d.Flows[k].Packets += c.Packets
			d.Flows[k].Lost += c.Lost
			d.Flows[k].OutOfOrder += c.OutOfOrder
		}
		out = append(out, d)
	}
	return out
}

// Totals of a test, omitted seconds excluded.
type Totals struct {
	Seconds     float64
	RXBytes     int64
	TXBytes     int64      // acknowledged by the peer
	Flows       []Counters // in the order they were given to NewMeter
	Omitted     []Counters // what was taken off them
	Retransmits *int64     // nil where the box only received
	RTTMS       *float64
	RTTMinMS    *float64
	Intervals   []Interval // at most MaxIntervals
	Details     []Detail   // the same flow by flow, where Meter.Detail was called
}

// Finish reads the flows and says what there is until now; end is when the payload stopped, which may be a moment ago. It changes
// nothing: the test may go on.
func (m *Meter) Finish(end time.Time) Totals {
	m.read()
	m = new(*m)
	m.intervals, m.details, m.cuts = slices.Clip(m.intervals), slices.Clip(m.details), slices.Clone(m.cuts)
	t := Totals{Seconds: end.Sub(m.zero).Seconds(), Omitted: m.base}
	// A rest too short to be a figure of its own belongs to the interval before it.
	n := len(m.intervals)
	short := end.Sub(m.cut.at) < m.interval/10
	m.closeInterval(end)
	if short && n > 0 && len(m.intervals) > n {
		m.intervals = append(slices.Clip(m.intervals[:n-1]), merge(m.intervals[n-1], m.intervals[n]))
		if d := len(m.details); d > 1 {
			m.details = append(slices.Clip(m.details[:d-2]), mergeDetails(m.details[d-2:])...)
		}
	}
	// Where the payload stopped long ago, the empty intervals since then tell nothing.
	for n := len(m.intervals); n > 0 && m.intervals[n-1].StartS >= t.Seconds; n-- {
		m.intervals = m.intervals[:n-1]
	}
	t.Intervals, t.Details = MergeIntervals(m.intervals, MaxIntervals), m.details
	t.Flows = since(m.now, m.base)
	for i, c := range t.Flows {
		if m.flows[i].Direction() == RX {
			t.RXBytes += c.Bytes
		} else {
			t.TXBytes += c.Bytes
		}
	}
	if m.receivers < len(m.flows) {
		t.Retransmits = new(m.sum(t.Flows, retransmitsOf))
	}
	if ms, ok := m.rtt(); ok && m.rttOver == 0 { // shorter than a tick
		t.RTTMS = new(ms)
	}
	if m.rttOver > 0 {
		t.RTTMS = new(m.rttTime / m.rttOver)
	}
	if m.rttMin > 0 {
		t.RTTMinMS = new(float64(m.rttMin) / float64(time.Millisecond))
	}
	return t
}
