package board

import (
	"maps"
	"slices"
)

// panel checks the panel of a profile against what its controller can do.
func (c *checker) panel(doc *document) *Panel {
	t := doc.Panel
	if t == nil {
		return nil
	}
	p := &Panel{Controller: t.Controller, Width: t.Width, Height: t.Height, Bus: t.Bus, Addresses: t.Addresses,
		Optional: t.Optional, SpeedHz: t.SpeedHz, DC: t.DC, Reset: t.Reset, Backlight: t.Backlight,
		ColumnOffset: t.ColumnOffset, RowOffset: t.RowOffset, Rotate: t.Rotate, Scan: t.Scan, Sequential: t.Sequential,
		Contrast: t.Contrast}
	known := slices.Sorted(maps.Keys(controllers))
	c.must(t.Controller != "", "panel", "panel has no controller: use one of %v", known)
	c.oneOf("panel.controller", t.Controller, known...)
	chip := controllers[t.Controller]
	p.Colour = chip.colour

	p.Order = c.oneOf("panel.order", t.Order, "rgb", "bgr")
	if !chip.colour {
		c.must(t.Order == "", "panel.order", "%s has one colour: remove order", t.Controller)
		c.must(t.Height%8 == 0, "panel.height", "height = %d: %s counts in pages of 8 pixels", t.Height, t.Controller)
		p.Order = ""
	}
	if t.Controller == SSD1306 {
		c.must(t.Width%8 == 0, "panel.width", "width = %d: use a multiple of 8", t.Width)
	}
	c.must(!t.Sequential || t.Controller == SSD1306, "panel.sequential", "only %s has it", SSD1306)
	c.between("panel.width", t.Width, 8, 320)
	c.between("panel.height", t.Height, 8, 320)
	c.between("panel.column_offset", t.ColumnOffset, 0, 320)
	c.between("panel.row_offset", t.RowOffset, 0, 320)
	c.must(t.Scan == 0 || t.Controller == ST7735 || t.Controller == ST7789, "panel.scan",
		"%s has no MADCTL: remove scan", t.Controller)
	w, h := chip.width, chip.height
	if t.Scan&0x20 != 0 { // MV: rows and columns exchanged
		w, h = h, w
	}
	c.must(t.Width+t.ColumnOffset <= w && t.Height+t.RowOffset <= h, "panel.width",
		"%dx%d at %d,%d does not fit into the %dx%d pixels of %s", t.Width, t.Height, t.ColumnOffset, t.RowOffset, w, h,
		t.Controller)
	c.must(t.Rotate == 0 || t.Rotate == 180, "panel.rotate", "rotate = %d: use 0 or 180", t.Rotate)
	c.must(t.Scan&^0xe0 == 0, "panel.scan", "scan = %#x: use bits 5 to 7 of MADCTL; the rest is order", t.Scan)
	if t.Contrast != nil {
		c.between("panel.contrast", *t.Contrast, 0, 255)
	}
	c.wiring(doc, p, chip)
	return p
}

// wiring checks bus, addresses and pins of a panel.
func (c *checker) wiring(doc *document, p *Panel, chip controller) {
	t := doc.Panel
	bus, err := ParseBus(t.Bus)
	c.must(err == nil, "panel.bus", "%v", err)
	if !bus.IsSPI() {
		c.must(chip.i2c != nil, "panel.bus", "bus = %q: %s is on SPI only, use spidevX.Y", t.Bus, t.Controller)
		c.must(t.SpeedHz == 0, "panel.speed_hz", "speed_hz is for SPI; an I2C bus has its speed from the device tree")
		if len(t.Addresses) == 0 {
			p.Addresses = slices.Clone(chip.i2c)
		}
	} else {
		c.must(len(t.Addresses) == 0, "panel.addresses", "addresses are for I2C: remove them")
		c.must(t.DC != nil, "panel", "a panel on SPI needs dc: the GPIO line that tells data from commands")
		c.must(t.SpeedHz == 0 || t.SpeedHz >= 100_000 && t.SpeedHz <= 100_000_000, "panel.speed_hz",
			"speed_hz = %d: use 100000 to 100000000", t.SpeedHz)
	}
	for i, a := range t.Addresses {
		c.must(slices.Contains(chip.i2c, a), "panel.addresses", "address %#x: %s answers at %#x only", a, t.Controller,
			chip.i2c)
		c.must(!slices.Contains(t.Addresses[:i], a), "panel.addresses", "address %#x stands there twice", a)
	}
	for name, pin := range map[string]*int{"dc": t.DC, "reset": t.Reset, "backlight": t.Backlight} {
		if pin != nil {
			c.between("panel."+name, *pin, 0, maxLine)
			c.must(len(doc.GPIO.Chips) > 0, "panel."+name, "panel %s is a GPIO line, but [gpio] chips is missing", name)
			p.Chips = slices.Clone(doc.GPIO.Chips)
		}
	}
}
