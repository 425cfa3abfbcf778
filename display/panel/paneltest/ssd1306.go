package paneltest

import (
	"fmt"
	"image"
	"image/color"
	"slices"
	"sync"
)

// Size of the display memory: 8 pages of 128 columns, 8 rows to a page (SSD1306 data sheet 1.1, section 8.7).
const (
	columns = 128
	pages   = 8
	rows    = pages * 8
)

// Memory addressing modes, the argument of command 0x20.
const (
	horizontal = 0
	vertical   = 1
	pageMode   = 2
)

// SSD1306 is the controller with its glass. It understands I2C messages (section 8.1.5): Write takes what follows the
// address of one message, Read gives the status register.
type SSD1306 struct {
	mu            sync.Mutex
	width, height int
	sequential    bool // wiring of the glass
	cycles        uint32
	faults        []string

	ram                 [pages][columns]byte
	mode                byte
	column, page        int // pointers
	colStart, colEnd    int
	pageStart, pageEnd  int
	startLine, offset   int
	multiplex           int // rows that are driven, 16-64
	remap, scanDown     bool
	comPins, contrast   byte
	on, pump, allOn     bool
	inverted, scrolling bool
	command             byte // one whose arguments are still to come
	arguments           []byte
	missing             int
}

// NewSSD1306 makes a panel of width x height pixels as it is after power-on: dark, its memory full of noise. The
// glass of 32 rows is wired in sequence, that of 64 alternating, as sold. It stands upright with segment remap
// (0xA1) and COM scan from the far end (0xC8), as all common modules do.
func NewSSD1306(width, height int) *SSD1306 {
	d := &SSD1306{width: min(width, columns), height: min(height, rows), sequential: height <= 32}
	d.PowerCycle()
	return d
}

// PowerCycle takes the power away and gives it back: registers as after reset (table 9-1), noise in the memory.
func (d *SSD1306) PowerCycle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cycles++
	noise := d.cycles * 2654435761
	for p := range d.ram {
		for c := range d.ram[p] {
			noise = noise*1664525 + 1013904223
			d.ram[p][c] = byte(noise >> 24)
		}
	}
	d.mode, d.column, d.page = pageMode, 0, 0
	d.colStart, d.colEnd, d.pageStart, d.pageEnd = 0, columns-1, 0, pages-1
	d.startLine, d.offset, d.multiplex = 0, 0, rows
	d.remap, d.scanDown, d.comPins, d.contrast = false, false, 0x12, 0x7f
	d.on, d.pump, d.allOn, d.inverted, d.scrolling = false, false, false, false, false
	d.arguments, d.missing = nil, 0
}

// Write takes the bytes of one I2C message after the address. The controller acknowledges everything.
func (d *SSD1306) Write(message []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rest := message
	for len(rest) > 0 {
		control := rest[0]
		rest = rest[1:]
		if control&0x3f != 0 {
			d.fault("control byte %#02x: the low six bits are 0", control)
			break
		}
		block := rest // Co = 0: only data or only commands follow
		if control&0x80 != 0 {
			block = rest[:min(1, len(rest))] // Co = 1: one byte, then another control byte
		}
		rest = rest[len(block):]
		for _, b := range block {
			if control&0x40 != 0 {
				d.data(b)
			} else {
				d.byteOfCommand(b)
			}
		}
	}
	return len(message), nil
}

// Read gives the status register (section 8.1.4): bit 6 is set while the display is off.
func (d *SSD1306) Read(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	status := byte(0x43)
	if d.on {
		status = 0x03
	}
	for i := range p {
		p[i] = status
	}
	return len(p), nil
}

// Picture is what a person sees on the glass: 255 where a pixel is lit.
func (d *SSD1306) Picture() *image.Gray {
	d.mu.Lock()
	defer d.mu.Unlock()
	img := image.NewGray(image.Rect(0, 0, d.width, d.height))
	if !d.on || !d.pump {
		return img // no drive or no voltage for it
	}
	for y := range d.height {
		row, driven := d.rowAt(d.height - 1 - y)
		if !driven {
			continue
		}
		for x := range d.width {
			if d.lit(row, x) {
				img.SetGray(x, y, color.Gray{Y: 255})
			}
		}
	}
	return img
}

// Contrast is the present contrast, 0 to 255.
func (d *SSD1306) Contrast() byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.contrast
}

// On says whether the display is on (0xAF) and has its voltage.
func (d *SSD1306) On() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.on && d.pump
}

// Faults lists what the data sheet forbids and the controller was told all the same.
func (d *SSD1306) Faults() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.faults)
}

func (d *SSD1306) fault(format string, args ...any) {
	if len(d.faults) < 100 {
		d.faults = append(d.faults, fmt.Sprintf(format, args...))
	}
}

// lit says whether the pixel is lit at a row of the scan and x from the left. Segment 0 is at the right of a module, for
// its glass is mounted upside down.
func (d *SSD1306) lit(row, x int) bool {
	if d.allOn {
		return true
	}
	line := (row + d.startLine) % rows
	bit := d.ram[line/8][columns-1-x]>>(line%8)&1 == 1
	return bit != d.inverted
}

// rowAt finds the row of the scan that drives a line of the glass, counted from its COM0 end (section 10.1.13 and
// tables 10-1, 10-2).
func (d *SSD1306) rowAt(glass int) (row int, driven bool) {
	com := unpin(pin(glass, !d.sequential, false), d.comPins&0x10 != 0, d.comPins&0x20 != 0)
	if d.scanDown {
		com = d.multiplex - 1 - com
	}
	row = (com + d.offset + rows) % rows
	return row, row < d.multiplex
}

// pin is where a COM output comes out of the chip, with its COM pins configuration (command 0xDA, section 10.1.18).
func pin(com int, alternative, swapped bool) int {
	if alternative {
		com = com/2 + com%2*32
	}
	if swapped {
		com ^= 32
	}
	return com
}

// unpin is the inverse of pin.
func unpin(at int, alternative, swapped bool) int {
	if swapped {
		at ^= 32
	}
	if alternative {
		at = at%32*2 + at/32
	}
	return at
}
