package display

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"periph.io/x/devices/v3/ssd1306/image1bit"
)

// Control sequences of ECMA-48 and xterm.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l" // alternate screen, no cursor, no wrapping
	leaveScreen = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
	clearScreen = "\x1b[0m\x1b[2J"
)

var errClosed = errors.New("terminal display is closed")

// Terminal is a Panel in a text terminal. It shows every pixel: in half blocks and colour where the terminal is large
// enough, else in braille, eight pixels a cell, so that 128x64 fits into 64x16 cells. It writes only the cells that
// changed. Its methods may be called from any goroutine.
type Terminal struct {
	out     io.Writer
	size    func() (columns, rows int, err error)
	caption string
	stop    func()

	mu            sync.Mutex
	picture       image.Image
	off           bool
	entered       bool
	closed        bool
	columns, rows int
	shown         []cell // row by row; nil: unknown
}

// cell is one character of the terminal.
type cell struct {
	char    rune // 0: blank
	fg, bg  color.RGBA
	colours bool // else the terminal's own
}

// NewTerminal draws to out; size tells how many cells the terminal has now. The caption is shown below the picture
// where there is room. Nothing is written before the first Draw.
func NewTerminal(out io.Writer, size func() (columns, rows int, err error), caption string) *Terminal {
	return &Terminal{out: out, size: size, caption: caption, stop: func() {}}
}

// OpenTerminal draws to the terminal behind the file and follows its size. The file stays the caller's.
func OpenTerminal(f *os.File, caption string) (*Terminal, error) {
	if !term.IsTerminal(int(f.Fd())) {
		return nil, fmt.Errorf("open terminal display: %s is not a terminal", f.Name())
	}
	t := NewTerminal(f, func() (int, int, error) { return term.GetSize(int(f.Fd())) }, caption)
	resized, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(resized, unix.SIGWINCH)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-resized:
				_ = t.Resize() // the next Draw says what is wrong
			}
		}
	}()
	t.stop = func() {
		signal.Stop(resized)
		close(done)
	}
	return t, nil
}

// Draw shows the picture.
func (t *Terminal) Draw(picture image.Image) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.picture = picture
	return t.paint()
}

// SetPower turns all pixels off, or shows the picture again.
func (t *Terminal) SetPower(on bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.off = !on
	return t.paint()
}

// Resize draws anew if the terminal's size has changed.
func (t *Terminal) Resize() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.paint()
}

// Close gives the terminal back as it was. A second Close does nothing.
func (t *Terminal) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	t.stop()
	if !t.entered {
		return nil
	}
	_, err := io.WriteString(t.out, leaveScreen)
	return err
}

// paint writes what differs between the screen and what it should be. The caller holds the lock.
func (t *Terminal) paint() error {
	if t.closed {
		return errClosed
	}
	if t.picture == nil {
		return nil
	}
	columns, rows, err := t.size()
	if err != nil {
		return fmt.Errorf("ask for the terminal's size: %w", err)
	}
	var b bytes.Buffer
	if !t.entered {
		b.WriteString(enterScreen)
	}
	if t.shown == nil || columns != t.columns || rows != t.rows {
		t.columns, t.rows = columns, rows
		t.shown = make([]cell, columns*rows)
		b.WriteString(clearScreen)
	}
	picture := t.picture
	if t.off {
		picture = image1bit.NewVerticalLSB(picture.Bounds())
	}
	want := compose(picture, columns, rows, t.caption)
	difference(&b, t.shown, want, columns)
	if b.Len() == 0 {
		return nil
	}
	if _, err := t.out.Write(b.Bytes()); err != nil {
		t.shown = nil // how much of it has arrived nobody knows
		return fmt.Errorf("write to terminal: %w", err)
	}
	t.entered, t.shown = true, want
	return nil
}

