package buttons

import (
	"bytes"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// control is what can be asked of an input device beside its events.
type control interface {
	describe() (deviceInfo, error)
	held() (keyBits, error) // which keys are down
	grab() error            // from now on the events come to us alone
}

// deviceInfo is what a device says of itself.
type deviceInfo struct {
	path string  // /dev/input/eventN
	name string  // EVIOCGNAME; not unique
	phys string  // EVIOCGPHYS, where it is plugged in; made by the kernel, unlike the name
	bus  uint16  // EVIOCGID: BUS_USB ...
	keys keyBits // EVIOCGBIT: the keys it may send
}

// evioc makes the number of an evdev ioctl that reads size bytes: _IOC(_IOC_READ, 'E', nr, size) of the kernel's
// include/uapi/asm-generic/ioctl.h and linux/input.h, the same on x86, arm and riscv.
func evioc(nr, size uintptr) uintptr { return 2<<30 | size<<16 | 'E'<<8 | nr }

// The requests in use, without their size.
const (
	eviocgid   = 0x02
	eviocgname = 0x06
	eviocgphys = 0x07
	eviocgkey  = 0x18
	eviocgbit  = 0x20                          // plus the event type
	eviocgrab  = 1<<30 | 4<<16 | 'E'<<8 | 0x90 // _IOW('E', 0x90, int)
)

// evdev is a real device.
type evdev struct{ file *os.File }

// openEvdev opens an input device for reading with deadlines.
func openEvdev(path string) (*os.File, control, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return f, evdev{f}, nil
}

// ioctl makes the request with the kernel reading or writing at p (or taking p itself as a number).
func (d evdev) ioctl(request uintptr, p unsafe.Pointer) (n int, err error) {
	conn, err := d.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var errno unix.Errno
	err = conn.Control(func(fd uintptr) {
		r, _, e := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(p))
		n, errno = int(r), e
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return n, err
}

func (d evdev) text(nr uintptr) (string, error) {
	var buf [256]byte
	n, err := d.ioctl(evioc(nr, uintptr(len(buf))), unsafe.Pointer(&buf))
	if err == unix.ENOENT { // it has none
		return "", nil
	}
	if err != nil {
		return "", err
	}
	text, _, _ := bytes.Cut(buf[:min(n, len(buf))], []byte{0})
	return string(text), nil
}

func (d evdev) describe() (info deviceInfo, err error) {
	fail := func(what string, err error) (deviceInfo, error) {
		return deviceInfo{}, fmt.Errorf("%s: ask for its %s: %w", d.file.Name(), what, err)
	}
	info.path = d.file.Name()
	if info.name, err = d.text(eviocgname); err != nil {
		return fail("name", err)
	}
	if info.phys, err = d.text(eviocgphys); err != nil {
		return fail("place", err)
	}
	var id [4]uint16 // bustype, vendor, product, version
	if _, err = d.ioctl(evioc(eviocgid, unsafe.Sizeof(id)), unsafe.Pointer(&id)); err != nil {
		return fail("bus", err)
	}
	info.bus = id[0]
	if _, err = d.ioctl(evioc(eviocgbit+evKey, unsafe.Sizeof(info.keys)), unsafe.Pointer(&info.keys)); err != nil {
		return fail("keys", err)
	}
	return info, nil
}

func (d evdev) held() (bits keyBits, err error) {
	_, err = d.ioctl(evioc(eviocgkey, unsafe.Sizeof(bits)), unsafe.Pointer(&bits))
	return bits, err
}

func (d evdev) grab() error {
	conn, err := d.file.SyscallConn()
	if err != nil {
		return err
	}
	ctl := conn.Control(func(fd uintptr) { err = unix.IoctlSetInt(int(fd), eviocgrab, 1) })
	if err == nil {
		err = ctl
	}
	return err
}

// device is an open input device whose keys mean something.
type device struct {
	info     deviceInfo
	file     *os.File
	control  control
	meanings map[uint16]meaning
}

// read reports the edges of the keys that mean something until the device goes or its file is closed. The first ones
// are those of keys that are down already, marked so.
func (d *device) read(report func(code uint16, at time.Time, down, first bool)) error {
	stream := eventStream{size: eventSize}
	tell := func(edges []codeEdge, first bool) {
		now := time.Now()
		for _, e := range edges {
			if _, ok := d.meanings[e.code]; ok {
				report(e.code, now, e.down, first)
			}
		}
	}
	sync := func(first bool) error {
		bits, err := d.control.held()
		if err != nil {
			return fmt.Errorf("%s: ask which keys are down: %w", d.info.path, err)
		}
		tell(stream.sync(bits), first)
		return nil
	}
	if err := sync(true); err != nil {
		return err
	}
	buf := make([]byte, 64*eventSize)
	for {
		n, err := d.file.Read(buf)
		edges, resync := stream.feed(buf[:n])
		tell(edges, false)
		if err != nil {
			return err
		}
		if resync {
			if err := sync(false); err != nil {
				return err
			}
		}
	}
}
