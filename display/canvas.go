package display

import (
	"image"
	"image/color"

	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"
	"periph.io/x/devices/v3/ssd1306/image1bit"
)

// ink is what a pixel is drawn with. On a monochrome panel everything but black is lit.
type ink uint8

const (
	black  ink = iota
	white      // text
	dim        // text that matters less
	faint      // lines and frames
	accent     // title bars, what is chosen
	good       // a test that passed
	warn       // worth a look
	bad        // faults
)

// palette has a component above 0x7f in every ink that a monochrome panel must light, and in no other.
var palette = color.Palette{
	black:  color.RGBA{0x00, 0x00, 0x00, 0xff},
	white:  color.RGBA{0xf4, 0xf4, 0xf4, 0xff},
	dim:    color.RGBA{0xa6, 0xa9, 0xad, 0xff},
	faint:  color.RGBA{0x4c, 0x52, 0x5a, 0xff},
	accent: color.RGBA{0x8f, 0xb8, 0xde, 0xff},
	good:   color.RGBA{0x6c, 0xcf, 0x70, 0xff},
	warn:   color.RGBA{0xf5, 0xb0, 0x41, 0xff},
	bad:    color.RGBA{0xff, 0x5d, 0x52, 0xff},
}

// canvas is what a page is drawn on: one ink a pixel.
type canvas struct {
	image.Paletted
	mono bool
}

func newCanvas(size image.Point, mono bool) *canvas {
	r := image.Rectangle{Max: size}
	return &canvas{
		Paletted: image.Paletted{Pix: make([]uint8, r.Dx()*r.Dy()), Stride: r.Dx(), Rect: r, Palette: palette},
		mono:     mono,
	}
}

// picture is the finished page: the frame of the SSD1306 itself for a monochrome panel, so that its driver need not
// convert, else paletted.
func (c *canvas) picture() image.Image {
	if !c.mono {
		return &c.Paletted
	}
	p := image1bit.NewVerticalLSB(c.Rect)
	for y := range c.Rect.Dy() {
		row := c.Pix[y*c.Stride:][:c.Rect.Dx()]
		band := p.Pix[y/8*p.Stride:]
		for x, i := range row {
			if ink(i) != black {
				band[x] |= 1 << (y & 7)
			}
		}
	}
	return p
}

func (c *canvas) set(x, y int, i ink) {
	if x >= 0 && y >= 0 && x < c.Rect.Max.X && y < c.Rect.Max.Y {
		c.Pix[y*c.Stride+x] = uint8(i)
	}
}

func (c *canvas) fill(r image.Rectangle, i ink) {
	r = r.Intersect(c.Rect)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			c.Pix[y*c.Stride+x] = uint8(i)
		}
	}
}

// frame draws the outline of r, one pixel wide, without its corners.
func (c *canvas) frame(r image.Rectangle, i ink) {
	c.fill(image.Rect(r.Min.X+1, r.Min.Y, r.Max.X-1, r.Min.Y+1), i)
	c.fill(image.Rect(r.Min.X+1, r.Max.Y-1, r.Max.X-1, r.Max.Y), i)
	c.fill(image.Rect(r.Min.X, r.Min.Y+1, r.Min.X+1, r.Max.Y-1), i)
	c.fill(image.Rect(r.Max.X-1, r.Min.Y+1, r.Max.X, r.Max.Y-1), i)
}

// text draws at x, y, the top left corner of the first cell, and returns the x behind it.
func (c *canvas) text(f *basicfont.Face, x, y int, text string, i ink) int {
	for _, r := range text {
		c.glyph(f, x, y, r, 1, i)
		x += f.Advance
	}
	return x
}

// textRight draws so that the last glyph ends before x.
func (c *canvas) textRight(f *basicfont.Face, x, y int, text string, i ink) {
	c.text(f, x-width(f, count(text)), y, text, i)
}

func (c *canvas) glyph(f *basicfont.Face, x, y int, r rune, scale int, i ink) {
	box, mask, at, _, known := f.Glyph(fixed.P(x, y+f.Ascent), fold(r))
	if !known && f == medium { // ASCII only: the others come from the small face, on the same line
		f, y = small, y+medium.Ascent-small.Ascent
		box, mask, at, _, _ = f.Glyph(fixed.P(x, y+f.Ascent), fold(r))
	}
	alpha, ok := mask.(*image.Alpha)
	if !ok { // the face has not even a replacement
		return
	}
	for dy := range box.Dy() {
		row := alpha.Pix[alpha.PixOffset(at.X, at.Y+dy):][:box.Dx()]
		for dx, a := range row {
			if a >= 0x80 {
				px, py := x+dx*scale, y+dy*scale
				c.fill(image.Rect(px, py, px+scale, py+scale), i)
			}
		}
	}
}

// digits draws a number in the big face and returns the x behind it. A point takes the room of a point; the digits all
// have the same width, so that a live number does not dance.
func (c *canvas) digits(x, y int, number string, scale int, i ink) int {
	for _, r := range number {
		c.glyph(big, x, y, r, scale, i)
		x += digitWidth(r) * scale
	}
	return x
}

func digitWidth(r rune) int {
	if r == '.' {
		return 4
	}
	return big.Advance + 1
}

func digitsWidth(number string, scale int) int {
	w := -2 * scale
	for _, r := range number {
		w += digitWidth(r) * scale
	}
	return w
}

// progress draws how much of a whole is done, 0 to 1.
func (c *canvas) progress(r image.Rectangle, done float64, i ink) {
	c.frame(r, faint)
	inner := r.Inset(1)
	if r.Dy() >= 5 {
		inner = r.Inset(2)
	}
	inner.Max.X = inner.Min.X + int(float64(inner.Dx())*min(1, max(0, done))+0.5)
	c.fill(inner, i)
}

// graph draws the points as columns, the newest at the right, on a scale from zero to their peak.
func (c *canvas) graph(r image.Rectangle, points []float64, i ink) {
	const column, gap = 2, 1
	n := (r.Dx() + gap) / (column + gap)
	points = points[max(0, len(points)-n):]
	peak := 0.0
	for _, p := range points {
		peak = max(peak, p)
	}
	c.fill(image.Rect(r.Min.X, r.Max.Y-1, r.Max.X, r.Max.Y), faint)
	if peak <= 0 {
		return
	}
	x := r.Max.X - len(points)*(column+gap) + gap
	for _, p := range points {
		h := int(float64(r.Dy())*max(0, p)/peak + 0.5)
		c.fill(image.Rect(x, r.Max.Y-h, x+column, r.Max.Y), i)
		x += column + gap
	}
}
