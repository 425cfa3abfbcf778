package throughput

import (
	"encoding/binary"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr of recvmmsg(2) and sendmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

const (
	maxDatagram = 1 << 16
	// maxSegments is UDP_MAX_SEGMENTS of the older kernels' include/linux/udp.h.
	maxSegments = 64
)

// sockaddr is room for an IPv4 or IPv6 address as the kernel writes it.
type sockaddr = unix.RawSockaddrInet6

// addrPort reads a kernel address; IPv4-mapped comes back as IPv4. zone names the scope of a link-local address.
func addrPort(sa *sockaddr, zone func(uint32) string) netip.AddrPort {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:])
	if sa.Family == unix.AF_INET {
		four := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(four.Addr), port)
	}
	ip := netip.AddrFrom16(sa.Addr)
	if ip.Is4In6() {
		ip = ip.Unmap()
	} else if sa.Scope_id != 0 {
		ip = ip.WithZone(zone(sa.Scope_id))
	}
	return netip.AddrPortFrom(ip, port)
}

// putAddr writes an address for a socket of a family, AF_INET or AF_INET6 (where IPv4 is mapped), and returns its length. scope
// is the interface of a link-local address.
func putAddr(sa *sockaddr, family int, to netip.AddrPort, scope uint32) uint32 {
	*sa = sockaddr{}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&sa.Port))[:], to.Port())
	if family == unix.AF_INET {
		four := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		four.Family = unix.AF_INET
		four.Addr = to.Addr().Unmap().As4()
		return unix.SizeofSockaddrInet4
	}
	sa.Family = unix.AF_INET6
	sa.Addr = to.Addr().As16()
	sa.Scope_id = scope
	return unix.SizeofSockaddrInet6
}

// cmsgs builds ancillary data in a buffer that the caller keeps.
type cmsgs struct{ b []byte }

// add appends a header of this level and type with room for n bytes, and returns the room.
func (c *cmsgs) add(level, typ int32, n int) []byte {
	at := len(c.b)
	c.b = append(c.b, make([]byte, unix.CmsgSpace(n))...)
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c.b[at]))
	h.Level, h.Type = level, typ
	h.SetLen(unix.CmsgLen(n))
	return c.b[at+unix.CmsgLen(0) : at+unix.CmsgLen(n)]
}

// source says from which local address a socket of a family shall send; scope is the interface of a link-local one.
func (c *cmsgs) source(family int, from netip.Addr, scope uint32) {
	switch {
	case !from.IsValid() || from.IsUnspecified():
	case family == unix.AF_INET:
		b := c.add(unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		(*unix.Inet4Pktinfo)(unsafe.Pointer(unsafe.SliceData(b))).Spec_dst = from.Unmap().As4()
	default:
		b := c.add(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
		info := (*unix.Inet6Pktinfo)(unsafe.Pointer(unsafe.SliceData(b)))
		info.Addr, info.Ifindex = from.As16(), scope
	}
}

// scopeOf is the interface of a link-local address; 0 for any other.
func scopeOf(a netip.Addr) uint32 {
	if a.Zone() == "" {
		return 0
	}
	i, err := net.InterfaceByName(a.Zone())
	if err != nil {
		return 0
	}
	return uint32(i.Index)
}

// eachCmsg calls f for every ancillary message in b.
func eachCmsg(b []byte, f func(level, typ int32, data []byte)) {
	for len(b) >= unix.SizeofCmsghdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(unsafe.SliceData(b)))
		n := int(h.Len)
		if n < unix.CmsgLen(0) || n > len(b) {
			return
		}
		f(h.Level, h.Type, b[unix.CmsgLen(0):n])
		next := unix.CmsgSpace(n - unix.CmsgLen(0))
		if next > len(b) {
			return
		}
		b = b[next:]
	}
}

// familyOf asks a socket for its address family.
func familyOf(fd int) int {
	f, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return unix.AF_INET6
	}
	return f
}
