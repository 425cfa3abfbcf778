package netcfg

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"linerate/netcfg/manager"
	"linerate/netcfg/netnstest"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Run(m)) }

// Helpers that make real interfaces in the namespace of this test binary. All of them go with the test.

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func byName(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return l
}

func attrs(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

// addVeth makes a pair, both ends up: a port and the far end of its cable.
func addVeth(t *testing.T, name, far string) {
	t.Helper()
	netnstest.Need(t)
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs(name), PeerName: far}))
	t.Cleanup(func() { remove(name) })
	must(t, netlink.LinkSetUp(byName(t, name)))
	must(t, netlink.LinkSetUp(byName(t, far)))
}

func remove(name string) {
	if l, err := netlink.LinkByName(name); err == nil {
		_ = netlink.LinkDel(l)
	}
}

// addBridge makes a bridge that is up and holds the members.
func addBridge(t *testing.T, name string, members ...string) {
	t.Helper()
	netnstest.Need(t)
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs(name)}))
	t.Cleanup(func() { remove(name) })
	must(t, netlink.LinkSetUp(byName(t, name)))
	for _, m := range members {
		must(t, netlink.LinkSetMaster(byName(t, m), byName(t, name)))
	}
}

func addAddress(t *testing.T, name, cidr string) {
	t.Helper()
	p := netip.MustParsePrefix(cidr)
	a := manager.Given(name, p)
	if p.Addr().Is6() {
		a.Flags |= unix.IFA_F_NODAD
	}
	must(t, manager.None{}.AddAddress(a))
}

func addRoute(t *testing.T, dev, destination, gateway string, metric int) {
	t.Helper()
	must(t, manager.None{}.SetRoute(manager.Route{Destination: netip.MustParsePrefix(destination), Metric: metric,
		Hops: []manager.Hop{{Interface: dev, Gateway: netip.MustParseAddr(gateway)}}, Table: unix.RT_TABLE_MAIN,
		Type: unix.RTN_UNICAST, Protocol: unix.RTPROT_STATIC}))
}

// bridged is the box as it comes: a bridge with two ports, an address and a default route.
func bridged(t *testing.T) {
	t.Helper()
	addVeth(t, "eth1", "far1")
	addVeth(t, "eth2", "far2")
	addBridge(t, "br0", "eth1", "eth2")
	addAddress(t, "br0", "192.168.2.1/24")
	addRoute(t, "br0", "0.0.0.0/0", "192.168.2.254", 0)
}

// masterOf is "" for an interface that is in nothing.
func masterOf(t *testing.T, name string) string {
	t.Helper()
	index := byName(t, name).Attrs().MasterIndex
	if index == 0 {
		return ""
	}
	l, err := netlink.LinkByIndex(index)
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) { // removed meanwhile: who was in it is free
		return masterOf(t, name)
	}
	must(t, err)
	return l.Attrs().Name
}

// picture is everything about links, addresses and routes that a change could leave behind, as lines.
func picture(t *testing.T) []string {
	t.Helper()
	links, err := kernelLinks()
	must(t, err)
	names := map[int]string{}
	var out []string
	for _, l := range links {
		names[l.index] = l.name
	}
	for _, l := range links {
		out = append(out, fmt.Sprintf("link %s %s up=%v mtu=%d master=%q", l.name, l.kind, l.up, l.mtu, names[l.master]))
	}
	addresses, err := manager.Addresses(names)
	must(t, err)
	for _, a := range addresses {
		if !a.LinkLocal() {
			out = append(out, fmt.Sprintf("address %s %v peer %v broadcast %v label %q static %v", a.Interface, a.Prefix, a.Peer,
				a.Broadcast, a.Label, a.Static()))
		}
	}
	routes, err := manager.Routes(names)
	must(t, err)
	for _, r := range routes {
		out = append(out, fmt.Sprintf("route %+v", r))
	}
	slices.Sort(out)
	return out
}

// holds says whether an interface has an address.
func holds(t *testing.T, name, cidr string) bool {
	t.Helper()
	i, err := net.InterfaceByName(name)
	must(t, err)
	addresses, err := i.Addrs()
	must(t, err)
	return slices.ContainsFunc(addresses, func(a net.Addr) bool { return a.String() == cidr })
}

// defaultVia names the interface of the IPv4 default route, "" where there is none.
func defaultVia(t *testing.T) string {
	t.Helper()
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	must(t, err)
	for _, r := range routes {
		if ones, _ := r.Dst.Mask.Size(); ones == 0 && r.Dst.IP.IsUnspecified() {
			l, err := netlink.LinkByIndex(r.LinkIndex)
			must(t, err)
			return l.Attrs().Name
		}
	}
	return ""
}

// until waits for a condition of the kernel that no event announces here.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

func keeper(t *testing.T) *Keeper {
	t.Helper()
	return NewKeeper(t.TempDir()+"/netcfg", t.TempDir(), nil)
}

func diff(before, after []string) string {
	var b strings.Builder
	for _, l := range before {
		if !slices.Contains(after, l) {
			fmt.Fprintln(&b, "-", l)
		}
	}
	for _, l := range after {
		if !slices.Contains(before, l) {
			fmt.Fprintln(&b, "+", l)
		}
	}
	return b.String()
}

func mustNet(t *testing.T, cidr string) *net.IPNet {
	t.Helper()
	ip, n, err := net.ParseCIDR(cidr)
	must(t, err)
	n.IP = ip
	return n
}
