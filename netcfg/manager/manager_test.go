package manager

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"linerate/netcfg/netnstest"
)

func TestMain(m *testing.M) { os.Exit(netnstest.Run(m)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair makes a cable with two ends that are up.
func pair(t *testing.T, name, far string) {
	t.Helper()
	netnstest.Need(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: far}))
	t.Cleanup(func() {
		if l, err := netlink.LinkByName(name); err == nil {
			_ = netlink.LinkDel(l)
		}
	})
	must(t, None{}.SetUp(name))
	must(t, None{}.SetUp(far))
}

func names(t *testing.T) map[int]string {
	t.Helper()
	all, err := net.Interfaces()
	must(t, err)
	out := map[int]string{}
	for _, i := range all {
		out[i.Index] = i.Name
	}
	return out
}

func of(t *testing.T, name string) (out []Address) {
	t.Helper()
	all, err := Addresses(names(t))
	must(t, err)
	for _, a := range all {
		if a.Interface == name && !a.LinkLocal() {
			out = append(out, a)
		}
	}
	return out
}

// What is given to the kernel reads back the same, again and again, and can be put on another interface.
func TestAddressesReadBack(t *testing.T) {
	pair(t, "eth1", "far1")
	prefix := netip.MustParsePrefix
	for _, a := range []Address{
		Given("eth1", prefix("192.0.2.1/24")),
		Given("eth1", prefix("192.0.2.9/31")),
		Given("eth1", prefix("2001:db8::1/64")),
		{Interface: "eth1", Prefix: prefix("10.0.0.1/32"), Peer: prefix("10.0.0.2/32"), Label: "eth1:1",
			Flags: unix.IFA_F_PERMANENT},
		{Interface: "eth1", Prefix: prefix("198.51.100.1/24"), Label: "eth1", Flags: unix.IFA_F_NOPREFIXROUTE,
			ValidS: 3600, PreferS: 1800},
	} {
		for range 2 {
			must(t, None{}.AddAddress(a))
			got := of(t, "eth1")
			if len(got) != 1 {
				t.Fatalf("%v: %v", a.Prefix, got)
			}
			g := got[0]
			g.Flags &^= unix.IFA_F_TENTATIVE
			if a.ValidS > 0 && g.ValidS > a.ValidS-5 {
				g.ValidS, g.PreferS = a.ValidS, a.PreferS
			}
			if !reflect.DeepEqual(g, a) {
				t.Errorf("read back %+v\nwritten %+v", g, a)
			}
			if g.Static() != (a.ValidS == 0) || (g.Lease() == "") != g.Static() {
				t.Errorf("%v: static %v, lease %q", a.Prefix, g.Static(), g.Lease())
			}
		}
		moved := a.On("far1")
		must(t, None{}.AddAddress(moved))
		must(t, None{}.RemoveAddress(a))
		must(t, None{}.RemoveAddress(a)) // what is not there is gone already
		got := of(t, "far1")
		if len(of(t, "eth1")) > 0 || len(got) != 1 || !got[0].Same(moved) || strings.HasPrefix(got[0].Label, "eth1") {
			t.Errorf("%v after the move: %v", a.Prefix, got)
		}
		must(t, None{}.RemoveAddress(moved))
	}
}

// Taking the first address of a subnet away leaves the others.
func TestRemoveAddressKeepsTheOthers(t *testing.T) {
	pair(t, "eth1", "far1")
	first, second := Given("eth1", netip.MustParsePrefix("192.0.2.1/24")), Given("eth1", netip.MustParsePrefix("192.0.2.2/24"))
	must(t, None{}.AddAddress(first))
	must(t, None{}.AddAddress(second))
	must(t, None{}.RemoveAddress(first))
	if got := of(t, "eth1"); len(got) != 1 || got[0].Prefix != second.Prefix {
		t.Errorf("left: %v", got)
	}
	if b, _ := os.ReadFile("/proc/sys/net/ipv4/conf/eth1/promote_secondaries"); strings.TrimSpace(string(b)) != "0" {
		t.Errorf("promote_secondaries is left at %q", b)
	}
}

