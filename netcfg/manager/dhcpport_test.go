package manager

import (
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"linerate/netcfg/netnstest"
)

// server is the real dnsmasq in a network namespace of its own, at the far end of a cable.
type server struct {
	t    *testing.T
	ns   netns.NsHandle
	far  string
	cmd  *exec.Cmd
	log  string // dnsmasq's, a file
	args []string
}

// startServer makes eth1, whose far end is at 192.0.2.1, and starts dnsmasq there.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("dnsmasq"); err != nil {
		t.Skip("not installed: dnsmasq")
	}
	pair(t, "eth1", "far1")
	s := &server{t: t, far: "far1", args: args, log: filepath.Join(t.TempDir(), "log")}
	s.within(true, func() {
		far, err := netlink.LinkByName("lo")
		must(t, err)
		must(t, netlink.LinkSetUp(far))
	})
	far, err := netlink.LinkByName(s.far)
	must(t, err)
	must(t, netlink.LinkSetNsFd(far, int(s.ns)))
	s.within(false, func() {
		far, err := netlink.LinkByName(s.far)
		must(t, err)
		address, err := netlink.ParseAddr("192.0.2.1/24")
		must(t, err)
		must(t, netlink.AddrAdd(far, address))
		must(t, netlink.LinkSetUp(far))
	})
	s.start()
	return s
}

// within calls f on a thread in the server's namespace, which ends with it.
func (s *server) within(fresh bool, f func()) {
	s.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		if fresh {
			if s.ns, err = netns.New(); err == nil {
				s.t.Cleanup(func() { s.ns.Close() })
			}
		} else {
			err = netns.Set(s.ns)
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	must(s.t, <-done)
}

func (s *server) start() {
	s.t.Helper()
	dir := s.t.TempDir()
	s.within(false, func() {
		s.cmd = exec.Command("dnsmasq", append([]string{"--keep-in-foreground", "--port=0", "--conf-file=/dev/null",
			"--log-facility=" + s.log, "--log-dhcp", "--interface=far1", "--bind-interfaces", "--user=root", "--dhcp-authoritative",
			"--no-ping", "--pid-file=" + filepath.Join(dir, "pid"), "--dhcp-leasefile=" + filepath.Join(dir, "leases"),
			"--dhcp-range=192.0.2.100,192.0.2.150,120s", "--dhcp-option=3,192.0.2.1"}, s.args...)...)
		s.cmd.SysProcAttr = &syscall.SysProcAttr{}
		must(s.t, s.cmd.Start())
	})
	s.t.Cleanup(s.stop)
}

func (s *server) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// count tells how often a word is in dnsmasq's log.
func (s *server) count(word string) int {
	b, _ := os.ReadFile(s.log) // none yet: it has said nothing
	return strings.Count(string(b), word)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s; addresses %+v", what, ipv4(t))
		}
	}
}

func leased(t *testing.T, prefix string) func() bool {
	return func() bool {
		return slices.ContainsFunc(ipv4(t), func(a Address) bool { return strings.HasPrefix(a.Prefix.String(), prefix) })
	}
}

func routed(t *testing.T) bool {
	routes, err := Routes(names(t))
	must(t, err)
	return slices.ContainsFunc(routes, func(r Route) bool {
		return r.Uses("eth1") && r.Destination.Bits() == 0 && r.Hops[0].Gateway == netip.MustParseAddr("192.0.2.1")
	})
}

