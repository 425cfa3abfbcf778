package netcfg

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/appliance/config"
	"linerate/netcfg/manager"
)

// owned says whether a network manager owns the interface, so that what it shall be is to be told to that manager.
func (p *planner) owned(name string) bool {
	_, ok := p.seen.managed.owners[name]
	return ok
}

// change is a file of ours that is to be otherwise.
type change struct {
	key     string // port or bridge
	group   string
	name    string // manager
	file    manager.File
	old     *string // content; nil: it is not there
	gone    bool    // the file is to be removed
	indexes []int   // of the interfaces that it is about
}

// overrides plans what the managers are told, as the first steps: what they are not told they would undo.
func (p *planner) overrides() {
	var changes []change
	var reload []Step
	for _, port := range p.seen.Ports {
		if !p.want.chosen(port) {
			continue
		}
		o, wanted := p.override(port)
		changed := p.fileChanges(o, wanted, port.Name, cmp.Or(p.group[port.Name], p.keptBridge(port)))
		changes = append(changes, changed...)
		if len(changed) == 0 && wanted {
			reload = append(reload, p.notLoaded(port, o)...)
		}
	}
	changes = append(changes, p.absentChanges()...)
	for _, kept := range p.past.Bridges {
		l, ok := p.seen.byName(kept.Name)
		if ok && l.kind != "bridge" || !p.owned(kept.Name) {
			continue
		}
		wanted := p.want.Ports.Bridge != config.BridgeKeep &&
			(p.isEmpty(l) || p.hasFile(kept.Name) || p.unjoined[kept.Name])
		changes = append(changes, p.fileChanges(manager.Override{Key: kept.Name, Name: kept.Name, Empty: true}, wanted,
			kept.Name, kept.Name)...)
	}
	p.plan.Steps = slices.Concat(changeSteps(changes), reload, p.plan.Steps)
	for name, why := range p.seen.managed.tentative {
		if slices.ContainsFunc(p.plan.Steps, func(s Step) bool { return s.File != nil && s.manager == name }) ||
			slices.Contains(p.managersInUse(), name) {
			p.plan.note("%s", why)
		}
	}
}

func (p *planner) managersInUse() []string {
	var out []string
	for file := range p.seen.managed.files {
		out = append(out, p.seen.managed.fileOf[file])
	}
	return out
}

// changeSteps makes the steps of each group: the manager is told once, after the last file of the group; and once when
// they are undone, after what was the first.
func changeSteps(changes []change) []Step {
	type about struct{ group, name string }
	indexes, first, last := map[about][]int{}, map[about]int{}, map[about]int{}
	for i, c := range changes {
		a := about{c.group, c.name}
		for _, n := range c.indexes {
			if n > 0 && !slices.Contains(indexes[a], n) {
				indexes[a] = append(indexes[a], n)
			}
		}
		if _, ok := first[a]; !ok {
			first[a] = i
		}
		last[a] = i
	}
	var out Plan
	for i, c := range changes {
		a := about{c.group, c.name}
		s := Step{Kind: WriteFile, Port: c.key, manager: c.name, File: &c.file, old: c.old, group: c.group, vital: true}
		if first[a] == i {
			s.tellUndone = append([]int{}, indexes[a]...) // never nil: it is told, be it of nothing
		}
		if last[a] == i {
			s.tell = append([]int{}, indexes[a]...)
		}
		if c.gone {
			s.Kind = RemoveFile
			out.step(s, "remove %s", c.file.Path)
		} else {
			out.step(s, "write %s for %s", c.file.Path, c.name)
		}
	}
	return out.Steps
}

// override is what a port's manager is told; false where its own files may stand. They do where the port stood alone all
// the time, and the config asks for nothing of its own.
func (p *planner) override(port appliance.Port) (manager.Override, bool) {
	kept, want := p.past.port(port), p.want.forPort(port)
	role := p.role(port)
	o := manager.Override{Key: keyOf(port), Name: port.Name, Paths: pathsOf(p.seen.managed.idPaths[port.Name], role),
		Addresses: slices.Clone(statics(want)), MAC: p.seen.managed.ownMAC(port)}
	if p.seen.managed.early && len(o.Paths) == 0 {
		o.Paths = placesOf(role)
	}
	if !p.owned(port.Name) || !slices.ContainsFunc(p.alone, func(q appliance.Port) bool { return q.Name == port.Name }) {
		return o, false
	}
	freed := kept != nil && kept.Bridge != ""
	switch {
	case freed && p.want.Ports.Bridge == config.BridgeKeep, p.seen.managed.bridged[port.Name] != "" && !p.frees(port):
		return o, false
	case freed, len(o.Addresses) > 0, asks(want, config.AddressDHCP):
	case asks(want, config.AddressAuto) && o.MAC != nil && !p.hasStatic(port):
	default:
		return o, false
	}
	o.DHCP = leases(want)
	if kept == nil {
		return o, true
	}
	o.MTU = kept.GivenMTU
	var moved []netip.Prefix
	for _, g := range kept.Given {
		if g.Moved && g.Address.Static() && !slices.Contains(o.Addresses, g.Address.Prefix) {
			moved = append(moved, g.Address.Prefix)
		}
	}
	o.Addresses = append(o.Addresses, moved...)
	if b := p.past.bridge(kept.Bridge); b != nil && len(moved) > 0 {
		for _, r := range b.Routes {
			if through(r, b.Name, moved, b.Addresses) {
				o.Routes = append(o.Routes, r.Via(b.Name, port.Name))
			}
		}
	}
	return o, true
}

