package display

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"linerate/appliance"
)

// screenText is a terminal as far as Terminal needs one: what it has been sent becomes cells.
type screenText struct {
	columns, rows int
	cells         []cell
	x, y          int
	pen           cell
	alternate     bool
	cursor, wraps bool
	fail          error
	written       int // bytes of the last write
}

func newScreenText(columns, rows int) *screenText {
	return &screenText{columns: columns, rows: rows, cells: make([]cell, columns*rows), cursor: true, wraps: true}
}

func (s *screenText) resize(columns, rows int) {
	s.columns, s.rows, s.cells = columns, rows, make([]cell, columns*rows)
	for i := range s.cells {
		s.cells[i].char = '#' // what was there is anybody's guess
	}
}

func (s *screenText) size() (int, int, error) { return s.columns, s.rows, nil }

func (s *screenText) Write(b []byte) (int, error) {
	if s.fail != nil {
		return 0, s.fail
	}
	s.written = len(b)
	text := []rune(string(b))
	for len(text) > 0 {
		if text[0] != '\x1b' {
			if s.x >= s.columns || s.y >= s.rows {
				return 0, fmt.Errorf("%q is written outside, at column %d of row %d", text[0], s.x, s.y)
			}
			c := s.pen
			if c.char = text[0]; c.char == ' ' {
				c.char = 0
			}
			s.cells[s.y*s.columns+s.x] = c
			s.x++
			text = text[1:]
			continue
		}
		end := 2
		for text[end] < '@' {
			end++
		}
		if err := s.control(string(text[2:end]), text[end]); err != nil {
			return 0, err
		}
		text = text[end+1:]
	}
	return len(b), nil
}

func (s *screenText) control(args string, final rune) error {
	var n [5]uint8
	switch {
	case final == 'H':
		if _, err := fmt.Sscanf(args, "%d;%d", &s.y, &s.x); err != nil {
			return err
		}
		s.x, s.y = s.x-1, s.y-1
	case final == 'J' && args == "2":
		clear(s.cells)
	case final == 'm' && args == "0":
		s.pen = cell{}
	case final == 'm' && strings.HasPrefix(args, "38;2;"):
		_, _ = fmt.Sscanf(args, "38;2;%d;%d;%d", &n[0], &n[1], &n[2])
		s.pen.fg, s.pen.colours = color.RGBA{n[0], n[1], n[2], 0xff}, true
	case final == 'm' && strings.HasPrefix(args, "48;2;"):
		_, _ = fmt.Sscanf(args, "48;2;%d;%d;%d", &n[0], &n[1], &n[2])
		s.pen.bg, s.pen.colours = color.RGBA{n[0], n[1], n[2], 0xff}, true
	case args == "?1049":
		s.alternate = final == 'h'
	case args == "?25":
		s.cursor = final == 'h'
	case args == "?7":
		s.wraps = final == 'h'
	default:
		return fmt.Errorf("unknown control sequence %q", args+string(final))
	}
	return nil
}

// picture reads the pixels back from cells that begin at x, y.
func (s *screenText) picture(size image.Point, x0, y0 int) image.Image {
	out := image.NewRGBA(image.Rectangle{Max: size})
	half := s.cells[y0*s.columns+x0].char == '▀'
	for y := range size.Y {
		for x := range size.X {
			c := color.RGBA{A: 0xff}
			if half {
				cell := s.cells[(y0+y/2)*s.columns+x0+x]
				if c = cell.fg; y%2 == 1 {
					c = cell.bg
				}
			} else {
				dots := [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}
				cell := s.cells[(y0+y/4)*s.columns+x0+x/2]
				if cell.char >= 0x2800 && (cell.char-0x2800)&dots[y%4][x%2] != 0 {
					if c = cell.fg; !cell.colours {
						c = color.RGBA{0xff, 0xff, 0xff, 0xff}
					}
				}
			}
			out.SetRGBA(x, y, c)
		}
	}
	return out
}

func (s *screenText) row(y int) string {
	var b strings.Builder
	for _, c := range s.cells[y*s.columns : (y+1)*s.columns] {
		if c.char == 0 {
			c.char = ' '
		}
		b.WriteRune(c.char)
	}
	return strings.TrimRight(b.String(), " ")
}

