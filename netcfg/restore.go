package netcfg

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"linerate/appliance"
	"linerate/netcfg/manager"
)

// restorePlan says what has to change so that everything is as it was found: bridges exist, with their addresses and
// routes, hold their ports again, and the ports have lost what they were given. It looks at nothing but its arguments.
func restorePlan(seen Seen, past originals) Plan {
	p := Plan{Steps: []Step{}, Notes: []string{}, Faults: slices.Clone(seen.Faults), saves: past}
	p.removeFiles(seen, past)
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
	p.sayLoop(seen, past, b)
	if seen.makes(past, b) {
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
	for _, kept := range past.Ports {
		port, ok := find(seen, kept)
		if !ok || kept.Bridge != b.Name {
			continue
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

// sayLoop warns of what a person must know who puts ports back.
func (p *Plan) sayLoop(seen Seen, past originals, b originalBridge) {
	var linked []string
	for _, kept := range past.Ports {
		if port, ok := find(seen, kept); ok && kept.Bridge == b.Name && port.Link == appliance.LinkUp {
			linked = append(linked, port.Name)
		}
	}
	if len(linked) > 1 {
		p.warnings = append(p.warnings, fmt.Sprintf("%s: gets %s back, all with a link: if two of them lead to one switch this "+
			"is a loop: pull out one of the cables", b.Name, strings.Join(linked, ", ")))
	}
}

// makes says whether a network manager makes the bridge and lets its ports join, once our files are gone.
func (s *Seen) makes(past originals, b originalBridge) bool {
	if _, owned := s.managed.owners[b.Name]; owned {
		return true
	}
	return slices.ContainsFunc(past.Ports, func(kept originalPort) bool {
		port, ok := find(*s, kept)
		_, owned := s.managed.owners[port.Name]
		return ok && kept.Bridge == b.Name && owned
	})
}

// removeFiles takes away our files; then each manager goes by its own again.
func (p *Plan) removeFiles(seen Seen, past originals) {
	var changes []change
	for name, content := range seen.managed.files {
		changes = append(changes, change{key: filepath.Base(name), name: seen.managed.fileOf[name], gone: true, old: &content,
			file: manager.File{Path: name, Mode: 0o644}})
	}
	if len(changes) == 0 {
		return
	}
	slices.SortFunc(changes, func(a, b change) int { return strings.Compare(a.file.Path, b.file.Path) })
	for i := range changes {
		for _, l := range seen.links {
			if seen.managed.owners[l.name].Manager == changes[i].name && concerns(seen, past, l.name) {
				changes[i].indexes = append(changes[i].indexes, l.index)
			}
		}
	}
	p.Steps = append(p.Steps, changeSteps(changes)...)
}

// concerns says whether an interface is a port or a bridge that was kept.
func concerns(seen Seen, past originals, name string) bool {
	return past.bridge(name) != nil || slices.ContainsFunc(past.Ports, func(kept originalPort) bool {
		port, ok := find(seen, kept)
		return ok && port.Name == name
	})
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
	if _, owned := seen.managed.owners[port.Name]; owned {
		// Its manager gives it back what it had, but for an MTU that none of the manager's files names.
		if kept.MTU > 0 && kept.MTU != port.MTU {
			in.Kind, in.mtu, in.oldMTU, in.group = SetMTU, kept.MTU, port.MTU, ""
			p.step(in, "set the MTU back to %d (it is %d)", kept.MTU, port.MTU)
		}
		return
	}
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
