package netcfg

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/netcfg/manager"
)

// scene builds what was seen: interfaces by name, in the order they are named.
type scene struct{ Seen }

func newScene() *scene { return &scene{Seen{live: true, carries: map[string]int{}}} }

func (s *scene) link(name, kind, master string, change ...func(*link)) *scene {
	l := link{index: len(s.links) + 1, name: name, kind: kind, ether: true, up: true, carrier: true, mtu: 1500}
	if m, ok := s.byName(master); ok {
		l.master = m.index
	}
	for _, c := range change {
		c(&l)
	}
	s.links = append(s.links, l)
	return s
}

// port is a physical port, chosen for tests.
func (s *scene) port(name, role, master string, change ...func(*appliance.Port)) *scene {
	s.link(name, "", master, func(l *link) { l.device = "pci/" + name })
	l := &s.links[len(s.links)-1]
	m, _ := s.byName(master)
	p := appliance.Port{Name: name, Role: role, Path: l.device, Driver: "r8169", Index: l.index, Link: appliance.LinkUp,
		MTU: 1500, MTUMin: new(68), MTUMax: new(9194), Master: master, Bridge: m.kind == "bridge", Test: true}
	for _, c := range change {
		c(&p)
	}
	l.mtu, l.carrier = p.MTU, p.Link == appliance.LinkUp
	s.Ports = append(s.Ports, p)
	return s
}

func (s *scene) address(name, cidr string, change ...func(*manager.Address)) *scene {
	a := manager.Given(name, netip.MustParsePrefix(cidr))
	for _, c := range change {
		c(&a)
	}
	s.addresses = append(s.addresses, a)
	return s
}

func (s *scene) route(destination, gateway, dev string) *scene {
	s.routes = append(s.routes, manager.Route{
		Destination: netip.MustParsePrefix(destination),
		Hops:        []manager.Hop{{Interface: dev, Gateway: netip.MustParseAddr(gateway)}},
		Table:       unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST, Protocol: unix.RTPROT_STATIC,
	})
	return s
}

func noLink(p *appliance.Port)  { p.Link = appliance.LinkDown }
func notTest(p *appliance.Port) { p.Test = false }
func noLimit(p *appliance.Port) { p.MTUMin, p.MTUMax = nil, nil }
func leased(a *manager.Address) { a.Flags, a.ValidS = 0, 3600 }
func wifi(l *link)              { l.wifi, l.device = true, "pci/wlan" }
func isDown(l *link)            { l.up, l.carrier = false, false }
func on(s *scene, n string) int { l, _ := s.byName(n); return l.index }
func above(i int) func(l *link) { return func(l *link) { l.parent = i } }
func (s *scene) down(name string) *scene {
	for i := range s.links {
		if s.links[i].name == name {
			isDown(&s.links[i])
		}
	}
	return s
}

// box is the usual one: br0 with lan1 and lan2, an address and a default route, and wan beside it.
func box(change ...func(*appliance.Port)) *scene {
	return newScene().port("eth0", "wan", "", notTest).link("br0", "bridge", "").
		port("eth1", "lan1", "br0", change...).port("eth2", "lan2", "br0").
		address("br0", "192.168.2.1/24").route("0.0.0.0/0", "192.168.2.254", "br0")
}

// The whole box, in the order things are done.
const freed = `eth1: leave bridge br0
eth2: leave bridge br0
eth1: take over 192.168.2.1/24 of br0
eth1: take over the route default via 192.168.2.254 of br0
br0: give up 192.168.2.1/24
br0: remove the bridge: it has no member and no address left
note: eth2: has no address but IPv6 link-local; give it one with address = ["192.0.2.1/24"]
`

