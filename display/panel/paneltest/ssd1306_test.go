package paneltest

import (
	"errors"
	"image"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// start is the data sheet's software set-up (figure 2 of its application note) for an upright module of 64 rows.
var start = []byte{0x00, 0xae, 0xa8, 0x3f, 0xd3, 0x00, 0x40, 0xa1, 0xc8, 0xda, 0x12, 0x81, 0x7f, 0xa4, 0xa6, 0xd5, 0x80,
	0x8d, 0x14, 0xaf}

// send writes messages and clears the memory first when asked.
func send(d *SSD1306, messages ...[]byte) {
	for _, m := range messages {
		_, _ = d.Write(m)
	}
}

// blank fills the memory with zeros in horizontal mode and leaves the pointers at 0,0.
func blank(d *SSD1306) {
	send(d, []byte{0x00, 0x20, 0x00, 0x21, 0, 127, 0x22, 0, 7}, append([]byte{0x40}, make([]byte, columns*pages)...))
}

// lit lists the lit pixels.
func lit(d *SSD1306) []image.Point {
	var out []image.Point
	img := d.Picture()
	for y := range img.Rect.Dy() {
		for x := range img.Rect.Dx() {
			if img.GrayAt(x, y).Y > 0 {
				out = append(out, image.Pt(x, y))
			}
		}
	}
	return out
}

func TestSSD1306(t *testing.T) {
	points := func(xy ...int) (out []image.Point) {
		for i := 0; i < len(xy); i += 2 {
			out = append(out, image.Pt(xy[i], xy[i+1]))
		}
		return out
	}
	for _, test := range []struct {
		what     string
		messages [][]byte // after start and a blank memory, horizontal mode, pointers at 0,0
		want     []image.Point
	}{
		{"nothing", nil, nil},
		{"one byte is eight pixels down", [][]byte{{0x40, 0x81}}, points(0, 0, 0, 7)},
		{"horizontal goes right, then to the next page", [][]byte{{0x00, 0x21, 126, 127, 0x22, 6, 7}, {0x40, 1, 1, 1}},
			points(126, 48, 127, 48, 126, 56)},
		{"horizontal comes round", [][]byte{{0x00, 0x21, 5, 5, 0x22, 1, 1}, {0x40, 0xff, 0x01}}, points(5, 8)},
		{"vertical goes down, then right", [][]byte{{0x00, 0x20, 1, 0x21, 3, 4, 0x22, 0, 1}, {0x40, 1, 1, 1}},
			points(3, 0, 4, 0, 3, 8)},
		{"page mode stays in its page", [][]byte{{0x00, 0x20, 2, 0xb2, 0x0f, 0x17}, {0x40, 1, 1}}, points(0, 16, 127, 16)},
		{"pointers in horizontal mode", [][]byte{{0x00, 0xb3, 0x05, 0x11}, {0x40, 1}}, points(21, 24)},
		{"commands one message each", [][]byte{{0x00, 0x21}, {0x00, 7}, {0x00, 9}, {0x40, 1}}, points(7, 0)},
		{"control bytes with Co", [][]byte{{0x80, 0xb1, 0x80, 0x03, 0xc0, 0x01, 0x40, 0x01}}, points(3, 8, 4, 8)},
		{"start line", [][]byte{{0x40, 1}, {0x00, 0x40 | 63}}, points(0, 1)},
		{"offset moves up", [][]byte{{0x40, 1}, {0x00, 0xd3, 8}}, points(0, 56)},
		{"scan from COM0", [][]byte{{0x40, 1}, {0x00, 0xc0}}, points(0, 63)},
		{"remap counts for what comes", [][]byte{{0x40, 1}, {0x00, 0xa0}, {0x40, 1}}, points(0, 0, 126, 0)},
		{"multiplex ratio drives the first rows", [][]byte{{0x40, 1}, {0x00, 0xb4, 0x00, 0x10}, {0x40, 1},
			{0x00, 0xa8, 31}}, points(0, 32)},
		{"sequential pins on alternating glass", [][]byte{{0x40, 0x02}, {0x00, 0xda, 0x02}}, points(0, 2)},
		{"halves exchanged", [][]byte{{0x40, 0x02}, {0x00, 0xda, 0x32}}, points(0, 0)},
		{"off", [][]byte{{0x40, 1}, {0x00, 0xae}}, nil},
		{"no charge pump", [][]byte{{0x40, 1}, {0x00, 0x8d, 0x10}}, nil},
		{"off and on again", [][]byte{{0x40, 1}, {0x00, 0xae}, {0x00, 0xaf}}, points(0, 0)},
	} {
		d := NewSSD1306(128, 64)
		send(d, start)
		blank(d)
		send(d, test.messages...)
		got := lit(d)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: lit %v, want %v", test.what, got, test.want)
		}
		if f := d.Faults(); len(f) > 0 {
			t.Errorf("%s: %q", test.what, f)
		}
	}
}