// difference writes the cells in which want differs from shown.
func difference(b *bytes.Buffer, shown, want []cell, columns int) {
	var pen cell // colours in force
	at := -1     // where the cursor stands
	for i, c := range want {
		if c == shown[i] {
			continue
		}
		if i != at || i%columns == 0 {
			fmt.Fprintf(b, "\x1b[%d;%dH", i/columns+1, i%columns+1)
		}
		if c.colours != pen.colours || c.colours && (c.fg != pen.fg || c.bg != pen.bg) {
			if c.colours {
				fmt.Fprintf(b, "\x1b[38;2;%d;%d;%dm\x1b[48;2;%d;%d;%dm", c.fg.R, c.fg.G, c.fg.B, c.bg.R, c.bg.G, c.bg.B)
			} else {
				b.WriteString("\x1b[0m")
			}
			pen = c
		}
		if c.char == 0 {
			b.WriteByte(' ')
		} else {
			b.WriteRune(c.char)
		}
		at = i + 1
	}
	if pen.colours {
		b.WriteString("\x1b[0m")
	}
}

// compose lays the picture out on so many cells, with a frame and a caption where there is room.
func compose(picture image.Image, columns, rows int, caption string) []cell {
	screen := make([]cell, columns*rows)
	write := func(x, y int, text string) {
		for _, r := range text {
			if x >= 0 && x < columns && y >= 0 && y < rows {
				screen[y*columns+x].char = r
			}
			x++
		}
	}
	size := picture.Bounds().Size()
	w, h, each := size.X, (size.Y+1)/2, halfBlock
	if w > columns || h > rows {
		w, h, each = (size.X+1)/2, (size.Y+3)/4, braille
	}
	if w > columns || h > rows {
		for y, l := range wrap(fmt.Sprintf("terminal is %dx%d: %dx%d cells are needed", columns, rows, w, h), columns) {
			write(0, y, l)
		}
		return screen
	}
	x0, y0 := 0, 0
	if w+2 <= columns && h+2 <= rows {
		x0, y0 = 1, 1
		for x := range w {
			write(x+1, 0, "─")
			write(x+1, h+1, "─")
		}
		for y := range h {
			write(0, y+1, "│")
			write(w+1, y+1, "│")
		}
		write(0, 0, "┌")
		write(w+1, 0, "┐")
		write(0, h+1, "└")
		write(w+1, h+1, "┘")
	}
	for y := range h {
		for x := range w {
			screen[(y0+y)*columns+x0+x] = each(picture, x, y)
		}
	}
	for y, l := range wrap(caption, columns) {
		write(0, y+2*y0+h, l)
	}
	return screen
}

// halfBlock shows two pixels, one above the other.
func halfBlock(picture image.Image, x, y int) cell {
	at := picture.Bounds().Min.Add(image.Pt(x, 2*y))
	return cell{char: '▀', fg: rgba(picture, at.X, at.Y), bg: rgba(picture, at.X, at.Y+1), colours: true}
}

// braille shows two by four pixels as dots; the colour is that of the last lit one. The dots are those of Unicode's block
// at U+2800.
func braille(picture image.Image, x, y int) cell {
	dots := [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}
	at := picture.Bounds().Min.Add(image.Pt(2*x, 4*y))
	_, mono := picture.(*image1bit.VerticalLSB)
	var c cell
	for dy, row := range dots {
		for dx, dot := range row {
			if colour := rgba(picture, at.X+dx, at.Y+dy); colour != (color.RGBA{A: 0xff}) {
				c.char |= dot
				if !mono {
					c.fg, c.bg, c.colours = colour, color.RGBA{A: 0xff}, true
				}
			}
		}
	}
	if c.char != 0 {
		c.char |= 0x2800
	}
	return c
}

// rgba is the colour of a pixel; outside the picture it is dark.
func rgba(picture image.Image, x, y int) color.RGBA {
	if !image.Pt(x, y).In(picture.Bounds()) {
		return color.RGBA{A: 0xff}
	}
	r, g, b, _ := picture.At(x, y).RGBA()
	return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 0xff}
}
