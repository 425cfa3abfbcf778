package netcfg

import (
	"net/netip"
	"testing"

	"linerate/appliance"
	"linerate/netcfg/manager"
)

func TestRestorePlan(t *testing.T) {
	own := manager.Given("eth1", netip.MustParsePrefix("198.51.100.9/24"))
	past := someOriginals()
	past.Ports[0].Path, past.Ports[0].VLANs = "pci/eth1", nil
	past.Bridges[0].Routes = past.Bridges[0].Routes[:0]
	two := past.clone()
	two.Ports = append(two.Ports, originalPort{Name: "eth2", Path: "pci/eth2", Bridge: "br0", MTU: 1500, Up: true})
	// The box after the main job: eth1 has the bridge's address and another MTU.
	after := func() *scene {
		return newScene().port("eth1", "lan1", "", func(p *appliance.Port) { p.MTU = 9000 }).port("eth2", "lan2", "").
			address("eth1", "192.168.2.1/24")
	}
	for _, test := range []struct {
		name string
		seen *scene
		past originals
		text string
	}{
		{"nothing was changed", after(), originals{}, "nothing to change\n"},
		{"one port", after(), past, `br0: make the bridge again
br0: bring it up
eth1: join bridge br0 again
br0: take back 192.168.2.1/24
eth1: give up 192.168.2.1/24
eth1: set the MTU back to 1500 (it is 9000)
`},
		{"two with a link", after(), two, `br0: make the bridge again
br0: bring it up
eth1: join bridge br0 again
eth2: join bridge br0 again
br0: take back 192.168.2.1/24
eth1: give up 192.168.2.1/24
eth1: set the MTU back to 1500 (it is 9000)
warning: br0: gets eth1, eth2 back, all with a link: if two of them lead to one switch this is a loop: pull out one of the cables
`},
		{"already as found",
			newScene().link("br0", "bridge", "").port("eth1", "lan1", "br0").address("br0", "192.168.2.1/24"), past,
			"nothing to change\n"},
		{"a port is gone", newScene().link("br0", "bridge", "").address("br0", "192.168.2.1/24"), past,
			"nothing to change\nfault: eth1: is not there, so it could not be put back as found\n"},
		{"the name is taken", after().link("br0", "vlan", ""), originals{Bridges: past.Bridges},
			"nothing to change\nfault: br0: is a VLAN now, so the bridge of that name was not made again\n"},
		{"an address of its own comes back, and it was down", after(), originals{Ports: []originalPort{{
			Name: "eth1", Path: "pci/eth1", MTU: 9000, Addresses: []manager.Address{own}, Given: []given{{Address: own}}}}},
			"eth1: take back 198.51.100.9/24\neth1: take it down, as it was\n"},
		{"it is called otherwise now", newScene().port("lan1", "lan1", "", func(p *appliance.Port) { p.Path = "pci/eth1" }).
			address("lan1", "192.168.2.1/24").link("br0", "bridge", "").address("br0", "192.168.2.1/24"), past,
			"lan1: join bridge br0 again\nlan1: give up 192.168.2.1/24\n"},
	} {
		if got := restorePlan(test.seen.Seen, test.past).Text(); got != test.text {
			t.Errorf("%s:\n%s\nwant:\n%s", test.name, got, test.text)
		}
	}
}
