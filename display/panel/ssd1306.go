package panel

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"slices"

	"periph.io/x/conn/v3/i2c"
	"periph.io/x/devices/v3/ssd1306"
	"periph.io/x/devices/v3/ssd1306/image1bit"

	"linerate/appliance/board"
)

// OpenI2C opens a panel on an I2C bus; open gives a new handle on it each time the device has to be found anew, and
// the panel closes what it was given. Open calls it with the kernel's buses, tests with a fake.
func OpenI2C(spec board.Panel, open func() (i2c.BusCloser, error)) (Panel, error) {
	if spec.Controller != board.SSD1306 {
		return nil, fmt.Errorf("panel on %s: %w for controller %s", spec.Bus, ErrNoDriver, spec.Controller)
	}
	p := &oled{spec: spec, open: open, power: true, contrast: 0xff} // 0xff: what periph sets
	if spec.Contrast != nil {
		p.contrast = byte(*spec.Contrast)
	}
	if err := p.connect(); err != nil {
		return nil, err
	}
	return p, nil
}

// oled is an SSD1306 on I2C, driven by periph's ssd1306.
type oled struct {
	spec     board.Panel
	open     func() (i2c.BusCloser, error)
	bus      i2c.BusCloser // nil while dropped
	dev      *ssd1306.Dev  // nil while dropped
	frame    *image1bit.VerticalLSB
	power    bool
	contrast byte
}

func (p *oled) Size() image.Point { return image.Pt(p.spec.Width, p.spec.Height) }

func (p *oled) ColorModel() color.Model { return image1bit.BitModel }

func (p *oled) String() string {
	return fmt.Sprintf("%s %dx%d on %s", p.spec.Controller, p.spec.Width, p.spec.Height, p.spec.Bus)
}

// Draw shows a picture. A pixel of half brightness or more is lit.
func (p *oled) Draw(img image.Image) error {
	if size := img.Bounds().Size(); size != p.Size() {
		return fmt.Errorf("panel %s: the picture is %dx%d", p, size.X, size.Y)
	}
	p.frame = bits(img)
	if !p.power {
		return nil
	}
	return p.show()
}

// SetPower switches the display off or on. A device that was dropped is set up anew even to be switched off: it may
// have missed only that.
func (p *oled) SetPower(on bool) error {
	p.power = on
	if err := p.connect(); err != nil {
		return err
	}
	if !on {
		return p.lost(p.dev.Halt())
	}
	// periph wakes it before the next command; a frame that has not changed would be none.
	if err := p.lost(p.dev.SetContrast(p.contrast)); err != nil {
		return err
	}
	return p.show()
}

// Close lets the bus go.
func (p *oled) Close() error {
	bus := p.bus
	p.bus, p.dev = nil, nil
	if bus == nil {
		return nil
	}
	return bus.Close()
}

// show sends the present frame.
func (p *oled) show() error {
	if p.frame == nil {
		return nil
	}
	if err := p.connect(); err != nil {
		return err
	}
	return p.lost(p.dev.Draw(p.dev.Bounds(), p.frame, image.Point{}))
}

// lost drops the device after an error. periph takes a frame as shown before it has sent it, so only a new device
// is sure to be sent everything.
func (p *oled) lost(err error) error {
	if err == nil {
		return nil
	}
	_ = p.Close() // the error before it is the one to report
	return fmt.Errorf("panel %s: %w; check the cable", p, err)
}

// connect finds the device and sets it up, unless that is done.
func (p *oled) connect() error {
	if p.dev != nil {
		return nil
	}
	bus, err := p.open()
	if err != nil {
		return fmt.Errorf("panel %s: %w", p, err)
	}
	opts := ssd1306.DefaultOpts
	opts.W, opts.H, opts.Sequential = p.spec.Width, p.spec.Height, p.spec.Sequential
	if p.spec.Rotate == 180 {
		opts.MirrorVertical, opts.MirrorHorizontal = true, true
	}
	var failed error
	for _, addr := range p.spec.Addresses {
		if len(p.spec.Addresses) > 1 && !answers(bus, addr) {
			continue
		}
		dev, err := ssd1306.NewI2C(at(bus, addr), &opts)
		if err == nil && p.spec.Contrast != nil {
			err = dev.SetContrast(p.contrast)
		}
		if err == nil {
			p.bus, p.dev = bus, dev
			return nil
		}
		failed = err
	}
	_ = bus.Close()
	if failed == nil {
		failed = errors.New("nobody acknowledges")
	}
	return fmt.Errorf("panel %s: %w answers at %#x (%w): check the cable, the address and the bus", p, ErrAbsent,
		p.spec.Addresses, failed)
}

// answers says whether a device may be there, where there is a choice of addresses. Only a read that leaves its
// buffer alone says no: some drivers (i2c-virtio) report no error when nobody acknowledges, and a write would look
// fine.
func answers(bus i2c.Bus, addr uint16) bool {
	zero, ones := []byte{0x00}, []byte{0xff}
	if bus.Tx(addr, nil, zero) != nil || bus.Tx(addr, nil, ones) != nil {
		return true // the set-up's writes decide: there are panels that cannot be read
	}
	return zero[0] != 0x00 || ones[0] != 0xff
}

// defaultAddress is the only one that periph's ssd1306 knows.
const defaultAddress = 0x3c

// at makes the device at an address appear where periph looks for it.
func at(bus i2c.Bus, addr uint16) i2c.Bus {
	if addr == defaultAddress {
		return bus
	}
	return readdressed{bus, addr}
}

// readdressed sends everything to another address.
type readdressed struct {
	i2c.Bus
	addr uint16
}

// Tx puts the address in place of the one asked for.
func (r readdressed) Tx(_ uint16, w, read []byte) error { return r.Bus.Tx(r.addr, w, read) }

// bits makes a picture of one bit a pixel, with its upper left corner at 0,0.
func bits(img image.Image) *image1bit.VerticalLSB {
	b := img.Bounds()
	out := image1bit.NewVerticalLSB(image.Rectangle{Max: b.Size()})
	if same, ok := img.(*image1bit.VerticalLSB); ok && b == out.Rect {
		out.Pix = slices.Clone(same.Pix)
		return out
	}
	gray, isGray := img.(*image.Gray)
	for y := range b.Dy() {
		for x := range b.Dx() {
			var luma byte
			if isGray {
				luma = gray.GrayAt(b.Min.X+x, b.Min.Y+y).Y
			} else {
				luma = color.GrayModel.Convert(img.At(b.Min.X+x, b.Min.Y+y)).(color.Gray).Y
			}
			if luma >= 0x80 {
				out.SetBit(x, y, image1bit.On)
			}
		}
	}
	return out
}
