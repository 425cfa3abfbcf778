package netcfg

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/appliance/config"
)

// r5s is the profile of a board with three jacks.
var r5s = board.Profile{Name: "nanopi-r5s", Ports: []board.Port{
	{Role: "wan", Match: []string{"fe2a0000.ethernet"}, SpeedMbps: 1000},
	{Role: "lan1", Match: []string{"pci0000:00"}, SpeedMbps: 2500, Test: true},
	{Role: "lan2", Match: []string{"pci0001:00"}, SpeedMbps: 2500, Test: true},
}}

var generic = board.Profile{Name: board.Generic}

// wants is a config with these ports selected.
func wants(profile board.Profile, selected ...string) Wanted {
	c := config.Default()
	c.Ports.Select = selected
	return Wanted{Board: profile, Ports: c.Ports}
}

// gives is a [[port]] with static addresses, or none: then with the default way to one.
func gives(match string, mtu config.MTU, cidrs ...string) config.Port {
	c := config.Port{Match: match, MTU: mtu, Address: []config.Address{{Method: config.AddressAuto}}, Native: true}
	if len(cidrs) > 0 {
		c.Address = nil
	}
	for _, a := range cidrs {
		c.Address = append(c.Address, config.Address{Method: config.AddressStatic, Prefix: netip.MustParsePrefix(a)})
	}
	return c
}

func TestMeans(t *testing.T) {
	p := appliance.Port{Name: "eth1", Role: "lan1",
		Path: "platform/3c0000000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0"}
	for word, want := range map[string]bool{
		"eth1": true, "lan1": true, "lan2": false, "eth": false, "": false, "/": false,
		"0000:01:00.0": true, "pci0000:00": true, "pci0000:0": false, "000:01:00.0": false,
		"pci0000:00/0000:00:00.0": true, "pci0000:00/0000:01:00.0": false,
		"/sys/devices/platform/3c0000000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0": true,
		"platform/3c0000000.pcie": true,
	} {
		if got := means(word, p); got != want {
			t.Errorf("%q means the port: %v, want %v", word, got, want)
		}
	}
	if means("", appliance.Port{Name: "veth0"}) || means("x", appliance.Port{Name: "veth0"}) {
		t.Error("a port without role and path is meant by a word that is not its name")
	}
}

func TestCapability(t *testing.T) {
	usb := func(id string) *appliance.USB {
		vendor, product, _ := strings.Cut(id, ":")
		return &appliance.USB{Vendor: vendor, Product: product}
	}
	for _, test := range []struct {
		name string
		port appliance.Port
		pci  string
		want int
	}{
		{"by modes", appliance.Port{SupportedModes: []string{"10baseT/Half", "2500baseT/Full", "1000baseT/Full"}}, "", 2500},
		{"modes count, whatever the link",
			appliance.Port{SupportedModes: []string{"1000baseT/Full"}, SpeedMbps: new(2500)}, "", 1000},
		{"by speed", appliance.Port{SpeedMbps: new(10000), Driver: "virtio_net"}, "", 10000},
		{"by driver", appliance.Port{Driver: "r8125"}, "", 2500},
		{"r8169 with a 2.5G chip", appliance.Port{Driver: "r8169"}, "10ec:8125", 2500},
		{"r8169 with a 1G chip", appliance.Port{Driver: "r8169"}, "10ec:8168", 0},
		{"RTL8156 under cdc_ncm in a 1G switch",
			appliance.Port{Driver: "cdc_ncm", USB: usb("0bda:8156"), SpeedMbps: new(1000)}, "", 2500},
		{"RTL8153", appliance.Port{Driver: "r8152", USB: usb("0bda:8153")}, "", 0},
		{"by the profile", appliance.Port{Role: "lan2", Driver: "virtio_net"}, "", 2500},
		{"unknown", appliance.Port{Driver: "virtio_net"}, "", 0},
	} {
		if got := wants(r5s, "auto").capability(test.port, test.pci); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

func TestChoose(t *testing.T) {
	three := []appliance.Port{
		{Name: "eth0", Role: "wan", Index: 1}, {Name: "eth1", Role: "lan1", Index: 2}, {Name: "veth0", Index: 3},
	}
	physical := map[int]bool{1: true, 2: true}
	for _, test := range []struct {
		name    string
		words   []string
		capable map[int]int
		want    []string
	}{
		{"the fast ones", []string{"auto"}, map[int]int{1: 1000, 2: 2500}, []string{"eth1"}},
		{"all, if none is fast", []string{"auto"}, map[int]int{1: 1000, 2: 1000}, []string{"eth0", "eth1"}},
		{"all, if nothing is known", []string{"auto"}, nil, []string{"eth0", "eth1"}},
		{"a veth is not physical", []string{"auto"}, map[int]int{1: 1000, 2: 1000, 3: 10000}, []string{"eth0", "eth1"}},
		{"a veth by name", []string{"veth0"}, map[int]int{2: 2500}, []string{"veth0"}},
		{"auto and a name", []string{"auto", "wan"}, map[int]int{1: 1000, 2: 2500}, []string{"eth0", "eth1"}},
		{"a role", []string{"lan1"}, map[int]int{1: 10000}, []string{"eth1"}},
		{"nothing that is there", []string{"lan9"}, nil, nil},
	} {
		ports := append([]appliance.Port(nil), three...)
		wants(r5s, test.words...).choose(ports, test.capable, physical)
		var got []string
		for _, p := range ports {
			if p.Test {
				got = append(got, p.Name)
			}
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestMissing(t *testing.T) {
	ports := []appliance.Port{{Name: "eth0", Role: "wan"}, {Name: "eth7"}}
	links := []link{{name: "br0", kind: "bridge"}, {name: "wlan0", wifi: true}, {name: "eth0"}, {name: "eth7"}}
	w := wants(r5s, "auto", "wan", "lan9", "br0", "wlan0")
	w.Port = []config.Port{gives("lan9", 0), gives("eth7", 0), gives("lan8", 0)}
	want := []string{
		"no port lan9 ([ports] select): there are wan, eth7",
		"br0 is a bridge, not an Ethernet port ([ports] select): there are wan, eth7",
		"wlan0 is Wi-Fi, not an Ethernet port ([ports] select): there are wan, eth7",
		"no port lan9 ([[port]] match): there are wan, eth7",
		"no port lan8 ([[port]] match): there are wan, eth7",
	}
	if got := w.missing(ports, links); !reflect.DeepEqual(got, want) {
		t.Errorf("missing:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := wants(r5s, "lan1").missing(nil, nil); len(got) != 1 || !strings.Contains(got[0], "there is no Ethernet port") {
		t.Errorf("missing without a port: %q", got)
	}
}

func TestSortPorts(t *testing.T) {
	ports := []appliance.Port{
		{Name: "eth10"}, {Name: "eth2", Role: "lan2"}, {Name: "eth9"}, {Name: "eth5", Role: "wan"}, {Name: "eth3", Role: "lan1"},
	}
	wants(r5s, "auto").sortPorts(ports)
	var got []string
	for _, p := range ports {
		got = append(got, p.Name)
	}
	if want := []string{"eth5", "eth3", "eth2", "eth9", "eth10"}; !reflect.DeepEqual(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}
