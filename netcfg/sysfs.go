package netcfg

import (
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"linerate/appliance"
)

// sysfs reads attributes below one root. Links lead nowhere outside of it; what is missing or cannot be read is
// unknown, never an error: a driver answers EINVAL for the speed of a port that is down.
type sysfs struct {
	root *os.Root
}

const (
	netClass  = "sys/class/net"
	devices   = "sys/devices"
	pageBytes = 4096 // the most an attribute holds
)

func openSysfs(root string) (sysfs, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return sysfs{}, fmt.Errorf("look at ports: %w", err)
	}
	return sysfs{r}, nil
}

func (s sysfs) text(name string) string {
	f, err := s.root.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, pageBytes))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (s sysfs) number(name string) (int, bool) {
	n, err := strconv.ParseInt(s.text(name), 0, 64)
	return int(n), err == nil
}

// linkName is the last part of where a link leads: of device/driver the driver, of master the bridge.
func (s sysfs) linkName(name string) string {
	target, err := s.root.Readlink(name)
	if err != nil {
		return ""
	}
	return path.Base(target)
}

func (s sysfs) exists(name string) bool {
	_, err := s.root.Stat(name)
	return err == nil
}

// isWiFi says whether an interface is a wireless one, and devtype what sort of device the kernel calls it.
func (s sysfs) isWiFi(name string) (wifi bool, devtype string) {
	dir := path.Join(netClass, name)
	for line := range strings.Lines(s.text(path.Join(dir, "uevent"))) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
			devtype = v
		}
	}
	return devtype == "wlan" || s.exists(path.Join(dir, "wireless")) || s.exists(path.Join(dir, "phy80211")), devtype
}

// treeLinks lists the interfaces of a tree that is not the running system's.
func (s sysfs) treeLinks() ([]link, error) {
	dir, err := s.root.Open(netClass)
	if err != nil {
		return nil, fmt.Errorf("look at ports: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxLinks)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("look at ports: %w", err)
	}
	slices.Sort(names)
	indexes := map[string]int{}
	for i, name := range names {
		n, ok := s.number(path.Join(netClass, name, "ifindex"))
		if !ok || n <= 0 {
			n = maxLinks + i // a copied tree may lack it
		}
		indexes[name] = n
	}
	var out []link
	for _, name := range names {
		at := func(attr string) string { return path.Join(netClass, name, attr) }
		sort, ok := s.number(at("type"))
		if !ok {
			continue // bonding_masters and the like are files beside the interfaces
		}
		flags, _ := s.number(at("flags"))
		mtu, _ := s.number(at("mtu"))
		changes, _ := s.number(at("carrier_changes"))
		parent, _ := s.number(at("iflink"))
		const arphrdEther, iffUp = 1, 1
		l := link{
			index: indexes[name], name: name, mac: s.text(at("address")), ether: sort == arphrdEther,
			up: flags&iffUp != 0, carrier: s.text(at("carrier")) == "1", mtu: mtu,
			master: indexes[s.linkName(at("master"))], changes: changes,
		}
		if parent != l.index {
			l.parent = parent
		}
		l.kind = s.treeKind(at)
		out = append(out, l)
	}
	return out, nil
}

// treeKind tells from the files beside an interface what rtnetlink would call its kind.
func (s sysfs) treeKind(at func(string) string) string {
	for _, mark := range []struct{ file, kind string }{
		{"bridge", "bridge"}, {"bonding", "bond"}, {"tun_flags", "tun"},
	} {
		if s.exists(at(mark.file)) {
			return mark.kind
		}
	}
	for line := range strings.Lines(s.text(at("uevent"))) {
		switch kind := strings.TrimPrefix(strings.TrimSpace(line), "DEVTYPE="); kind {
		case "vlan", "vxlan", "bond", "bridge":
			return kind
		}
	}
	return ""
}

// usb returns the facts of the USB device that a port's device belongs to.
func (s sysfs) usb(device string) *appliance.USB {
	for dir := device; dir != "." && dir != "/"; dir = path.Dir(dir) {
		at := func(attr string) string { return path.Join(devices, dir, attr) }
		vendor := s.text(at("idVendor"))
		if vendor == "" {
			continue
		}
		u := &appliance.USB{Vendor: vendor, Product: s.text(at("idProduct")), Version: s.text(at("version"))}
		u.SpeedMbps, _ = s.number(at("speed"))
		u.MaxPowerMA, _ = strconv.Atoi(strings.TrimSuffix(s.text(at("bMaxPower")), "mA"))
		return u
	}
	return nil
}

// pcie returns the link of a port's own PCI Express device.
func (s sysfs) pcie(device string) *appliance.PCIe {
	at := func(attr string) string { return path.Join(devices, device, attr) }
	// "5.0 GT/s PCIe"; "Unknown" where the link is down or there is none.
	rate := func(attr string) float64 {
		number, _, _ := strings.Cut(s.text(at(attr)), " ")
		f, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return 0
		}
		return f
	}
	width := func(attr string) int {
		n, _ := s.number(at(attr))
		return n
	}
	p := &appliance.PCIe{
		GTs: rate("current_link_speed"), Width: width("current_link_width"),
		MaxGTs: rate("max_link_speed"), MaxWidth: width("max_link_width"),
	}
	if !(p.GTs > 0) || p.Width <= 0 {
		return nil
	}
	return p
}
