package netcfg

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/netcfg/netnstest"
)

// tree makes files below a new root: content by path; "->" in front makes a link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, ok := strings.CutPrefix(content, "->"); ok {
			must(t, os.Symlink(target, path))
		} else {
			must(t, os.WriteFile(path, []byte(content+"\n"), 0o644))
		}
	}
	return root
}

// netdev adds an interface to a tree, with the device at the path below /sys/devices ("" is a virtual one).
func netdev(files map[string]string, name, device string, attributes ...string) {
	dir := "sys/devices/virtual/net/" + name
	if device != "" {
		dir = "sys/devices/" + device + "/net/" + name
		files[dir+"/device"] = "->../.."
	}
	files["sys/class/net/"+name] = "->../../" + strings.TrimPrefix(dir, "sys/")
	files[dir+"/type"] = "1"
	for _, a := range attributes {
		file, content, _ := strings.Cut(a, "=")
		files[dir+"/"+file] = content
	}
}

const (
	pcie1 = "platform/3c0000000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0"
	pcie2 = "platform/3c0400000.pcie/pci0001:00/0001:00:00.0/0001:01:00.0"
	gmac  = "platform/fe2a0000.ethernet"
	usb1  = "platform/fd000000.usb/xhci-hcd.0.auto/usb8/8-1/8-1:1.0"
)

// r5sTree is a NanoPi R5S as it comes, with an adapter under the wrong driver, Wi-Fi, a modem and its own USB gadget.
func r5sTree() map[string]string {
	files := map[string]string{}
	netdev(files, "lo", "", "type=772", "ifindex=1")
	netdev(files, "eth0", gmac, "ifindex=2", "address=02:00:00:00:00:01", "carrier=1", "speed=1000", "duplex=full",
		"mtu=1500", "flags=0x1003")
	netdev(files, "eth1", pcie1, "ifindex=3", "carrier=1", "speed=2500", "duplex=full", "mtu=1500", "flags=0x1003",
		"master=->../../../../../../../../virtual/net/br-lan", "carrier_changes=3")
	netdev(files, "eth2", pcie2, "ifindex=4", "carrier=0", "speed=-1", "duplex=unknown", "mtu=1500", "flags=0x1003",
		"master=->../../../../../../../../virtual/net/br-lan")
	netdev(files, "eth3", usb1, "ifindex=5", "carrier=1", "speed=2500", "duplex=half", "mtu=1500", "flags=0x1003")
	netdev(files, "br-lan", "", "ifindex=6", "bridge/stp_state=0", "mtu=1500")
	netdev(files, "wlan0", "pci0002:00/0002:01:00.0", "ifindex=7", "uevent=DEVTYPE=wlan", "carrier=1")
	netdev(files, "usb0", "platform/fcc00000.usb/udc/fcc00000.usb/gadget.0", "ifindex=8", "carrier=1")
	netdev(files, "wwan0", "platform/fd000000.usb/xhci-hcd.0.auto/usb8/8-2/8-2:1.4", "ifindex=9", "uevent=DEVTYPE=wwan")
	netdev(files, "vnet0", "", "ifindex=10", "carrier=1", "mtu=1400")
	for device, driver := range map[string]string{gmac: "rk_gmac-dwmac", pcie1: "r8169", pcie2: "r8169", usb1: "cdc_ncm"} {
		up := strings.Repeat("../", strings.Count(device, "/")+2)
		files["sys/devices/"+device+"/driver"] = "->" + up + "bus/x/drivers/" + driver
	}
	for _, device := range []string{pcie1, pcie2} {
		dir := "sys/devices/" + device + "/"
		files[dir+"vendor"], files[dir+"device"] = "0x10ec", "0x8125"
		files[dir+"current_link_speed"], files[dir+"max_link_speed"] = "5.0 GT/s PCIe", "5.0 GT/s PCIe"
		files[dir+"current_link_width"], files[dir+"max_link_width"] = "1", "1"
	}
	dongle := "sys/devices/" + filepath.Dir(usb1) + "/"
	files[dongle+"idVendor"], files[dongle+"idProduct"], files[dongle+"version"] = "0bda", "8156", " 3.20"
	files[dongle+"speed"], files[dongle+"bMaxPower"] = "5000", "256mA"
	return files
}

