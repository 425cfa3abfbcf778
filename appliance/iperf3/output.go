package iperf3

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"linerate/appliance/throughput"
)

// A client may ask for the server's own report (--get-server-output). It comes in the form that a reader of iperf3 knows.

// quantity writes a number with three digits and a unit, as iperf3 does: steps of 1024 for bytes, of 1000 for bits.
func quantity(v float64, step float64, units ...string) string {
	i := 0
	for v >= step && i < len(units)-1 {
		v /= step
		i++
	}
	format := "%4.0f %s"
	switch {
	case v < 9.995:
		format = "%4.2f %s"
	case v < 99.95:
		format = "%4.1f %s"
	}
	return fmt.Sprintf(format, v, units[i])
}

func transfer(bytes int64) string {
	return quantity(float64(bytes), 1024, "Bytes", "KBytes", "MBytes", "GBytes", "TBytes")
}

func bitrate(bps float64) string {
	return quantity(bps, 1000, "bits/sec", "Kbits/sec", "Mbits/sec", "Gbits/sec", "Tbits/sec")
}

// socketNumber is what iperf3 would print in brackets: its file descriptors.
func socketNumber(i int) int { return 5 + 2*i }

func withPort(a net.Addr) string {
	t, _ := a.(*net.TCPAddr)
	if t == nil {
		return a.String()
	}
	return fmt.Sprintf("%v port %d", addrOf(a), t.Port)
}

const ruler = "- - - - - - - - - - - - - - - - - - - - - - - - -\n"

// outputText is the report of a finished test as `iperf3 -s` prints it.
func (c *course) outputText(peer, local netip.Addr) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Accepted connection from %v\n", peer)
	for i, s := range c.streams {
		from, to := local.String(), peer.String()
		if t, ok := s.(*throughput.Stream); ok {
			l, r := t.Conn().LocalAddr(), t.Conn().RemoteAddr()
			from, to = withPort(l), withPort(r)
		}
		fmt.Fprintf(&b, "[%3d] local %s connected to %s\n", socketNumber(i), from, to)
	}
	b.WriteString(c.heading(false))
	for n, d := range c.totals.Details {
		if n > 0 && len(c.streams) > 1 {
			b.WriteString(ruler)
		}
		c.rows(&b, d.StartS, d.EndS, d.Flows, false)
	}
	b.WriteString(ruler)
	b.WriteString(c.heading(true))
	c.rows(&b, 0, c.totals.Seconds, c.totals.Flows, true)
	return b.String()
}

// heading of the columns; a test in both directions has a column for the role.
func (c *course) heading(whole bool) string {
	role := ""
	if c.p.Bidir {
		role = "[Role]"
	}
	sends := len(c.indices(throughput.TX)) > 0
	rest := ""
	switch {
	case c.p.Protocol == throughput.UDP && sends && !whole && !c.p.Bidir:
		rest = "         Total Datagrams"
	case c.p.Protocol == throughput.UDP:
		rest = "         Jitter    Lost/Total Datagrams"
	case sends && whole:
		rest = "         Retr"
	case sends:
		rest = "         Retr  Cwnd"
	}
	return fmt.Sprintf("[ ID]%s Interval           Transfer     Bitrate%s\n", role, rest)
}

// total of some flows; jitter is their mean.
func total(flows []throughput.Counters, index []int) (sum throughput.Counters) {
	for _, i := range index {
		f := flows[i]
		sum.Bytes += f.Bytes
		sum.Retransmits += f.Retransmits
		sum.Lost += f.Lost
		sum.Packets += f.Packets
		sum.OutOfOrder += f.OutOfOrder
		sum.Jitter += f.Jitter / time.Duration(len(index))
	}
	return sum
}

// rows writes one line a stream, and their sum for each direction.
func (c *course) rows(b *strings.Builder, start, end float64, flows []throughput.Counters, whole bool) {
	for _, dir := range []throughput.Direction{throughput.RX, throughput.TX} {
		index := c.indices(dir)
		for _, i := range index {
			c.row(b, fmt.Sprintf("%3d", socketNumber(i)), dir, start, end, flows[i], whole)
		}
		if len(index) > 1 {
			c.row(b, "SUM", dir, start, end, total(flows, index), whole)
		}
	}
}

