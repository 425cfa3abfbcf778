package netcfg

import (
	"net/netip"
	"path"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"linerate/netcfg/manager"
)

// neighbour is who answers for an IP address on an interface.
type neighbour struct {
	ip  netip.Addr
	mac string
}

// traffic is what tells which member of a bridge a connection goes through.
type traffic struct {
	peers      []netip.Addr      // far ends of the established TCP connections to the bridge's addresses
	neighbours []neighbour       // of the bridge
	members    map[string]string // member behind which a MAC was seen (the bridge's forwarding database)
}

// carried counts the connections that go through each member: from the far end to who answers for it on the wire, which
// is a gateway where the far end is in no network of the bridge, and from there to the member its MAC was seen behind.
func carried(t traffic, addresses []manager.Address, routes []manager.Route, bridge string) map[string]int {
	out := map[string]int{}
	for _, peer := range t.peers {
		hop := nextHop(peer, addresses, routes, bridge)
		i := slices.IndexFunc(t.neighbours, func(n neighbour) bool { return n.ip == hop })
		if i < 0 {
			continue
		}
		if member := t.members[t.neighbours[i].mac]; member != "" {
			out[member]++
		}
	}
	return out
}

// nextHop is the address that a bridge asks for on the wire to reach a peer.
func nextHop(peer netip.Addr, addresses []manager.Address, routes []manager.Route, bridge string) netip.Addr {
	for _, a := range addresses {
		if a.Interface == bridge && a.Prefix.Contains(peer) {
			return peer
		}
	}
	hop, best := peer, -1
	for _, r := range routes {
		if !r.Destination.Contains(peer) || r.Destination.Bits() <= best {
			continue
		}
		for _, h := range r.Hops {
			if h.Interface == bridge {
				best, hop = r.Destination.Bits(), peer
				if h.Gateway.IsValid() {
					hop = h.Gateway
				}
				break
			}
		}
	}
	return hop
}

// observe adds what only a change of bridges needs to know. What cannot be told (no inet_diag in this kernel) is left
// out: the carrier decides then.
func (s *Seen) observe() {
	s.carries, s.settings = map[string]int{}, map[string]map[string]string{}
	s.vlans = map[string][]manager.MemberVLAN{}
	var bridges []link
	for _, p := range s.Ports {
		l, ok := s.byName(p.Master)
		known := slices.ContainsFunc(bridges, func(b link) bool { return b.index == l.index })
		if ok && p.Bridge && !known {
			bridges = append(bridges, l)
		}
	}
	if len(bridges) == 0 {
		return
	}
	if fs, err := openSysfs("/"); err == nil {
		defer fs.root.Close()
		for _, b := range bridges {
			s.settings[b.name] = fs.settings(path.Join(netClass, b.name, "bridge"), bridgeSettings)
		}
		for _, p := range s.Ports {
			if p.Bridge {
				s.settings[p.Name] = fs.settings(path.Join(netClass, p.Name, "brport"), memberSettings)
			}
		}
	}
	if vlans, err := manager.MemberVLANs(); err == nil {
		for _, b := range bridges {
			if s.settings[b.name]["vlan_filtering"] != "1" {
				continue
			}
			s.vlans[b.name] = vlans[b.index]
			for _, l := range s.links {
				if l.master == b.index {
					s.vlans[l.name] = vlans[l.index]
				}
			}
		}
	}
	for _, b := range bridges {
		for member, n := range carried(s.traffic(b), s.addresses, s.routes, b.name) {
			s.carries[member] = n
		}
	}
}

func (s *Seen) traffic(bridge link) traffic {
	t := traffic{members: map[string]string{}}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := netlink.SocketDiagTCP(family)
		if err != nil {
			continue
		}
		for _, k := range sockets {
			const established = 1 // TCP_ESTABLISHED
			local, ok := netip.AddrFromSlice(k.ID.Source)
			peer, ok2 := netip.AddrFromSlice(k.ID.Destination)
			if k.State != established || !ok || !ok2 {
				continue
			}
			local, peer = local.Unmap(), peer.Unmap()
			if slices.ContainsFunc(s.addresses, func(a manager.Address) bool {
				return a.Interface == bridge.name && a.Prefix.Addr() == local
			}) {
				t.peers = append(t.peers, peer)
			}
		}
		neighbours, err := netlink.NeighList(bridge.index, int(family))
		if err != nil {
			continue
		}
		for _, n := range neighbours {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && len(n.HardwareAddr) > 0 {
				t.neighbours = append(t.neighbours, neighbour{ip.Unmap(), n.HardwareAddr.String()})
			}
		}
	}
	forwarding, err := netlink.NeighList(0, unix.AF_BRIDGE)
	if err != nil {
		return t
	}
	for _, f := range forwarding {
		if member, ok := s.byIndex(f.LinkIndex); ok && member.master == bridge.index {
			t.members[f.HardwareAddr.String()] = member.name
		}
	}
	return t
}

// What is put back into a bridge and its members when they are made again, in this order: the kernel refuses a default
// PVID once it filters by VLAN.
var (
	bridgeSettings = []string{
		"group_fwd_mask", "forward_delay", "hello_time", "max_age", "ageing_time", "priority", "stp_state",
		"default_pvid", "vlan_protocol", "vlan_filtering", "vlan_stats_enabled", "multicast_snooping",
		"multicast_querier", "multicast_router", "multicast_igmp_version", "multicast_mld_version", "no_linklocal_learn",
		"nf_call_iptables", "nf_call_ip6tables", "nf_call_arptables",
	}
	memberSettings = []string{
		"path_cost", "priority", "hairpin_mode", "bpdu_guard", "root_block", "learning", "unicast_flood",
		"multicast_flood", "broadcast_flood", "multicast_fast_leave", "multicast_router", "proxyarp", "isolated", "neigh_suppress",
		"group_fwd_mask",
	}
)

func (s sysfs) settings(dir string, names []string) map[string]string {
	out := map[string]string{}
	for _, n := range names {
		if v := s.text(path.Join(dir, n)); v != "" {
			out[n] = v
		}
	}
	return out
}
