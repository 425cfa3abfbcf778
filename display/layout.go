package display

import (
	"image"
	"time"

	"linerate/appliance"
)

// How long each of the things is shown that share a place in turn. The three go on inside one another, so they have no
// common factor: each combination comes up.
const (
	pieceEvery = 3 * time.Second // parts of one text
	lineEvery  = 5 * time.Second // lines
	sheetEvery = 7 * time.Second // pages of lines
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
	return v
}

// turn says which of n things is to be shown now, each so long; a page that is opened begins with the first.
func (v *screen) turn(n int, each time.Duration) int {
	if n < 2 {
		return 0
	}
	since := v.s.View.Opened
	if since.IsZero() {
		since = v.s.Started
	}
	if since.IsZero() || v.s.Now.Before(since) {
		return 0
	}
	return int(v.s.Now.Sub(since)/each) % n
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
	v.text(small, margin, at, list[v.turn(len(list), pieceEvery)], black)
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

// line is one line of a page: a text at the left and another at the right.
type line struct {
	badge       string // RX or TX, before the left text, in a box
	quiet       bool   // the badge has no box
	left, right string
	leftInk     ink // zero: dim with something at the right, else white
	rightInk    ink // zero: white
	medium      bool
	chosen      bool // in a list: where the cursor is
}

// height in pixels, the space to the next line included.
func (v *screen) height(l line) int {
	if l.medium {
		return medium.Height + 1
	}
	return v.pitch
}

// draw puts a line at y into the columns before x. What has no room is shown piece by piece.
func (v *screen) draw(l line, y, x int) {
	face, room := small, fits(small, x-2*margin)
	if l.medium {
		face, room = medium, fits(medium, x-2*margin)
	}
	if l.leftInk == black {
		l.leftInk = white
		if l.right != "" && !l.medium {
			l.leftInk = dim
		}
	}
	if l.rightInk == black {
		l.rightInk = white
	}
	if l.chosen {
		top := y - min(1, v.pitch-8) // without a row to spare the descenders need it
		v.fill(image.Rect(0, top, x, top+v.height(l)), accent)
		l.leftInk, l.rightInk = black, black
	}
	start := margin
	if l.badge != "" {
		letters := l.leftInk
		if !l.quiet {
			box := image.Rect(0, y-min(1, v.pitch-8), width(face, count(l.badge))+2*margin, y+face.Ascent)
			if l.medium { // its cells have more air
				box = box.Add(image.Pt(0, 2))
				box.Max.Y--
			}
			v.fill(box, accent)
			letters = black
		}
		v.text(face, margin, y, l.badge, letters)
		start, room = margin+(count(l.badge)+1)*face.Advance, room-count(l.badge)-1
	}
	left, right := l.left, l.right
	switch nl, nr := count(left), count(right); {
	case left == "" || right == "" || nl+1+nr <= room:
	case nr <= room/2:
		left = v.piece(left, room-nr-1)
	case nl <= room/2:
		right = v.piece(right, room-nl-1)
	default:
		left, right = left+" "+right, ""
	}
	v.text(face, start, y, v.piece(left, room), l.leftInk)
	v.textRight(face, x-margin, y, v.piece(right, room), l.rightInk)
}

// piece is the part of a text of which only n characters have room that is shown now.
func (v *screen) piece(text string, n int) string {
	list := pieces(text, n)
	return list[v.turn(len(list), pieceEvery)]
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
	if fit < len(lines) && fit > 0 {
		rest := lines[fit-1:]
		lines = append(lines[:fit-1:fit-1], rest[v.turn(len(rest), lineEvery)])
	}
	v.all(lines, bottom)
}

// sheets draws lines from the top down to bottom. Where they do not fit, sheets of them are turned over; it returns which
// one of how many is shown.
func (v *screen) sheets(lines []line, bottom int) (sheet, of int) {
	var list [][]line
	for len(lines) > 0 {
		n := max(1, v.fitting(lines, bottom))
		list = append(list, lines[:n])
		lines = lines[n:]
	}
	if len(list) == 0 {
		return 0, 0
	}
	sheet = v.turn(len(list), sheetEvery)
	v.all(list[sheet], bottom)
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

// menu draws list items with the cursor down to the bottom of the page, as many around the cursor as fit, and a bar that
// shows where in a long list one is.
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
		l := line{
			left: items[i].Label, right: items[i].Value, leftInk: white, rightInk: dim, medium: face == medium, chosen: i == cursor,
		}
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
