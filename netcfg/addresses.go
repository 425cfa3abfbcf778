package netcfg

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/netcfg/manager"
)

// movable lists the addresses of a bridge that move with its ports: all of IPv4, leased ones too (there is nobody yet
// to ask for a new lease), and the static ones of IPv6.
func (s *Seen) movable(bridge string) []manager.Address {
	var out []manager.Address
	for _, a := range s.addresses {
		if a.Interface == bridge && (a.Prefix.Addr().Is4() || a.Static() && !a.LinkLocal()) {
			out = append(out, a)
		}
	}
	return out
}

// moveAddresses plans for each emptied bridge how its addresses and routes move.
func (p *planner) moveAddresses() []Step {
	rest := p.plan.Steps
	p.plan.Steps = nil
	for _, bridge := range p.empty {
		if !p.seen.live {
			p.plan.note("%s: its addresses and routes move with the ports; a tree does not tell them", bridge.name)
			continue
		}
		p.moveFrom(bridge)
	}
	p.moveConfigured()
	moves := p.plan.Steps
	p.plan.Steps = rest
	return moves
}

func (p *planner) moveFrom(bridge link) {
	addresses := p.seen.movable(bridge.name)
	receiver, ok := p.receiver(bridge)
	heir := func(a manager.Address) (appliance.Port, bool) {
		for _, port := range p.heirs(bridge) { // an address that the config gives to one of the ports goes there
			if slices.Contains(statics(p.want.forPort(port)), a.Prefix) {
				return port, true
			}
		}
		return receiver, ok
	}
	var moved []manager.Address
	for _, a := range addresses {
		to, ok := heir(a)
		if !ok {
			p.plan.note("%s: keeps %v: no port that left it asks for an address", bridge.name, a.Prefix)
			continue
		}
		if !p.movableTo(to, a) {
			continue
		}
		on := a.On(to.Name)
		on.Flags |= unix.IFA_F_NODAD * b2i(a.Prefix.Addr().Is6()) // it was in use on this wire a moment ago
		p.gets[to.Name] = true
		p.past.keepPort(to, p.seen).give(on, true)
		p.past.keepBridge(bridge.name, p.seen)
		moved = append(moved, a)
		if p.owned(to.Name) {
			// Its override has it; that the neighbours hear of it is left to us.
			p.plan.step(Step{Kind: Announce, Port: to.Name, address: on, group: bridge.name},
				"tell the neighbours that %v is here now", a.Prefix.Addr())
			continue
		}
		lease := ""
		if l := a.Lease(); l != "" {
			lease = ", with " + l
		}
		p.adds[to.Name] = append(p.adds[to.Name], a.Prefix)
		p.plan.step(Step{Kind: AddAddress, Port: to.Name, address: on, move: true, group: bridge.name, vital: true},
			"take over %v of %s%s", a.Prefix, bridge.name, lease)
	}
	for _, r := range p.seen.routes {
		if !r.Uses(bridge.name) || r.Learnt() {
			continue
		}
		to, ok := receiver, ok
		for _, h := range r.Hops {
			for _, a := range moved {
				if h.Interface == bridge.name && a.Prefix.Contains(h.Gateway) {
					to, ok = heir(a)
				}
			}
		}
		if !ok || p.owned(to.Name) {
			continue
		}
		p.plan.step(Step{Kind: SetRoute, Port: to.Name, route: r.Via(bridge.name, to.Name), before: &r,
			group: bridge.name, vital: true}, "take over the route %v of %s", r, bridge.name)
	}
	if p.owned(bridge.name) {
		return // its override takes them
	}
	for _, a := range slices.Backward(moved) { // primary ones last: the kernel drops the others with them
		p.plan.step(Step{Kind: RemoveAddress, Port: bridge.name, address: a, move: true, group: bridge.name,
			vital: true}, "give up %v", a.Prefix)
	}
}

