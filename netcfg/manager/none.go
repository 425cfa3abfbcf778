package manager

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Timeout bounds one call to the kernel. Its network lock may be held for seconds by a driver that brings a link up.
const Timeout = 20 * time.Second

// The netlink library keeps both for the whole process.
func init() {
	nl.EnableErrorMessageReporting = true // "mtu greater than device maximum" beside EINVAL
	if err := netlink.SetSocketTimeout(Timeout); err != nil {
		panic(err) // only for a timeout below 1 us
	}
}

// None is the way of a box where no network manager owns the ports.
type None struct{}

// Name of the manager, as it is told to people.
func (None) Name() string { return "none" }

// LeaveMaster takes the interface out of its bridge; it stays up.
func (None) LeaveMaster(name string) error {
	return with(name, netlink.LinkSetNoMaster)
}

// JoinMaster makes the interface a member of the bridge.
func (None) JoinMaster(name, bridge string) error {
	master, err := find(bridge)
	if err != nil {
		return err
	}
	return with(name, func(l netlink.Link) error { return netlink.LinkSetMaster(l, master) })
}

// SetMTU sets the MTU in bytes.
func (None) SetMTU(name string, bytes int) error {
	return with(name, func(l netlink.Link) error { return netlink.LinkSetMTU(l, bytes) })
}

// SetMAC gives the interface another MAC. A driver that takes none while it is up is taken down for it and brought up
// again, which costs the routes and IPv6 addresses.
func (None) SetMAC(name string, mac net.HardwareAddr) error {
	return with(name, func(l netlink.Link) error {
		err := netlink.LinkSetHardwareAddr(l, mac)
		if !errors.Is(err, unix.EBUSY) || l.Attrs().Flags&net.FlagUp == 0 {
			return err
		}
		if err := netlink.LinkSetDown(l); err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetHardwareAddr(l, mac), netlink.LinkSetUp(l))
	})
}

// SetUp brings the interface up (IFF_UP); a link may take seconds to follow.
func (None) SetUp(name string) error { return with(name, netlink.LinkSetUp) }

// SetDown takes the interface down. The kernel drops its routes.
func (None) SetDown(name string) error { return with(name, netlink.LinkSetDown) }

// AddBridge makes a bridge with this MAC (nil: the kernel's choice).
func (None) AddBridge(name string, mac net.HardwareAddr) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = name, mac
	err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// DeleteBridge removes a bridge, and nothing that is no bridge.
func (None) DeleteBridge(name string) error {
	link, err := find(name)
	if err != nil {
		return err
	}
	if link.Type() != "bridge" {
		return fmt.Errorf("%s is a %s, not a bridge", name, link.Type())
	}
	return netlink.LinkDel(link)
}

func with(name string, f func(netlink.Link) error) error {
	link, err := find(name)
	if err != nil {
		return err
	}
	return f(link)
}

func find(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil, fmt.Errorf("%s: %w", name, unix.ENODEV)
	}
	return link, err
}

// retry asks for a dump again when the kernel changed meanwhile; after the third time what came is good enough.
func retry[T any](list func() ([]T, error)) (out []T, err error) {
	for range 3 {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return out, nil
}