func (c *course) row(b *strings.Builder, id string, dir throughput.Direction, start, end float64, f throughput.Counters, whole bool) {
	role := ""
	if c.p.Bidir {
		role = map[throughput.Direction]string{throughput.RX: "[RX-S]", throughput.TX: "[TX-S]"}[dir]
	}
	fmt.Fprintf(b, "[%s]%s %6.2f-%-6.2f sec  %s  %s  ", id, role, start, end, transfer(f.Bytes), bitrate(rate(f.Bytes, end-start)))
	switch {
	case c.p.Protocol == throughput.UDP && dir == throughput.TX && !whole:
		fmt.Fprintf(b, "%d  ", f.Packets)
	case c.p.Protocol == throughput.UDP:
		fmt.Fprintf(b, "%5.3f ms  %d/%d (%.2g%%)  ", f.Jitter.Seconds()*1000, f.Lost, f.Packets, lostPercent(f))
	case dir == throughput.TX && whole:
		fmt.Fprintf(b, "%3d            ", f.Retransmits)
	case dir == throughput.TX && f.Window == 0: // a sum
		fmt.Fprintf(b, "%3d             ", f.Retransmits)
	case dir == throughput.TX:
		fmt.Fprintf(b, "%3d   %s       ", f.Retransmits, transfer(f.Window))
	default:
		b.WriteString("                ")
	}
	if whole {
		b.WriteString(map[throughput.Direction]string{throughput.RX: "receiver", throughput.TX: "sender"}[dir])
	}
	b.WriteString("\n")
}

func lostPercent(f throughput.Counters) float64 {
	return 100 * float64(f.Lost) / float64(max(1, f.Packets))
}

// lineJSON is one stream, or a sum of them, over some time.
func (c *course) lineJSON(dir throughput.Direction, start, end float64, f throughput.Counters) map[string]any {
	m := map[string]any{
		"start": start, "end": end, "seconds": end - start, "bytes": f.Bytes, "bits_per_second": rate(f.Bytes, end-start),
		"omitted": false, "sender": dir == throughput.TX,
	}
	switch {
	case c.p.Protocol == throughput.UDP && dir == throughput.RX:
		m["jitter_ms"], m["lost_packets"], m["lost_percent"] = f.Jitter.Seconds()*1000, f.Lost, lostPercent(f)
		m["packets"], m["out_of_order"] = f.Packets, f.OutOfOrder
	case c.p.Protocol == throughput.UDP:
		m["packets"] = f.Packets
	case dir == throughput.TX:
		m["retransmits"], m["snd_cwnd"], m["rtt"] = f.Retransmits, f.Window, f.RTT.Microseconds()
	}
	return m
}

// sumsJSON adds the sum of each direction there is.
func (c *course) sumsJSON(into map[string]any, rx, tx string, start, end float64, flows []throughput.Counters) {
	for dir, name := range map[throughput.Direction]string{throughput.RX: rx, throughput.TX: tx} {
		if index := c.indices(dir); len(index) > 0 {
			into[name] = c.lineJSON(dir, start, end, total(flows, index))
		}
	}
}

// outputJSON is the report in the names of `iperf3 -s -J`.
func (c *course) outputJSON(peer, local netip.Addr) json.RawMessage {
	reverse := "sum"
	if c.p.Bidir {
		reverse = "sum_bidir_reverse"
	}
	intervals := []any{}
	for _, d := range c.totals.Details {
		streams := []any{}
		for i, s := range c.streams {
			m := c.lineJSON(s.Direction(), d.StartS, d.EndS, d.Flows[i])
			m["socket"] = socketNumber(i)
			streams = append(streams, m)
		}
		m := map[string]any{"streams": streams}
		c.sumsJSON(m, "sum", reverse, d.StartS, d.EndS, d.Flows)
		intervals = append(intervals, m)
	}
	ends := []any{}
	for i, s := range c.streams {
		kind := "receiver"
		if s.Direction() == throughput.TX {
			kind = "sender"
		}
		m := c.lineJSON(s.Direction(), 0, c.totals.Seconds, c.totals.Flows[i])
		m["socket"] = socketNumber(i)
		ends = append(ends, map[string]any{kind: m})
	}
	end := map[string]any{
		"streams": ends,
		"cpu_utilization_percent": map[string]any{
			"host_total": c.load[0], "host_user": c.load[1], "host_system": c.load[2],
			"remote_total": c.peer.CPUTotal, "remote_user": c.peer.CPUUser, "remote_system": c.peer.CPUSystem,
		},
	}
	c.sumsJSON(end, "sum_received", "sum_sent", 0, c.totals.Seconds, c.totals.Flows)
	number := map[bool]int{true: 1}
	b, _ := json.Marshal(map[string]any{ // numbers and strings: cannot fail
		"start": map[string]any{
			"version": "linerate", "accepted_connection": map[string]any{"host": peer.String()}, "local_host": local.String(),
			"test_start": map[string]any{
				"protocol": strings.ToUpper(string(c.p.Protocol)), "num_streams": c.p.Streams, "blksize": c.p.Len, "omit": c.p.Omit,
				"duration": c.p.Time, "bytes": c.p.Num, "blocks": c.p.Blocks, "tos": c.p.TOS, "target_bitrate": c.p.Bandwidth,
				"reverse": number[c.p.Reverse], "bidir": number[c.p.Bidir],
			},
			"title": c.p.Title, "extra_data": c.p.Extra,
		},
		"intervals": intervals, "end": end,
	})
	return b
}