func TestTerminalShowsEveryPixel(t *testing.T) {
	for _, c := range []struct {
		name          string
		size          image.Point
		columns, rows int
		x, y          int // where the picture begins
		caption       int // row of the caption; -1: no room
	}{
		{"braille in 80x24", Mono, 80, 24, 1, 1, 18},
		{"braille that just fits", Mono, 64, 16, 0, 0, -1},
		{"braille without a frame", Mono, 65, 17, 0, 0, 16},
		{"half blocks", Mono, 130, 40, 1, 1, 34},
		{"half blocks that just fit", Mono, 128, 32, 0, 0, -1},
		{"half blocks in colour", Colour, 140, 70, 1, 1, 66},
		{"odd sizes", image.Pt(129, 33), 200, 60, 1, 1, 19},
	} {
		s := newScreenText(c.columns, c.rows)
		term := NewTerminal(s, s.size, "Enter selects")
		want := Page(measured(), c.size)
		if err := term.Draw(want); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if n, first := differs(s.picture(c.size, c.x, c.y), want); n != 0 {
			t.Errorf("%s: %d pixels differ, the first at %v", c.name, n, first)
		}
		for y := range c.rows {
			if got := s.row(y); (got == "Enter selects") != (y == c.caption) {
				t.Errorf("%s: row %d is %q, want the caption in row %d", c.name, y, got, c.caption)
			}
		}
	}
	// In braille a cell has one colour: the pixels are all there, their colours nearly.
	s := newScreenText(80, 40)
	page := Page(measured(), Colour)
	if err := NewTerminal(s, s.size, "").Draw(page); err != nil {
		t.Fatal(err)
	}
	got := s.picture(Colour, 1, 1)
	for y := range Colour.Y {
		for x := range Colour.X {
			r, g, b, _ := page.At(x, y).RGBA()
			r2, g2, b2, _ := got.At(x, y).RGBA()
			if (r|g|b > 0) != (r2|g2|b2 > 0) {
				t.Fatalf("pixel %d,%d is not as it should be", x, y)
			}
		}
	}
}

func TestTerminalWritesOnlyWhatChanged(t *testing.T) {
	for _, columns := range []int{80, 130} {
		s := newScreenText(columns, 40)
		term := NewTerminal(s, s.size, "caption")
		state := press(measured(), appliance.Back)
		if err := term.Draw(Page(state, Mono)); err != nil {
			t.Fatal(err)
		}
		whole := s.written
		s.written = 0
		if err := term.Draw(Page(state, Mono)); err != nil {
			t.Fatal(err)
		}
		if s.written != 0 {
			t.Errorf("the same picture again took %d bytes", s.written)
		}
		state.Health.TemperatureC = new(48.0) // one digit
		want := Page(state, Mono)
		if err := term.Draw(want); err != nil {
			t.Fatal(err)
		}
		if s.written == 0 || s.written*10 > whole {
			t.Errorf("a digit took %d bytes, the whole %d", s.written, whole)
		}
		if n, _ := differs(s.picture(Mono, 1, 1), want); n != 0 {
			t.Errorf("after the difference %d pixels differ", n)
		}
	}
}

func TestTerminalFollowsItsSize(t *testing.T) {
	s := newScreenText(80, 24)
	term := NewTerminal(s, s.size, "")
	want := Page(measured(), Mono)
	if err := term.Resize(); err != nil || s.written != 0 {
		t.Fatalf("%d bytes before the first picture, %v", s.written, err)
	}
	if err := term.Draw(want); err != nil {
		t.Fatal(err)
	}
	for _, cells := range []image.Point{{130, 40}, {80, 30}, {66, 18}} {
		s.resize(cells.X, cells.Y)
		if err := term.Resize(); err != nil {
			t.Fatal(err)
		}
		if n, first := differs(s.picture(Mono, 1, 1), want); n != 0 {
			t.Errorf("%v cells: %d pixels differ, the first at %v", cells, n, first)
		}
		for y := range cells.Y {
			if strings.Contains(s.row(y), "#") {
				t.Errorf("%v cells: row %d still has what was there: %q", cells, y, s.row(y))
			}
		}
	}
	s.resize(40, 10)
	if err := term.Resize(); err != nil {
		t.Fatal(err)
	}
	if got := s.row(0) + " " + s.row(1); !strings.Contains(got, "terminal is 40x10: 64x16 cells are") {
		t.Errorf("too small: %q", got)
	}
	s.resize(0, 0)
	if err := term.Resize(); err != nil {
		t.Errorf("no cells at all: %v", err)
	}
}

