package display

import (
	"image"
	"time"

	"golang.org/x/image/font/basicfont"
)

// line is one line of a page: a text at the left and another at the right.
type line struct {
	badge       string // RX or TX, before the left text, in a box
	quiet       bool   // the badge has no box
	left, right string
	turns       []string // in place of right: texts that take turns, each with room beside left
	leftInk     ink      // zero: dim with something at the right, else white
	rightInk    ink      // zero: white
	medium      bool
	chosen      bool // in a list: where the cursor is
}

func (l line) face() *basicfont.Face {
	if l.medium {
		return medium
	}
	return small
}

// height in pixels, the space to the next line included.
func (v *screen) height(l line) int {
	if l.medium {
		return medium.Height + 1
	}
	return v.pitch
}

// parts are the pieces in which the texts of a line are shown in turn, on the columns before x.
func (l line) parts(x int) (left, right []string) {
	room := fits(l.face(), x-2*margin)
	if l.badge != "" {
		room -= count(l.badge) + 1
	}
	if len(l.turns) > 0 {
		return pieces(l.left, room), l.turns
	}
	switch nl, nr := count(l.left), count(l.right); {
	case nl == 0 || nr == 0 || nl+1+nr <= room:
		return pieces(l.left, room), pieces(l.right, room)
	case nr <= room/2:
		return pieces(l.left, room-nr-1), []string{l.right}
	case nl <= room/2:
		return []string{l.left}, pieces(l.right, room-nl-1)
	}
	return pieces(l.left+" "+l.right, room), []string{""}
}

// long is how long it takes to show all of a line.
func (v *screen) long(l line) time.Duration {
	left, right := l.parts(v.w)
	return time.Duration(max(len(left), len(right))) * pieceEvery
}

// draw puts a line at y into the columns before x.
func (v *screen) draw(l line, y, x int) {
	if l.leftInk == black {
		l.leftInk = white
		if l.right != "" && !l.medium {
			l.leftInk = dim
		}
	}
	if l.rightInk == black {
		l.rightInk = white
	}
	above := min(1, v.pitch-8) // without a row to spare the descenders of the line above need it
	if l.chosen {
		v.fill(image.Rect(0, y-above, x, y-above+v.height(l)), accent)
		l.leftInk, l.rightInk = black, black
	}
	face, start := l.face(), margin
	if l.badge != "" {
		letters := l.leftInk
		if !l.quiet {
			box := image.Rect(0, y-above, width(face, count(l.badge))+2*margin, y+face.Ascent)
			if l.medium { // its cells have more air
				box = box.Add(image.Pt(0, 2))
				box.Max.Y--
			}
			v.fill(box, accent)
			letters = black
		}
		v.text(face, margin, y, l.badge, letters)
		start += (count(l.badge) + 1) * face.Advance
	}
	left, right := l.parts(x)
	v.text(face, start, y, left[v.turn(len(left))], l.leftInk)
	v.textRight(face, x-margin, y, right[v.turn(len(right))], l.rightInk)
}
