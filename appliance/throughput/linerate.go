package throughput

import "math"

// Frame overhead on the wire, in bytes (IEEE 802.3): preamble and start delimiter 8, header 14, check sequence 4, gap 12.
const (
	frameBytes = 8 + 14 + 4 + 12
	vlanBytes  = 4  // IEEE 802.1Q tag
	tcpBytes   = 20 // RFC 9293
	tsBytes    = 12 // RFC 7323 timestamps, padded
	udpBytes   = 8  // RFC 768
)

// Path is what the percentages of a test are computed from.
type Path struct {
	LinkMbps   int  // 10^6 bit/s
	Family     int  // 4 | 6
	Payload    int  // bytes in a full segment or datagram: the MSS without options, or the UDP block
	MTU        int  // of the port; a UDP block beyond it is sent in fragments; 0: unknown, no fragments
	UDP        bool //
	Timestamps bool // TCP timestamps are on
	VLAN       bool // frames carry a tag
}

// Goodput returns the payload bits per second that the link can carry in full-size frames:
//
//	link * payload / (payload + options + TCP or UDP + IP + 38 + 4 * VLAN)
//
// 0 where the link speed or the payload is unknown.
func (p Path) Goodput() float64 {
	if p.LinkMbps <= 0 || p.Payload <= 0 {
		return 0
	}
	ip := 20
	if p.Family == 6 {
		ip = 40
	}
	frame := ip + frameBytes
	if p.VLAN {
		frame += vlanBytes
	}
	wire := p.Payload + frame
	switch {
	case p.UDP:
		wire += udpBytes
		// RFC 791: each fragment but the last carries a multiple of 8 bytes behind its own IP header; RFC 8200 adds 8
		// bytes of fragment header.
		room := p.MTU - ip
		if whole := p.Payload + udpBytes; p.MTU > 0 && whole > room {
			extra := 0
			if p.Family == 6 {
				extra = 8
			}
			room = (room - extra) &^ 7
			if room <= 0 {
				return 0
			}
			n := (whole + room - 1) / room
			wire = whole + n*(frame+extra)
		}
	case p.Timestamps:
		wire += tcpBytes + tsBytes
	default:
		wire += tcpBytes
	}
	return float64(p.LinkMbps) * 1e6 * float64(p.Payload) / float64(wire)
}

// SetPercent fills in LineRatePercent and PossiblePercent from what the link carried in each direction (the test's own
// rates, or the port's totals where tests shared it) and the result's own link, MSS, family and VLAN; both stay null where
// the link speed is unknown. A test in both directions counts by the weaker one, since each has the whole link on full
// duplex. What is possible is capped at 100: link speeds and clocks are not exact.
func (r *Result) SetPercent(rxBPS, txBPS float64) {
	r.LineRatePercent, r.PossiblePercent = nil, nil
	if r.LinkMbps == nil || *r.LinkMbps <= 0 {
		return
	}
	bps := rxBPS
	switch r.Direction {
	case TX:
		bps = txBPS
	case Both:
		bps = math.Min(rxBPS, txBPS)
	}
	r.LineRatePercent = new(100 * bps / (float64(*r.LinkMbps) * 1e6))

	p := Path{LinkMbps: *r.LinkMbps, Family: r.Family, UDP: r.Protocol == UDP, Timestamps: r.Timestamps, VLAN: r.VLAN != nil}
	if r.MTU != nil {
		p.MTU = *r.MTU
	}
	if p.UDP {
		p.Payload = r.BlockBytes
	} else if r.MSS != nil {
		p.Payload = *r.MSS
	}
	if most := p.Goodput(); most > 0 {
		r.PossiblePercent = new(math.Min(100, 100*bps/most))
	}
}
