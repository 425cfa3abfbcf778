package manager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"golang.org/x/sys/unix"
)

// dhcpPort is a real port with real servers.
type dhcpPort struct {
	name   string
	log    *slog.Logger
	kernel None
}

func newDHCPPort(name string, log *slog.Logger) *dhcpPort { return &dhcpPort{name: name, log: log} }

// leasedMetric is of the routes of leases: above those that somebody set, and one more per port, so that two default
// routes do not replace each other (an index is small).
const leasedMetric = 1024

// open makes a client that sends and receives raw frames, as one must without an address.
func (p *dhcpPort) open(options ...nclient4.ClientOpt) (*nclient4.Client, error) {
	options = append([]nclient4.ClientOpt{nclient4.WithTimeout(time.Second), nclient4.WithRetry(3)}, options...)
	return nclient4.New(p.name, options...)
}

// asks is what every message of ours says.
func asks(mac net.HardwareAddr) []dhcpv4.Modifier {
	out := []dhcpv4.Modifier{
		dhcpv4.WithOption(dhcpv4.OptClientIdentifier(append([]byte{unix.ARPHRD_ETHER}, mac...))),
		dhcpv4.WithRequestedOptions(dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionClasslessStaticRoute,
			dhcpv4.OptionIPAddressLeaseTime, dhcpv4.OptionRenewTimeValue, dhcpv4.OptionRebindingTimeValue),
	}
	if name, err := os.Hostname(); err == nil && name != "" && name != "localhost" {
		out = append(out, dhcpv4.WithOption(dhcpv4.OptHostName(name)))
	}
	return out
}

func (p *dhcpPort) ask(ctx context.Context) (lease, error) {
	c, err := p.open()
	if err != nil {
		return lease{}, err
	}
	defer c.Close()
	got, err := c.Request(ctx, asks(c.InterfaceAddr())...)
	if err != nil {
		return lease{}, err
	}
	return p.lease(got.ACK)
}

func (p *dhcpPort) reask(ctx context.Context, l lease) (lease, error) {
	c, err := p.open()
	if err != nil {
		return lease{}, err
	}
	defer c.Close()
	return p.send(ctx, c, nclient4.DefaultServers, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(l.address.Addr().AsSlice())),
		dhcpv4.WithBroadcast(true))
}

func (p *dhcpPort) renew(ctx context.Context, l lease) (lease, error) {
	from := &net.UDPAddr{IP: l.address.Addr().AsSlice(), Port: nclient4.ClientPort}
	c, err := p.open(nclient4.WithUnicast(from))
	if errors.Is(err, fs.ErrPermission) { // port 68 needs CAP_NET_BIND_SERVICE: then all servers are asked, by raw frames
		return p.rebind(ctx, l)
	}
	if err != nil {
		return lease{}, err
	}
	defer c.Close()
	server := &net.UDPAddr{IP: l.server.AsSlice(), Port: nclient4.ServerPort}
	return p.send(ctx, c, server, dhcpv4.WithClientIP(l.address.Addr().AsSlice()))
}

func (p *dhcpPort) rebind(ctx context.Context, l lease) (lease, error) {
	c, err := p.open()
	if err != nil {
		return lease{}, err
	}
	defer c.Close()
	return p.send(ctx, c, nclient4.DefaultServers, dhcpv4.WithClientIP(l.address.Addr().AsSlice()))
}

// send sends a request for an address that we had and reads who answers it.
func (p *dhcpPort) send(ctx context.Context, c *nclient4.Client, to *net.UDPAddr, more ...dhcpv4.Modifier) (lease, error) {
	modifiers := append(asks(c.InterfaceAddr()), dhcpv4.WithHwAddr(c.InterfaceAddr()),
		dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest))
	request, err := dhcpv4.New(append(modifiers, more...)...)
	if err != nil {
		return lease{}, err
	}
	answer, err := c.SendAndRead(ctx, to, request, nclient4.IsMessageType(dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak))
	if err != nil {
		return lease{}, err
	}
	if answer.MessageType() == dhcpv4.MessageTypeNak {
		return lease{}, errRefused
	}
	return p.lease(answer)
}

func (p *dhcpPort) lease(ack *dhcpv4.DHCPv4) (lease, error) {
	metric := leasedMetric
	if link, err := net.InterfaceByName(p.name); err == nil {
		metric += link.Index
	}
	l, err := leaseOf(ack, p.name, metric)
	l.at = time.Now()
	return l, err
}

// Bounds of what a server may say.
const (
	leaseMin  = 10 * time.Second // a shorter one is an error of the server's
	leaseMost = 1<<32 - 2        // seconds, as the kernel takes them
	maxLeased = 32               // routes
)