func TestLabels(t *testing.T) {
	a := Address{Interface: "br0", Label: "br0:1"}
	if got := a.On("eth1").Label; got != "eth1:1" {
		t.Errorf("label %q", got)
	}
	if got := a.On("enp1s0f0np0abc").Label; got != "" {
		t.Errorf("a label that is too long: %q", got)
	}
	if got := (Address{Interface: "br0", Label: "old"}).On("eth1").Label; got != "" {
		t.Errorf("a label that does not fit: %q", got)
	}
}

func TestRoutesReadBack(t *testing.T) {
	pair(t, "eth1", "far1")
	pair(t, "eth2", "far2")
	must(t, None{}.AddAddress(Given("eth1", netip.MustParsePrefix("192.0.2.1/24"))))
	must(t, None{}.AddAddress(Given("eth2", netip.MustParsePrefix("198.51.100.1/24"))))
	six := Given("eth1", netip.MustParsePrefix("2001:db8::1/64"))
	six.Flags |= unix.IFA_F_NODAD
	must(t, None{}.AddAddress(six))
	ip := netip.MustParseAddr
	base := func(destination string, hops ...Hop) Route {
		return Route{Destination: netip.MustParsePrefix(destination), Hops: hops, Table: 254, Type: unix.RTN_UNICAST,
			Protocol: unix.RTPROT_STATIC}
	}
	full := base("203.0.113.0/24", Hop{Interface: "eth1", Gateway: ip("192.0.2.9")})
	full.Source, full.Metric, full.Table, full.TOS, full.MTU, full.MTULock = ip("192.0.2.1"), 77, 1000, 8, 1400, true
	full.AdvMSS, full.InitCwnd, full.InitRwnd, full.Congestion = 1300, 20, 30, "cubic"
	direct := base("10.0.0.0/8", Hop{Interface: "eth1"})
	direct.Scope = unix.RT_SCOPE_LINK
	onlink := base("10.1.0.0/16", Hop{Interface: "eth1", Gateway: ip("100.64.0.1"), Flags: 0})
	onlink.Flags = unix.RTNH_F_ONLINK
	v6 := base("2001:db8:9::/48", Hop{Interface: "eth1", Gateway: ip("2001:db8::9")})
	v6.Metric = 1024
	for name, r := range map[string]Route{
		"default":                   base("0.0.0.0/0", Hop{Interface: "eth1", Gateway: ip("192.0.2.254")}),
		"all that a route can have": full, "without a gateway": direct, "gateway in no network": onlink, "IPv6": v6,
		"IPv4 by an IPv6 gateway": base("10.2.0.0/16", Hop{Interface: "eth1", Gateway: ip("2001:db8::9")}),
		"multipath": base("10.3.0.0/16", Hop{Interface: "eth1", Gateway: ip("192.0.2.9"), Weight: 2},
			Hop{Interface: "eth2", Gateway: ip("198.51.100.9")}),
	} {
		for range 2 {
			must(t, None{}.SetRoute(r))
		}
		routes, err := Routes(names(t))
		must(t, err)
		if len(routes) != 1 || !routes[0].Equal(r) {
			t.Errorf("%s: read back %+v\nwritten %+v", name, routes, r)
		}
		must(t, None{}.RemoveRoute(r))
		must(t, None{}.RemoveRoute(r)) // what is not there is gone already
		if routes, err = Routes(names(t)); err != nil || len(routes) > 0 {
			t.Errorf("%s: left %v, %v", name, routes, err)
		}
	}
}

func TestRouteInWords(t *testing.T) {
	ip := netip.MustParseAddr
	r := Route{Destination: netip.MustParsePrefix("0.0.0.0/0"), Table: 254,
		Hops: []Hop{{Interface: "br0", Gateway: ip("192.0.2.1")}}}
	multi := Route{Destination: netip.MustParsePrefix("10.0.0.0/8"), Table: 7,
		Hops: []Hop{{Interface: "br0", Gateway: ip("192.0.2.1")}, {Interface: "eth9", Gateway: ip("192.0.2.2")}}}
	for want, r := range map[string]Route{
		"default via 192.0.2.1": r, "10.0.0.0/8 via 192.0.2.1 and via 192.0.2.2 in table 7": multi,
		"10.0.0.0/8": {Destination: multi.Destination, Table: 254, Hops: []Hop{{Interface: "br0"}}},
	} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	turned := multi.Via("br0", "eth1")
	if !turned.Uses("eth1") || turned.Uses("br0") || !turned.Uses("eth9") || !multi.Uses("br0") || turned.Equal(multi) {
		t.Errorf("turned: %v, from %v", turned, multi)
	}
}

