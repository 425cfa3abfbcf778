package display

import (
	"fmt"
	"image"

	"linerate/appliance"
)

// Sizes in pixels.
var (
	Mono   = image.Pt(128, 64)  // SSD1306, SH1106 and kin; also what is shown without a panel
	Colour = image.Pt(128, 128) // ST7735, SSD1351
)

const (
	monoHeight  = 64  // panels up to this height are monochrome
	doubleAbove = 240 // from this width and height on each pixel of a page is drawn as several
)

// Page is the picture of the State on a panel of the given size in pixels, upright whatever Rotate says. Up to 64 rows
// it is monochrome, an *image1bit.VerticalLSB as the SSD1306 takes it, else an *image.Paletted. It is made for 128x64
// and 128x128; other sizes show fewer or more lines, large ones larger pixels. A size without a pixel gives an empty
// picture. The caller may keep and change what is returned.
func Page(s appliance.State, size image.Point) image.Image {
	size = image.Pt(max(0, size.X), max(0, size.Y))
	if scale := min(size.X, size.Y) / (doubleAbove / 2); scale > 1 {
		return enlarge(drawPage(s, image.Pt(size.X/scale, size.Y/scale)), size, scale)
	}
	return drawPage(s, size).picture()
}

func drawPage(s appliance.State, size image.Point) *canvas {
	v := newScreen(s, size)
	if s.View.Asleep || v.cols == 0 {
		return v.canvas
	}
	switch s.Page {
	case appliance.PageBoot:
		v.boot()
	case appliance.PageMenu:
		v.titleWhereRoom("Menu")
		v.menu(s.Items(), s.View.Cursor)
	case appliance.PageSettings:
		v.titleWhereRoom("Settings")
		v.menu(s.Items(), s.View.Cursor)
	case appliance.PageTargets:
		v.targets()
	case appliance.PageTest:
		v.test()
	case appliance.PageResult:
		v.result()
	case appliance.PagePorts:
		v.ports()
	case appliance.PageFaults:
		v.faults()
	case appliance.PageMessage:
		v.message()
	default:
		v.home()
	}
	return v.canvas
}

// enlarge draws each pixel as a square, in the middle of the size.
func enlarge(c *canvas, size image.Point, scale int) image.Image {
	out := newCanvas(size, false)
	at := size.Sub(c.Rect.Max.Mul(scale)).Div(2)
	for y := range c.Rect.Dy() {
		for x := range c.Rect.Dx() {
			p := at.Add(image.Pt(x, y).Mul(scale))
			out.fill(image.Rectangle{p, p.Add(image.Pt(scale, scale))}, ink(c.Pix[y*c.Stride+x]))
		}
	}
	return out.picture()
}

// targets lists the servers, or says what to do where there is none.
func (v *screen) targets() {
	v.titleWhereRoom("Test to")
	items := v.s.Items()
	if len(v.s.Targets) == 0 && !v.low {
		v.stack(v.paragraph(v.s.NoTarget(), white), v.h-v.pitch-2)
		v.top = v.h - v.pitch
	}
	v.menu(items, v.s.View.Cursor)
}

// message shows a text of any length.
func (v *screen) message() {
	m := v.s.View.Message
	title := m.Title
	if title == "" {
		title = "Message"
	}
	v.note(title, m.Text, accent)
}

// faults shows what does not work, one at a time.
func (v *screen) faults() {
	n := len(v.s.Faults)
	if n == 0 {
		v.note("Faults", "Everything works.", accent)
		return
	}
	i := min(v.s.View.Cursor, n-1)
	f := v.s.Faults[i]
	title := "Fault"
	if n > 1 {
		title = fmt.Sprintf("Fault %d/%d", i+1, n)
	}
	v.title(title, "", bad)
	since := ""
	if !f.Since.IsZero() {
		since = "\nsince " + span(v.s.Now.Sub(f.Since))
	}
	v.sheetsOf(title, f.Task+": "+f.Title+since, bad)
}

// note is a page of nothing but text below a title.
func (v *screen) note(title, text string, i ink) {
	v.title(title, "", i)
	v.sheetsOf(title, text, i)
}

// sheetsOf draws a text below its title, which tells how many sheets there are where it needs more than one.
func (v *screen) sheetsOf(title, text string, i ink) {
	top := v.top
	if sheet, of := v.sheets(v.paragraph(text, white), v.h); of > 1 {
		v.title(title, fmt.Sprintf("%d/%d", sheet+1, of), i)
	}
	v.top = top
}
