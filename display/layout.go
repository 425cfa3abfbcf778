package display

import (
	"image"
	"time"

	"linerate/appliance"
)

// How long each of the things that share a place is shown. One that itself is shown in pieces stays until all of them
// have been.
const (
	pieceEvery = 3 * time.Second // parts of one text
	sheetEvery = 6 * time.Second // pages of lines
)

// screen is a page while it is drawn: a canvas, the State, and how far down it is filled.
type screen struct {
	*canvas
	s appliance.State

	w, h  int
	cols  int // characters of the small face across
	pitch int // from one line of text to the next
	tall  bool
	low   bool // four lines at best
	top   int  // first row of pixels below what is drawn
	foot  int  // first row of pixels that is taken at the bottom

	clock time.Duration // since the page was opened, or since what is drawn now got its turn
}

// Left and right of every text one column stays free.
const margin = 1

func newScreen(s appliance.State, size image.Point) *screen {
	v := &screen{
		canvas: newCanvas(size, size.Y <= monoHeight), s: s, w: size.X, h: size.Y,
		cols: fits(small, size.X-2*margin), tall: size.Y >= 96, low: size.Y < 48, foot: size.Y,
	}
	switch {
	case v.tall:
		v.pitch = 10
	case v.low:
		v.pitch = 8
	default:
		v.pitch = 9
	}
	since := s.View.Opened
	if since.IsZero() {
		since = s.Started
	}
	if !since.IsZero() {
		v.clock = max(0, s.Now.Sub(since))
	}
	return v
}

// turn says which of n pieces is to be shown now; what is new begins with the first.
func (v *screen) turn(n int) int { return int(v.clock/pieceEvery) % max(1, n) }

// inTurn draws the one of several things whose turn it is. Each has a time of its own, in which the clock runs from zero.
func (v *screen) inTurn(times []time.Duration, draw func(i int)) {
	clock, sum := v.clock, time.Duration(0)
	for _, t := range times {
		sum += t
	}
	if len(times) == 0 || sum <= 0 {
		return
	}
	v.clock %= sum
	i := 0
	for v.clock >= times[i] {
		v.clock -= times[i]
		i++
	}
	draw(i)
	v.clock = clock
}

// title draws the bar at the top: what is shown at the left, something short about it at the right.
func (v *screen) title(left, right string, i ink) {
	height := 9
	switch {
	case v.tall:
		height = 12
	case v.low:
		height = 8
	}
	v.fill(image.Rect(0, 0, v.w, height), i)
	at := (height - 7) / 2
	if v.low {
		at = 0
	}
	right = cut(right, v.cols/2)
	room := v.cols
	if right != "" {
		room -= count(right) + 1
		v.textRight(small, v.w-margin, at, right, black)
	}
	list := pieces(left, room)
	v.text(small, margin, at, list[v.turn(len(list))], black)
	v.top = height + 1
	switch {
	case v.tall:
		v.top = height + 3
	case v.low:
		v.top = height
	}
}

// titleWhereRoom leaves the bar out where a list needs its lines more.
func (v *screen) titleWhereRoom(left string) {
	if !v.low {
		v.title(left, "", accent)
	}
}

// total is the height of all lines; the space below the last one need not be there.
func (v *screen) total(lines []line) int {
	sum := -(v.pitch - 8)
	for _, l := range lines {
		sum += v.height(l)
	}
	return sum
}

// stack draws lines from the top down to bottom. Where they do not fit, the last place is shared in turn.
func (v *screen) stack(lines []line, bottom int) {
	fit := v.fitting(lines, bottom)
	if fit == len(lines) || fit == 0 {
		v.all(lines, bottom)
		return
	}
	v.all(lines[:fit-1], bottom)
	rest := lines[fit-1:]
	times := make([]time.Duration, len(rest))
	for i, l := range rest {
		times[i] = v.long(l)
	}
	v.inTurn(times, func(i int) { v.all(rest[i:i+1], bottom) })
}

// sheets draws lines from the top down to bottom. Where they do not fit, sheets of them are turned over; it returns
// which one of how many is shown, from 0.
func (v *screen) sheets(lines []line, bottom int) (sheet, of int) {
	var list [][]line
	var times []time.Duration
	for len(lines) > 0 {
		n := max(1, v.fitting(lines, bottom))
		t := sheetEvery
		for _, l := range lines[:n] {
			t = max(t, v.long(l))
		}
		list, times = append(list, lines[:n]), append(times, t)
		lines = lines[n:]
	}
	v.inTurn(times, func(i int) {
		sheet = i
		v.all(list[i], bottom)
	})
	return sheet, len(list)
}

// fitting is how many of the lines, from the first on, have room above bottom.
func (v *screen) fitting(lines []line, bottom int) int {
	n := 0
	for n < len(lines) && v.top+v.total(lines[:n+1]) <= bottom {
		n++
	}
	return n
}

func (v *screen) all(lines []line, bottom int) {
	for _, l := range lines {
		if v.top+8 > bottom {
			return
		}
		v.draw(l, v.top, v.w)
		v.top += v.height(l)
	}
}

// paragraph is a text wrapped into lines.
func (v *screen) paragraph(text string, i ink) []line {
	var list []line
	for _, t := range wrap(text, v.cols) {
		list = append(list, line{left: t, leftInk: i})
	}
	return list
}

// menu draws list items with the cursor down to the bottom of the page, as many around the cursor as fit, and a bar
// that shows where in a long list one is.
func (v *screen) menu(items []appliance.Item, cursor int) {
	// The bar of the chosen line begins one row above its text.
	if !v.low {
		v.top++
	}
	// Large letters where that leaves enough lines.
	pitch, face := v.pitch, small
	if v.tall && v.h-v.top >= 3*medium.Height {
		pitch, face = medium.Height+1, medium
	}
	n := len(items)
	rows := max(1, (v.h-v.top+pitch-face.Ascent-face.Descent)/pitch)
	cursor = max(0, min(cursor, n-1))
	first := max(0, min(cursor-rows/2, n-rows))
	right := v.w
	if n > rows {
		right -= 4
		v.scrollbar(v.top-1, first, rows, n)
	}
	for i := first; i < min(n, first+rows); i++ {
		l := line{left: items[i].Label, right: items[i].Value, leftInk: white, rightInk: dim}
		l.medium, l.chosen = face == medium, i == cursor
		if i != cursor { // only what is chosen is read in full; the others keep still
			room := fits(face, right-2*margin)
			if count(l.left)+1+count(l.right) > room && l.right != "" {
				l.right = cut(l.right, max(room/2, room-count(l.left)-1))
				l.left = cut(l.left, room-count(l.right)-1)
			}
			l.left = cut(l.left, room)
		}
		v.draw(l, v.top, right)
		v.top += pitch
	}
}

// scrollbar shows at the right edge, from top down, which rows of n are seen.
func (v *screen) scrollbar(top, first, rows, n int) {
	track := image.Rect(v.w-2, top, v.w, v.h)
	for y := track.Min.Y; y < track.Max.Y; y++ {
		if !v.mono || y%3 == 0 {
			v.set(v.w-1, y, faint)
		}
	}
	long := track.Dy()
	track.Min.Y, track.Max.Y = top+first*long/n, top+(first+rows)*long/n
	v.fill(track, accent)
}