func TestLinks(t *testing.T) {
	pair(t, "eth1", "far1")
	var n None
	must(t, n.AddBridge("br0", net.HardwareAddr{2, 0, 0, 0, 0, 9}))
	t.Cleanup(func() { _ = n.DeleteBridge("br0") })
	must(t, n.AddBridge("br0", nil)) // there already
	for range 2 {
		must(t, n.JoinMaster("eth1", "br0"))
	}
	err := n.SetMTU("eth1", 70000)
	if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "mtu greater than device maximum") {
		t.Errorf("an MTU that is too large: %v", err)
	}
	for range 2 {
		must(t, n.LeaveMaster("eth1"))
		must(t, n.SetMTU("eth1", 9000))
		must(t, n.SetDown("eth1"))
	}
	i, err := net.InterfaceByName("eth1")
	must(t, err)
	if i.MTU != 9000 || i.Flags&net.FlagUp != 0 {
		t.Errorf("eth1: %+v", i)
	}
	if err := n.DeleteBridge("eth1"); err == nil {
		t.Error("deleted a port as a bridge")
	}
	must(t, n.DeleteBridge("br0"))
	for name, err := range map[string]error{
		"leave": n.LeaveMaster("gone0"), "join": n.JoinMaster("eth1", "gone0"), "up": n.SetUp("gone0"),
		"delete":   n.DeleteBridge("br0"),
		"address":  n.AddAddress(Given("gone0", netip.MustParsePrefix("192.0.2.1/24"))),
		"announce": n.Announce("gone0", netip.MustParseAddr("192.0.2.1")),
		"route":    n.SetRoute(Route{Destination: netip.MustParsePrefix("10.0.0.0/8"), Hops: []Hop{{Interface: "gone0"}}}),
	} {
		if !errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s of an interface that is not there: %v; want ENODEV", name, err)
		}
	}
}

// The far end of the cable really hears of an address, in both families.
func TestAnnounce(t *testing.T) {
	pair(t, "eth1", "far1")
	var addresses []netip.Addr
	for _, cidr := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
		a := Given("eth1", netip.MustParsePrefix(cidr))
		addresses = append(addresses, a.Prefix.Addr())
		a.Flags |= unix.IFA_F_NODAD
		must(t, None{}.AddAddress(a))
	}
	far, err := net.InterfaceByName("far1")
	must(t, err)
	near, err := net.InterfaceByName("eth1")
	must(t, err)
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: far.Index}))
	limit := unix.NsecToTimeval((100 * time.Millisecond).Nanoseconds())
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit))
	for _, ip := range addresses {
		must(t, None{}.Announce("eth1", ip))
		want := gratuitousARP(near.HardwareAddr, ip)
		if ip.Is6() {
			want = unsolicitedAdvertisement(near.HardwareAddr, ip)
		}
		heard := false
		for end := time.Now().Add(5 * time.Second); !heard && time.Now().Before(end); {
			b := make([]byte, 2048)
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				continue
			}
			frame := b[:n]
			if len(frame) > 14+40 && ip.Is6() {
				hopLimit, body := frame[14+7], slices.Clone(frame[14+40:])
				if len(body) >= 4 {
					body[2], body[3] = 0, 0 // the checksum is the kernel's
				}
				heard = hopLimit == 255 && bytes.Equal(body, want)
			} else if len(frame) >= 14+len(want) {
				heard = bytes.Equal(frame[:6], []byte{255, 255, 255, 255, 255, 255}) && bytes.Equal(frame[14:14+len(want)], want)
			}
		}
		if !heard {
			t.Errorf("%v: nothing heard at the far end", ip)
		}
	}
	if err := (None{}).Announce("lo", addresses[0]); err == nil {
		t.Error("announced on an interface without Ethernet")
	}
}
