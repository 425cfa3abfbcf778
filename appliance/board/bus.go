package board

import (
	"fmt"
	"regexp"
	"strconv"
)

// Bus says where a panel is connected: exactly one of the three is meant.
type Bus struct {
	I2C     int    // number N of /dev/i2c-N; -1: not a numbered I2C bus
	Adapter string // name of an I2C adapter as in /sys/class/i2c-dev/i2c-N/name; may end in * to match what begins so
	SPI     int    // X of /dev/spidevX.Y; -1: not SPI
	CS      int    // Y of /dev/spidevX.Y
}

// IsSPI says whether the bus is an SPI bus.
func (b Bus) IsSPI() bool { return b.SPI >= 0 }

var (
	numberedI2C = regexp.MustCompile(`^i2c-([0-9]{1,4})$`)
	numberedSPI = regexp.MustCompile(`^spidev([0-9]{1,4})\.([0-9]{1,3})$`)
)

// maxAdapterName is the size of name in struct i2c_adapter of the kernel's include/linux/i2c.h.
const maxAdapterName = 48

// ParseBus reads the bus of a panel: "i2c-1" and "spidev0.0" as the device nodes are called, anything else is the
// name of an I2C adapter. A USB adapter gets another number each time it is plugged in, so it is better named than
// numbered; its name often ends in a number too, hence the trailing *.
func ParseBus(s string) (Bus, error) {
	if m := numberedI2C.FindStringSubmatch(s); m != nil {
		n, _ := strconv.Atoi(m[1]) // the expression lets only numbers through
		return Bus{I2C: n, SPI: -1}, nil
	}
	if m := numberedSPI.FindStringSubmatch(s); m != nil {
		x, _ := strconv.Atoi(m[1])
		y, _ := strconv.Atoi(m[2])
		return Bus{I2C: -1, SPI: x, CS: y}, nil
	}
	if s == "" || s == "*" || len(s) > maxAdapterName || !printable(s) {
		return Bus{}, fmt.Errorf("bus %q: use i2c-N, spidevX.Y or an I2C adapter's name", clip(s))
	}
	return Bus{I2C: -1, Adapter: s, SPI: -1}, nil
}