func TestLookAtATree(t *testing.T) {
	seen, err := Look(tree(t, r5sTree()), wants(r5s, "auto"))
	if err != nil {
		t.Fatal(err)
	}
	if len(seen.Faults) > 0 {
		t.Errorf("faults: %q", seen.Faults)
	}
	none := appliance.Port{MTU: 1500, Link: appliance.LinkUp, Addresses: []string{}, SupportedModes: []string{},
		AdvertisedModes: []string{}, PeerModes: []string{}}
	wan, lan1, lan2, dongle := none, none, none, none
	wan.Name, wan.Role, wan.Path, wan.Driver, wan.Index = "eth0", "wan", gmac, "rk_gmac-dwmac", 2
	wan.SpeedMbps, wan.Duplex, wan.MAC = new(1000), appliance.DuplexFull, "02:00:00:00:00:01"
	lan1.Name, lan1.Role, lan1.Path, lan1.Driver, lan1.Index = "eth1", "lan1", pcie1, "r8169", 3
	lan1.SpeedMbps, lan1.Duplex, lan1.CarrierChanges = new(2500), appliance.DuplexFull, 3
	lan2.Name, lan2.Role, lan2.Path, lan2.Driver, lan2.Index = "eth2", "lan2", pcie2, "r8169", 4
	lan2.Link, lan2.Duplex = appliance.LinkDown, appliance.DuplexUnknown
	dongle.Name, dongle.Path, dongle.Driver, dongle.Index = "eth3", usb1, "cdc_ncm", 5
	dongle.SpeedMbps, dongle.Duplex = new(2500), appliance.DuplexUnknown // half is what cdc_ncm says when it does not know
	dongle.USB = &appliance.USB{SpeedMbps: 5000, Version: "3.20", Vendor: "0bda", Product: "8156", MaxPowerMA: 256}
	for _, p := range []*appliance.Port{&lan1, &lan2} {
		p.PCIe, p.Master, p.Bridge = &appliance.PCIe{GTs: 5, Width: 1, MaxGTs: 5, MaxWidth: 1}, "br-lan", true
	}
	lan1.Test, lan2.Test, dongle.Test = true, true, true
	want := []appliance.Port{wan, lan1, lan2, dongle}
	for i := range max(len(want), len(seen.Ports)) {
		if i >= len(want) || i >= len(seen.Ports) {
			t.Fatalf("%d ports, want %d", len(seen.Ports), len(want))
		}
		if !reflect.DeepEqual(seen.Ports[i], want[i]) {
			t.Errorf("port %d:\n%s\nwant\n%s", i, asJSON(t, seen.Ports[i]), asJSON(t, want[i]))
		}
	}
}

func asJSON(t *testing.T, v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	must(t, err)
	return string(b)
}

// A port without a device is one if the config names it, and a test port if select does.
func TestLookAtNamedPorts(t *testing.T) {
	root := tree(t, r5sTree())
	names := func(w Wanted) (all, test []string) {
		seen, err := Look(root, w)
		must(t, err)
		for _, p := range seen.Ports {
			all = append(all, p.Name)
			if p.Test {
				test = append(test, p.Name)
			}
		}
		return all, test
	}
	all, test := names(wants(r5s, "vnet0"))
	if !slices.Equal(all, []string{"eth0", "eth1", "eth2", "eth3", "vnet0"}) || !slices.Equal(test, []string{"vnet0"}) {
		t.Errorf("select vnet0: %v, test ports %v", all, test)
	}
	w := wants(r5s, "auto")
	w.Port = []config.Port{gives("vnet0", 0)}
	if all, test := names(w); len(all) != 5 || !slices.Equal(test, []string{"eth1", "eth2", "eth3"}) {
		t.Errorf("[[port]] vnet0: %v, test ports %v", all, test)
	}
	seen, err := Look(root, wants(r5s, "wlan0", "br-lan"))
	must(t, err)
	want := []string{
		"wlan0 is Wi-Fi, not an Ethernet port ([ports] select): there are wan, lan1, lan2, eth3",
		"br-lan is a bridge, not an Ethernet port ([ports] select): there are wan, lan1, lan2, eth3",
	}
	if !slices.Equal(seen.Faults, want) {
		t.Errorf("faults: %q", seen.Faults)
	}
}