func TestSSD1306Whole(t *testing.T) {
	d := NewSSD1306(128, 64)
	if n := len(lit(d)); n != 0 || d.On() {
		t.Errorf("after power-on %d pixels are lit", n)
	}
	send(d, start)
	if n := len(lit(d)); n < 3000 || n > 5000 || !d.On() { // noise: about half of 8192
		t.Errorf("an unwritten memory shows %d pixels", n)
	}
	blank(d)
	for message, want := range map[byte]int{0xa5: 8192, 0xa4: 0, 0xa7: 8192, 0xa6: 0} {
		send(d, []byte{0x00, message})
		if n := len(lit(d)); n != want {
			t.Errorf("%#x: %d pixels, want %d", message, n, want)
		}
		send(d, []byte{0x00, 0xa4, 0xa6})
	}
	send(d, []byte{0x00, 0x81, 0x42})
	if d.Contrast() != 0x42 {
		t.Errorf("contrast %#x", d.Contrast())
	}
	status := []byte{0}
	_, _ = d.Read(status)
	if status[0]&0x40 != 0 {
		t.Errorf("status %#x while on", status[0])
	}
	d.PowerCycle()
	_, _ = d.Read(status)
	if status[0]&0x40 == 0 || d.On() || d.Contrast() != 0x7f {
		t.Errorf("after the power came back: status %#x, contrast %#x", status[0], d.Contrast())
	}
}

// TestShortGlass: 32 rows, wired in sequence; with alternating pins every second row is lost.
func TestShortGlass(t *testing.T) {
	d := NewSSD1306(128, 32)
	send(d, start, []byte{0x00, 0xa8, 31, 0xda, 0x02})
	blank(d)
	send(d, []byte{0x40, 0xff})
	if n := len(lit(d)); n != 8 {
		t.Errorf("%d pixels, want 8", n)
	}
	send(d, []byte{0x00, 0xda, 0x12})
	if n := len(lit(d)); n != 4 {
		t.Errorf("%d pixels with the wrong pins, want 4", n)
	}
}

func TestFaults(t *testing.T) {
	for want, message := range map[string][]byte{
		"control byte 0x01":              {0x01, 0xae},
		"there is no command 0xfe":       {0x00, 0xfe},
		"command 0x20 with 03":           {0x00, 0x20, 3},
		"command 0x21 with 05 04":        {0x00, 0x21, 5, 4},
		"command 0x21 with 00 80":        {0x00, 0x21, 0, 128},
		"command 0x22 with 00 08":        {0x00, 0x22, 0, 8},
		"command 0x8d with 00":           {0x00, 0x8d, 0},
		"command 0xa8 with 0e":           {0x00, 0xa8, 14},
		"command 0xd3 with 40":           {0x00, 0xd3, 64},
		"command 0xd9 with 0f":           {0x00, 0xd9, 0x0f},
		"command 0xda with 13":           {0x00, 0xda, 0x13},
		"data while scrolling":           {0x80, 0x2f, 0x40, 1},
		"data while command 0x81 lacks ": {0x80, 0x81, 0x40, 1},
	} {
		d := NewSSD1306(128, 64)
		send(d, message)
		if f := d.Faults(); len(f) != 1 || !strings.HasPrefix(f[0], want) {
			t.Errorf("% x: %q, want %q", message, f, want)
		}
	}
}

// FuzzSSD1306 feeds messages: the model never breaks, and its picture has its size.
func FuzzSSD1306(f *testing.F) {
	f.Add(start, []byte{0x40, 1, 2, 3})
	f.Add([]byte{0x00, 0xa8, 15, 0xd3, 63, 0xc8}, []byte{0x80, 0x21, 0x80, 5})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d := NewSSD1306(128, 32)
		send(d, start, first, second)
		if n, err := d.Write(first); n != len(first) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if d.Picture().Rect != image.Rect(0, 0, 128, 32) {
			t.Error("size")
		}
	})
}

func TestBus(t *testing.T) {
	bus, panel := NewBus(), NewSSD1306(128, 64)
	bus.Attach(0x3c, panel)
	h, err := bus.Open()
	if err != nil {
		t.Fatal(err)
	}
	tx := func(want error, addr uint16, w, r []byte) {
		t.Helper()
		if err := h.Tx(addr, w, r); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	tx(nil, 0x3c, start, nil)
	tx(syscall.EREMOTEIO, 0x3d, start, nil)
	bus.FailAt(2)
	tx(nil, 0x3c, []byte{0x00, 0x81, 1}, nil)
	tx(syscall.EIO, 0x3c, []byte{0x00, 0x81, 2, 0xe3, 0xe3, 0xe3}, nil)
	tx(nil, 0x3c, []byte{0x00, 0xe3}, nil)
	if panel.Contrast() != 2 {
		t.Errorf("contrast %d: the half before the error is lost", panel.Contrast())
	}
	bus.SetSilent(true)
	r := []byte{0xa5}
	tx(nil, 0x3d, []byte{0x00}, r)
	if r[0] != 0xa5 {
		t.Errorf("read %#x from nobody", r[0])
	}
	bus.SetGone(true)
	tx(syscall.ENODEV, 0x3c, start, nil)
	if _, err := bus.Open(); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("opened a bus that is gone: %v", err)
	}
	bus.SetGone(false)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := h.Tx(0x3c, start, nil); err == nil {
		t.Error("a closed handle works")
	}
	if opened, open := bus.Handles(); opened != 1 || open != 0 || bus.Transfers() != 7 {
		t.Errorf("%d opened, %d open, %d transfers", opened, open, bus.Transfers())
	}
}
