package display

import (
	"fmt"
	"image"
	"slices"
	"strings"

	"linerate/appliance"
	"linerate/appliance/throughput"
)

// test is the page of a running test, or the one from which a test is started.
func (v *screen) test() {
	t := v.s.ShownTest()
	switch v.s.View.Ask {
	case appliance.AskCancel:
		v.ask("End this test?")
	case appliance.AskStart:
		v.ask("Clients test now.", "Start all the same?")
	}
	switch {
	case t != nil:
		v.running(t)
	default:
		v.ready()
	}
}

// ask puts a question at the foot of the page.
func (v *screen) ask(question ...string) {
	lines := append(question, longest(v.cols, "select: yes  else: no", "select = yes"))
	if v.low {
		lines = lines[len(question)-1:]
	}
	top := v.h - len(lines)*v.pitch - (v.pitch - 8)
	v.foot = top - (v.pitch - 8)
	v.fill(image.Rect(0, top, v.w, v.h), warn)
	y := v.h - len(lines)*v.pitch + (v.pitch-8+1)/2
	for _, l := range lines {
		v.text(small, margin, y, cut(l, v.cols), black)
		y += v.pitch
	}
}

// ready shows what a press would start, or what is being prepared.
func (v *screen) ready() {
	s := v.s
	items := s.Items()
	target, known := s.Chosen()
	var lines []line
	switch {
	case s.View.Seeking:
		lines = []line{{left: "Looking for a server", leftInk: white}}
		if asked := s.Candidates(); len(asked) > 0 {
			at := asked[v.turn(len(asked))].Host
			lines = append(lines, line{left: at, leftInk: dim})
		}
	case s.Request != nil:
		name := target.Name
		if len(s.Request.Specs) > 0 {
			name = s.Request.Specs[0].Target
			if name == "" {
				name = s.Request.Specs[0].Host
			}
		}
		lines = []line{{left: "Connecting to", leftInk: white}, {left: name, leftInk: white}}
	case !known:
		lines = v.paragraph(s.NoTarget(), white)
	default:
		lines = []line{{left: target.Name, leftInk: white}}
		if target.Host != target.Name {
			lines[0] = line{left: target.Name, right: target.Host, leftInk: white, rightInk: dim}
		}
		lines = append(lines, line{left: v.plan(), leftInk: dim})
	}
	v.titleWhereRoom("Test")
	// The list needs two lines to be one; the text may have the others.
	room := max(v.h-len(items)*v.pitch-2, min(v.top+v.total(lines), v.h-2*v.pitch-2))
	if v.low {
		room = v.top + v.pitch
	}
	v.stack(lines, room)
	if !v.low {
		v.top = max(v.top, room)
	}
	v.menu(items, s.View.Cursor)
}

// plan is what a press starts: "RX TX 10 s TCP ×4".
func (v *screen) plan() string {
	c := v.s.Config.Test
	var words []string
	for _, d := range c.Directions {
		words = append(words, direction(d))
	}
	words = append(words, fmt.Sprintf("%d s", c.Seconds), strings.ToUpper(string(c.Protocol)))
	if c.Streams > 1 {
		words = append(words, fmt.Sprintf("×%d", c.Streams))
	}
	return strings.Join(words, " ")
}

// direction as screens write it.
func direction(d throughput.Direction) string {
	switch d {
	case throughput.RX:
		return "RX"
	case throughput.TX:
		return "TX"
	}
	return "RX+TX"
}

// running shows a test while its payload flows.
func (v *screen) running(t *appliance.Test) {
	number, unit := threeDigits(t.BPS)
	unit = map[string]string{"": "bit/s", "K": "kbit/s", "M": "Mbit/s", "G": "Gbit/s", "T": "Tbit/s"}[unit]
	head := direction(t.Direction)
	if label := v.labelOf(t.Port); label != "" {
		head += " " + label
	}
	corner := elapsed(t)
	if t.Cancelled {
		corner = "ending" + ellipsis
	}
	switch {
	case v.low:
		v.runningLow(t, number, unit, head, corner)
	case v.tall:
		v.title(head, corner, accent)
		v.runningTall(t, number, unit)
	default:
		v.title(head, corner, accent)
		v.runningMono(t, number, unit)
	}
	v.stack(v.runningDetails(t), v.foot)
}

