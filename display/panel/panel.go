package panel

import (
	"errors"
	"fmt"
	"image"
	"image/color"

	"linerate/appliance/board"
)

// Panel is an open display.
type Panel interface {
	// Size is the width and height in pixels; it never changes.
	Size() image.Point
	// ColorModel is what a pixel can show: image1bit.BitModel on a panel of one colour.
	ColorModel() color.Model
	// Draw shows a picture of the panel's size. While the power is off the picture is kept and shown with
	// SetPower(true).
	Draw(img image.Image) error
	// SetPower puts the display to sleep, dark and drawing next to nothing, or wakes it with the last picture.
	SetPower(on bool) error
	// Close lets the bus go; what is shown stays. Call SetPower(false) before to leave the panel dark.
	Close() error
}

// ErrAbsent is in the chain of every error that says: there is no such panel, or no such bus, at present.
var ErrAbsent = errors.New("no panel")

// ErrNoDriver is in the chain of the error for a panel that this version cannot drive, present or not; retrying is
// useless.
var ErrNoDriver = errors.New("no driver yet")

// Open opens the panel a profile names. An error with ErrAbsent in its chain may pass (a cable, a USB adapter), one
// with ErrNoDriver does not.
func Open(spec board.Panel) (Panel, error) {
	bus, err := board.ParseBus(spec.Bus)
	if err != nil {
		return nil, fmt.Errorf("panel %s: %w", spec.Controller, err)
	}
	if bus.IsSPI() {
		return nil, fmt.Errorf("panel on %s: %w for controller %s on SPI", spec.Bus, ErrNoDriver, spec.Controller)
	}
	return OpenI2C(spec, kernel.opener(bus))
}