func TestPlan(t *testing.T) {
	mtu := func(n config.MTU) func(*Wanted) { return func(w *Wanted) { w.Ports.MTU = n } }
	mode := func(b config.Bridge) func(*Wanted) { return func(w *Wanted) { w.Ports.Bridge = b } }
	port := func(c config.Port) func(*Wanted) { return func(w *Wanted) { w.Port = append(w.Port, c) } }
	unknown := func(w *Wanted) { w.Board = generic }
	lonely := func(name string) string {
		return "note: " + name + ": has no address but IPv6 link-local; give it one with address = [\"192.0.2.1/24\"]\n"
	}
	const removed = "br0: remove the bridge: it has no member and no address left\n"
	stays := func(name string) string {
		return "note: " + name + ": stays in br0: this board is not known; name the port in [ports] select or set " +
			"bridge = \"free\"\n"
	}
	leftAlone := func(why string) string {
		return "nothing to change\nnote: br0: " + why + ": left alone; bridge = \"free\" takes its ports out all the same\n"
	}
	other := strings.NewReplacer("eth1: take", "eth2: take", "eth2: has", "eth1: has").Replace(freed)
	bridge := func() *scene { return newScene().link("br0", "bridge", "").port("eth1", "lan1", "br0") }
	single := func(change ...func(*appliance.Port)) *scene {
		return newScene().port("eth1", "lan1", "", change...).address("eth1", "192.0.2.1/24")
	}
	for _, test := range []struct {
		name string
		seen *scene
		want []func(*Wanted)
		text string
	}{
		{"the usual box", box(), nil, freed},
		{"a bridge by any name", newScene().link("br-lan", "bridge", "").port("eth1", "lan1", "br-lan"), nil,
			"eth1: leave bridge br-lan\nbr-lan: remove the bridge: it has no member and no address left\n" + lonely("eth1")},
		{"nothing to do", single(), nil, "nothing to change\n"},
		{"keep", box(), []func(*Wanted){mode(config.BridgeKeep)},
			"nothing to change\nnote: br0: keeps its ports, as bridge = \"keep\" says\n"},
		{"keep, but with an MTU", box(), []func(*Wanted){mode(config.BridgeKeep), mtu(9000)},
			"eth1: set the MTU to 9000 (it is 1500)\neth2: set the MTU to 9000 (it is 1500)\n" +
				"note: br0: keeps its ports, as bridge = \"keep\" says\n"},
		{"a board nobody knows", box(), []func(*Wanted){unknown},
			"nothing to change\n" + stays("eth1") + stays("eth2")},
		{"a board nobody knows, free", box(), []func(*Wanted){unknown, mode(config.BridgeFree)}, freed},
		{"a board nobody knows, named", box(),
			[]func(*Wanted){unknown, func(w *Wanted) { w.Ports.Select = []string{"eth1", "eth2"} }}, freed},
		{"a board nobody knows, one named", box(), []func(*Wanted){unknown, port(gives("eth2", 0))},
			"eth2: leave bridge br0\n" +
				stays("eth1") +
				"note: br0: keeps its addresses, since it has other members\n" + lonely("eth2")},
		{"the carrier decides", box(noLink), nil, other},
		{"the connection decides", func() *scene { s := box(); s.carries["eth2"] = 1; return s }(), nil, other},
		{"a lease moves too", bridge().address("br0", "10.0.0.5/8", leased), nil,
			"eth1: leave bridge br0\neth1: take over 10.0.0.5/8 of br0, with 1h0m0s of its lease left\n" +
				"br0: give up 10.0.0.5/8\n" + removed},
		{"link-local and learnt IPv6 stay", bridge().
			address("br0", "fe80::1/64").address("br0", "2001:db8::5/64", leased).address("br0", "2001:db8:1::5/64"), nil,
			"eth1: leave bridge br0\neth1: take over 2001:db8:1::5/64 of br0\nbr0: give up 2001:db8:1::5/64\n" +
				removed},
		{"primary addresses go last", bridge().address("br0", "10.0.0.1/24").address("br0", "10.0.0.2/24"), nil,
			"eth1: leave bridge br0\neth1: take over 10.0.0.1/24 of br0\neth1: take over 10.0.0.2/24 of br0\n" +
				"br0: give up 10.0.0.2/24\nbr0: give up 10.0.0.1/24\n" + removed},
		{"wifi in the bridge", box().link("wlan0", "", "br0", wifi), nil, leftAlone("also holds wlan0 (Wi-Fi)")},
		{"wifi in the bridge, free", box().link("wlan0", "", "br0", wifi), []func(*Wanted){mode(config.BridgeFree)},
			"eth1: leave bridge br0\neth2: leave bridge br0\nnote: br0: keeps its addresses, since it has other members\n" +
				lonely("eth1") + lonely("eth2")},
		{"hardware that is not wanted stays", box().port("eth3", "", "br0", notTest), nil,
			"eth1: leave bridge br0\neth2: leave bridge br0\nnote: br0: keeps its addresses, since it has other members\n" +
				lonely("eth1") + lonely("eth2")},
		{"a VLAN on the bridge", func() *scene { s := box(); return s.link("br0.5", "vlan", "", above(on(s, "br0"))) }(), nil,
			leftAlone("is busy: br0.5 (a VLAN) is on top of it")},
		{"a bond", newScene().link("bond0", "bond", "").port("eth1", "lan1", "bond0"),
			[]func(*Wanted){mode(config.BridgeFree), mtu(9000)},
			"nothing to change\nnote: eth1: is a member of bond0 (a bond): left alone\n"},
		{"a VRF", newScene().link("red", "vrf", "").port("eth1", "lan1", "red"),
			[]func(*Wanted){mode(config.BridgeFree), mtu(9000)},
			"nothing to change\nnote: eth1: is a member of red (a VRF): left alone\n"},
		{"a bridge without members that was never ours", single().link("docker0", "bridge", "").
			address("docker0", "172.17.0.1/16"), nil, "nothing to change\n"},
		{"MTU and up", single().down("eth1"), []func(*Wanted){mtu(9000)},
			"eth1: set the MTU to 9000 (it is 1500)\neth1: bring it up\n"},
		{"MTU max", single(), []func(*Wanted){mtu(config.MTUMax)},
			"eth1: set the MTU to 9194 (it is 1500)\n"},
		{"MTU max without a limit", single(noLimit), []func(*Wanted){mtu(config.MTUMax)},
			"nothing to change\nnote: eth1: keeps MTU 1500: the driver does not tell its limit; set a number\n"},
		{"MTU too large", single(), []func(*Wanted){mtu(16000)},
			"eth1: set the MTU to 9194 (it is 1500)\n" +
				"note: eth1: MTU 16000 is more than its driver (r8169) allows: 9194 is used\n"},
		{"MTU too small", single(func(p *appliance.Port) { p.MTUMin = new(256) }),
			[]func(*Wanted){mtu(100)},
			"eth1: set the MTU to 256 (it is 1500)\nnote: eth1: MTU 100 is less than its driver (r8169) allows: 256 is used\n" +
				"note: eth1: an MTU of 256 is too small for IPv6 (1280 at least)\n"},
		{"one port otherwise", newScene().port("eth1", "lan1", "").port("eth2", "lan2", "").address("eth1", "192.0.2.1/24"),
			[]func(*Wanted){mtu(9000), port(gives("lan2", 4000, "10.0.0.1/24", "2001:db8::1/64"))},
			"eth1: set the MTU to 9000 (it is 1500)\neth2: set the MTU to 4000 (it is 1500)\n" +
				"eth2: add the address 10.0.0.1/24\neth2: add the address 2001:db8::1/64\n"},
		{"both have addresses of their own, so the bridge keeps its own", box(),
			[]func(*Wanted){port(gives("lan1", 0, "10.0.0.1/24")), port(gives("lan2", 0, "10.0.1.1/24"))},
			"eth1: leave bridge br0\neth2: leave bridge br0\n" +
				"eth1: add the address 10.0.0.1/24\neth2: add the address 10.0.1.1/24\n" +
				"note: br0: keeps 192.168.2.1/24: no port that left it asks for an address\n"},
		{"the config gives the bridge's address to one of them", box(),
			[]func(*Wanted){port(gives("lan1", 0, "10.0.0.1/24")), port(gives("lan2", 0, "192.168.2.1/24"))},
			"eth1: leave bridge br0\neth2: leave bridge br0\neth2: take over 192.168.2.1/24 of br0\n" +
				"eth2: take over the route default via 192.168.2.254 of br0\nbr0: give up 192.168.2.1/24\n" +
				"eth1: add the address 10.0.0.1/24\nbr0: remove the bridge: it has no member and no address left\n"},
		{"one has an address of its own, so the other takes over", box(),
			[]func(*Wanted){port(gives("lan1", 0, "10.0.0.1/24"))},
			"eth1: leave bridge br0\neth2: leave bridge br0\neth2: take over 192.168.2.1/24 of br0\n" +
				"eth2: take over the route default via 192.168.2.254 of br0\nbr0: give up 192.168.2.1/24\n" +
				"eth1: add the address 10.0.0.1/24\nbr0: remove the bridge: it has no member and no address left\n"},
		{"faults are carried on", func() *scene { s := newScene(); s.Faults = []string{"no port lan9"}; return s }(), nil,
			"nothing to change\nfault: no port lan9\n"},
		{"a tree knows no addresses", func() *scene { s := box(); s.live, s.addresses, s.routes = false, nil, nil; return s }(),
			nil,
			"eth1: leave bridge br0\neth2: leave bridge br0\n" +
				"note: br0: its addresses and routes move with the ports; a tree does not tell them\n"},
	} {
		w := wants(r5s, "auto")
		for _, change := range test.want {
			change(&w)
		}
		if got := makePlan(test.seen.Seen, w, originals{}).Text(); got != test.text {
			t.Errorf("%s:\n%s\nwant:\n%s", test.name, got, test.text)
		}
	}
}

