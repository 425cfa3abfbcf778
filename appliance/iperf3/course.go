package iperf3

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"linerate/appliance/throughput"
)

// course is the payload of one test at one end, and what was measured of it. Its owner adds the streams in the order of their
// ids, starts it, ticks it, and ends it by finish (results are wanted) or stop (they are not); result may be called in any case.
type course struct {
	p        params
	role     throughput.Role
	copy     bool
	interval time.Duration // of the course that is reported; 0: 1 s

	streams []*throughput.Stream
	budget  *throughput.Budget
	senders sync.WaitGroup
	loops   sync.WaitGroup // the receivers
	failed  chan error     // of a stream, one at most is kept

	meter  *throughput.Meter
	omit   <-chan time.Time // once, when the omitted seconds are over; nil without
	began  time.Time
	ended  time.Time // when the payload stopped; zero: not yet
	spent  time.Time // when the budget was
	before throughput.CPUTimes
	cpu    throughput.CPU
	load   [3]float64 // of this process: total, user, system in percent of a core
	totals *throughput.Totals
	used   string // congestion control of what we send, else of the first stream

	peer  results
	heard bool
}

func newCourse(p params, role throughput.Role, copyPayload bool) *course {
	return &course{p: p, role: role, copy: copyPayload, failed: make(chan error, 1)}
}

// add takes a data connection whose cookie is through. maxBPS limits what we receive or send where it is not 0.
func (c *course) add(conn *net.TCPConn, dir throughput.Direction, maxBPS float64) error {
	rate := c.p.Bandwidth
	if maxBPS > 0 && (rate == 0 || rate > maxBPS) {
		rate = maxBPS
	}
	before := 0
	if (dir == throughput.RX) == (c.role == throughput.Server) { // the client sends its cookie first
		before = cookieBytes
	}
	s, err := throughput.NewStream(conn, dir, throughput.StreamOptions{
		Before: before, Copy: c.copy, MaxBPS: maxBPS, Window: c.p.Window, RateBPS: rate, Block: c.p.Len, Burst: c.p.Burst,
		Budget: c.budget, KernelPaced: c.p.FQRate > 0, ZeroCopy: c.p.ZeroCopy, Repeating: c.p.Repeating,
	})
	if err != nil {
		return err
	}
	c.streams = append(c.streams, s)
	return nil
}

// start lets the payload flow.
func (c *course) start() {
	flows := make([]throughput.Flow, len(c.streams))
	for i, s := range c.streams {
		flows[i] = s
	}
	c.before = throughput.ReadCPU()
	c.began = time.Now()
	c.meter = throughput.NewMeter(flows, c.interval, c.began)
	if c.p.Omit > 0 {
		c.omit = time.After(seconds(c.p.Omit))
	}
	for _, s := range c.streams {
		loops := &c.loops
		if s.Direction() == throughput.TX {
			loops = &c.senders
		}
		loops.Go(func() {
			if err := s.Run(); err != nil {
				select {
				case c.failed <- fmt.Errorf("stream to %v: %w", s.Conn().RemoteAddr(), err):
				default:
				}
			}
		})
	}
}

func (c *course) tick(now time.Time) throughput.Progress { return c.meter.Tick(now) }

// halt stops the senders and lets the receivers take what is still in flight. The senders' connections are half closed:
// version 3.12 reads whole blocks and waits for the rest of the last one, deaf to its control connection.
func (c *course) halt() {
	for _, s := range c.streams {
		if s.Direction() == throughput.TX {
			s.Halt()
		} else {
			s.Drain()
		}
	}
	c.senders.Wait()
	for _, s := range c.streams {
		if s.Direction() == throughput.TX {
			_ = s.Conn().CloseWrite()
		}
	}
}

// hear takes the peer's results.
func (c *course) hear(raw []byte) error {
	r, err := decodeResults(raw, c.p.connections())
	if err == nil {
		c.peer, c.heard = r, true
	}
	return err
}

// finish waits until what was sent has arrived, or nothing has for the time quiet, or drain is over, and takes the totals.
func (c *course) finish(ctx context.Context, quiet, drain time.Duration) {
	if c.meter == nil || c.totals != nil {
		return
	}
	if c.ended.IsZero() {
		c.ended = time.Now()
	}
	end := c.ended
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	limit := time.NewTimer(drain)
	defer limit.Stop()
	for {
		last, missing := c.arrivals()
		if last.After(end) {
			end = last
		}
		if !missing || time.Since(last) >= quiet {
			break
		}
		select {
		case <-poll.C:
			continue
		case <-limit.C:
		case <-ctx.Done():
		}
		break
	}
	c.take(end)
}

// arrivals says when the last payload arrived at all, and whether some is known to be missing or nothing is known.
func (c *course) arrivals() (last time.Time, missing bool) {
	for i, s := range c.streams {
		if s.Direction() != throughput.RX {
			continue
		}
		n := s.Counters()
		if at := time.Now().Add(-n.LastData); n.Bytes > 0 && at.After(last) {
			last = at
		}
		sent := c.peer.byID(streamID(i))
		missing = missing || sent == nil || c.p.Omit > 0 || n.Moved < sent.Bytes
	}
	return last, missing
}

