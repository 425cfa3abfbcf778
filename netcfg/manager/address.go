package manager

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Forever is the lifetime of an address that does not expire, in seconds (INFINITY_LIFE_TIME).
const Forever = 0xffffffff

// Address is an IP address of an interface.
type Address struct {
	Interface string       `json:"interface"`
	Prefix    netip.Prefix `json:"prefix"` // the address with its prefix length
	Peer      netip.Prefix `json:"peer,omitzero"`
	Broadcast netip.Addr   `json:"broadcast,omitzero"`
	Label     string       `json:"label,omitempty"`  // IPv4 only; begins with the interface's name
	Scope     int          `json:"scope,omitempty"`  // RT_SCOPE_*
	Flags     int          `json:"flags,omitempty"`  // IFA_F_*
	ValidS    int64        `json:"valid_s,omitzero"` // seconds left; 0 stands for Forever
	PreferS   int64        `json:"preferred_s,omitzero"`
}

// Static says whether the address stays until somebody removes it: neither leased nor learnt from a router.
func (a Address) Static() bool { return a.Flags&unix.IFA_F_PERMANENT != 0 }

// LinkLocal says whether the address is one of those an interface gives itself (169.254.0.0/16, fe80::/10).
func (a Address) LinkLocal() bool { return a.Prefix.Addr().IsLinkLocalUnicast() }

// On is the same address for another interface.
func (a Address) On(name string) Address {
	if rest, ok := strings.CutPrefix(a.Label, a.Interface); ok {
		a.Label = name + rest
	} else {
		a.Label = ""
	}
	if len(a.Label) >= unix.IFNAMSIZ {
		a.Label = ""
	}
	a.Interface = name
	return a
}

// Same says whether two addresses are one and the same for the kernel: it knows an interface's addresses by these.
func (a Address) Same(b Address) bool {
	return a.Interface == b.Interface && a.Prefix == b.Prefix && a.Peer == b.Peer
}

// Lease says in words how long the address lasts; "" for one that is static.
func (a Address) Lease() string {
	if a.Static() || a.ValidS == 0 {
		return ""
	}
	return fmt.Sprintf("%v of its lease left", time.Duration(a.ValidS)*time.Second)
}

// Addresses lists all addresses of all interfaces, in the kernel's order; names translates interface indexes.
func Addresses(names map[int]string) ([]Address, error) {
	list, err := retry(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	out := make([]Address, 0, len(list))
	for _, a := range list {
		prefix, ok := prefixOf(a.IPNet)
		if name := names[a.LinkIndex]; ok && name != "" {
			peer, _ := prefixOf(a.Peer)
			broadcast, _ := addrOf(a.Broadcast)
			out = append(out, Address{
				Interface: name, Prefix: prefix, Peer: peer, Broadcast: broadcast, Label: a.Label, Scope: a.Scope,
				Flags: a.Flags, ValidS: life(a.ValidLft), PreferS: life(a.PreferedLft),
			})
		}
	}
	return out, nil
}

// life turns the kernel's lifetime, of 32 bits without a sign, into ours.
func life(n int) int64 {
	if uint32(n) == Forever {
		return 0
	}
	return int64(uint32(n))
}

// AddAddress gives an interface an address. One that is there already keeps its place and gets this lifetime.
func (None) AddAddress(a Address) error {
	link, err := find(a.Interface)
	if err != nil {
		return err
	}
	return netlink.AddrReplace(link, a.kernel())
}

// RemoveAddress takes an address away. The kernel drops the routes that cannot be without it, but no other address.
func (None) RemoveAddress(a Address) error {
	link, err := find(a.Interface)
	if err != nil {
		return err
	}
	if a.Prefix.Addr().Is4() {
		defer promoteSecondaries(a.Interface)()
	}
	err = netlink.AddrDel(link, a.kernel())
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	return err
}

// promoteSecondaries makes the kernel keep the other IPv4 addresses of a subnet when the first one of it goes, until
// the func it returns is called (Linux, ip-sysctl.rst: promote_secondaries). Where that cannot be set, they go too.
func promoteSecondaries(name string) (back func()) {
	file := "/proc/sys/net/ipv4/conf/" + name + "/promote_secondaries"
	old, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(old)) != "0" || os.WriteFile(file, []byte("1"), 0) != nil {
		return func() {}
	}
	return func() { _ = os.WriteFile(file, old, 0) }
}

// kernel is the address as the kernel is to be told. Flags that only report (permanent, secondary, tentative) are left
// out.
func (a Address) kernel() *netlink.Addr {
	const settable = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_HOMEADDRESS | unix.IFA_F_MCAUTOJOIN
	out := &netlink.Addr{IPNet: netOf(a.Prefix), Label: a.Label, Scope: a.Scope, Flags: a.Flags & settable}
	if a.Peer.IsValid() {
		out.Peer = netOf(a.Peer)
	}
	if a.Broadcast.IsValid() {
		out.Broadcast = a.Broadcast.AsSlice()
	} else {
		out.Broadcast = net.IPv4zero // none, rather than a computed one
	}
	if a.ValidS > 0 {
		out.ValidLft, out.PreferedLft = int(a.ValidS), int(a.PreferS)
	}
	return out
}

// Given is an address as it stands in a config, with what goes without saying: the broadcast address of an IPv4 network
// that has one (RFC 3021: none below /30).
func Given(name string, p netip.Prefix) Address {
	a := Address{Interface: name, Prefix: p, Flags: unix.IFA_F_PERMANENT}
	if p.Addr().Is4() {
		a.Label = name
		if p.Bits() < 31 {
			b := p.Addr().As4()
			for i := p.Bits(); i < 32; i++ {
				b[i/8] |= 0x80 >> (i % 8)
			}
			a.Broadcast = netip.AddrFrom4(b)
		}
	}
	return a
}

// addrOf takes an IPv4 address in either of net.IP's forms.
func addrOf(ip net.IP) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := addrOf(n.IP)
	ones, _ := n.Mask.Size()
	p := netip.PrefixFrom(a, ones)
	return p, ok && p.IsValid()
}

func netOf(p netip.Prefix) *net.IPNet {
	a := p.Addr()
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(p.Bits(), a.BitLen())}
}
