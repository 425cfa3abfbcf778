package board

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAssignRoles(t *testing.T) {
	const (
		pcie   = "platform/3c0000000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0"
		second = "platform/3c0000000.pcie/pci0000:00/0000:00:00.0/0000:02:00.0"
		vendor = "platform/fe260000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0"
		usb    = "platform/fd000000.usb/xhci-hcd.2.auto/usb6/6-1/6-1:2.0"
		pciUSB = "platform/3c0000000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0/usb2/2-1/2-1:1.0"
	)
	lan1 := Port{Role: "lan1", Match: []string{"3c0000000.pcie", "fe260000.pcie"}}
	for _, test := range []struct {
		what   string
		ports  []Port
		paths  map[string]string
		roles  map[string]string
		faults []string // parts of each
	}{
		{"no ports at all", []Port{lan1}, nil, nil, nil},
		{"first matcher", []Port{lan1}, map[string]string{"eth0": pcie, "eth1": usb}, map[string]string{"eth0": "lan1"}, nil},
		{"second matcher", []Port{lan1}, map[string]string{"eth7": vendor}, map[string]string{"eth7": "lan1"}, nil},
		{"the first that fits decides", []Port{lan1}, map[string]string{"a": vendor, "b": pcie},
			map[string]string{"b": "lan1"}, nil},
		{"two fit", []Port{lan1}, map[string]string{"eth2": second, "eth1": pcie}, nil,
			[]string{`"3c0000000.pcie" of port lan1 fits eth1 and eth2, so none gets the role; lengthen it`}},
		{"a longer matcher tells them apart", []Port{{Role: "x", Match: []string{"0000:00:00.0/0000:02:00.0"}}},
			map[string]string{"eth2": second, "eth1": pcie}, map[string]string{"eth2": "x"}, nil},
		{"whole components only",
			[]Port{{Role: "x", Match: []string{"3c0000000"}}, {Role: "y", Match: []string{"0000.pcie"}}},
			map[string]string{"eth0": pcie}, nil, nil},
		{"components next to each other only", []Port{{Role: "x", Match: []string{"3c0000000.pcie/0000:01:00.0"}}},
			map[string]string{"eth0": pcie}, nil, nil},
		{"nothing from usbN on", []Port{{Role: "x", Match: []string{"6-1:2.0"}}, {Role: "y", Match: []string{"usb6"}}},
			map[string]string{"eth0": usb}, nil, nil},
		{"the controller before usbN", []Port{{Role: "x", Match: []string{"fd000000.usb"}}},
			map[string]string{"eth0": usb}, map[string]string{"eth0": "x"}, nil},
		{"a card and an adapter behind it", []Port{lan1}, map[string]string{"eth0": second, "eth1": pciUSB}, nil,
			[]string{"fits eth0 and eth1"}},
		{"two roles claim one", []Port{lan1, {Role: "lan2", Match: []string{"pci0000:00"}}},
			map[string]string{"eth0": pcie}, nil,
			[]string{"ports lan1 and lan2 fit one interface, eth0, so it gets none"}},
		{"no device, no role", []Port{lan1}, map[string]string{"veth0": ""}, nil, nil},
		{"an absolute path serves", []Port{lan1}, map[string]string{"eth0": "/sys/devices/" + pcie},
			map[string]string{"eth0": "lan1"}, nil},
	} {
		roles, faults := Profile{Name: "p", Ports: test.ports}.AssignRoles(test.paths)
		if test.roles == nil {
			test.roles = map[string]string{}
		}
		if d := cmp.Diff(test.roles, roles); d != "" {
			t.Errorf("%s: -want +got\n%s", test.what, d)
		}
		if len(faults) != len(test.faults) {
			t.Errorf("%s: faults %v", test.what, faults)
			continue
		}
		for i, part := range test.faults {
			if !strings.Contains(faults[i].Error(), part) {
				t.Errorf("%s: %v, want %s", test.what, faults[i], part)
			}
		}
	}
}
