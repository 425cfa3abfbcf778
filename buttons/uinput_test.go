package buttons

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/appliance/board"
)

// From the kernel's include/uapi/linux/uinput.h.
const (
	uiDevCreate  = 0x5501
	uiDevDestroy = 0x5502
	uiDevSetup   = 0x405c5503
	uiSetEvbit   = 0x40045564
	uiSetKeybit  = 0x40045565
	uiSetPhys    = 0x4000556c | unsafe.Sizeof(uintptr(0))<<16
	uiGetSysname = 0x8040552c // 64 bytes
)

// virtualKeys makes an input device of the running kernel; its events are written to the file.
func virtualKeys(t *testing.T, name, phys string, bus uint16, codes ...uint16) (events *os.File, path string) {
	t.Helper()
	f, err := os.OpenFile("/dev/uinput", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no input device can be made here: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	ioctl := func(request uintptr, arg uintptr) {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, arg); errno != 0 {
			t.Fatalf("uinput request %#x: %v", request, errno)
		}
	}
	ioctl(uiSetEvbit, evKey)
	for _, code := range codes {
		ioctl(uiSetKeybit, uintptr(code))
	}
	place := append([]byte(phys), 0)
	ioctl(uiSetPhys, uintptr(unsafe.Pointer(&place[0])))
	var setup [92]byte // struct uinput_setup: id, name, ff_effects_max
	binary.NativeEndian.PutUint16(setup[:], bus)
	copy(setup[8:87], name)
	ioctl(uiDevSetup, uintptr(unsafe.Pointer(&setup)))
	ioctl(uiDevCreate, 0)
	var sysname [64]byte
	ioctl(uiGetSysname, uintptr(unsafe.Pointer(&sysname)))
	dir := filepath.Join("/sys/devices/virtual/input", strings.TrimRight(string(sysname[:]), "\x00"))
	found, err := filepath.Glob(filepath.Join(dir, "event*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("no event device in %s: %v %v", dir, found, err)
	}
	return f, filepath.Join("/dev/input", filepath.Base(found[0]))
}

func send(t *testing.T, f *os.File, events ...inputEvent) {
	t.Helper()
	if _, err := f.Write(wire(eventSize, events...)); err != nil {
		t.Fatal(err)
	}
}

// The kernel's own evdev, from the ioctls to the hot-plug.
func TestEvdevOfTheKernel(t *testing.T) {
	profile := board.Profile{Keys: []board.Key{
		{Label: "K1", Short: "down", Long: "select", Codes: []board.Code{0x198}, Devices: []string{"gpio-keys"}},
	}}
	keys, path := virtualKeys(t, "gpio-keys", "gpio-keys/input0", 0x19, 0x198)

	f, ctl, err := openEvdev(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := ctl.describe()
	if err != nil {
		t.Fatal(err)
	}
	if info.name != "gpio-keys" || info.phys != "gpio-keys/input0" || info.bus != 0x19 ||
		!info.keys.has(0x198) || info.keys.has(0x197) {
		t.Errorf("says of itself: %+v", info)
	}

	send(t, keys, key(0x198, 1), report)
	if bits, err := ctl.held(); err != nil || !bits.has(0x198) || bits.has(30) {
		t.Errorf("held: %v, %v", bits, err)
	}
	send(t, keys, key(0x198, 0), report)

	b := startBox(t, Options{Profile: profile}, nil)
	b.until("the device is taken", func() bool { return b.logged("keys: gpio-keys") })
	if err := ctl.grab(); err != unix.EBUSY {
		t.Errorf("another program takes the device: %v", err)
	}
	buf := make([]byte, 64*eventSize)
	if _, err := f.Read(buf); err != nil { // the press above, from before it was taken
		t.Error(err)
	}
	// Asking for the keys that are down, the first thing a reader does, takes what waits in its queue.
	b.until("the press is seen", func() bool {
		send(t, keys, key(0x198, 1), report, key(0x198, 0), report)
		return b.presses(appliance.Down) > 0
	})
	if err := f.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Read(buf); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("another program read %d bytes of the press: %v", n, err)
	}

	// A keypad is plugged in and out.
	pad, padPath := virtualKeys(t, "Keypad", "usb-test-1/input0", busUSB, 72, 80, 96)
	b.until("the keypad works", func() bool {
		send(t, pad, key(72, 1), report, key(72, 0), report)
		return b.presses(appliance.Up) > 0
	})
	pad.Close()
	b.until("the keypad is gone", func() bool { return b.logged("no more keys from it") })
	if _, err := os.Stat(padPath); err == nil {
		t.Error("the device is still there")
	}
	keyboard, keyboardPath := virtualKeys(t, "Keyboard", "usb-test-2/input0", busUSB, 16, 30, 28, 103, 108)
	b.until("the keyboard is left alone", func() bool { return b.logged("it has letter keys") })
	send(t, keyboard, key(103, 1), report, key(103, 0), report)
	if f, ctl, err := openEvdev(keyboardPath); err != nil {
		t.Error(err)
	} else {
		if err := ctl.grab(); err != nil {
			t.Errorf("the keyboard was taken: %v", err)
		}
		f.Close()
	}
}
