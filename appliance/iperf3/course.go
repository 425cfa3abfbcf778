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

// carrier is a stream of either protocol: *throughput.Stream, *throughput.DatagramSender, *datagramFlow.
type carrier interface {
	throughput.Flow
	Run() error
	Stop()
}

// course is the payload of one test at one end, and what was measured of it. Its owner adds the streams in the order of their
// ids, starts it, ticks it, and ends it by finish (results are wanted) or stop (they are not); result may be called in any case.
type course struct {
	p        params
	role     throughput.Role
	copy     bool
	interval time.Duration // of the course that is reported; 0: 1 s

	streams []carrier
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

// rate of a sender: what was asked for, within a limit that is not 0.
func (c *course) rate(limit float64) float64 {
	rate := c.p.Bandwidth
	if c.p.Protocol == throughput.UDP && c.p.FQRate > 0 && (rate == 0 || c.p.FQRate < rate) {
		rate = c.p.FQRate // streams share a socket: the kernel cannot pace them apart
	}
	if limit > 0 && (rate == 0 || rate > limit) {
		rate = limit
	}
	return rate
}

// add takes a data connection whose cookie is through. maxBPS limits what we receive or send where it is not 0.
func (c *course) add(conn *net.TCPConn, dir throughput.Direction, maxBPS float64) error {
	before := 0
	if (dir == throughput.RX) == (c.role == throughput.Server) { // the client sends its cookie first
		before = cookieBytes
	}
	s, err := throughput.NewStream(conn, dir, throughput.StreamOptions{
		Before: before, Copy: c.copy, MaxBPS: maxBPS, Window: c.p.Window, RateBPS: c.rate(maxBPS), Block: c.p.Len, Burst: c.p.Burst,
		Budget: c.budget, KernelPaced: c.p.FQRate > 0, ZeroCopy: c.p.ZeroCopy, Repeating: c.p.Repeating,
	})
	if err != nil {
		return err
	}
	c.streams = append(c.streams, s)
	return nil
}

// addSender takes a UDP stream on which we send, from an address of ours; to is the zero value on a connected socket.
func (c *course) addSender(socket *throughput.DatagramSocket, to netip.AddrPort, from netip.Addr, maxBPS float64) {
	c.streams = append(c.streams, throughput.NewDatagramSender(socket, throughput.DatagramOptions{
		To: to, From: from, Block: c.p.Len, RateBPS: c.rate(maxBPS), Burst: c.p.Burst, TOS: c.p.TOS, Budget: c.budget,
		Header: putHeader(c.p.Counters64), Repeating: c.p.Repeating,
	}))
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
	if c.p.ServerOutput && c.role == throughput.Server {
		c.meter.Detail()
	}
	if c.p.Omit > 0 {
		c.omit = time.After(seconds(c.p.Omit))
	}
	for i, s := range c.streams {
		loops := &c.loops
		if s.Direction() == throughput.TX {
			loops = &c.senders
		}
		loops.Go(func() {
			if err := s.Run(); err != nil {
				select {
				case c.failed <- fmt.Errorf("stream %d: %w", i+1, err):
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
		switch s := s.(type) {
		case *throughput.Stream:
			if s.Direction() == throughput.TX {
				s.Halt()
			} else {
				s.Drain()
			}
		case *throughput.DatagramSender:
			s.Halt()
		}
	}
	c.senders.Wait()
	for _, s := range c.streams {
		if s, ok := s.(*throughput.Stream); ok && s.Direction() == throughput.TX {
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

// finish waits until what was sent has arrived, or nothing has for the time quiet, or drain is over, and takes the totals. Where
// time has ended the test, only what still comes at the test's own rate counts: the last segment may be one that was lost and
// sent again after a long pause, which would water down the rate.
func (c *course) finish(ctx context.Context, quiet, drain time.Duration) {
	if c.meter == nil || c.totals != nil {
		return
	}
	if c.ended.IsZero() {
		c.ended = time.Now()
	}
	c.take(c.ended)
	first := *c.totals
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	limit := time.NewTimer(drain)
	defer limit.Stop()
	for {
		last, missing := c.arrivals()
		if last.After(c.ended) {
			t := c.meter.Finish(last)
			more := float64(t.RXBytes-first.RXBytes) * first.Seconds
			if c.p.Time == 0 || more >= 0.8*float64(first.RXBytes)*(t.Seconds-first.Seconds) {
				c.totals = &t
			}
		}
		if last.Before(c.ended) {
			last = c.ended
		}
		if !missing || time.Since(last) >= quiet {
			return
		}
		select {
		case <-poll.C:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
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
		switch {
		case sent == nil:
			missing = true
		case c.p.Protocol == throughput.UDP:
			missing = missing || n.Packets < sent.Packets
		default:
			missing = missing || c.p.Omit > 0 || n.Moved < sent.Bytes
		}
	}
	return last, missing
}

func (c *course) take(end time.Time) {
	t := c.meter.Finish(end)
	c.totals = &t
	for i, s := range c.streams {
		if s, ok := s.(*throughput.Stream); ok && (i == 0 || s.Direction() == throughput.TX) {
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