// What is to be undone together carries the bridge's name, and what the box cannot be reached without is vital.
func TestPlanGroups(t *testing.T) {
	s := box().down("eth1")
	w := wants(r5s, "auto")
	w.Ports.MTU = 9000
	for _, step := range makePlan(s.Seen, w, originals{}).Steps {
		if step.group != "br0" {
			t.Errorf("%s: group %q", step.Text, step.group)
		}
		vital := step.Kind != SetMTU && step.Kind != DeleteBridge
		if step.vital != vital {
			t.Errorf("%s: vital %v, want %v", step.Text, step.vital, vital)
		}
		if l, _ := s.byName(step.Port); step.index != l.index {
			t.Errorf("%s: index %d, want %d", step.Text, step.index, l.index)
		}
	}
}

// A plan keeps what it finds, once; and changes neither what it was given nor what was seen.
func TestPlanKeepsOriginals(t *testing.T) {
	s := box()
	w := wants(r5s, "auto")
	w.Ports.MTU = 9000
	first := makePlan(s.Seen, w, originals{}).saves
	if len(first.Ports) != 2 || len(first.Bridges) != 1 || first.Ports[0].MTU != 1500 || first.Ports[0].Bridge != "br0" ||
		first.Ports[0].GivenMTU != 9000 || len(first.Ports[0].Given) != 1 || !first.Ports[0].Given[0].Moved {
		t.Fatalf("kept: %+v", first)
	}
	copied := first.clone()
	later := box(func(p *appliance.Port) { p.MTU = 4000 }).address("br0", "10.0.0.1/24")
	second := makePlan(later.Seen, w, first).saves
	if !reflect.DeepEqual(first, copied) {
		t.Error("the plan changed what it was given")
	}
	if second.Ports[0].MTU != 1500 || len(second.Bridges[0].Addresses) != 1 {
		t.Errorf("what was kept was kept over: %+v", second)
	}
}