// A real server: a lease with its route, renewals at T1, the same address after the link was away and after the client
// was started anew, and nothing left behind.
func TestLeaseOfARealServer(t *testing.T) {
	netnstest.Need(t)
	s := startServer(t, "--dhcp-option-force=58,3", "--dhcp-option-force=59,60")
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	d := StartDHCP("eth1", true, log)
	eventually(t, "a lease", func() bool { return leased(t, "192.0.2.1")() && routed(t) })
	first := ipv4(t)
	if a := first[0]; len(first) != 1 || a.ValidS < 100 || a.ValidS > 120 || a.Prefix.Bits() != 24 || a.Static() {
		t.Errorf("leased %+v", first)
	}
	conn, err := net.DialTimeout("udp", "192.0.2.1:67", time.Second) // traffic: the address is good for it
	must(t, err)
	conn.Close()
	before := s.count("DHCPACK")
	eventually(t, "two renewals", func() bool { return s.count("DHCPACK") >= before+2 })
	if n := s.count("DHCPDISCOVER"); n > 2 {
		t.Errorf("asked for a new lease %d times", n)
	}
	d.Carrier(false)
	d.Carrier(true)
	acks := s.count("DHCPACK")
	eventually(t, "asks again after the link was away", func() bool { return s.count("DHCPACK") > acks })
	d.Stop()
	eventually(t, "the server has the address back", func() bool { return s.count("DHCPRELEASE") == 1 })
	if leased(t, "192.0.2.")() || routed(t) {
		t.Errorf("left behind: %+v", of(t, "eth1"))
	}
	d = StartDHCP("eth1", true, log)
	eventually(t, "a lease again", leased(t, "192.0.2.1"))
	d.Leave()
	if !leased(t, "192.0.2.1")() || s.count("DHCPRELEASE") != 1 {
		t.Error("the address is gone with the process")
	}
	if again := ipv4(t); again[0].Prefix != first[0].Prefix {
		t.Errorf("another address: %v, was %v", again, first)
	}
}

// ipv4 lists the IPv4 addresses of eth1, link-local ones too.
func ipv4(t *testing.T) []Address {
	all, err := Addresses(names(t))
	must(t, err)
	return slices.DeleteFunc(all, func(a Address) bool { return a.Interface != "eth1" || !a.Prefix.Addr().Is4() })
}

// Nobody answers: a link-local address after 10 s, not one that the far end has, and gone as soon as a server is there.
func TestLinkLocalUntilThereIsAServer(t *testing.T) {
	netnstest.Need(t)
	s := startServer(t)
	s.stop()
	link, err := net.InterfaceByName("eth1")
	must(t, err)
	taken := firstChoice(link.HardwareAddr)
	s.within(false, func() {
		far, err := netlink.LinkByName("far1")
		must(t, err)
		must(t, netlink.AddrAdd(far, &netlink.Addr{IPNet: netOf(netip.PrefixFrom(taken, 16))}))
	})
	start := time.Now()
	d := StartDHCP("eth1", true, slog.New(slog.NewTextHandler(t.Output(), nil)))
	defer d.Stop()
	eventually(t, "link-local", leased(t, "169.254."))
	if took := time.Since(start); took < LinkLocalAfter {
		t.Errorf("link-local after %v", took)
	}
	if got := ipv4(t); len(got) != 1 || got[0].Prefix.Addr() == taken {
		t.Errorf("it is %v, and the far end has %v", got, taken)
	}
	s.start()
	eventually(t, "a lease", leased(t, "192.0.2.1"))
	eventually(t, "no link-local", func() bool { return !leased(t, "169.254.")() })
}

// firstChoice is the link-local address that a port with this MAC tries first.
func firstChoice(mac net.HardwareAddr) netip.Addr { return linkLocalAddress(choiceOf(mac)) }

