package panel

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"strings"
	"testing"

	"periph.io/x/conn/v3/i2c"
	"periph.io/x/conn/v3/i2c/i2ctest"
	"periph.io/x/devices/v3/ssd1306/image1bit"

	"linerate/appliance/board"
	"linerate/display/panel/paneltest"
)

var module = board.Panel{Controller: board.SSD1306, Width: 128, Height: 64, Bus: "i2c-1",
	Addresses: []uint16{0x3c, 0x3d}}

// page is a picture with a lit pixel in every page and column, different for each n.
func page(w, h, n int) *image.Gray {
	img := image.NewGray(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			if (x*7+y*13+n)%11 < 4 || x == n || y == n {
				img.SetGray(x, y, color.Gray{Y: 255})
			}
		}
	}
	return img
}

// desk is a panel on a bus as it lies on a desk: model, bus and what was opened on them.
type desk struct {
	bus   *paneltest.Bus
	model *paneltest.SSD1306
	Panel
}

func newDesk(t *testing.T, spec board.Panel, addr uint16) *desk {
	t.Helper()
	d := &desk{bus: paneltest.NewBus(), model: paneltest.NewSSD1306(spec.Width, spec.Height)}
	d.bus.Attach(addr, d.model)
	var err error
	if d.Panel, err = OpenI2C(spec, d.bus.Open); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if opened, open := d.bus.Handles(); open != 0 {
			t.Errorf("%d of %d handles left open", open, opened)
		}
		for _, f := range d.model.Faults() {
			t.Error("the data sheet forbids: ", f)
		}
	})
	return d
}

// shows compares the glass with a picture.
func (d *desk) shows(t *testing.T, what string, want *image.Gray) {
	t.Helper()
	if got := d.model.Picture(); !bytes.Equal(got.Pix, want.Pix) {
		t.Errorf("%s: the glass shows something else (on: %v)", what, d.model.On())
	}
}

func TestPicture(t *testing.T) {
	short := module
	short.Height, short.Sequential = 32, true
	turned := module
	turned.Rotate = 180
	narrow := module
	narrow.Width = 64
	for name, test := range map[string]struct {
		spec board.Panel
		addr uint16
	}{
		"128x64": {module, 0x3c}, "0x3d": {module, 0x3d}, "128x32": {short, 0x3c}, "64 wide": {narrow, 0x3c},
		"turned": {turned, 0x3c},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, test.spec, test.addr)
			w, h := test.spec.Width, test.spec.Height
			if d.Size() != image.Pt(w, h) || d.ColorModel().Convert(color.White) != image1bit.On {
				t.Errorf("size %v", d.Size())
			}
			for n := range 3 {
				img := page(w, h, n)
				if err := d.Draw(img); err != nil {
					t.Fatal(err)
				}
				if test.spec.Rotate == 180 {
					for i, j := 0, len(img.Pix)-1; i < j; i, j = i+1, j-1 {
						img.Pix[i], img.Pix[j] = img.Pix[j], img.Pix[i]
					}
				}
				d.shows(t, fmt.Sprint("page ", n), img)
			}
		})
	}
}

