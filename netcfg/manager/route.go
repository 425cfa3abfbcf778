package manager

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is an entry of a routing table that somebody set: neither made by the kernel for an address nor learnt from a
// router.
type Route struct {
	Destination netip.Prefix `json:"destination"` // /0 is the default route
	Hops        []Hop        `json:"hops"`        // one, or several of a multipath route
	Source      netip.Addr   `json:"source,omitzero"`
	Metric      int          `json:"metric,omitempty"`
	Table       int          `json:"table"`
	Type        int          `json:"type"`     // RTN_*
	Scope       int          `json:"scope"`    // RT_SCOPE_*
	Protocol    int          `json:"protocol"` // RTPROT_*
	TOS         int          `json:"tos,omitempty"`
	Flags       int          `json:"flags,omitempty"` // RTNH_F_* of the first hop
	MTU         int          `json:"mtu,omitempty"`   // metrics of the path, RTAX_*; 0 is unset
	MTULock     bool         `json:"mtu_lock,omitempty"`
	AdvMSS      int          `json:"advmss,omitempty"`
	Window      int          `json:"window,omitempty"`
	HopLimit    int          `json:"hop_limit,omitempty"`
	InitCwnd    int          `json:"initcwnd,omitempty"`
	InitRwnd    int          `json:"initrwnd,omitempty"`
	QuickACK    int          `json:"quickack,omitempty"`
	Congestion  string       `json:"congestion,omitempty"`
}

// Hop is one way a route leaves the box.
type Hop struct {
	Interface string     `json:"interface"`
	Gateway   netip.Addr `json:"gateway,omitzero"` // zero: the destination is on the wire; may be IPv6 in an IPv4 route
	Weight    int        `json:"weight,omitempty"` // of a multipath route, less one
	Flags     int        `json:"flags,omitempty"`  // RTNH_F_ONLINK ...
}

// Uses says whether the route leaves by the interface.
func (r Route) Uses(name string) bool {
	return slices.ContainsFunc(r.Hops, func(h Hop) bool { return h.Interface == name })
}

// Via is the same route with every hop over the one interface turned to the other.
func (r Route) Via(from, to string) Route {
	r.Hops = slices.Clone(r.Hops)
	for i := range r.Hops {
		if r.Hops[i].Interface == from {
			r.Hops[i].Interface = to
		}
	}
	return r
}

// Equal says whether two routes are the same in everything.
func (r Route) Equal(o Route) bool {
	a, b := r, o
	a.Hops, b.Hops = nil, nil
	return fmt.Sprint(a) == fmt.Sprint(b) && slices.Equal(r.Hops, o.Hops)
}

// String names the route as a person would: "default via 192.0.2.1", "203.0.113.0/24".
func (r Route) String() string {
	var b strings.Builder
	if r.Destination.Bits() == 0 {
		b.WriteString("default")
	} else {
		b.WriteString(r.Destination.String())
	}
	for i, h := range r.Hops {
		if h.Gateway.IsValid() {
			if i > 0 {
				b.WriteString(" and")
			}
			fmt.Fprintf(&b, " via %v", h.Gateway)
		}
	}
	if r.Table != unix.RT_TABLE_MAIN {
		fmt.Fprintf(&b, " in table %d", r.Table)
	}
	return b.String()
}

// maxRoutes of a family are looked at; a box that carries more is a router of the Internet.
const maxRoutes = 10000

// Routes lists what somebody set in any table, IPv4 first; names translates interface indexes.
func Routes(names map[int]string) ([]Route, error) {
	var out []Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := retry(func() (list []netlink.Route, err error) {
			all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
			err = netlink.RouteListFilteredIter(family, all, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
				list = append(list, r)
				return len(list) < maxRoutes
			})
			return list, err
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range list {
			if route, ok := routeOf(r, names); ok {
				out = append(out, route)
			}
		}
	}
	return out, nil
}

