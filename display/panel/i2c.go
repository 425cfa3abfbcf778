package panel

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"periph.io/x/conn/v3/i2c"
	"periph.io/x/host/v3/sysfs"

	"linerate/appliance/board"
)

// i2cHost is where the kernel shows its I2C buses.
type i2cHost struct {
	dev   string // folder of the device nodes
	class string // /sys/class/i2c-dev: one folder a bus, with the adapter's name in name

	connect func(n int) (i2c.BusCloser, error) // opens /dev/i2c-N
}

// kernel is the machine this runs on.
var kernel = i2cHost{dev: "/dev", class: "/sys/class/i2c-dev", connect: sysfsI2C}

// sysfsI2C opens a bus by number with periph's sysfs driver.
func sysfsI2C(n int) (i2c.BusCloser, error) { return sysfs.NewI2C(n) }

// opener finds and opens a bus each time it is called: an adapter that was plugged in again has another number.
// periph's registry of buses knows only what was there when the process began, so it is no help.
func (h i2cHost) opener(bus board.Bus) func() (i2c.BusCloser, error) {
	return func() (i2c.BusCloser, error) {
		n, err := h.number(bus)
		if err != nil {
			return nil, err
		}
		if err := h.check(n); err != nil {
			return nil, err
		}
		return h.connect(n)
	}
}

// number is N of the /dev/i2c-N that is meant.
func (h i2cHost) number(bus board.Bus) (int, error) {
	if bus.Adapter == "" {
		return bus.I2C, nil
	}
	files, err := filepath.Glob(filepath.Join(h.class, "i2c-*", "name"))
	if err != nil {
		return 0, err // the pattern is bad: never
	}
	prefix, open := strings.CutSuffix(bus.Adapter, "*")
	var fits []int
	var others []string
	for _, file := range files {
		name, err := adapterName(file)
		n, notNumber := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "i2c-"))
		if err != nil || notNumber != nil {
			continue // gone since
		}
		if name == bus.Adapter || open && strings.HasPrefix(name, prefix) {
			fits = append(fits, n)
		} else {
			others = append(others, strconv.Quote(name))
		}
	}
	slices.Sort(others)
	switch {
	case len(fits) == 1:
		return fits[0], nil
	case len(fits) > 1:
		slices.Sort(fits)
		return 0, fmt.Errorf("%d I2C adapters are called %q (/dev/i2c-%d, /dev/i2c-%d ...): unplug one or name the bus by "+
			"its number", len(fits), bus.Adapter, fits[0], fits[1])
	case len(others) == 0:
		return 0, fmt.Errorf("%w: no I2C adapter is called %q, and there is no other: plug it in and load i2c-dev", ErrAbsent,
			bus.Adapter)
	default:
		return 0, fmt.Errorf("%w: no I2C adapter is called %q: plug it in or name one of %s", ErrAbsent, bus.Adapter,
			strings.Join(others, ", "))
	}
}

// adapterName reads one name; the kernel's are at most 48 bytes long.
func adapterName(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 256))
	return strings.TrimSpace(string(data)), err
}

// check opens the device node for once, because periph's own error says neither what is missing nor what to do.
func (h i2cHost) check(n int) error {
	node := filepath.Join(h.dev, fmt.Sprintf("i2c-%d", n))
	f, err := os.OpenFile(node, os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s is missing: switch the bus on (Raspberry Pi: dtparam=i2c_arm=on, Armbian: "+
			"overlays=i2c%d) and load i2c-dev", ErrAbsent, node, n)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s may not be opened: put the user into the group that owns it (i2c)", node)
	case err != nil:
		return err
	}
	return f.Close()
}