// A tree from a stranger cannot make us read what lies outside of it.
func TestLookStaysInTheTree(t *testing.T) {
	secret := t.TempDir() + "/secret"
	must(t, os.WriteFile(secret, []byte("02:11:22:33:44:55"), 0o644))
	files := map[string]string{}
	netdev(files, "eth0", gmac, "ifindex=2", "carrier=1", "address=->"+secret, "speed=->../../../../../../../../../.."+secret)
	must(t, os.WriteFile(secret, []byte("7777"), 0o644))
	seen, err := Look(tree(t, files), wants(r5s, "auto"))
	if err != nil || len(seen.Ports) != 1 {
		t.Fatalf("%+v, %v", seen.Ports, err)
	}
	if p := seen.Ports[0]; p.MAC != "" || p.SpeedMbps != nil {
		t.Errorf("read outside of the tree: %q, %v", p.MAC, p.SpeedMbps)
	}
	t.Chdir(t.TempDir())
	must(t, os.Symlink(tree(t, files), "here"))
	if seen, err := Look("here", wants(r5s, "auto")); err != nil || len(seen.Ports) != 1 {
		t.Errorf("by a path that is relative: %d ports, %v", len(seen.Ports), err)
	}
	if _, err := Look(t.TempDir()+"/nowhere", wants(r5s, "auto")); err == nil {
		t.Error("a root that is not there is no error")
	}
	if _, err := Look(t.TempDir(), wants(r5s, "auto")); err == nil {
		t.Error("a root without sysfs is no error")
	}
}

// The running kernel, asked without any capability: limits of the MTU, link, modes, addresses and gateway.
func TestLookAtTheKernel(t *testing.T) {
	addVeth(t, "eth1", "far1")
	addAddress(t, "eth1", "2001:db8::1/64")
	addAddress(t, "eth1", "192.0.2.1/24")
	addRoute(t, "eth1", "0.0.0.0/0", "192.0.2.254", 5)
	until(t, "a link-local address", func() bool {
		seen, err := Look("/", wants(generic, "eth1"))
		must(t, err)
		return len(seen.Ports[0].Addresses) == 3
	})
	var seen Seen
	var err error
	unprivileged(func() { seen, err = Look("/", wants(generic, "eth1")) })
	if err != nil || len(seen.Ports) != 1 {
		t.Fatalf("%d ports, %v", len(seen.Ports), err)
	}
	p := seen.Ports[0]
	if p.Driver != "veth" || p.Link != appliance.LinkUp || p.MTU != 1500 || *p.MTUMin != 68 || *p.MTUMax != 65535 || !p.Test {
		t.Errorf("port: %s", asJSON(t, p))
	}
	if *p.SpeedMbps != 10000 || p.Duplex != appliance.DuplexFull || *p.Autoneg || !p.Features["tx-tcp-segmentation"] {
		t.Errorf("what ethtool knows: %s", asJSON(t, p))
	}
	global := []string{"192.0.2.1/24", "2001:db8::1/64"}
	if !slices.Equal(p.Addresses[:2], global) || !strings.HasPrefix(p.Addresses[2], "fe80::") {
		t.Errorf("addresses: %v", p.Addresses)
	}
	if p.Gateway != "192.0.2.254" || p.Path != "" || p.WoL != nil {
		t.Errorf("gateway %q, path %q, wol %v", p.Gateway, p.Path, p.WoL)
	}
	changes := p.CarrierChanges
	must(t, netlink.LinkSetDown(byName(t, "far1")))
	if seen, err = Look("/", wants(generic, "eth1")); err != nil {
		t.Fatal(err)
	}
	p = seen.Ports[0]
	if p.Link != appliance.LinkDown || p.SpeedMbps != nil || p.Duplex != appliance.DuplexUnknown ||
		p.CarrierChanges != changes+1 {
		t.Errorf("without a link: %s", asJSON(t, p))
	}
}