// TestBytes holds what goes over the wire.
func TestBytes(t *testing.T) {
	record := &i2ctest.Record{}
	one := module
	one.Addresses = []uint16{0x3d}
	contrast := 0x20
	one.Contrast = &contrast
	p, err := OpenI2C(one, func() (i2c.BusCloser, error) { return noClose{record}, nil })
	if err != nil {
		t.Fatal(err)
	}
	take := func() []i2ctest.IO {
		ops := record.Ops
		record.Ops = nil
		for _, op := range ops {
			if op.Addr != 0x3d {
				t.Errorf("address %#x", op.Addr)
			}
		}
		return ops
	}
	is := func(what string, ops []i2ctest.IO, want ...string) {
		t.Helper()
		var got []string
		for _, op := range ops {
			got = append(got, fmt.Sprintf("% x", op.W))
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	is("set-up", take(), "00 ae d3 00 40 a1 c8 da 12 81 ff a4 a6 d5 f0 8d 14 d9 f1 db 40 2e a8 3f "+
		"20 00 21 00 7f 22 00 07 af", "00 81 20")

	img := image.NewGray(image.Rect(0, 0, 128, 64))
	draw := func() {
		t.Helper()
		if err := p.Draw(img); err != nil {
			t.Fatal(err)
		}
	}
	draw()
	first := take()
	bytes := 0
	for i, op := range first {
		bytes += len(op.W)
		if i%2 == 0 {
			is("page address", first[i:i+1], fmt.Sprintf("00 %x 00 10", 0xb0+i/2))
		}
	}
	if len(first) != 16 || bytes != 1064 {
		t.Errorf("first frame: %d transfers, %d bytes, want 16 and 1064", len(first), bytes)
	}
	draw()
	is("the same again", take())
	img.SetGray(37, 20, color.Gray{Y: 255})
	draw()
	is("one pixel", take(), "00 b2 05 12", "40 10")
	if err := p.SetPower(false); err != nil {
		t.Fatal(err)
	}
	is("sleep", take(), "00 ae")
	draw()
	is("drawing asleep", take())
	if err := p.SetPower(true); err != nil {
		t.Fatal(err)
	}
	is("waking with the same page", take(), "00 af 81 20")
}

// noClose makes a bus of a recorder.
type noClose struct{ *i2ctest.Record }

func (noClose) Close() error { return nil }

// TestErrorInMidFrame breaks each transfer of a frame in turn. The frame after that must be there as a whole, although
// the picture is the same: periph on its own sends nothing then.
func TestErrorInMidFrame(t *testing.T) {
	for n := 1; n <= 16; n++ {
		d := newDesk(t, module, 0x3c)
		img := page(128, 64, n)
		d.bus.FailAt(n)
		err := d.Draw(img)
		if err == nil || !strings.Contains(err.Error(), "panel ssd1306 128x64 on i2c-1: ") {
			t.Fatalf("transfer %d failed: %v", n, err)
		}
		if _, open := d.bus.Handles(); open != 0 {
			t.Errorf("transfer %d failed: the bus is still open", n)
		}
		if err := d.Draw(img); err != nil {
			t.Fatal(err)
		}
		d.shows(t, fmt.Sprintf("after an error in transfer %d", n), img)
	}
	// A part of a frame, and the part goes wrong.
	d := newDesk(t, module, 0x3c)
	img := page(128, 64, 0)
	if err := d.Draw(img); err != nil {
		t.Fatal(err)
	}
	img.SetGray(99, 33, color.Gray{Y: 255 - img.GrayAt(99, 33).Y})
	d.bus.FailAt(2)
	if err := d.Draw(img); err == nil {
		t.Fatal("no error")
	}
	d.model.PowerCycle() // it was a loose plug
	if err := d.Draw(img); err != nil {
		t.Fatal(err)
	}
	d.shows(t, "after a part went wrong", img)
}

// TestUnplugged takes the panel off the bus, then the bus itself, and puts them back: the present page comes in full.
func TestUnplugged(t *testing.T) {
	d := newDesk(t, module, 0x3c)
	if err := d.Draw(page(128, 64, 1)); err != nil {
		t.Fatal(err)
	}
	for what, take := range map[string]func(bool){
		"panel": func(away bool) {
			if away {
				d.bus.Detach(0x3c)
			} else {
				d.bus.Attach(0x3c, d.model)
			}
		},
		"bus": d.bus.SetGone,
	} {
		take(true)
		last := ""
		for n := range 5 { // the first finds the loss, the others its absence
			err := d.Draw(page(128, 64, 2+n))
			switch {
			case err == nil:
				t.Fatalf("%s unplugged: no error", what)
			case n > 0 && what == "panel" && !errors.Is(err, ErrAbsent):
				t.Errorf("%s unplugged: %v is not ErrAbsent", what, err)
			case n > 1 && err.Error() != last:
				t.Errorf("%s unplugged: %q and then %q: that would be two lines in the log", what, last, err)
			}
			last = err.Error()
		}
		d.model.PowerCycle()
		take(false)
		img := page(128, 64, 9)
		if err := d.Draw(img); err != nil {
			t.Fatal(err)
		}
		d.shows(t, what+" plugged in again", img)
	}
}

func TestPower(t *testing.T) {
	d := newDesk(t, module, 0x3c)
	first, second := page(128, 64, 1), page(128, 64, 2)
	do := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	do(d.Draw(first), d.SetPower(false))
	if d.model.On() {
		t.Error("still on")
	}
	before := d.bus.Transfers()
	do(d.Draw(second))
	if d.model.On() || d.bus.Transfers() != before {
		t.Error("drawing wakes it")
	}
	do(d.SetPower(true))
	d.shows(t, "woken", second)

	// Asleep, power lost and back, woken: everything is set up anew only if the bus said so; a replug is such an error.
	do(d.SetPower(false))
	d.bus.FailAt(1)
	if d.SetPower(true) == nil {
		t.Error("no error")
	}
	d.model.PowerCycle()
	do(d.SetPower(true))
	d.shows(t, "woken after an error", second)

	// It must not stay lit because the one command was lost.
	d.bus.FailAt(1)
	if d.SetPower(false) == nil || !d.model.On() {
		t.Error("no error, or off all the same")
	}
	do(d.SetPower(false))
	if d.model.On() {
		t.Error("still on after the second try")
	}
}

// TestAddresses finds the panel at either address, also on a bus that reports no missing acknowledge.
func TestAddresses(t *testing.T) {
	for _, addr := range []uint16{0x3c, 0x3d} {
		for _, silent := range []bool{false, true} {
			bus, model := paneltest.NewBus(), paneltest.NewSSD1306(128, 64)
			bus.Attach(addr, model)
			bus.SetSilent(silent)
			p, err := OpenI2C(module, bus.Open)
			if err != nil {
				t.Fatalf("%#x, silent %v: %v", addr, silent, err)
			}
			img := page(128, 64, 3)
			if err := p.Draw(img); err != nil || !bytes.Equal(model.Picture().Pix, img.Pix) {
				t.Errorf("%#x, silent %v: %v, or another picture", addr, silent, err)
			}
		}
	}
	wrong := module
	wrong.Addresses = []uint16{0x3c}
	for _, spec := range []board.Panel{wrong, module} {
		bus := paneltest.NewBus()
		if len(spec.Addresses) == 1 {
			bus.Attach(0x3d, paneltest.NewSSD1306(128, 64))
		} else {
			bus.SetSilent(true)
		}
		_, err := OpenI2C(spec, bus.Open)
		if !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "no panel answers at [0x3c") {
			t.Errorf("%v", err)
		}
		if _, open := bus.Handles(); open != 0 {
			t.Error("a handle is left open")
		}
	}
}

func TestNoDriver(t *testing.T) {
	for _, spec := range []board.Panel{
		{Controller: board.SSD1351, Bus: "spidev0.0"}, {Controller: board.ST7735, Bus: "spidev0.0"},
		{Controller: board.ST7789, Bus: "spidev0.0"}, {Controller: board.SH1106, Bus: "spidev0.0"},
		{Controller: board.SH1106, Bus: "i2c-1"}, {Controller: board.SSD1306, Bus: "spidev0.0"},
	} {
		_, err := Open(spec)
		if !errors.Is(err, ErrNoDriver) || !strings.Contains(err.Error(), "no driver yet for controller "+spec.Controller) {
			t.Errorf("%s on %s: %v", spec.Controller, spec.Bus, err)
		}
	}
	if _, err := Open(board.Panel{Controller: board.SSD1306}); err == nil || !strings.Contains(err.Error(), "use i2c-N") {
		t.Errorf("no bus: %v", err)
	}
}

func TestBits(t *testing.T) {
	want := page(128, 64, 5)
	same := image1bit.NewVerticalLSB(want.Rect)
	moved := image.NewRGBA(want.Rect.Add(image.Pt(10, 20)))
	for y := range 64 {
		for x := range 128 {
			c := want.GrayAt(x, y)
			same.Set(x, y, c)
			moved.Set(x+10, y+20, c)
		}
	}
	for name, img := range map[string]image.Image{"gray": want, "bits": same, "colour, elsewhere": moved} {
		if got := bits(img); !bytes.Equal(got.Pix, same.Pix) || got.Rect != want.Rect {
			t.Errorf("%s: another picture", name)
		}
	}
	d := newDesk(t, module, 0x3c)
	if err := d.Draw(page(128, 32, 1)); err == nil || !strings.Contains(err.Error(), "the picture is 128x32") {
		t.Errorf("a picture of another size: %v", err)
	}
}
