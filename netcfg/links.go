package netcfg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"linerate/netcfg/ethnl"
)

// link is one interface of the box, port or not, as RTM_GETLINK or a tree's sysfs shows it.
type link struct {
	index   int
	name    string
	kind    string // rtnl kind: bridge, veth, vlan, tun ...; "" for hardware
	mac     string
	ether   bool // ARPHRD_ETHER
	up      bool // IFF_UP
	carrier bool
	mtu     int
	mtuMin  *int
	mtuMax  *int
	master  int // index of the interface it is a member of; 0: none
	parent  int // index of the interface it lies on (VLAN, macvlan), or of its peer (veth)
	vlan    int // tag, where kind is vlan
	changes int // of the carrier

	wifi   bool
	device string // path below /sys/devices; "" where there is none
}

// maxLinks bounds what is looked at; a box with more interfaces than that is no test appliance.
const maxLinks = 4096

// kernelLinks lists the interfaces of this network namespace.
func kernelLinks() ([]link, error) {
	var out []link
	var err error
	for range 3 { // the kernel changed meanwhile: ask again
		req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		const skipStatistics = 1 << 3 // RTEXT_FILTER_SKIP_STATS
		req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStatistics)))
		out = out[:0]
		var bad error
		err = req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWLINK, func(b []byte) bool {
			l, parseErr := parseLink(b)
			if parseErr != nil || len(out) == maxLinks {
				bad = errors.Join(bad, parseErr)
				return false
			}
			out = append(out, l)
			return true
		})
		if bad != nil {
			return nil, fmt.Errorf("list interfaces: %w", bad)
		}
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return out, nil
}

var errShort = errors.New("interface message cut short")

// parseLink reads the payload of an RTM_NEWLINK: struct ifinfomsg and attributes (uapi/linux/if_link.h).
func parseLink(b []byte) (link, error) {
	if len(b) < unix.SizeofIfInfomsg {
		return link{}, errShort
	}
	flags := binary.NativeEndian.Uint32(b[8:])
	l := link{
		ether:   binary.NativeEndian.Uint16(b[2:]) == unix.ARPHRD_ETHER,
		index:   int(int32(binary.NativeEndian.Uint32(b[4:]))),
		up:      flags&unix.IFF_UP != 0,
		carrier: flags&unix.IFF_LOWER_UP != 0,
	}
	number := func(v []byte) int {
		if len(v) < 4 {
			return 0
		}
		return int(binary.NativeEndian.Uint32(v))
	}
	err := ethnl.Walk(b[unix.SizeofIfInfomsg:], func(kind uint16, v []byte) error {
		switch kind {
		case unix.IFLA_IFNAME:
			l.name = cString(v)
		case unix.IFLA_ADDRESS:
			if len(v) == 6 {
				l.mac = net.HardwareAddr(v).String()
			}
		case unix.IFLA_MTU:
			l.mtu = number(v)
		case unix.IFLA_MIN_MTU:
			l.mtuMin = new(number(v))
		case unix.IFLA_MAX_MTU:
			if n := number(v); n > 0 { // 0: the driver sets no limit
				l.mtuMax = new(n)
			}
		case unix.IFLA_MASTER:
			l.master = number(v)
		case unix.IFLA_LINK:
			l.parent = number(v)
		case unix.IFLA_CARRIER_CHANGES:
			l.changes = number(v)
		case unix.IFLA_LINKINFO:
			return parseLinkInfo(v, &l)
		}
		return nil
	})
	return l, err
}

func parseLinkInfo(b []byte, l *link) error {
	return ethnl.Walk(b, func(kind uint16, v []byte) error {
		switch kind {
		case nl.IFLA_INFO_KIND:
			l.kind = cString(v)
		case nl.IFLA_INFO_DATA:
			if l.kind != "vlan" {
				return nil
			}
			return ethnl.Walk(v, func(kind uint16, v []byte) error {
				if kind == nl.IFLA_VLAN_ID && len(v) == 2 {
					l.vlan = int(binary.NativeEndian.Uint16(v))
				}
				return nil
			})
		}
		return nil
	})
}

// cString is a name up to its NUL; one that is longer than an interface's name may be is nobody's.
func cString(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	if len(b) >= unix.IFNAMSIZ {
		return ""
	}
	return string(b)
}