func TestLinkLocalAddresses(t *testing.T) {
	choice := rand.New(rand.NewPCG(1, 1))
	for range 10000 {
		a := linkLocalAddress(choice)
		if b := a.As4(); !a.IsLinkLocalUnicast() || b[2] == 0 || b[2] == 255 {
			t.Fatalf("%v is reserved (RFC 3927, 2.1)", a)
		}
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	first, again := firstChoice(mac), firstChoice(mac)
	if first != again || first == firstChoice(net.HardwareAddr{2, 0, 0, 0, 0, 2}) {
		t.Error("the first choice does not follow from the MAC")
	}
}

func TestConflicts(t *testing.T) {
	own, other := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	ip, elsewhere := netip.MustParseAddr("169.254.7.7"), netip.MustParseAddr("169.254.8.8")
	for name, test := range map[string]struct {
		packet []byte
		want   bool
	}{
		"another has it":      {gratuitousARP(other, ip), true},
		"another wants it":    {arpProbe(other, ip), true},
		"our own probe":       {arpProbe(own, ip), false},
		"about another":       {gratuitousARP(other, elsewhere), false},
		"cut short":           {gratuitousARP(other, ip)[:27], false},
		"no IPv4 on Ethernet": {append([]byte{0, 6}, gratuitousARP(other, ip)[2:]...), false},
	} {
		if got := conflicts(test.packet, own, ip); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func ack(modifiers ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithMessageType(dhcpv4.MessageTypeAck),
		dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 7)), dhcpv4.WithLeaseTime(3600),
		dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithRouter(net.IPv4(192, 0, 2, 1))}, modifiers...)...)
	if err != nil {
		panic(err)
	}
	return m
}

func TestLeaseOf(t *testing.T) {
	l, err := leaseOf(ack(), "eth1", 1030)
	if err != nil || l.address.String() != "192.0.2.7/24" || l.valid != time.Hour || l.t1 != 30*time.Minute ||
		l.t2 != 52*time.Minute+30*time.Second || len(l.routes) != 1 || l.routes[0].String() != "default via 192.0.2.1" ||
		l.routes[0].Metric != 1030 || l.routes[0].Protocol != unix.RTPROT_DHCP {
		t.Errorf("%+v, %v", l, err)
	}
	option := func(code uint8, hexValue string) dhcpv4.Modifier {
		b, err := hex.DecodeString(hexValue)
		must(t, err)
		return dhcpv4.WithGeneric(dhcpv4.GenericOptionCode(code), b)
	}
	// RFC 3442: the routes count, the router does not; 10.0.0.0/8 by 192.0.2.9, and 198.51.100.0/24 on the wire.
	l, err = leaseOf(ack(option(121, "080ac0000209"+"18c6336400000000")), "eth1", 0)
	if err != nil || len(l.routes) != 2 || l.routes[0].String() != "10.0.0.0/8 via 192.0.2.9" ||
		l.routes[1].Hops[0].Gateway.IsValid() {
		t.Errorf("%+v, %v", l.routes, err)
	}
	l, err = leaseOf(ack(option(58, "ffffffff"), option(59, "00000001")), "eth1", 0) // T1 beyond T2
	if err != nil || l.t1 > l.t2 || l.t2 > l.valid || l.t1 <= 0 {
		t.Errorf("T1 %v, T2 %v of %v, %v", l.t1, l.t2, l.valid, err)
	}
	for name, m := range map[string]*dhcpv4.DHCPv4{
		"no address":   ack(dhcpv4.WithYourIP(net.IPv4zero)),
		"multicast":    ack(dhcpv4.WithYourIP(net.IPv4(224, 0, 0, 1))),
		"odd mask":     ack(option(1, "ff00ff00")),
		"zero seconds": ack(dhcpv4.WithLeaseTime(0)),
	} {
		if l, err := leaseOf(m, "eth1", 0); err == nil {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

func FuzzLeaseOf(f *testing.F) {
	f.Add(ack().ToBytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := dhcpv4.FromBytes(b)
		if err != nil {
			return
		}
		l, err := leaseOf(m, "eth1", 0)
		if err != nil {
			return
		}
		if !l.address.IsValid() || l.t1 <= 0 || l.t1 > l.t2 || l.t2 > l.valid || l.valid < leaseMin || len(l.routes) > maxLeased {
			t.Errorf("%+v", l)
		}
		for _, r := range l.routes {
			if !r.Destination.IsValid() {
				t.Errorf("a route that is none: %+v", r)
			}
		}
	})
}
