package paneltest

import (
	"fmt"
	"io"
	"io/fs"
	"sync"
	"syscall"

	"periph.io/x/conn/v3/i2c"
	"periph.io/x/conn/v3/physic"
)

// Bus is an I2C bus with devices on it and things that go wrong. It outlives the handles that Open gives, as a bus
// in the kernel does.
type Bus struct {
	mu        sync.Mutex
	devices   map[uint16]io.ReadWriter
	gone      bool
	silent    bool
	transfers int
	failAt    int // number of the transfer that fails; 0: none
	opened    int
	open      int
}

// NewBus makes a bus with nothing on it.
func NewBus() *Bus { return &Bus{devices: map[uint16]io.ReadWriter{}} }

// Attach puts a device on the bus; one message is one Write or one Read.
func (b *Bus) Attach(addr uint16, device io.ReadWriter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.devices[addr] = device
}

// Detach takes the device at an address off the bus: nobody acknowledges there any more.
func (b *Bus) Detach(addr uint16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.devices, addr)
}

// SetGone takes the bus itself away, as when a USB adapter is unplugged, or brings it back.
func (b *Bus) SetGone(gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = gone
}

// SetSilent makes a transfer that nobody acknowledges look like a good one with the read buffer left as it was: so
// does the kernel's i2c-virtio.
func (b *Bus) SetSilent(silent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.silent = silent
}

// FailAt makes the n-th transfer from now fail, 1 being the next: half of its bytes arrive. It happens once.
func (b *Bus) FailAt(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failAt = b.transfers + n
}

// Transfers is how many transfers there were, the failed ones included.
func (b *Bus) Transfers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.transfers
}

// Handles is how many handles were opened so far and how many of them are open now.
func (b *Bus) Handles() (opened, open int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened, b.open
}

// Open gives a handle on the bus, as opening /dev/i2c-N does.
func (b *Bus) Open() (i2c.BusCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return nil, &fs.PathError{Op: "open", Path: "/dev/i2c-9", Err: syscall.ENOENT}
	}
	b.opened++
	b.open++
	return &handle{bus: b}, nil
}

// Tx does one transfer; it makes Bus an i2c.Bus for those who need no handle.
func (b *Bus) Tx(addr uint16, w, r []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.transfers++
	device := b.devices[addr]
	switch {
	case b.gone:
		return fmt.Errorf("i2c: %w", syscall.ENODEV)
	case b.transfers == b.failAt:
		if device != nil && len(w) > 1 {
			_, _ = device.Write(w[:len(w)/2]) // what arrived before the error
		}
		return fmt.Errorf("i2c: %w", syscall.EIO)
	case device == nil && b.silent:
		return nil
	case device == nil:
		return fmt.Errorf("i2c: %w", syscall.EREMOTEIO)
	}
	if len(w) > 0 {
		if _, err := device.Write(w); err != nil {
			return err
		}
	}
	if len(r) > 0 {
		if _, err := device.Read(r); err != nil {
			return err
		}
	}
	return nil
}

// SetSpeed refuses, as the kernel's buses do.
func (b *Bus) SetSpeed(physic.Frequency) error { return syscall.EOPNOTSUPP }

// String names the bus.
func (b *Bus) String() string { return "paneltest" }

// handle is one open handle of a Bus.
type handle struct {
	bus    *Bus
	mu     sync.Mutex
	closed bool
}

func (h *handle) Tx(addr uint16, w, r []byte) error {
	h.mu.Lock()
	closed := h.closed
	h.mu.Unlock()
	if closed {
		return fs.ErrClosed
	}
	return h.bus.Tx(addr, w, r)
}

func (h *handle) SetSpeed(f physic.Frequency) error { return h.bus.SetSpeed(f) }

func (h *handle) String() string { return h.bus.String() }

func (h *handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return fs.ErrClosed
	}
	h.closed = true
	h.bus.mu.Lock()
	defer h.bus.mu.Unlock()
	h.bus.open--
	return nil
}