func (c *course) take(end time.Time) {
	t := c.meter.Finish(end)
	c.totals = &t
	for i, s := range c.streams {
		if i == 0 || s.Direction() == throughput.TX {
			c.used = s.Congestion()
		}
	}
	after := throughput.ReadCPU()
	c.cpu = after.Since(c.before)
	c.load[0], c.load[1], c.load[2] = after.ProcessPercent(c.before)
}

// measure takes the totals if that has not been done.
func (c *course) measure() {
	if c.meter == nil || c.totals != nil {
		return
	}
	if c.ended.IsZero() {
		c.ended = time.Now()
	}
	c.take(c.ended)
}

// stop ends every loop and returns when they have.
func (c *course) stop() {
	c.measure()
	for _, s := range c.streams {
		s.Stop()
	}
	c.senders.Wait()
	c.loops.Wait()
}

// unacknowledged says whether something sent has not arrived yet, as far as this end knows.
func (c *course) unacknowledged() bool {
	for _, s := range c.streams {
		if s.Direction() == throughput.TX && s.Counters().Due {
			return true
		}
	}
	return false
}

// ours is what the peer is told; finish must have been called.
func (c *course) ours() results {
	r := results{CPUTotal: c.load[0], CPUUser: c.load[1], CPUSystem: c.load[2], Retransmits: -1, Congestion: c.used}
	for i, s := range c.streams {
		f := c.totals.Flows[i]
		sr := streamResult{ID: streamID(i), Bytes: f.Bytes, Retransmits: -1, End: c.totals.Seconds}
		if s.Direction() == throughput.TX {
			sr.Retransmits = f.Retransmits
			r.Retransmits = 1
		}
		r.Streams = append(r.Streams, sr)
	}
	return r
}

// result is what is reported of the test; whatever was measured until the end is in it.
func (c *course) result(peer, local netip.Addr) throughput.Result {
	r := throughput.Result{
		Engine: "iperf3", Role: c.role, Peer: throughput.Text(peer.String()), Local: throughput.Text(local.String()),
		Family: 4, Protocol: c.p.Protocol, Direction: c.p.direction(), Streams: c.p.Streams, OmitS: c.p.Omit,
		BlockBytes: c.p.Len, Valid: true,
	}
	if peer.Is6() {
		r.Family = 6
	}
	if c.role == throughput.Server {
		r.ClientVersion = throughput.Text(c.p.Version)
	} else {
		r.Direction = mirrored(r.Direction)
	}
	for _, rate := range []float64{c.p.Bandwidth, c.p.FQRate} {
		if rate > 0 {
			r.RateBPS = new(rate)
		}
	}
	if c.meter == nil {
		return r
	}
	c.measure()
	t := c.totals
	r.Seconds, r.Intervals, r.CPU = t.Seconds, t.Intervals, c.cpu
	r.Retransmits, r.RTTMS, r.RTTMinMS = t.Retransmits, t.RTTMS, t.RTTMinMS
	r.Congestion = throughput.Text(c.peer.Congestion)
	if c.heard {
		r.CPU.PeerPercent = new(c.peer.CPUTotal)
	}

	var senders []int
	for i, s := range c.streams {
		if s.Direction() == throughput.TX {
			senders = append(senders, i)
			r.Congestion = throughput.Text(c.used)
		}
		if mss := s.MSS(); mss > 0 && (r.MSS == nil || s.Direction() == throughput.TX) {
			r.MSS = new(mss)
		}
		r.Timestamps = r.Timestamps || s.Timestamps()
	}
	if r.Direction != throughput.TX {
		r.Copied = new(c.copy)
		r.RXBPS = new(rate(t.RXBytes, t.Seconds))
		r.Bytes += t.RXBytes
		r.BPS += *r.RXBPS
		if r.Direction == throughput.RX {
			r.Retransmits = c.peerRetransmits()
		}
	}
	if r.Direction != throughput.RX {
		bytes, over := t.TXBytes, t.Seconds
		if n, s, ok := c.peer.received(senders, t.Flows); ok {
			bytes = n
			if s > 0.8*over && s < 1.2*over+0.2 { // its own clock fits its own bytes
				over = s
			}
		}
		r.TXBPS = new(rate(bytes, over))
		r.Bytes += bytes
		r.BPS += *r.TXBPS
	}
	return r
}

func rate(bytes int64, over float64) float64 {
	if over <= 0 {
		return 0
	}
	return float64(bytes) * 8 / over
}

// peerRetransmits sums what the sender at the other end counted; nil where it does not count.
func (c *course) peerRetransmits() *int64 {
	if !c.heard || c.peer.Retransmits != 1 {
		return nil
	}
	var n int64
	for _, s := range c.peer.Streams {
		if s.Retransmits < 0 {
			return nil
		}
		n += s.Retransmits
	}
	return &n
}

func mirrored(d throughput.Direction) throughput.Direction {
	switch d {
	case throughput.RX:
		return throughput.TX
	case throughput.TX:
		return throughput.RX
	}
	return d
}