// run undoes a group from its last step to its first, leaves the rest of it out, and goes on with the others.
func TestRunUndoesAGroup(t *testing.T) {
	vital := func(kind Kind, port, bridge string) Step {
		return Step{Kind: kind, Port: port, bridge: bridge, group: bridge, vital: true, Text: port}
	}
	route := Step{Kind: SetRoute, Port: "eth1", group: "br0", vital: true, route: manager.Route{Metric: 1},
		before: &manager.Route{Metric: 2}}
	steps := []Step{
		vital(LeaveBridge, "eth1", "br0"), vital(LeaveBridge, "eth3", "br1"),
		{Kind: SetMTU, Port: "eth1", mtu: 9000, oldMTU: 1500, group: "br0"},
		{Kind: SetMTU, Port: "eth9", mtu: 9000},
		vital(SetUp, "eth1", "br0"), vital(AddAddress, "eth1", "br0"), route,
		vital(RemoveAddress, "br0", "br0"), vital(RemoveAddress, "br0", "br0"),
		vital(AddAddress, "eth3", "br1"), {Kind: AddAddress, Port: "eth9"},
	}
	busy := fmt.Errorf("no: %w", unix.EBUSY)
	var did []string
	n := 0
	done, failed := run(steps, func(s Step) error {
		n++
		did = append(did, fmt.Sprintf("%s %s %d", s.Kind, s.Port, s.mtu+s.route.Metric))
		if s.Kind == RemoveAddress || s.Port == "eth9" && s.Kind == SetMTU {
			return busy
		}
		return nil
	})
	want := []string{
		"leave-bridge eth1 0", "leave-bridge eth3 0", "set-mtu eth1 9000", "set-mtu eth9 9000", "set-up eth1 0",
		"add-address eth1 0", "set-route eth1 1", "remove-address br0 0",
		"set-route eth1 2", "remove-address eth1 0", "set-mtu eth1 1500", "join-bridge eth1 0",
		"add-address eth3 0", "add-address eth9 0",
	}
	// Undoing AddAddress is RemoveAddress, which this kernel refuses too: that is a failure of its own.
	if !slices.Equal(did, want) {
		t.Errorf("did\n%s\nwant\n%s", strings.Join(did, "\n"), strings.Join(want, "\n"))
	}
	var kept []string
	for _, s := range done {
		kept = append(kept, string(s.Kind)+" "+s.Port)
	}
	// Bringing it up is not undone: it harms nobody.
	wantKept := []string{"leave-bridge eth3", "set-up eth1", "add-address eth3", "add-address eth9"}
	if !slices.Equal(kept, wantKept) {
		t.Errorf("kept %q, want %q", kept, wantKept)
	}
	if len(failed) != 3 || failed[0].Port != "eth9" || !errors.Is(failed[1], unix.EBUSY) ||
		!strings.HasPrefix(failed[2].Text, "undo: ") {
		t.Errorf("failed: %v", failed)
	}
}

