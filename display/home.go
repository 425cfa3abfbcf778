package display

import (
	"fmt"
	"image"
	"slices"
	"strings"

	"linerate/appliance"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// boot shows that the box comes up: what it is, and how far each port has come.
func (v *screen) boot() {
	s := v.s
	var lines []line
	for _, p := range s.Ports {
		lines = append(lines, v.bootLines(p)...)
	}
	if len(s.Ports) == 0 {
		lines = v.paragraph("Looking for Ethernet ports"+ellipsis, white)
	}
	v.title("Linerate", s.Version, accent)
	if host := (line{left: s.Name, leftInk: white}); v.fitting(append([]line{host}, lines...), v.h) > len(lines) {
		v.all([]line{host}, v.h)
	} else if s.Name != "" {
		v.title([]string{"Linerate", s.Name}[v.turn(2)], s.Version, accent)
	}
	v.sheets(lines, v.h)
}

// bootLines says of a port what it has and what it waits for, as one sentence.
func (v *screen) bootLines(p appliance.Port) []line {
	if p.Link != appliance.LinkUp {
		return v.portLines(p)
	}
	link := p.Speed()
	if link == "" {
		link = "link"
	}
	if p.Duplex == appliance.DuplexHalf {
		link += " HALF"
	}
	state, i := v.addressOf(p)[0], warn
	if p.Address() != "" {
		i = white
	}
	// In one line where it fits, else the label, and the sentence wrapped at the right.
	if sentence := link + ", " + state; count(p.Label())+1+count(sentence) <= v.cols {
		return []line{{left: p.Label(), right: sentence, leftInk: white, rightInk: i}}
	}
	if p.Address() != "" {
		return v.portLines(p)
	}
	var lines []line
	for j, t := range wrap(p.Label()+" "+link+", "+state, v.cols) {
		if j > 0 {
			lines = append(lines, line{right: t, rightInk: i})
			continue
		}
		lines = append(lines, line{left: p.Label(), right: strings.TrimPrefix(t, p.Label()+" "), leftInk: white, rightInk: i})
	}
	return lines
}

// home shows all ports, the last run, and whatever needs a person.
func (v *screen) home() {
	bottom := v.h
	alerts := v.alerts()
	switch {
	case len(alerts) == 0 && v.low: // the lines are worth more than a title
	case len(alerts) == 0:
		v.title(v.s.Name, v.homeCorner(), accent)
	case v.tall:
		v.title(v.s.Name, v.homeCorner(), accent)
		v.alertBar(alerts, image.Rect(0, v.h-11, v.w, v.h), v.h-9)
		bottom -= 14
	default: // in place of the title
		v.title("", "", accent)
		v.alertBar(alerts, image.Rect(0, 0, v.w, min(9, v.pitch)), min(9, v.pitch)-8)
	}
	last := v.lastRun()
	for i := range last {
		last[i].medium = v.tall
	}
	if v.low && len(last) > 0 {
		last = last[v.turn(len(last)):][:1]
	}
	if len(last) > 0 {
		top := v.top
		v.top = bottom - v.total(last)
		if !v.tall { // on the grid that the lines above stand on
			v.top = bottom - (bottom-top+v.pitch-8)%v.pitch - v.total(last)
		}
		bottom = v.top - min(1, v.pitch-8)
		v.all(last, v.h)
		v.top = top
	}
	if len(v.s.Ports) == 0 {
		v.stack(v.paragraph("No Ethernet port found.", white), bottom)
		return
	}
	v.homePorts(bottom)
}

// homePorts gives each port as many lines as it needs; where there is no room for all, ports go back to two lines or
// one in which the address takes turns with something else, the last port first.
func (v *screen) homePorts(bottom int) {
	blocks := make([][]line, len(v.s.Ports))
	for i, p := range v.s.Ports {
		blocks[i] = v.portLines(p)
	}
	flat := func() []line { return slices.Concat(blocks...) }
	for i := len(blocks) - 1; i >= 0; i-- {
		for _, fewer := range []func(appliance.Port) []line{v.portTwo, v.portOne} {
			if v.top+v.total(flat()) > bottom {
				blocks[i] = fewer(v.s.Ports[i])
			}
		}
	}
	v.sheets(flat(), bottom)
}

// homeCorner is the right end of the title: the TCP port where a client must type it, else the temperature.
func (v *screen) homeCorner() string {
	if at := v.s.ServesAt(""); v.s.Config.Server.Enable && at != "" {
		return at
	}
	if t := v.s.Health.TemperatureC; t != nil {
		return fmt.Sprintf("%.0f°C", *t)
	}
	return ""
}

// alert is something that needs a person.
type alert struct {
	text string
	ink  ink
}

func (v *screen) alerts() []alert {
	s := v.s
	var list []alert
	if c := s.NetworkChange; c != nil {
		list = append(list, alert{"confirm network " + span(c.Until.Sub(s.Now)), warn})
	}
	if !s.ConfigState.Valid {
		list = append(list, alert{"config not used", bad})
	}
	for _, f := range s.Faults {
		list = append(list, alert{f.Task + ": " + f.Title, bad})
	}
	if waiting := s.Waiting(); len(waiting) == 1 {
		list = append(list, alert{waiting[0].Peer + " waits", warn})
	} else if len(waiting) > 1 {
		list = append(list, alert{many(len(waiting), "client") + " wait", warn})
	}
	for _, f := range s.Findings {
		if f.Severity == appliance.Grave && !f.Done {
			list = append(list, alert{strings.TrimSpace(f.Port + " " + f.Title), bad})
		}
	}
	return list
}

// alertBar shows the alerts in turn, long ones in pieces, as a bar with its text at y.
func (v *screen) alertBar(alerts []alert, bar image.Rectangle, y int) {
	var parts []alert
	for _, a := range alerts {
		for _, t := range pieces(a.text, v.cols-2) {
			parts = append(parts, alert{t, a.ink})
		}
	}
	a := parts[v.turn(len(parts))]
	v.fill(bar, a.ink)
	v.text(small, margin, y, "⚠ "+a.text, black)
}

// lastRun are the lines at the foot of the home page: what runs now, else the run that ended last.
func (v *screen) lastRun() []line {
	if tests := v.s.Active(); len(tests) > 0 {
		return v.runningNow(tests)
	}
	run := v.runOf(0)
	if len(run) == 0 {
		return nil
	}
	var lines []line
	for _, r := range ratesOf(run) {
		l := line{badge: r.direction, left: r.rate(), leftInk: white}
		if p := percent(r.possible); p != "" {
			l.left += " " + p
		}
		l.right, l.rightInk = r.mark()
		lines = append(lines, l)
	}
	// The age belongs to the run, so it stands once.
	if age := v.age(run[0]); lines[0].right == "" {
		lines[0].right, lines[0].rightInk = age, dim
	} else if age != "" {
		lines[0].right += " " + age
	}
	return lines
}

// runningNow shows what the tests carry together, in the directions they have.
func (v *screen) runningNow(tests []*appliance.Test) []line {
	var rx, tx float64
	directions := map[throughput.Direction]bool{}
	for _, t := range tests {
		rx, tx = rx+t.RXBPS, tx+t.TXBPS
		directions[t.Direction] = true
	}
	right := many(len(tests), "test")
	if len(tests) == 1 {
		right = elapsed(tests[0])
	}
	var lines []line
	if !directions[throughput.TX] || len(directions) > 1 {
		lines = append(lines, line{badge: "RX", left: rate(rx), leftInk: white})
	}
	if !directions[throughput.RX] || len(directions) > 1 {
		lines = append(lines, line{badge: "TX", left: rate(tx), leftInk: white})
	}
	lines[0].right = "▸ " + right
	return lines
}

// elapsed is how long a test has run, and of how many seconds where that is known.
func elapsed(t *appliance.Test) string {
	if t.Seconds > 0 {
		return seconds(min(t.ElapsedS, t.Seconds)) + "/" + seconds(t.Seconds) + " s"
	}
	return seconds(t.ElapsedS) + " s"
}

// runOf are the results of the run that the result i belongs to, newest first.
func (v *screen) runOf(i int) []results.Record {
	if i >= len(v.s.Results) {
		return nil
	}
	of := v.s.Results[i]
	var list []results.Record
	for _, r := range v.s.Results {
		if r.ID == of.ID || of.Run != "" && r.Run == of.Run {
			list = append(list, r)
		}
	}
	return list
}

// age is how long ago a result was stored; "" unless both times can be trusted.
func (v *screen) age(r results.Record) string {
	if r.Clock != results.Synced || v.s.Clock != results.Synced || r.Time.After(v.s.Now) {
		return ""
	}
	return ago(v.s.Now.Sub(r.Time))
}