// leases says whether a port shall ask a server: by any word of the config but a list of addresses.
func leases(want config.Port) bool { return len(statics(want)) < max(len(want.Address), 1) }

// through says whether a route of a bridge goes on by a port that took over these of its addresses: the gateway is in
// one of their networks, or in none of the bridge's.
func through(r manager.Route, bridge string, moved []netip.Prefix, all []manager.Address) bool {
	for _, h := range r.Hops {
		if h.Interface != bridge {
			continue
		}
		if slices.ContainsFunc(moved, func(p netip.Prefix) bool { return p.Contains(h.Gateway) }) {
			return true
		}
		if !slices.ContainsFunc(all, func(a manager.Address) bool { return a.Prefix.Contains(h.Gateway) }) {
			return true
		}
	}
	return false
}

func asks(want config.Port, m config.Method) bool {
	return slices.ContainsFunc(want.Address, func(a config.Address) bool { return a.Method == m })
}

// hasStatic says whether the port has an IPv4 address that stays: then no server has to know it again.
func (p *planner) hasStatic(port appliance.Port) bool {
	return slices.ContainsFunc(p.seen.addresses, func(a manager.Address) bool {
		return a.Interface == port.Name && a.Static() && a.Prefix.Addr().Is4() && !a.LinkLocal()
	})
}

func (p *planner) role(port appliance.Port) board.Port {
	i := slices.IndexFunc(p.want.Board.Ports, func(b board.Port) bool { return b.Role == port.Role && b.Role != "" })
	if i < 0 {
		return board.Port{}
	}
	return p.want.Board.Ports[i]
}

func (p *planner) keptBridge(port appliance.Port) string {
	if kept := p.past.port(port); kept != nil {
		return kept.Bridge
	}
	return ""
}

func (p *planner) isEmpty(bridge link) bool {
	return slices.ContainsFunc(p.empty, func(l link) bool { return l.index == bridge.index })
}

// hasFile says whether there is a file of ours about the interface.
func (p *planner) hasFile(name string) bool {
	m := p.seen.managed.byName(p.seen.managed.owners[name].Manager)
	for _, tentative := range []bool{false, true} {
		for _, f := range m.Files(manager.Override{Key: name}, tentative) {
			if _, there := p.seen.managed.files[f.Path]; there {
				return true
			}
		}
	}
	return false
}

// fileChanges compares the files that an override is made of with those there are. It goes to the lasting place, or
// where that cannot be written, to the tentative one.
func (p *planner) fileChanges(o manager.Override, wanted bool, name, group string) []change {
	owner := p.seen.managed.owners[name].Manager
	if owner == "" {
		return nil // what a manager that does not run will find stays
	}
	var out []change
	l, _ := p.seen.byName(name)
	for _, m := range p.seen.managed.known {
		_, readOnly := p.seen.managed.tentative[m.Name()]
		readOnly = readOnly || p.seen.managed.trial
		lasting, tentative := m.Files(o, false), m.Files(o, true)
		add := func(files []manager.File, gone bool) {
			for _, f := range files {
				c := change{key: name, group: group, name: m.Name(), file: f, indexes: []int{l.index}, gone: gone}
				content, there := p.seen.managed.files[f.Path]
				if there {
					c.old = &content
				}
				if gone && there || !gone && (!there || content != f.Content) {
					out = append(out, c)
				}
			}
		}
		same := !slices.ContainsFunc(lasting, func(f manager.File) bool { return p.seen.managed.files[f.Path] != f.Content })
		switch {
		case !wanted || m.Name() != owner:
			add(tentative, true)
			add(lasting, true)
		case readOnly && !same:
			add(tentative, false)
		default:
			add(lasting, false)
			add(tentative, true)
		}
	}
	return out
}

// notLoaded plans to tell the manager anew where it goes by another file than ours.
func (p *planner) notLoaded(port appliance.Port, o manager.Override) []Step {
	owner := p.seen.managed.owners[port.Name]
	m := p.seen.managed.byName(owner.Manager)
	if owner.File == "" {
		return nil
	}
	var ours []string
	for _, tentative := range []bool{false, true} {
		for _, f := range m.Files(o, tentative) {
			ours = append(ours, f.Path)
		}
	}
	if slices.Contains(ours, owner.File) {
		return nil
	}
	if path.Base(owner.File) < path.Base(ours[0]) {
		p.plan.Faults = append(p.plan.Faults, fmt.Sprintf("%s: %s goes by %s, which sorts before %s: give it a later name",
			port.Name, owner.Manager, owner.File, path.Base(ours[0])))
		return nil
	}
	var out Plan
	out.step(Step{Kind: TellManager, Port: port.Name, manager: owner.Manager, tell: []int{port.Index}},
		"tell %s again: it still goes by %s", owner.Manager, owner.File)
	return out.Steps
}

// stays says of a bridge that its manager makes it anew whenever it is gone.
func (p *planner) stays(bridge string) {
	p.plan.note("%s: stays, empty and without an address: %s makes it from its own files", bridge,
		p.seen.managed.owners[bridge].Manager)
}

// filesText shows the files that the plan would write, as they would be.
func filesText(s Step) string {
	if s.Kind != WriteFile || s.File == nil {
		return ""
	}
	var b strings.Builder
	for line := range strings.Lines(s.File.Content) {
		fmt.Fprintf(&b, "    %s", line)
	}
	return b.String()
}

// movableTo says whether an address of a bridge may go to a port: what a manager has leased, it leases to the port.
func (p *planner) movableTo(port appliance.Port, a manager.Address) bool {
	return !p.owned(port.Name) || a.Flags&unix.IFA_F_PERMANENT != 0
}