// leaseOf reads an acknowledgement (RFC 2131, 2132, 3442). What is no use to a host is an error.
func leaseOf(ack *dhcpv4.DHCPv4, name string, metric int) (lease, error) {
	address, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	if !ok || !address.IsGlobalUnicast() {
		return lease{}, fmt.Errorf("the server offers %v, which is no address of a host", ack.YourIPAddr)
	}
	bits := defaultBits(address)
	if mask := ack.SubnetMask(); mask != nil {
		ones, size := mask.Size()
		if size != 32 || ones < 1 {
			return lease{}, fmt.Errorf("the server offers %v with the mask %v", address, net.IP(mask))
		}
		bits = ones
	}
	l := lease{address: netip.PrefixFrom(address, bits)}
	l.server, _ = netip.AddrFromSlice(ack.ServerIdentifier().To4())
	l.valid = min(ack.IPAddressLeaseTime(0), leaseMost*time.Second)
	if l.valid < leaseMin {
		return lease{}, fmt.Errorf("the server leases %v for %v: at least %v is of use", address, l.valid, leaseMin)
	}
	l.t1, l.t2 = ack.IPAddressRenewalTime(l.valid/2), ack.IPAddressRebindingTime(l.valid*7/8)
	if l.t2 <= 0 || l.t2 > l.valid {
		l.t2 = l.valid * 7 / 8
	}
	if l.t1 <= 0 || l.t1 > l.t2 {
		l.t1 = min(l.valid/2, l.t2)
	}
	add := func(to netip.Prefix, gateway netip.Addr) {
		if len(l.routes) == maxLeased || !to.IsValid() {
			return
		}
		scope := unix.RT_SCOPE_UNIVERSE
		hop := Hop{Interface: name}
		if gateway.IsValid() && !gateway.IsUnspecified() {
			hop.Gateway = gateway
		} else {
			scope = unix.RT_SCOPE_LINK
		}
		l.routes = append(l.routes, Route{Destination: to.Masked(), Hops: []Hop{hop}, Source: address, Metric: metric,
			Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST, Scope: scope, Protocol: unix.RTPROT_DHCP})
	}
	if routes := ack.ClasslessStaticRoute(); len(routes) > 0 { // then the router is not looked at (RFC 3442)
		for _, r := range routes {
			gateway, _ := netip.AddrFromSlice(r.Router.To4())
			to, _ := prefixOf(r.Dest)
			add(to, gateway)
		}
	} else if routers := ack.Router(); len(routers) > 0 {
		gateway, _ := netip.AddrFromSlice(routers[0].To4())
		add(netip.PrefixFrom(netip.IPv4Unspecified(), 0), gateway)
	}
	return l, nil
}

func (p *dhcpPort) release(l lease) {
	from := &net.UDPAddr{IP: l.address.Addr().AsSlice(), Port: nclient4.ClientPort}
	c, err := net.DialUDP("udp4", from, &net.UDPAddr{IP: l.server.AsSlice(), Port: nclient4.ServerPort})
	if err != nil {
		return // the server finds out when it expires
	}
	defer c.Close()
	link, err := net.InterfaceByName(p.name)
	if err != nil {
		return
	}
	m, err := dhcpv4.New(append(asks(link.HardwareAddr), dhcpv4.WithHwAddr(link.HardwareAddr),
		dhcpv4.WithMessageType(dhcpv4.MessageTypeRelease), dhcpv4.WithClientIP(l.address.Addr().AsSlice()),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(l.server.AsSlice())))...)
	if err == nil {
		_, _ = c.Write(m.ToBytes())
	}
}

func (p *dhcpPort) set(l lease) error {
	a := Given(p.name, l.address)
	a.Flags, a.ValidS, a.PreferS = 0, int64(l.valid/time.Second), int64(l.valid/time.Second)
	if err := p.kernel.AddAddress(a); err != nil {
		return err
	}
	var failed error
	for _, r := range l.routes {
		if err := p.kernel.SetRoute(r); err != nil {
			failed = errors.Join(failed, fmt.Errorf("route %v: %w", r, err))
		}
	}
	return failed
}

func (p *dhcpPort) unset(l lease) {
	for _, r := range l.routes {
		_ = p.kernel.RemoveRoute(r) // it goes with the address in any case
	}
	if err := p.kernel.RemoveAddress(Given(p.name, l.address)); err != nil && !errors.Is(err, unix.ENODEV) {
		p.log.Warn("could not take a leased address away", "port", p.name, "address", l.address, "error", err)
	}
}

// defaultBits is the network of an address's class, for a server that tells none (RFC 1122, 3.3.6 knows no better).
func defaultBits(a netip.Addr) int {
	ones, _ := net.IP(a.AsSlice()).DefaultMask().Size()
	return max(ones, 8)
}