// heirs lists the ports that left or leave the bridge and may take over its addresses.
func (p *planner) heirs(bridge link) []appliance.Port {
	var out []appliance.Port
	for _, port := range p.alone {
		kept := p.past.port(port)
		if slices.Contains(p.freed[bridge.name], port.Name) || kept != nil && kept.Bridge == bridge.name {
			out = append(out, port)
		}
	}
	return out
}

// receiver is the port that takes over a bridge's addresses: the one that carries most connections, else the first with
// a carrier, else the first; ports that the config gives addresses of their own, and no "auto", are out.
func (p *planner) receiver(bridge link) (appliance.Port, bool) {
	var candidates []appliance.Port
	for _, port := range p.heirs(bridge) {
		want := p.want.forPort(port)
		if len(statics(want)) == 0 || slices.Contains(want.Address, config.Address{Method: config.AddressAuto}) {
			candidates = append(candidates, port)
		}
	}
	if len(candidates) == 0 {
		return appliance.Port{}, false
	}
	best, most := -1, 0
	for i, port := range candidates {
		if n := p.seen.carries[port.Name]; n > most {
			best, most = i, n
		}
	}
	if best < 0 {
		best = slices.IndexFunc(candidates, func(q appliance.Port) bool { return q.Link == appliance.LinkUp })
	}
	return candidates[max(best, 0)], true
}

// statics lists the addresses that the config gives a port.
func statics(c config.Port) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range c.Address {
		if a.Method == config.AddressStatic {
			out = append(out, a.Prefix)
		}
	}
	return out
}

// giveAddresses adds the addresses that the config lists.
func (p *planner) giveAddresses() {
	for _, port := range p.alone {
		for _, prefix := range statics(p.want.forPort(port)) {
			if p.owned(port.Name) || p.has(port, prefix) || slices.Contains(p.adds[port.Name], prefix) {
				continue
			}
			a := manager.Given(port.Name, prefix)
			p.past.keepPort(port, p.seen).give(a, false)
			p.adds[port.Name] = append(p.adds[port.Name], prefix)
			p.plan.step(Step{Kind: AddAddress, Port: port.Name, address: a, group: p.group[port.Name]},
				"add the address %v", prefix)
		}
	}
}

// takeAddresses removes what we gave a port earlier and the config lists no more.
func (p *planner) takeAddresses() {
	for _, port := range p.alone {
		kept := p.past.port(port)
		if kept == nil {
			continue
		}
		want := p.want.forPort(port)
		listed := statics(want)
		keepMoved := len(listed) == 0 || slices.Contains(want.Address, config.Address{Method: config.AddressAuto})
		for _, g := range slices.Clone(kept.Given) {
			prefix := g.Address.Prefix
			if slices.Contains(listed, prefix) || g.Moved && keepMoved || slices.Contains(p.adds[port.Name], prefix) {
				continue
			}
			if p.owned(port.Name) || !p.has(port, prefix) {
				kept.Given = slices.DeleteFunc(kept.Given, func(o given) bool { return o.Address.Prefix == prefix })
			} else {
				p.plan.step(Step{Kind: RemoveAddress, Port: port.Name, address: g.Address.On(port.Name)},
					"remove %v: the config lists it no more", prefix)
			}
		}
	}
}

func (p *planner) has(port appliance.Port, prefix netip.Prefix) bool {
	return slices.ContainsFunc(p.seen.addresses, func(a manager.Address) bool {
		return a.Interface == port.Name && a.Prefix == prefix
	})
}

// sayLonely notes the ports that will have no address but what they give themselves.
func (p *planner) sayLonely() {
	if !p.seen.live {
		return
	}
	for _, port := range p.alone {
		stays := slices.ContainsFunc(p.seen.addresses, func(a manager.Address) bool {
			gone := slices.ContainsFunc(p.plan.Steps, func(s Step) bool {
				return s.Kind == RemoveAddress && s.address.Same(a)
			})
			return a.Interface == port.Name && !a.LinkLocal() && !gone
		})
		if !stays && len(p.adds[port.Name]) == 0 && !p.owned(port.Name) {
			p.plan.note("%s: has no address but IPv6 link-local; give it one with address = [\"192.0.2.1/24\"]",
				port.Name)
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
