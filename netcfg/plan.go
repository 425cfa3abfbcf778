package netcfg

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"linerate/appliance"
	"linerate/appliance/config"
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

	unjoined map[string]bool // bridges that files name, and no port is in
}

// makePlan says what has to change so that what was seen becomes what is wanted.
func makePlan(seen Seen, w Wanted, past originals) Plan {
	p := planner{
		seen: seen, want: w, past: past.clone(), freed: map[string][]string{}, said: map[string]bool{},
		gets: map[string]bool{}, group: map[string]string{}, adds: map[string][]netip.Prefix{},
		unjoined: map[string]bool{},
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
	p.overrides()
	for i := range p.plan.Steps {
		l, _ := seen.byName(p.plan.Steps[i].Port)
		p.plan.Steps[i].index = l.index
	}
	p.sayLonely()
	p.plan.saves, p.plan.leases = p.past, p.leasePorts()
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
			p.keepOut(port)
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
	case !p.frees(port):
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

// frees says whether the config takes a port out of bridges that hold nothing foreign.
func (p *planner) frees(port appliance.Port) bool {
	switch p.want.Ports.Bridge {
	case config.BridgeKeep:
		return false
	case config.BridgeAuto:
		return p.want.Board.Known() || p.want.named(port)
	}
	return true
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
		kept := p.past.bridge(l.name)
		known := kept != nil && kept.Index == l.index && kept.Boot == p.seen.boot
		ours := len(leaving) > 0 || known && p.want.Ports.Bridge != config.BridgeKeep
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

// linkSteps sets the MTU of each port, then brings it up.
func (p *planner) linkSteps() {
	for _, port := range p.alone {
		p.macStep(port)
		p.mtuStep(port, p.want.forPort(port).MTU)
	}
	for _, port := range p.alone {
		p.upStep(port)
	}
}

// macStep gives a port that asks a DHCP server, and that no manager owns, the same MAC at each boot.
func (p *planner) macStep(port appliance.Port) {
	mac := p.seen.managed.ownMAC(port)
	if mac == nil || p.owned(port.Name) || port.MAC == mac.String() || !leases(p.want.forPort(port)) || p.hasStatic(port) {
		return
	}
	p.past.keepPort(port, p.seen)
	p.plan.step(Step{Kind: SetMAC, Port: port.Name, mac: mac.String(), oldMAC: port.MAC, group: p.group[port.Name]},
		"set the MAC to %v: its driver makes up another at each boot", mac)
}

// leasePorts lists the ports that ask a DHCP server, which no manager does for them.
func (p *planner) leasePorts() []appliance.Port {
	return slices.DeleteFunc(slices.Clone(p.alone), func(port appliance.Port) bool {
		want := p.want.forPort(port)
		return p.owned(port.Name) || !want.Native || !leases(want)
	})
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
		if p.owned(bridge.name) {
			p.stays(bridge.name)
			continue
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

// Text is the plan for a person: a line a step, then what is noted and what cannot be.
func (p Plan) Text() string {
	var b strings.Builder
	for _, s := range p.Steps {
		fmt.Fprintln(&b, s.Text)
		b.WriteString(filesText(s))
	}
	if len(p.Steps) == 0 {
		fmt.Fprintln(&b, "nothing to change")
	}
	for _, w := range p.warnings {
		fmt.Fprintln(&b, "warning:", w)
	}
	for _, n := range p.Notes {
		fmt.Fprintln(&b, "note:", n)
	}
	for _, f := range p.Faults {
		fmt.Fprintln(&b, "fault:", f)
	}
	return b.String()
}
