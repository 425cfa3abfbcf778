package netcfg

import (
	"net/netip"
	"slices"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/appliance/config"
	"linerate/netcfg/manager"
)

// keepOut keeps a port that stands alone out of the bridge that its manager's own files put it into: our override has
// kept it alone since the manager started, or the manager has not started yet.
func (p *planner) keepOut(port appliance.Port) {
	bridge := p.seen.managed.bridged[port.Name]
	if bridge == "" || !p.frees(port) {
		return
	}
	if kept := p.past.keepPort(port, p.seen); kept.Bridge == "" {
		kept.Bridge = bridge
	}
	p.keepUnjoined(bridge)
}

// keepUnjoined records a bridge that its ports never joined, as its manager's files have it.
func (p *planner) keepUnjoined(bridge string) {
	if l, there := p.seen.byName(bridge); there && slices.ContainsFunc(p.seen.links, func(m link) bool {
		return m.master == l.index && !slices.Contains(p.freed[bridge], m.name)
	}) {
		return // it has other members, and is theirs
	}
	p.unjoined[bridge] = true
	files := p.seen.managed.static[bridge]
	if p.past.bridge(bridge) == nil {
		kept := originalBridge{Name: bridge, Up: true, Settings: map[string]string{}, Addresses: []manager.Address{},
			Routes: append([]manager.Route{}, files.routes...)}
		for _, a := range files.addresses {
			kept.Addresses = append(kept.Addresses, manager.Given(bridge, a))
		}
		p.past.Bridges = append(p.past.Bridges, kept)
	}
}

// moveConfigured gives the addresses that files give a bridge whose ports never joined it to one of these ports.
func (p *planner) moveConfigured() {
	for _, kept := range p.past.Bridges {
		if !p.unjoined[kept.Name] {
			continue
		}
		for _, prefix := range p.seen.managed.static[kept.Name].addresses {
			if !p.given(prefix) {
				p.giveConfigured(kept.Name, prefix)
			}
		}
	}
}

func (p *planner) given(prefix netip.Prefix) bool {
	return slices.ContainsFunc(p.past.Ports, func(q originalPort) bool {
		return slices.ContainsFunc(q.Given, func(g given) bool { return g.Address.Prefix == prefix })
	})
}

func (p *planner) giveConfigured(bridge string, prefix netip.Prefix) {
	b := link{name: bridge}
	to, ok := p.receiver(b)
	if !ok {
		return
	}
	p.past.keepPort(to, p.seen).give(manager.Given(to.Name, prefix), true)
}

// absentChanges writes what keeps ports of the board out of their bridge that have not appeared: there is no more to go
// by than their place. A file that is there already is the keeper's, who knew more.
func (p *planner) absentChanges() []change {
	var out []change
	for _, a := range p.seen.managed.absent {
		port := appliance.Port{Role: a.role.Role, Test: true}
		if !p.frees(port) {
			continue
		}
		p.keepUnjoined(a.bridge)
		want := p.want.forPort(port)
		o := manager.Override{Key: keyOf(port), Paths: placesOf(a.role), DHCP: leases(want), Addresses: statics(want)}
		if want.MTU != config.MTULeave && want.MTU != config.MTUMax {
			o.MTU = int(want.MTU)
		}
		for _, f := range p.seen.managed.byName(a.manager).Files(o, false) {
			if _, there := p.seen.managed.files[f.Path]; !there {
				out = append(out, change{key: a.role.Role, group: a.bridge, name: a.manager, file: f})
			}
		}
	}
	return out
}

// wantsAbsent says whether a port of the board that is not there would be a test port.
func (w Wanted) wantsAbsent(role board.Port) bool {
	return slices.Contains(w.Ports.Select, role.Role) || slices.Contains(w.Ports.Select, config.Auto) && role.Test ||
		slices.ContainsFunc(w.Port, func(c config.Port) bool { return c.Match == role.Role })
}
