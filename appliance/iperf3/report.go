package iperf3

import (
	"net/netip"
	"time"

	"linerate/appliance/throughput"
)

// ours is what the peer is told; the totals must have been taken.
func (c *course) ours() results {
	r := results{CPUTotal: c.load[0], CPUUser: c.load[1], CPUSystem: c.load[2], Retransmits: -1, Congestion: c.used}
	for i, s := range c.streams {
		f, omitted := c.totals.Flows[i], c.totals.Omitted[i]
		sr := streamResult{
			ID: streamID(i), Bytes: f.Bytes, Retransmits: -1, End: c.totals.Seconds, Jitter: f.Jitter.Seconds(),
			Errors: f.Lost + omitted.Lost, OmittedErrors: omitted.Lost,
			Packets: f.Packets + omitted.Packets, OmittedPackets: omitted.Packets,
		}
		if s.Direction() == throughput.TX {
			r.Retransmits = 0
			if c.p.Protocol == throughput.TCP {
				r.Retransmits, sr.Retransmits = 1, f.Retransmits
			}
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
	r.RTTMS, r.RTTMinMS = t.RTTMS, t.RTTMinMS
	if c.heard {
		r.CPU.PeerPercent = new(c.peer.CPUTotal)
	}
	c.amounts(&r)
	if c.p.Protocol == throughput.UDP {
		c.datagrams(&r)
	} else {
		c.segments(&r)
	}
	return r
}

// amounts fills in bytes and rates, as the receiver of each direction counts them.
func (c *course) amounts(r *throughput.Result) {
	t := c.totals
	if r.Direction != throughput.TX {
		r.RXBPS = new(rate(t.RXBytes, t.Seconds))
		r.Bytes += t.RXBytes
		r.BPS += *r.RXBPS
	}
	if r.Direction != throughput.RX {
		bytes, over := t.TXBytes, t.Seconds
		if n, s, ok := c.peer.received(c.indices(throughput.TX), t.Flows); ok {
			bytes = n
			if s > 0.8*over && s < 1.2*over+0.2 { // its own clock fits its own bytes
				over = s
			}
		}
		r.TXBPS = new(rate(bytes, over))
		r.Bytes += bytes
		r.BPS += *r.TXBPS
	}
}

// indices of the streams in a direction.
func (c *course) indices(dir throughput.Direction) (all []int) {
	for i, s := range c.streams {
		if s.Direction() == dir {
			all = append(all, i)
		}
	}
	return all
}

// segments fills in what only TCP has.
func (c *course) segments(r *throughput.Result) {
	r.Congestion = throughput.Text(c.peer.Congestion)
	for _, s := range c.streams {
		s, ok := s.(*throughput.Stream)
		if !ok {
			continue
		}
		if s.Direction() == throughput.TX {
			r.Congestion = throughput.Text(c.used)
		}
		if mss := s.MSS(); mss > 0 && (r.MSS == nil || s.Direction() == throughput.TX) {
			r.MSS = new(mss)
		}
		r.Timestamps = r.Timestamps || s.Timestamps()
	}
	r.Retransmits = c.totals.Retransmits
	if r.Direction == throughput.RX {
		r.Retransmits = c.peerRetransmits()
	}
	if r.Direction != throughput.TX {
		r.Copied = new(c.copy)
	}
}

// datagrams fills in what only UDP has: jitter, loss and number as the receivers of both directions count them.
func (c *course) datagrams(r *throughput.Result) {
	var jitter float64 // s, a stream
	var lost, packets int64
	n := 0
	for i, s := range c.streams {
		if s.Direction() == throughput.RX {
			f := c.totals.Flows[i]
			jitter += f.Jitter.Seconds()
			lost += f.Lost
			packets += f.Packets
			n++
		} else if p := c.peer.byID(streamID(i)); p != nil {
			omitted := p.OmittedPackets
			if !p.TellsOmitted { // then what we had sent by then is as near as one can get
				omitted = c.totals.Omitted[i].Packets
			}
			jitter += p.Jitter
			lost += p.Errors - p.OmittedErrors
			packets += p.Packets - omitted
			n++
		}
	}
	if n == 0 {
		return
	}
	r.JitterMS, r.Lost, r.Packets = new(1000*jitter/float64(n)), new(max(0, lost)), new(max(0, packets))
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

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
