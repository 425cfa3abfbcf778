package panel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"periph.io/x/conn/v3/i2c"

	"linerate/appliance/board"
	"linerate/display/panel/paneltest"
)

// host is a machine's folders with these adapters, by number.
func host(t *testing.T, adapters map[int]string) i2cHost {
	t.Helper()
	h := i2cHost{dev: t.TempDir(), class: t.TempDir()}
	for n, name := range adapters {
		dir := filepath.Join(h.class, fmt.Sprintf("i2c-%d", n))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{filepath.Join(dir, "name"): name + "\n",
			filepath.Join(h.dev, fmt.Sprintf("i2c-%d", n)): ""} {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return h
}

func TestBusNumber(t *testing.T) {
	h := host(t, map[int]string{0: "rk3x-i2c", 5: "rk3x-i2c", 7: "CP2112 SMBus Bridge on hidraw3"})
	for _, test := range []struct {
		bus    string
		number int
		want   string // part of the error
	}{
		{"i2c-3", 3, ""},
		{"CP2112 SMBus Bridge on hidraw3", 7, ""},
		{"CP2112 SMBus Bridge on hidraw*", 7, ""},
		{"CP2112 SMBus Bridge on hidraw", 0, `no panel: no I2C adapter is called "CP2112 SMBus Bridge on hidraw": plug ` +
			`it in or name one of "CP2112 SMBus Bridge on hidraw3", "rk3x-i2c", "rk3x-i2c"`},
		{"rk3x*", 0, `2 I2C adapters are called "rk3x*" (/dev/i2c-0, /dev/i2c-5 ...)`},
	} {
		bus, err := board.ParseBus(test.bus)
		if err != nil {
			t.Fatal(err)
		}
		n, err := h.number(bus)
		if n != test.number || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %d, %v", test.bus, n, err)
		}
	}
	_, err := host(t, nil).number(board.Bus{I2C: -1, SPI: -1, Adapter: "x*"})
	if !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "there is no other") {
		t.Errorf("no adapter at all: %v", err)
	}
}

func TestBusNode(t *testing.T) {
	h := host(t, map[int]string{1: "bcm2835 (i2c@7e804000)"})
	if err := h.check(1); err != nil {
		t.Error(err)
	}
	err := h.check(4)
	if !errors.Is(err, ErrAbsent) || !strings.Contains(err.Error(), "i2c-4 is missing: switch the bus on") {
		t.Errorf("a missing node: %v", err)
	}
	// A machine without the bus, through the front door.
	spec := module
	spec.Bus = "i2c-9999"
	if _, err := Open(spec); !errors.Is(err, ErrAbsent) {
		t.Errorf("%v", err)
	}
}

// TestAnotherNumber unplugs a USB adapter and plugs it in again: the kernel gives it another number, its name stays.
func TestAnotherNumber(t *testing.T) {
	buses := map[int]*paneltest.Bus{7: paneltest.NewBus(), 8: paneltest.NewBus()}
	model := paneltest.NewSSD1306(128, 64)
	h := host(t, map[int]string{1: "other", 7: "CP2112 SMBus Bridge on hidraw0"})
	h.connect = func(n int) (i2c.BusCloser, error) { return buses[n].Open() }
	buses[7].Attach(0x3c, model)
	spec := module
	spec.Bus = "CP2112 SMBus Bridge on hidraw*"
	bus, err := board.ParseBus(spec.Bus)
	if err != nil {
		t.Fatal(err)
	}
	p, err := OpenI2C(spec, h.opener(bus))
	if err != nil {
		t.Fatal(err)
	}
	d := desk{bus: buses[8], model: model, Panel: p}
	if err := d.Draw(page(128, 64, 1)); err != nil {
		t.Fatal(err)
	}

	buses[7].SetGone(true)
	if err := os.RemoveAll(filepath.Join(h.class, "i2c-7")); err != nil {
		t.Fatal(err)
	}
	img := page(128, 64, 2)
	if err := d.Draw(img); err == nil {
		t.Fatal("no error")
	}
	if err := d.Draw(img); !errors.Is(err, ErrAbsent) {
		t.Errorf("%v is not ErrAbsent", err)
	}

	model.PowerCycle()
	buses[8].Attach(0x3c, model)
	again := host(t, map[int]string{8: "CP2112 SMBus Bridge on hidraw4"})
	for _, dirs := range [][2]string{{again.class, h.class}, {again.dev, h.dev}} {
		if err := os.CopyFS(dirs[1], os.DirFS(dirs[0])); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Draw(img); err != nil {
		t.Fatal(err)
	}
	d.shows(t, "on the new number", img)
}
