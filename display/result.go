package display

import (
	"fmt"
	"slices"
	"strings"

	"linerate/appliance"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// rated is one direction of a result.
type rated struct {
	direction      string // RX | TX
	bps            float64
	possible, line *float64 // percent; nil: unknown, or it is the other direction's
	record         results.Record
}

// ratesOf takes the results of a run, newest first, apart into directions: RX before TX, then as they ran.
func ratesOf(run []results.Record) []rated {
	var list []rated
	for _, r := range slices.Backward(run) {
		rx := rated{direction: "RX", bps: r.BPS, possible: r.PossiblePercent, line: r.LineRatePercent, record: r}
		tx := rx
		tx.direction = "TX"
		if r.RXBPS != nil {
			rx.bps = *r.RXBPS
		}
		if r.TXBPS != nil {
			tx.bps = *r.TXBPS
		}
		switch r.Direction {
		case throughput.RX:
			list = append(list, rx)
		case throughput.TX:
			list = append(list, tx)
		default: // the percentages are those of the weaker direction
			if rx.bps <= tx.bps {
				tx.possible, tx.line = nil, nil
			} else {
				rx.possible, rx.line = nil, nil
			}
			list = append(list, rx, tx)
		}
	}
	slices.SortStableFunc(list, func(a, b rated) int { return strings.Compare(a.direction, b.direction) })
	return list
}

// rate is the rate as text, "failed" where the test has none to show.
func (r rated) rate() string {
	if r.bps == 0 && (r.record.Error != "" || !r.record.Valid) {
		return "failed"
	}
	return rate(r.bps)
}

// mark says in one sign whether the result is as it should be; "" where nothing was expected of it.
func (r rated) mark() (sign string, i ink) {
	switch v, _ := verdict(r.record); v {
	case "PASS":
		return "✓", good
	case "":
		return "", white
	}
	return "✗", bad
}

// verdict is what to think of a result, in a word; "" where it is just a result.
func verdict(r results.Record) (word string, i ink) {
	switch {
	case !r.Valid && r.BPS == 0:
		return "FAILED", bad
	case !r.Valid:
		return "NOT VALID", bad
	case r.Pass != nil && *r.Pass:
		return "PASS", good
	case r.Pass != nil:
		return "FAIL", bad
	}
	return "", accent
}

// result shows the run that the shown result belongs to, and the details of this one.
func (v *screen) result() {
	i := slices.IndexFunc(v.s.Results, func(r results.Record) bool { return r.ID == v.s.View.Shown })
	if i < 0 {
		i = 0
	}
	if len(v.s.Results) == 0 {
		v.note("Result", "No test has run yet.", accent)
		return
	}
	r := v.s.Results[i]
	word, bar := verdict(r)
	v.title(fmt.Sprintf("Result %d/%d", i+1, len(v.s.Results)), word, bar)

	var lines []line
	rates := ratesOf(v.runOf(i)) // the badge of the one whose details follow has a box
	if len(rates) > 2 {          // a run of many tests, as a bench has: this one alone
		rates = ratesOf([]results.Record{r})
	}
	head := line{left: nameOf(r), leftInk: white}
	if head.left != string(r.Peer) && r.Peer != "" {
		head = line{left: head.left, right: string(r.Peer), leftInk: white, rightInk: dim}
	}
	lines = append(lines, head)
	if slices.ContainsFunc(rates, func(r rated) bool { return r.possible != nil }) && !v.low {
		lines = append(lines, line{right: longest(v.cols-4, "of possible  line", "of possible"), rightInk: dim})
	}
	for _, x := range rates {
		l := line{badge: x.direction, quiet: x.record.ID != r.ID, left: x.rate(), leftInk: white, right: v.percents(x)}
		_, l.rightInk = x.mark()
		lines = append(lines, l)
	}
	lines = append(lines, v.resultDetails(r)...)
	v.stack(lines, v.h)
}

// percents are what was reached of the possible and, where there is room, of the line.
func (v *screen) percents(r rated) string {
	if r.possible == nil || v.cols < 21 {
		return percent(r.possible)
	}
	return percent(r.possible) + " " + percent(r.line)
}

// nameOf is whom the test was with.
func nameOf(r results.Record) string {
	for _, name := range []throughput.Text{r.Target, r.PeerName, r.Peer} {
		if name != "" {
			return string(name)
		}
	}
	return "unknown peer"
}

// resultDetails are what else there is to say, the most important first.
func (v *screen) resultDetails(r results.Record) []line {
	var lines []line
	if r.Error != "" {
		lines = append(lines, v.paragraph(string(r.Error), bad)...)
	}
	for _, code := range r.Findings {
		lines = append(lines, v.findingLine(code))
	}
	if r.ExpectBPS != nil {
		lines = append(lines, line{left: "expected", right: rate(*r.ExpectBPS)})
	}
	if r.Retransmits != nil || r.RTTMS != nil {
		lines = append(lines, trouble(r.Retransmits, r.RTTMS))
	}
	if r.Protocol == throughput.UDP && r.Lost != nil && r.Packets != nil && *r.Packets > 0 {
		share := 100 * float64(*r.Lost) / float64(*r.Packets)
		lines = append(lines, line{left: "lost", right: thousands(*r.Lost) + " = " + percent(&share)})
		if r.JitterMS != nil {
			lines = append(lines, line{left: "jitter", right: milliseconds(*r.JitterMS)})
		}
	}
	lines = append(lines, line{
		left:  fmt.Sprintf("%s ×%d", strings.ToUpper(string(r.Protocol)), max(1, r.Streams)),
		right: seconds(r.Seconds+0.5) + " s",
	})
	if len(r.SharedWith) > 0 && r.PortBPS != nil {
		lines = append(lines, line{left: "port in all", right: rate(*r.PortBPS)})
	}
	if r.LinkMbps != nil {
		p := appliance.Port{Link: appliance.LinkUp, SpeedMbps: r.LinkMbps, Duplex: string(r.Duplex)}
		link, i := linkOf(p)
		lines = append(lines, line{left: v.labelOf(string(r.Port)), right: link, rightInk: i})
	}
	if r.CPU.BusiestCorePercent != nil {
		lines = append(lines, line{left: "busiest core", right: fmt.Sprintf("%.0f%%", *r.CPU.BusiestCorePercent)})
	}
	if age := v.age(r); age != "" {
		lines = append(lines, line{left: "ended", right: span(v.s.Now.Sub(r.Time)) + " ago"})
	}
	return lines
}

// trouble is a line of retransmits and round-trip time.
func trouble(retransmits *int64, rtt *float64) line {
	var l line
	if retransmits != nil {
		l.left, l.leftInk = "retr "+thousands(*retransmits), white
	}
	if rtt != nil {
		l.right, l.rightInk = "RTT "+milliseconds(*rtt), white
	}
	return l
}

// findingLine is the title of a finding where the doctor still has it, else its code.
func (v *screen) findingLine(code string) line {
	for _, f := range v.s.Findings {
		if f.Code == code {
			return line{left: f.Title, leftInk: warn}
		}
	}
	return line{left: code, leftInk: warn}
}

// labelOf is what a person calls an interface.
func (v *screen) labelOf(name string) string {
	for _, p := range v.s.Ports {
		if p.Name == name {
			return p.Label()
		}
	}
	return name
}