func routeOf(r netlink.Route, names map[int]string) (Route, bool) {
	made := r.Protocol == unix.RTPROT_KERNEL || r.Protocol == unix.RTPROT_REDIRECT
	if made || r.Table == unix.RT_TABLE_LOCAL || r.Type != unix.RTN_UNICAST || r.Encap != nil || r.MPLSDst != nil {
		return Route{}, false
	}
	destination, ok := prefixOf(r.Dst)
	if !ok {
		any := netip.IPv4Unspecified()
		if r.Family == netlink.FAMILY_V6 {
			any = netip.IPv6Unspecified()
		}
		destination = netip.PrefixFrom(any, 0)
	}
	out := Route{
		Destination: destination, Metric: r.Priority, Table: r.Table, Type: r.Type, Scope: int(r.Scope),
		Protocol: int(r.Protocol), TOS: r.Tos, Flags: r.Flags & settableHopFlags, MTU: r.MTU, MTULock: r.MTULock,
		AdvMSS: r.AdvMSS, Window: r.Window, HopLimit: r.Hoplimit, InitCwnd: r.InitCwnd, InitRwnd: r.InitRwnd,
		QuickACK: r.QuickACK, Congestion: strings.TrimRight(r.Congctl, "\x00"),
	}
	out.Source, _ = addrOf(r.Src)
	hops := r.MultiPath
	if len(hops) == 0 {
		hops = []*netlink.NexthopInfo{{LinkIndex: r.LinkIndex, Gw: r.Gw, Via: r.Via}}
	}
	for _, h := range hops {
		hop := Hop{Interface: names[h.LinkIndex], Weight: h.Hops, Flags: h.Flags & settableHopFlags}
		hop.Gateway, _ = addrOf(h.Gw)
		if via, ok := h.Via.(*netlink.Via); ok {
			hop.Gateway, _ = addrOf(via.Addr)
		}
		if hop.Interface == "" {
			return Route{}, false
		}
		out.Hops = append(out.Hops, hop)
	}
	return out, true
}

// Learnt says whether a router told the route (RFC 4861): it comes again by itself wherever it belongs.
func (r Route) Learnt() bool { return r.Protocol == unix.RTPROT_RA }

// settableHopFlags are those a person sets; the others only report.
const settableHopFlags = unix.RTNH_F_ONLINK | unix.RTNH_F_PERVASIVE

// SetRoute makes the route, in the place of one with the same destination, metric and table.
func (None) SetRoute(r Route) error {
	k, err := r.kernel()
	if err != nil {
		return err
	}
	return netlink.RouteReplace(k)
}

// RemoveRoute takes the route away.
func (None) RemoveRoute(r Route) error {
	k, err := r.kernel()
	if err != nil {
		return err
	}
	err = netlink.RouteDel(k)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

func (r Route) kernel() (*netlink.Route, error) {
	out := &netlink.Route{
		Dst: netOf(r.Destination), Priority: r.Metric, Table: r.Table, Type: r.Type, Scope: netlink.Scope(r.Scope),
		Protocol: netlink.RouteProtocol(r.Protocol), Tos: r.TOS, Flags: r.Flags, MTU: r.MTU, MTULock: r.MTULock,
		AdvMSS: r.AdvMSS, Window: r.Window, Hoplimit: r.HopLimit, InitCwnd: r.InitCwnd, InitRwnd: r.InitRwnd,
		QuickACK: r.QuickACK, Congctl: r.Congestion,
	}
	if r.Source.IsValid() {
		out.Src = r.Source.AsSlice()
	}
	for _, h := range r.Hops {
		link, err := find(h.Interface)
		if err != nil {
			return nil, err
		}
		hop := &netlink.NexthopInfo{LinkIndex: link.Attrs().Index, Hops: h.Weight, Flags: h.Flags}
		switch {
		case !h.Gateway.IsValid():
		case h.Gateway.Is4() == r.Destination.Addr().Is4():
			hop.Gw = h.Gateway.AsSlice()
		default: // RFC 5549
			hop.Via = &netlink.Via{AddrFamily: netlink.FAMILY_V6, Addr: h.Gateway.AsSlice()}
		}
		out.MultiPath = append(out.MultiPath, hop)
	}
	if len(out.MultiPath) == 1 {
		h := out.MultiPath[0]
		out.LinkIndex, out.Gw, out.Via, out.MultiPath = h.LinkIndex, h.Gw, h.Via, nil
	}
	return out, nil
}
