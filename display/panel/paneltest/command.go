package paneltest

// arguments is how many bytes follow a command (table 9-1); a command that is not here has none, one that is
// neither here nor known to obey does not exist.
var arguments = map[byte]int{
	0x20: 1, 0x21: 2, 0x22: 2, 0x26: 6, 0x27: 6, 0x29: 5, 0x2a: 5, 0x81: 1, 0x8d: 1, 0xa3: 2, 0xa8: 1, 0xd3: 1, 0xd5: 1,
	0xd9: 1, 0xda: 1, 0xdb: 1,
}

// byteOfCommand takes the next byte of the stream of commands. A command may be spread over several messages.
func (d *SSD1306) byteOfCommand(b byte) {
	if d.missing > 0 {
		d.arguments = append(d.arguments, b)
		d.missing--
	} else {
		d.command, d.arguments, d.missing = b, d.arguments[:0], arguments[b]
	}
	if d.missing == 0 {
		d.obey(d.command, d.arguments)
	}
}

// obey carries out one whole command.
func (d *SSD1306) obey(c byte, a []byte) {
	switch {
	// Pointers. The data sheet gives these three to page mode; the chip obeys them in every mode, and drivers rely
	// on it.
	case c <= 0x0f:
		d.column = d.column&^0x0f | int(c)
	case c <= 0x1f:
		d.column = (d.column&0x0f | int(c&0x0f)<<4) % columns
	case c >= 0xb0 && c <= 0xb7:
		d.page = int(c & 7)

	case c == 0x20:
		if d.allow(a[0] <= pageMode, c, a) {
			d.mode = a[0]
		}
	case c == 0x21:
		if d.allow(a[0] <= a[1] && a[1] < columns, c, a) {
			d.colStart, d.colEnd, d.column = int(a[0]), int(a[1]), int(a[0])
		}
	case c == 0x22:
		if d.allow(a[0] <= a[1] && a[1] < pages, c, a) {
			d.pageStart, d.pageEnd, d.page = int(a[0]), int(a[1]), int(a[0])
		}

	case c >= 0x40 && c <= 0x7f:
		d.startLine = int(c & 0x3f)
	case c == 0x81:
		d.contrast = a[0]
	case c == 0x8d:
		if d.allow(a[0]&^0x04 == 0x10, c, a) {
			d.pump = a[0]&0x04 != 0
		}
	case c == 0xa0 || c == 0xa1:
		d.remap = c == 0xa1
	case c == 0xa4 || c == 0xa5:
		d.allOn = c == 0xa5
	case c == 0xa6 || c == 0xa7:
		d.inverted = c == 0xa7
	case c == 0xa8:
		if d.allow(a[0] >= 15 && a[0] <= 63, c, a) {
			d.multiplex = int(a[0]) + 1
		}
	case c == 0xae || c == 0xaf:
		d.on = c == 0xaf
	case c == 0xc0 || c == 0xc8:
		d.scanDown = c == 0xc8
	case c == 0xd3:
		if d.allow(a[0] < rows, c, a) {
			d.offset = int(a[0])
		}
	case c == 0xda:
		if d.allow(a[0]&^0x30 == 0x02, c, a) {
			d.comPins = a[0]
		}

	case c == 0x2e || c == 0x2f:
		d.scrolling = c == 0x2f
	case c == 0xd5, c == 0xdb, c == 0xe3: // clock, deselect level, nothing: nothing that is seen
	case c == 0xd9:
		d.allow(a[0]&0x0f != 0 && a[0]>>4 != 0, c, a)
	case c == 0x26, c == 0x27, c == 0x29, c == 0x2a, c == 0xa3: // how to scroll, once it does
	default:
		d.fault("there is no command %#02x", c)
	}
}

// allow notes arguments that the data sheet forbids.
func (d *SSD1306) allow(ok bool, c byte, a []byte) bool {
	if !ok {
		d.fault("command %#02x with % x", c, a)
	}
	return ok
}

// data stores one byte and moves the pointers as the addressing mode says (section 10.1.3).
func (d *SSD1306) data(b byte) {
	if d.missing > 0 {
		d.fault("data while command %#02x lacks %d bytes", d.command, d.missing)
	}
	if d.scrolling {
		d.fault("data while scrolling")
	}
	segment := d.column
	if d.remap { // counts for what is written from now on (section 10.1.8)
		segment = columns - 1 - segment
	}
	d.ram[d.page][segment] = b
	switch d.mode {
	case horizontal:
		if d.nextColumn() {
			d.nextPage()
		}
	case vertical:
		if d.nextPage() {
			d.nextColumn()
		}
	default:
		d.nextColumn()
	}
}

// nextColumn moves on and says whether it came round.
func (d *SSD1306) nextColumn() bool {
	if d.column == d.colEnd {
		d.column = d.colStart
		return true
	}
	d.column = (d.column + 1) % columns
	return false
}

// nextPage moves on and says whether it came round.
func (d *SSD1306) nextPage() bool {
	if d.page == d.pageEnd {
		d.page = d.pageStart
		return true
	}
	d.page = (d.page + 1) % pages
	return false
}