func TestTerminalIsGivenBack(t *testing.T) {
	s := newScreenText(80, 24)
	term := NewTerminal(s, s.size, "")
	if err := term.Close(); err != nil || s.written != 0 {
		t.Errorf("closed before use: %d bytes, %v", s.written, err)
	}
	term = NewTerminal(s, s.size, "")
	if err := term.Draw(Page(measured(), Mono)); err != nil {
		t.Fatal(err)
	}
	if !s.alternate || s.cursor || s.wraps {
		t.Error("the terminal was not prepared")
	}
	if err := term.SetPower(false); err != nil {
		t.Fatal(err)
	}
	if n, _ := differs(s.picture(Mono, 1, 1), newCanvas(Mono, true).picture()); n != 0 {
		t.Errorf("switched off, %d pixels are lit", n)
	}
	if err := term.SetPower(true); err != nil {
		t.Fatal(err)
	}
	if n, _ := differs(s.picture(Mono, 1, 1), Page(measured(), Mono)); n != 0 {
		t.Errorf("switched on, %d pixels differ", n)
	}
	if err := term.Close(); err != nil {
		t.Fatal(err)
	}
	if s.alternate || !s.cursor || !s.wraps || s.pen != (cell{}) {
		t.Error("the terminal is not as it was")
	}
	s.written = 0
	if err := term.Close(); err != nil || s.written != 0 {
		t.Error("closed twice")
	}
	if err := term.Draw(Page(measured(), Mono)); err == nil || s.written != 0 {
		t.Error("drawn on after Close")
	}
}

// After a write that failed nobody knows what is on the screen, so everything is written again.
func TestTerminalAfterAnError(t *testing.T) {
	s := newScreenText(80, 24)
	term := NewTerminal(s, s.size, "")
	if err := term.Draw(Page(box(), Mono)); err != nil {
		t.Fatal(err)
	}
	s.fail = errors.New("broken pipe")
	want := Page(measured(), Mono)
	if err := term.Draw(want); !errors.Is(err, s.fail) {
		t.Fatalf("got %v", err)
	}
	s.fail = nil
	s.resize(80, 24)
	if err := term.Draw(want); err != nil {
		t.Fatal(err)
	}
	if n, _ := differs(s.picture(Mono, 1, 1), want); n != 0 {
		t.Errorf("%d pixels differ", n)
	}
	term.size = func() (int, int, error) { return 0, 0, errors.New("no tty") }
	if err := term.Draw(want); err == nil {
		t.Error("no error though the size is unknown")
	}
}

// pty is a pseudo-terminal: what is written to the terminal's end can be read here.
func pty(t *testing.T, columns, rows uint16) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("unlock pseudo-terminal: %v", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("open pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	setSize(t, terminal, columns, rows)
	return master, terminal
}

func setSize(t *testing.T, f *os.File, columns, rows uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.Fatal(err)
	}
}

// The real thing: a pseudo-terminal that changes its size, which the kernel tells by SIGWINCH.
func TestOpenTerminal(t *testing.T) {
	if _, err := OpenTerminal(os.Stdin, ""); err == nil && testing.Verbose() {
		t.Log("standard input is a terminal")
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := OpenTerminal(f, ""); err == nil {
		t.Error("a file was taken for a terminal")
	}

	master, tty := pty(t, 80, 24)
	var mu sync.Mutex
	var got bytes.Buffer
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			mu.Lock()
			got.Write(b[:n])
			mu.Unlock()
		}
	}()
	arrives := func(what string) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			mu.Lock()
			there := strings.Contains(got.String(), what)
			mu.Unlock()
			if there {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%q does not arrive", what)
			}
		}
	}
	term, err := OpenTerminal(tty, "caption")
	if err != nil {
		t.Fatal(err)
	}
	if err := term.Draw(Page(measured(), Mono)); err != nil {
		t.Fatal(err)
	}
	arrives("┌" + strings.Repeat("─", 64) + "┐")
	setSize(t, tty, 140, 40)
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil { // the kernel sends it to the terminal's own session alone
		t.Fatal(err)
	}
	arrives("┌" + strings.Repeat("─", 128) + "┐")
	if err := term.Close(); err != nil {
		t.Fatal(err)
	}
	arrives(leaveScreen)
}
