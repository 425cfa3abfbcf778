package main

import (
	"fmt"
	"strings"

	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// rateText writes a rate as iperf3 does: three digits and a unit of 1000.
func rateText(bps float64) string { return scaled(bps, 1000, "bits/sec") }

// bytesText writes an amount as iperf3 does: three digits and a unit of 1024.
func bytesText(n float64) string { return scaled(n, 1024, "Bytes") }

func scaled(v, step float64, unit string) string {
	prefix := ""
	for _, p := range []string{"K", "M", "G", "T"} {
		if v < step-0.5 { // which would be written as the step itself
			break
		}
		v, prefix = v/step, p
	}
	digits := 2
	switch {
	case v >= 100:
		digits = 0
	case v >= 10:
		digits = 1
	}
	return fmt.Sprintf("%.*f %s%s", digits, v, prefix, unit)
}

// directionText is how screens and reports say a direction.
func directionText(d throughput.Direction) string {
	if d == throughput.Both {
		return "RX+TX"
	}
	return strings.ToUpper(string(d))
}

// intervalHead and intervalLine are a test's live lines.
const intervalHead = "Dir    Interval           Transfer      Bitrate          Retr   RTT"

func intervalLine(d throughput.Direction, start, end, bps float64, retransmits *int64, rtt *float64) string {
	retr, ms := "", ""
	if retransmits != nil {
		retr = fmt.Sprint(*retransmits)
	}
	if rtt != nil {
		ms = fmt.Sprintf("%.2f ms", *rtt)
	}
	line := fmt.Sprintf("%-5s %6.2f-%-6.2f sec  %12s  %15s  %5s  %s", directionText(d), start, end,
		bytesText(bps*(end-start)/8), rateText(bps), retr, ms)
	return strings.TrimRight(line, " ")
}

// summary is what stands under the intervals of a test.
func summary(r results.Record) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if r.Bytes == 0 && r.Error != "" {
		return "" // nothing was measured: the error says it all
	}
	line("%s", strings.Repeat("- ", 37))
	line("%s", intervalLine(r.Direction, 0, r.Seconds, r.BPS, r.Retransmits, r.RTTMS)+"  receiver")
	if r.Direction == throughput.Both && r.RXBPS != nil && r.TXBPS != nil {
		line("      RX %s, TX %s", rateText(*r.RXBPS), rateText(*r.TXBPS))
	}
	if r.Protocol == throughput.UDP && r.Packets != nil {
		lost, share := int64(0), 0.0
		if r.Lost != nil && *r.Packets > 0 {
			lost, share = *r.Lost, 100*float64(*r.Lost)/float64(*r.Packets)
		}
		jitter := ""
		if r.JitterMS != nil {
			jitter = fmt.Sprintf(", jitter %.3f ms", *r.JitterMS)
		}
		line("      %d of %d datagrams lost (%.2g %%)%s", lost, *r.Packets, share, jitter)
	}
	if r.LineRatePercent != nil && r.LinkMbps != nil {
		possible := ""
		if r.PossiblePercent != nil {
			possible = fmt.Sprintf(", %.1f %% of what is possible with %s", *r.PossiblePercent, carried(r))
		}
		line("      %.1f %% of the %g Mbit/s link of %s%s", *r.LineRatePercent, float64(*r.LinkMbps), r.Port, possible)
	} else if r.Error == "" {
		line("      link speed unknown: no percent")
	}
	if text := cpuText(r.CPU, r.Seconds); text != "" {
		line("      CPU %s", text)
	}
	if len(r.SharedWith) > 0 && r.PortBPS != nil {
		line("      shared the port with %s: %s in all", strings.Join(r.SharedWith, ", "), rateText(*r.PortBPS))
	}
	for _, code := range r.Findings {
		line("      finding: %s (`linerate doctor` says more)", code)
	}
	if r.ExpectBPS != nil && r.Pass != nil {
		verdict := "FAIL"
		if *r.Pass {
			verdict = "PASS"
		}
		line("%s: %s, expected %s", verdict, rateText(r.BPS), rateText(*r.ExpectBPS))
	}
	if !r.Valid && r.Error == "" {
		line("not valid")
	}
	return b.String()
}

// carried names what the possible rate is computed from.
func carried(r results.Record) string {
	if r.Protocol == throughput.UDP {
		return fmt.Sprintf("datagrams of %d bytes over IPv%d", r.BlockBytes, r.Family)
	}
	mss := 0
	if r.MSS != nil {
		mss = *r.MSS
	}
	return fmt.Sprintf("segments of %d bytes over IPv%d", mss, r.Family)
}

func cpuText(c throughput.CPU, seconds float64) string {
	var parts []string
	if c.UserS != nil && c.SystemS != nil && seconds > 0 {
		parts = append(parts, fmt.Sprintf("of the box: %.1f %% of one core (%.2f s user + %.2f s system)",
			100*(*c.UserS+*c.SystemS)/seconds, *c.UserS, *c.SystemS))
	}
	if c.BusiestCorePercent != nil {
		parts = append(parts, fmt.Sprintf("busiest core %.0f %%", *c.BusiestCorePercent))
	}
	if c.PeerPercent != nil {
		parts = append(parts, fmt.Sprintf("peer %.1f %%", *c.PeerPercent))
	}
	return strings.Join(parts, ", ")
}
