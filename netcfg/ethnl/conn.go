package ethnl

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Timeout bounds one question to the kernel. A driver that sleeps in its answer (USB adapters do) takes milliseconds.
const Timeout = 2 * time.Second

// What a question may fail with, beside fs.ErrPermission; told apart by errors.Is.
var (
	ErrNoDevice     = errors.New("no such network interface")        // ENODEV
	ErrNotSupported = errors.New("not told by the driver or kernel") // EOPNOTSUPP
)

// Conn is an open way to ask.
type Conn struct {
	family  uint16
	sockets map[int]*nl.SocketHandle
	ioctl   int                       // socket for the driver's name and firmware
	record  func(cmd uint8, b []byte) // tests keep the replies
}

// Open returns a Conn for the present network namespace. It fails with ErrNotSupported on a kernel that has no ethtool
// netlink family.
func Open() (*Conn, error) {
	family, err := netlink.GenlFamilyGet("ethtool")
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("ethtool netlink: %w (Linux 5.6 or newer has it)", ErrNotSupported)
	}
	if err != nil {
		return nil, fmt.Errorf("ethtool netlink: %w", err)
	}
	socket, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("ethtool netlink: open a socket: %w", err)
	}
	limit := unix.NsecToTimeval(Timeout.Nanoseconds())
	_ = socket.SetReceiveTimeout(&limit) // only keeps the value
	_ = socket.SetSendTimeout(&limit)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("ethtool: open a socket: %w", err)
	}
	sockets := map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: {Socket: socket}}
	return &Conn{family: family.ID, sockets: sockets, ioctl: fd}, nil
}

// Close ends the Conn.
func (c *Conn) Close() error {
	for _, s := range c.sockets {
		s.Close()
	}
	return unix.Close(c.ioctl)
}

// command is one kind of question: its number, the attribute that holds the request's header, and its name in errors.
type command struct {
	number uint8
	name   string
}

// Header attributes; the header is attribute 1 of every ethtool message.
const (
	attrHeader      = 1
	headerDevIndex  = 1
	genlVersion     = 1
	genlHeaderBytes = 4
)

// ask sends one GET for an interface and gives its reply to parse, without the generic netlink header.
func (c *Conn) ask(cmd command, index int, parse func(b []byte) error) error {
	fail := func(err error) error {
		return fmt.Errorf("ethtool %s of interface %d: %w", cmd.name, index, err)
	}
	req := nl.NewNetlinkRequest(int(c.family), 0)
	req.Sockets = c.sockets
	req.AddData(&nl.Genlmsg{Command: cmd.number, Version: genlVersion})
	header := nl.NewRtAttr(attrHeader|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(headerDevIndex, nl.Uint32Attr(uint32(index)))
	req.AddData(header)
	replies, err := req.Execute(unix.NETLINK_GENERIC, 0)
	switch {
	case errors.Is(err, unix.ENODEV):
		return fail(ErrNoDevice)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fail(ErrNotSupported)
	case errors.Is(err, unix.EAGAIN):
		return fail(fmt.Errorf("no answer in %v: %w", Timeout, err))
	case err != nil:
		return fail(err)
	case len(replies) != 1 || len(replies[0]) < genlHeaderBytes:
		return fail(fmt.Errorf("%w: %d replies", errMalformed, len(replies)))
	}
	if c.record != nil {
		c.record(cmd.number, replies[0])
	}
	if err := parse(replies[0][genlHeaderBytes:]); err != nil {
		return fail(err)
	}
	return nil
}

// Driver is what the driver says of itself.
type Driver struct {
	Name     string // r8169, r8152, veth ...
	Version  string // the driver's own, mostly the kernel's
	Firmware string // "" where the driver tells none
	Bus      string // the device's name on its bus: 0000:01:00.0, usb-xhci-hcd.0.auto-1
}

// Driver asks by name, as this is the old ioctl (ETHTOOL_GDRVINFO).
func (c *Conn) Driver(name string) (Driver, error) {
	info, err := unix.IoctlGetEthtoolDrvinfo(c.ioctl, name)
	switch {
	case errors.Is(err, unix.ENODEV):
		return Driver{}, fmt.Errorf("ethtool DRVINFO of %s: %w", name, ErrNoDevice)
	case errors.Is(err, syscall.EOPNOTSUPP):
		return Driver{}, fmt.Errorf("ethtool DRVINFO of %s: %w", name, ErrNotSupported)
	case err != nil:
		return Driver{}, fmt.Errorf("ethtool DRVINFO of %s: %w", name, err)
	}
	return driver(info), nil
}

func driver(info *unix.EthtoolDrvinfo) Driver {
	clean := func(b []byte) string {
		s, err := text(b)
		if err != nil || s == "N/A" {
			return ""
		}
		return s
	}
	return Driver{clean(info.Driver[:]), clean(info.Version[:]), clean(info.Fw_version[:]), clean(info.Bus_info[:])}
}
