package netcfg

import (
	"fmt"
	"slices"
	"strings"

	"linerate/appliance"
	"linerate/netcfg/manager"
)

// restorePlan says what has to change so that everything is as it was found: bridges exist, with their addresses and
// routes, hold their ports again, and the ports have lost what they were given. It looks at nothing but its arguments.
func restorePlan(seen Seen, past originals) Plan {
	p := Plan{Steps: []Step{}, Notes: []string{}, Faults: []string{}, saves: past}
	for _, b := range past.Bridges {
		p.restoreBridge(seen, past, b)
	}
	for _, kept := range past.Ports {
		port, ok := find(seen, kept)
		if !ok {
			p.Faults = append(p.Faults, fmt.Sprintf("%s: is not there, so it could not be put back as found", kept.Name))
			continue
		}
		p.restorePort(seen, port, kept)
	}
	return p
}

// find is the port that was kept, whatever it is called now.
func find(seen Seen, kept originalPort) (appliance.Port, bool) {
	one := originals{Ports: []originalPort{kept}}
	i := slices.IndexFunc(seen.Ports, func(p appliance.Port) bool { return one.port(p) != nil })
	if i < 0 {
		return appliance.Port{}, false
	}
	return seen.Ports[i], true
}

// restoreBridge makes the bridge, lets its ports join, then moves addresses and routes back to it.
func (p *Plan) restoreBridge(seen Seen, past originals, b originalBridge) {
	l, exists := seen.byName(b.Name)
	if exists && l.kind != "bridge" {
		p.Faults = append(p.Faults, fmt.Sprintf("%s: is %s now, so the bridge of that name was not made again", b.Name,
			l.what()))
		return
	}
	in := Step{Port: b.Name, group: b.Name, vital: true}
	if !exists {
		in.Kind, in.made = AddBridge, &madeBridge{b.MAC, b.Settings, b.VLANs}
		p.step(in, "make the bridge again")
	}
	if b.Up && !l.up {
		in.Kind = SetUp
		p.step(in, "bring it up")
	}
	var linked []string
	for _, kept := range past.Ports {
		port, ok := find(seen, kept)
		if !ok || kept.Bridge != b.Name {
			continue
		}
		if port.Link == appliance.LinkUp {
			linked = append(linked, port.Name)
		}
		if port.Master != "" {
			continue
		}
		if !up(seen, port) && kept.Up {
			p.step(Step{Kind: SetUp, Port: port.Name, group: b.Name}, "bring it up")
		}
		p.step(Step{Kind: JoinBridge, Port: port.Name, bridge: b.Name, member: kept.Member, vlans: kept.VLANs,
			group: b.Name, vital: true}, "join bridge %s again", b.Name)
	}
	if len(linked) > 1 {
		p.note("%s: gets %s back, all with a link: if two of them lead to one switch this is a loop", b.Name,
			strings.Join(linked, ", "))
	}
	for _, a := range b.Addresses {
		if !slices.ContainsFunc(seen.addresses, a.Same) {
			p.step(Step{Kind: AddAddress, Port: b.Name, address: a, move: true, group: b.Name, vital: true},
				"take back %v", a.Prefix)
		}
	}
	for _, r := range b.Routes {
		if !slices.ContainsFunc(seen.routes, r.Equal) {
			p.step(Step{Kind: SetRoute, Port: b.Name, route: r, before: standsFor(r, seen.routes), group: b.Name,
				vital: true}, "take back the route %v", r)
		}
	}
}

// standsFor finds the route that setting r would take the place of.
func standsFor(r manager.Route, routes []manager.Route) *manager.Route {
	i := slices.IndexFunc(routes, func(o manager.Route) bool {
		return o.Destination == r.Destination && o.Metric == r.Metric && o.Table == r.Table && o.TOS == r.TOS
	})
	if i < 0 {
		return nil
	}
	return &routes[i]
}

func (p *Plan) restorePort(seen Seen, port appliance.Port, kept originalPort) {
	in := Step{Port: port.Name, group: kept.Bridge}
	for _, a := range kept.Addresses {
		if a = a.On(port.Name); !slices.ContainsFunc(seen.addresses, a.Same) {
			in.Kind, in.address = AddAddress, a
			p.step(in, "take back %v", a.Prefix)
		}
	}
	for _, g := range kept.Given {
		a := g.Address.On(port.Name)
		own := slices.ContainsFunc(kept.Addresses, func(o manager.Address) bool { return o.Prefix == a.Prefix })
		if !own && slices.ContainsFunc(seen.addresses, a.Same) {
			in.Kind, in.address = RemoveAddress, a
			p.step(in, "give up %v", a.Prefix)
		}
	}
	in.address = manager.Address{}
	if kept.MTU > 0 && kept.MTU != port.MTU {
		in.Kind, in.mtu, in.oldMTU = SetMTU, kept.MTU, port.MTU
		p.step(in, "set the MTU back to %d (it is %d)", kept.MTU, port.MTU)
	}
	if !kept.Up && up(seen, port) {
		in.Kind = SetDown
		p.step(in, "take it down, as it was")
	}
}

func up(seen Seen, port appliance.Port) bool {
	l, ok := seen.byName(port.Name)
	return ok && l.up
}
