package netcfg

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/netcfg/manager"
)

// planner makes one Plan. It looks at nothing but its fields.
type planner struct {
	seen Seen
	want Wanted
	past originals // becomes Plan.saves
	plan Plan

	empty []link                    // bridges without a member, once the ports have left
	alone []appliance.Port          // chosen ports that are or will be in no bridge
	freed map[string][]string       // by bridge: ports that leave it
	said  map[string]bool           // bridges a note was made about
	gets  map[string]bool           // ports that take over addresses of a bridge
	group map[string]string         // by port: the bridge whose steps its own belong to
	adds  map[string][]netip.Prefix // by port: addresses that a step adds
}

// makePlan says what has to change so that what was seen becomes what is wanted.
func makePlan(seen Seen, w Wanted, past originals) Plan {
	p := planner{
		seen: seen, want: w, past: past.clone(), freed: map[string][]string{}, said: map[string]bool{},
		gets: map[string]bool{}, group: map[string]string{}, adds: map[string][]netip.Prefix{},
	}
	p.plan = Plan{Steps: []Step{}, Notes: []string{}, Faults: slices.Clone(seen.Faults)}
	if p.plan.Faults == nil {
		p.plan.Faults = []string{}
	}
	p.leaveBridges()
	p.empty = p.emptied()
	moves := p.moveAddresses()
	p.linkSteps()
	p.plan.Steps = append(p.plan.Steps, moves...)
	p.giveAddresses()
	p.takeAddresses()
	p.deleteBridges()
	for i := range p.plan.Steps {
		l, _ := seen.byName(p.plan.Steps[i].Port)
		p.plan.Steps[i].index = l.index
	}
	p.sayLonely()
	p.plan.saves = p.past
	return p.plan
}

// leaveBridges decides for each chosen port whether it leaves its bridge, and which are left alone altogether.
func (p *planner) leaveBridges() {
	for _, port := range p.seen.Ports {
		if !p.want.chosen(port) {
			continue
		}
		master, member := p.seen.byName(port.Master)
		switch {
		case !member:
			p.alone = append(p.alone, port)
		case !port.Bridge:
			p.plan.note("%s: is a member of %s (%s): left alone", port.Name, port.Master, master.what())
		default:
			p.leaveBridge(port, master)
		}
	}
}

func (p *planner) leaveBridge(port appliance.Port, bridge link) {
	mode := p.want.Ports.Bridge
	if mode == config.BridgeAuto {
		if what := p.foreign(bridge); what != "" {
			p.noteOnce(bridge.name, "%s: %s: left alone; bridge = \"free\" takes its ports out all the same",
				bridge.name, what)
			return
		}
	}
	switch {
	case mode == config.BridgeKeep:
		p.noteOnce(bridge.name, "%s: keeps its ports, as bridge = \"keep\" says", bridge.name)
		p.inBridge(port, bridge)
		return
	case mode == config.BridgeAuto && !p.want.Board.Known() && !p.want.named(port):
		p.plan.note("%s: stays in %s: this board is not known; name the port in [ports] select or set bridge = \"free\"",
			port.Name, bridge.name)
		p.inBridge(port, bridge)
		return
	}
	p.freed[bridge.name] = append(p.freed[bridge.name], port.Name)
	p.alone = append(p.alone, port)
	p.group[port.Name] = bridge.name
	p.past.keepPort(port, p.seen)
	p.past.keepBridge(bridge.name, p.seen)
	p.plan.step(Step{Kind: LeaveBridge, Port: port.Name, bridge: bridge.name, group: bridge.name, vital: true,
		member: p.seen.settings[port.Name], vlans: p.seen.vlans[port.Name]}, "leave bridge %s", bridge.name)
}

// inBridge plans for a port that stays in its bridge by wish: only its MTU and that it is up.
func (p *planner) inBridge(port appliance.Port, bridge link) {
	want := p.want.forPort(port)
	if static := statics(want); len(static) > 0 {
		p.plan.note("%s: gets no address of its own while it is in %s", port.Name, bridge.name)
	}
	p.mtuStep(port, want.MTU)
	p.upStep(port)
}

// foreign says why bridge = "auto" must not touch a bridge; "" where it may.
func (p *planner) foreign(bridge link) string {
	for _, l := range p.seen.links {
		if l.master != bridge.index {
			continue
		}
		port := slices.ContainsFunc(p.seen.Ports, func(q appliance.Port) bool {
			return q.Name == l.name && p.want.chosen(q)
		})
		if !port && l.foreign() {
			return fmt.Sprintf("also holds %s (%s)", l.name, l.what())
		}
	}
	if l, ok := p.onTop(bridge); ok {
		return fmt.Sprintf("is busy: %s (%s) is on top of it", l.name, l.what())
	}
	return ""
}

// foreign says whether a member of a bridge belongs to somebody else's work: a virtual machine, a container, an access
// point. Hardware and what is laid over hardware are not.
func (l link) foreign() bool {
	switch l.kind {
	case "vlan", "dummy", "ifb", "bond", "team", "dsa":
		return false
	case "":
		return l.wifi || l.device == ""
	}
	return true
}

// onTop finds an interface that lies on the given one. (A veth's peer is no such, though the kernel calls it so.)
func (p *planner) onTop(below link) (link, bool) {
	for _, l := range p.seen.links {
		if l.parent == below.index && l.index != below.index {
			switch l.kind {
			case "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec", "vxlan":
				return l, true
			}
		}
	}
	return link{}, false
}

func (p *planner) noteOnce(about, format string, args ...any) {
	if !p.said[about] {
		p.said[about] = true
		p.plan.note(format, args...)
	}
}

