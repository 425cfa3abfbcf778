package manager

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// RFC 3927: how often and how long is asked whether somebody has the address, and how many are tried.
const (
	probes     = 3
	probeEvery = time.Second
	maxTries   = 10 // MAX_CONFLICTS
)

// linkLocal gives the port an address of 169.254.0.0/16 that nobody on the wire has. The first that is tried follows
// from the MAC, so that it is the same the next time.
func (p *dhcpPort) linkLocal(ctx context.Context) (netip.Prefix, error) {
	link, err := net.InterfaceByName(p.name)
	if err != nil {
		return netip.Prefix{}, err
	}
	choice := choiceOf(link.HardwareAddr)
	for range maxTries {
		prefix := netip.PrefixFrom(linkLocalAddress(choice), 16)
		taken, err := probe(ctx, link, prefix.Addr())
		if err != nil {
			return netip.Prefix{}, err
		}
		if taken {
			continue
		}
		if err := p.kernel.AddAddress(p.linkLocalOf(prefix)); err != nil {
			return netip.Prefix{}, err
		}
		_ = p.kernel.Announce(p.name, prefix.Addr()) // who has asked meanwhile asks again
		return prefix, nil
	}
	return netip.Prefix{}, fmt.Errorf("%d addresses in a row are taken", maxTries)
}

// linkLocalLife is how long a link-local address stays that nobody refreshes; it is refreshed every half minute.
const linkLocalLife = 3 * time.Minute

func (p *dhcpPort) linkLocalOf(prefix netip.Prefix) Address {
	a := Given(p.name, prefix)
	a.Scope, a.Flags, a.ValidS = unix.RT_SCOPE_LINK, 0, int64(linkLocalLife/time.Second)
	a.PreferS = a.ValidS
	return a
}

func (p *dhcpPort) refresh(prefix netip.Prefix) {
	if err := p.kernel.AddAddress(p.linkLocalOf(prefix)); err != nil && !errors.Is(err, unix.ENODEV) {
		p.log.Warn("could not keep a link-local address", "port", p.name, "address", prefix, "error", err)
	}
}

func choiceOf(mac net.HardwareAddr) *rand.Rand {
	seed := fnv.New64a()
	_, _ = seed.Write(mac)
	return rand.New(rand.NewPCG(seed.Sum64(), 0))
}

// linkLocalAddress is one of 169.254.1.0 to 169.254.254.255.
func linkLocalAddress(choice *rand.Rand) netip.Addr {
	return netip.AddrFrom4([4]byte{169, 254, byte(1 + choice.IntN(254)), byte(choice.IntN(256))})
}

func (p *dhcpPort) unsetLinkLocal(prefix netip.Prefix) {
	if err := p.kernel.RemoveAddress(Given(p.name, prefix)); err != nil && !errors.Is(err, unix.ENODEV) {
		p.log.Warn("could not take a link-local address away", "port", p.name, "address", prefix, "error", err)
	}
}

// probe asks the wire for an address that we do not have yet.
func probe(ctx context.Context, link *net.Interface, ip netip.Addr) (taken bool, err error) {
	arp := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ARP))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(arp))
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: arp, Ifindex: link.Index}); err != nil {
		return false, err
	}
	const slice = 50 * time.Millisecond // how soon an end of ctx is seen
	wait := unix.NsecToTimeval(int64(slice))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return false, err
	}
	to := &unix.SockaddrLinklayer{Protocol: arp, Ifindex: link.Index, Halen: 6,
		Addr: [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
	buffer := make([]byte, 128)
	for range probes {
		if err := unix.Sendto(fd, arpProbe(link.HardwareAddr, ip), 0, to); err != nil {
			return false, err
		}
		for end := time.Now().Add(probeEvery); time.Now().Before(end); {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			n, _, err := unix.Recvfrom(fd, buffer, 0)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return false, err
			}
			if conflicts(buffer[:n], link.HardwareAddr, ip) {
				return true, nil
			}
		}
	}
	return false, nil
}

// arpProbe asks for an address without claiming it: the sender's is zero (RFC 5227, 2.1.1).
func arpProbe(mac net.HardwareAddr, ip netip.Addr) []byte {
	b := gratuitousARP(mac, ip)
	clear(b[14:18])
	return b
}

// conflicts says whether an ARP packet of another host has the address, or asks for it as we do.
func conflicts(b []byte, own net.HardwareAddr, ip netip.Addr) bool {
	if len(b) < 28 || string(b[:6]) != "\x00\x01\x08\x00\x06\x04" || string(b[8:14]) == string(own) {
		return false
	}
	sender, target := netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
	return sender == ip || sender.IsUnspecified() && target == ip
}