// Undoing what was undone is the step itself.
func TestUndoIsItsOwnInverse(t *testing.T) {
	for _, kind := range []Kind{LeaveBridge, JoinBridge, SetMTU, AddAddress, RemoveAddress, AddBridge, DeleteBridge} {
		s := Step{Kind: kind, Port: "eth1", bridge: "br0", mtu: 1, oldMTU: 2}
		u, ok := s.undo()
		back, ok2 := u.undo()
		if back.Text = ""; !ok || !ok2 || u.Kind == s.Kind && kind != SetMTU || !reflect.DeepEqual(back, s) {
			t.Errorf("%s: undone by %s, that by %+v", kind, u.Kind, back)
		}
	}
	if u, _ := (Step{Kind: SetRoute}).undo(); u.Kind != RemoveRoute {
		t.Errorf("a route that took nobody's place is undone by %s", u.Kind)
	}
}

func TestRemedies(t *testing.T) {
	v6 := manager.Address{Prefix: netip.MustParsePrefix("2001:db8::1/64")}
	for _, test := range []struct {
		step Step
		err  error
		want string
	}{
		{Step{Kind: LeaveBridge, Port: "eth1"}, unix.EPERM, "CAP_NET_ADMIN"},
		{Step{Kind: AddAddress, Port: "eth1", address: v6},
			fmt.Errorf("%w: IPv6 is disabled on this device", unix.EACCES), "disable_ipv6=0"},
		{Step{Kind: LeaveBridge, Port: "eth1"}, unix.EBUSY, "ip -d link show eth1"},
		{Step{Kind: SetMTU, Port: "eth1"}, unix.EINVAL, "set a smaller one"},
		{Step{Kind: SetMTU, Port: "eth1"}, unix.EOPNOTSUPP, "leave it out of the config"},
		{Step{Kind: SetUp, Port: "eth1"}, fmt.Errorf("eth1: %w", unix.ENODEV), "plug it in again"},
		{Step{Kind: SetRoute, Port: "eth1"}, unix.ENETUNREACH, "in no network of eth1"},
		{Step{Kind: SetUp, Port: "eth1"}, unix.EAGAIN, "did not answer in 20s"},
		{Step{Kind: SetUp, Port: "eth1"}, unix.EIO, "see dmesg"},
	} {
		f := failure(test.step, test.err)
		if !strings.Contains(f.Text, test.want) || strings.Contains(f.Text, "\n") || !errors.Is(f, test.err) {
			t.Errorf("%s, %v: %s", test.step.Kind, test.err, f.Text)
		}
	}
}

// A bridge that our ports left is emptied and removed by a later run too, but not another one that has its name now.
func TestPlanKnowsItsBridge(t *testing.T) {
	s := newScene().link("br0", "bridge", "").address("br0", "192.168.2.1/24").port("eth1", "lan1", "")
	s.boot = "this"
	past := originals{
		Ports:   []originalPort{{Name: "eth1", Path: "pci/eth1", Bridge: "br0", MTU: 1500, Up: true}},
		Bridges: []originalBridge{{Name: "br0", Index: 1, Boot: "this"}},
	}
	w := wants(r5s, "auto")
	if p := makePlan(s.Seen, w, past); len(p.Steps) != 3 {
		t.Errorf("the bridge of before: %s", p.Text())
	}
	for name, other := range map[string]originalBridge{
		"another interface": {Name: "br0", Index: 7, Boot: "this"}, "another boot": {Name: "br0", Index: 1, Boot: "that"},
	} {
		past.Bridges[0] = other
		if p := makePlan(s.Seen, w, past); len(p.Steps) > 0 {
			t.Errorf("%s: %s", name, p.Text())
		}
	}
	w.Ports.Bridge = config.BridgeKeep
	past.Bridges[0] = originalBridge{Name: "br0", Index: 1, Boot: "this"}
	if p := makePlan(s.Seen, w, past); len(p.Steps) > 0 {
		t.Errorf("keep: %s", p.Text())
	}
}