// VLANs on top of a port are seen with tag and addresses. (The tags themselves: TestParseLink.)
func TestLookAtVLANs(t *testing.T) {
	addVeth(t, "eth1", "far1")
	a := attrs("eth1.130")
	a.ParentIndex = byName(t, "eth1").Attrs().Index
	vlan := &netlink.Vlan{LinkAttrs: a, VlanId: 130, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	if err := netlink.LinkAdd(vlan); err != nil {
		t.Skip("this kernel has no 802.1Q: ", err)
	}
	t.Cleanup(func() { remove("eth1.130") })
	must(t, netlink.LinkSetUp(byName(t, "eth1.130")))
	addAddress(t, "eth1.130", "192.0.2.130/24")
	seen, err := Look("/", wants(generic, "eth1"))
	must(t, err)
	v := seen.Ports[0].VLANs
	if len(v) != 1 || v[0].ID != 130 || v[0].Name != "eth1.130" || v[0].Addresses[0] != "192.0.2.130/24" {
		t.Errorf("VLANs: %+v", v)
	}
}

// A test port by its speed stays one when it loses its link: how fast it was is remembered.
func TestLookerRemembersSpeed(t *testing.T) {
	files := map[string]string{}
	virtio := func(link, speed string) {
		netdev(files, "eth0", "pci0000:00/0000:00:01.0/virtio0", "ifindex=2", "carrier=1", "speed=1000")
		netdev(files, "eth1", "pci0000:00/0000:00:02.0/virtio1", "ifindex=3", "carrier="+link, "speed="+speed)
	}
	virtio("1", "2500")
	root := tree(t, files)
	eyes := newLooker(root)
	test := func() (out []string) {
		seen, err := eyes.look(wants(generic, "auto"))
		must(t, err)
		for _, p := range seen.Ports {
			if p.Test {
				out = append(out, p.Name)
			}
		}
		return out
	}
	if got := test(); !slices.Equal(got, []string{"eth1"}) {
		t.Fatalf("test ports %v, want eth1", got)
	}
	dir := root + "/sys/devices/pci0000:00/0000:00:02.0/virtio1/net/eth1/"
	must(t, os.WriteFile(dir+"carrier", []byte("0"), 0o644))
	must(t, os.WriteFile(dir+"speed", []byte("-1"), 0o644))
	if got := test(); !slices.Equal(got, []string{"eth1"}) {
		t.Errorf("without a link: test ports %v, want eth1 still", got)
	}
	must(t, os.WriteFile(dir+"ifindex", []byte("9"), 0o644))
	if got := test(); !slices.Equal(got, []string{"eth0", "eth1"}) {
		t.Errorf("another port of that name: test ports %v, want both", got)
	}
}

// overSys lays a tree's sysfs over /sys for the length of the test, in the mount namespace of this test binary.
func overSys(t *testing.T, files map[string]string) {
	t.Helper()
	netnstest.Need(t)
	must(t, unix.Mount(tree(t, files)+"/sys", "/sys", "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount("/sys", unix.MNT_DETACH)) })
}

// With a device behind it a port is known by its path. A sysfs that shows another network namespace, where the same
// name is another interface, is not believed.
func TestDevicesOfTheRunningSystem(t *testing.T) {
	addVeth(t, "eth1", "far1")
	index := byName(t, "eth1").Attrs().Index
	for _, ours := range []bool{true, false} {
		t.Run(fmt.Sprintf("ours %v", ours), func(t *testing.T) {
			shown := index
			if !ours {
				shown++
			}
			files := map[string]string{}
			netdev(files, "eth1", pcie1, fmt.Sprintf("ifindex=%d", shown))
			overSys(t, files)
			seen, err := Look("/", wants(r5s, "eth1"))
			must(t, err)
			if len(seen.Ports) != 1 {
				t.Fatalf("%d ports", len(seen.Ports))
			}
			if p := seen.Ports[0]; ours != (p.Path == pcie1) || ours == (p.Path == "") {
				t.Errorf("path %q", p.Path)
			}
		})
	}
}