// runningLow has room for the number and one line that takes turns.
func (v *screen) runningLow(t *appliance.Test, number, unit, head, corner string) {
	x := v.digits(margin, 0, number, 1, white)
	right := fits(small, v.w-margin-x-2)
	v.textRight(small, v.w-margin, 0, cut(head, right), white)
	v.textRight(small, v.w-margin, 8, cut(longest(right, unit+" "+corner, corner), right), white)
	v.top = 18
	if t.Seconds > 0 && v.foot == v.h {
		v.progress(image.Rect(0, v.top, v.w, v.top+3), t.ElapsedS/t.Seconds, accent)
		v.top += 5
	}
}

func (v *screen) runningMono(t *appliance.Test, number, unit string) {
	y := v.top + 1
	x := v.digits(margin, y, number, 1, white)
	if t.Direction == throughput.Both {
		v.text(small, x+1, y+9, unit[:1], white)
		v.textRight(small, v.w-margin, y, "RX "+rate(t.RXBPS), white)
		v.textRight(small, v.w-margin, y+9, "TX "+rate(t.TXBPS), white)
	} else {
		x = v.text(small, x+1, y+9, unit, white)
		if r := image.Rect(x+3, y, v.w-margin, y+16); r.Dx() >= 20 {
			v.graph(r, t.Points, accent)
		}
	}
	v.top = y + 18
	if t.Seconds > 0 {
		v.progress(image.Rect(0, v.top, v.w, v.top+4), t.ElapsedS/t.Seconds, accent)
		v.top += 6
	} else {
		v.top++
	}
	// The lines stand on the grid of all pages.
	for (v.top-10)%9 != 0 {
		v.top++
	}
}

func (v *screen) runningTall(t *appliance.Test, number, unit string) {
	y := v.top + 1
	scale := 2
	if digitsWidth(number, scale)+4+width(small, len(unit)) > v.w-2*margin {
		scale = 1
	}
	x := v.digits(margin, y, number, scale, white)
	v.text(small, x+1, y+16*scale-7, unit, dim)
	v.top = y + 16*scale + 4
	if t.Direction == throughput.Both {
		v.all([]line{{left: "RX " + rate(t.RXBPS), right: "TX " + rate(t.TXBPS), leftInk: white}}, v.h)
	}
	v.graph(image.Rect(margin, v.top, v.w-margin, v.top+20), t.Points, accent)
	v.top += 23
	if t.Seconds > 0 {
		v.progress(image.Rect(margin, v.top, v.w-margin, v.top+5), t.ElapsedS/t.Seconds, accent)
		v.top += 8
	}
}

// runningDetails are the lines below the number, the most important first.
func (v *screen) runningDetails(t *appliance.Test) []line {
	who := line{left: t.Peer, leftInk: white}
	if t.Target != "" && t.Target != t.Peer {
		who = line{left: t.Target, right: t.Peer, leftInk: white, rightInk: dim}
	}
	lines := []line{who}
	if t.Retransmits != nil || t.RTTMS != nil {
		lines = append(lines, trouble(t.Retransmits, t.RTTMS))
	}
	if which := v.whichOf(t); which != "" {
		l := line{left: which, leftInk: dim}
		if total, n := v.onPort(t.Port); n > 1 {
			l.right = v.labelOf(t.Port) + " " + rate(total)
		}
		lines = append(lines, l)
	}
	for i, w := range v.s.Waiting() {
		if i == 2 {
			lines = append(lines, line{left: fmt.Sprintf("%d more wait", len(v.s.Waiting())-2), leftInk: warn})
			break
		}
		lines = append(lines, line{left: w.Peer, right: "waits", leftInk: warn, rightInk: warn})
	}
	streams := many(max(1, t.Streams), "stream")
	return append(lines, line{left: strings.ToUpper(string(t.Protocol)), right: streams, rightInk: dim})
}

// whichOf is which of how many tests this one is; "" where it is the only one.
func (v *screen) whichOf(t *appliance.Test) string {
	active := v.s.Active()
	if i := slices.IndexFunc(active, func(o *appliance.Test) bool { return o.ID == t.ID }); i >= 0 && len(active) > 1 {
		return fmt.Sprintf("%d of %d", i+1, len(active))
	}
	return ""
}

// onPort adds up what the tests on a port carry.
func (v *screen) onPort(port string) (bps float64, tests int) {
	for _, t := range v.s.Active() {
		if t.Port == port {
			bps += t.BPS
			tests++
		}
	}
	return bps, tests
}
