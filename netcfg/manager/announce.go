package manager

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Announce tells the neighbours on an interface that it holds the address from now on, so that they do not go on
// sending to the port or bridge that held it before: a gratuitous ARP request (RFC 5227) or an unsolicited neighbour
// advertisement (RFC 4861, 7.2.6). It needs CAP_NET_RAW; without it the neighbours find out by themselves, later.
func (None) Announce(name string, ip netip.Addr) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, unix.ENODEV)
	}
	if len(link.HardwareAddr) != 6 {
		return fmt.Errorf("%s has no Ethernet address", name)
	}
	if ip.Is4() {
		return announce4(link, ip)
	}
	return announce6(link, ip)
}

// Ready says whether the interface has a carrier and holds the address, so that Announce would be true.
func (None) Ready(name string, address netip.Prefix) (bool, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, unix.ENODEV)
	}
	addresses, err := link.Addrs()
	if err != nil {
		return false, err
	}
	holds := slices.ContainsFunc(addresses, func(a net.Addr) bool { return a.String() == address.String() })
	return holds && link.Flags&net.FlagRunning != 0, nil
}

func announce4(link *net.Interface, ip netip.Addr) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := &unix.SockaddrLinklayer{
		Protocol: binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ARP)),
		Ifindex:  link.Index, Halen: 6, Addr: [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	}
	return unix.Sendto(fd, gratuitousARP(link.HardwareAddr, ip), 0, to)
}

// gratuitousARP asks for the sender's own address (RFC 826 has the layout).
func gratuitousARP(mac net.HardwareAddr, ip netip.Addr) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, 0, 1} // Ethernet, IPv4, lengths, request
	b = append(append(b, mac...), ip.AsSlice()...)
	b = append(b, make([]byte, 6)...)
	return append(b, ip.AsSlice()...)
}

func announce6(link *net.Interface, ip netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const all = 255 // neighbour discovery only counts from the same wire
	for _, option := range []int{unix.IPV6_MULTICAST_HOPS, unix.IPV6_UNICAST_HOPS} {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, option, all); err != nil {
			return err
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet6{Addr: ip.As16(), ZoneId: uint32(link.Index)}); err != nil {
		return err
	}
	to := &unix.SockaddrInet6{Addr: netip.IPv6LinkLocalAllNodes().As16(), ZoneId: uint32(link.Index)}
	return unix.Sendto(fd, unsolicitedAdvertisement(link.HardwareAddr, ip), 0, to)
}

// unsolicitedAdvertisement overrides what neighbours remember; the kernel fills in the checksum.
func unsolicitedAdvertisement(mac net.HardwareAddr, ip netip.Addr) []byte {
	b := append([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, ip.AsSlice()...)
	return append(append(b, 2, 1), mac...) // target link-layer address, in units of 8 bytes
}