// emptied lists the bridges that have no member left once the ports have left, those of an earlier run that broke off
// among them.
func (p *planner) emptied() []link {
	var out []link
	for _, l := range p.seen.links {
		if l.kind != "bridge" {
			continue
		}
		leaving := p.freed[l.name]
		remains := slices.ContainsFunc(p.seen.links, func(m link) bool {
			return m.master == l.index && !slices.Contains(leaving, m.name)
		})
		ours := len(leaving) > 0 || p.past.bridge(l.name) != nil && p.want.Ports.Bridge != config.BridgeKeep
		switch {
		case !ours:
		case !remains:
			out = append(out, l)
		case len(leaving) > 0 && len(p.seen.movable(l.name)) > 0:
			p.plan.note("%s: keeps its addresses, since it has other members", l.name)
		}
	}
	return out
}

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
		on := a.On(to.Name)
		on.Flags |= unix.IFA_F_NODAD * b2i(a.Prefix.Addr().Is6()) // it was in use on this wire a moment ago
		p.gets[to.Name] = true
		p.past.keepPort(to, p.seen).give(on, true)
		p.past.keepBridge(bridge.name, p.seen)
		moved = append(moved, a)
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
		if !ok {
			continue
		}
		p.plan.step(Step{Kind: SetRoute, Port: to.Name, route: r.Via(bridge.name, to.Name), before: &r,
			group: bridge.name, vital: true}, "take over the route %v of %s", r, bridge.name)
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

// linkSteps sets the MTU of each port, then brings it up.
func (p *planner) linkSteps() {
	for _, port := range p.alone {
		p.mtuStep(port, p.want.forPort(port).MTU)
	}
	for _, port := range p.alone {
		p.upStep(port)
	}
}

// leastIPv6MTU is the least a link may have to carry IPv6 (RFC 8200, 5).
const leastIPv6MTU = 1280

func (p *planner) mtuStep(port appliance.Port, wish config.MTU) {
	mtu := int(wish)
	switch wish {
	case config.MTULeave:
		kept := p.past.port(port)
		if kept == nil || kept.GivenMTU == 0 {
			return
		}
		if kept.GivenMTU != port.MTU {
			kept.GivenMTU = 0 // somebody else has set it since
			return
		}
		mtu = kept.MTU // it has its MTU from us, and nobody wants it any more
	case config.MTUMax:
		if port.MTUMax == nil {
			p.plan.note("%s: keeps MTU %d: the driver does not tell its limit; set a number", port.Name, port.MTU)
			return
		}
		mtu = *port.MTUMax
	}
	clamp := func(than string, limit int) {
		p.plan.note("%s: MTU %d is %s than its driver (%s) allows: %d is used", port.Name, mtu, than, port.Driver, limit)
		mtu = limit
	}
	if port.MTUMax != nil && mtu > *port.MTUMax {
		clamp("more", *port.MTUMax)
	}
	if port.MTUMin != nil && mtu < *port.MTUMin {
		clamp("less", *port.MTUMin)
	}
	if mtu < leastIPv6MTU {
		p.plan.note("%s: an MTU of %d is too small for IPv6 (%d at least)", port.Name, mtu, leastIPv6MTU)
	}
	if mtu == port.MTU {
		return
	}
	if kept := p.past.keepPort(port, p.seen); wish != config.MTULeave {
		kept.GivenMTU = mtu
	}
	p.plan.step(Step{Kind: SetMTU, Port: port.Name, mtu: mtu, oldMTU: port.MTU, group: p.group[port.Name]},
		"set the MTU to %d (it is %d)", mtu, port.MTU)
}

func (p *planner) upStep(port appliance.Port) {
	if l, ok := p.seen.byName(port.Name); !ok || l.up {
		return
	}
	p.past.keepPort(port, p.seen)
	p.plan.step(Step{Kind: SetUp, Port: port.Name, group: p.group[port.Name], vital: p.gets[port.Name]}, "bring it up")
}

// giveAddresses adds the addresses that the config lists.
func (p *planner) giveAddresses() {
	for _, port := range p.alone {
		for _, prefix := range statics(p.want.forPort(port)) {
			if p.has(port, prefix) || slices.Contains(p.adds[port.Name], prefix) {
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
			if !p.has(port, prefix) {
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

// deleteBridges removes the emptied bridges that no address is left on. Link-local IPv6 addresses do not count, nor do
// those learnt from a router: without a member there is no way to one.
func (p *planner) deleteBridges() {
	for _, bridge := range p.empty {
		left := len(p.seen.movable(bridge.name))
		for _, s := range p.plan.Steps {
			if s.Kind == RemoveAddress && s.Port == bridge.name {
				left--
			}
		}
		if left > 0 || !p.seen.live {
			continue
		}
		if l, busy := p.onTop(bridge); busy {
			p.plan.note("%s: stays, since %s (%s) is on top of it", bridge.name, l.name, l.what())
			continue
		}
		kept := p.past.bridge(bridge.name)
		made := &madeBridge{kept.MAC, kept.Settings, kept.VLANs}
		p.plan.step(Step{Kind: DeleteBridge, Port: bridge.name, group: bridge.name, made: made},
			"remove the bridge: it has no member and no address left")
	}
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
		if !stays && len(p.adds[port.Name]) == 0 {
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

// Text is the plan for a person: a line a step, then what is noted and what cannot be.
func (p Plan) Text() string {
	var b strings.Builder
	for _, s := range p.Steps {
		fmt.Fprintln(&b, s.Text)
	}
	if len(p.Steps) == 0 {
		fmt.Fprintln(&b, "nothing to change")
	}
	for _, n := range p.Notes {
		fmt.Fprintln(&b, "note:", n)
	}
	for _, f := range p.Faults {
		fmt.Fprintln(&b, "fault:", f)
	}
	return b.String()
}
