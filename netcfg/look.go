package netcfg

import (
	"cmp"
	"errors"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/netcfg/ethnl"
	"linerate/netcfg/manager"
)

// Seen is what there is at one moment. Nothing in it changes.
type Seen struct {
	Ports  []appliance.Port // in the order of the board's profile, then by name
	Faults []string         // names in the config that mean no port, roles that fit two; a line each

	links     []link
	addresses []manager.Address
	routes    []manager.Route
	live      bool   // of the running kernel; a tree has no addresses and routes
	boot      string // what tells this boot from others
	managed   managed

	// What only a change of bridges needs to know; see observe.
	carries  map[string]int                  // by member: connections that go through it
	settings map[string]map[string]string    // by bridge and by member: what sysfs tells of it
	vlans    map[string][]manager.MemberVLAN // by member and by bridge, where it filters by VLAN
}

// Look shows the physical Ethernet ports below root, and those without a device (a veth) that the config names. With
// the root "/" it asks the kernel, without any privilege; what only root may know (wake-on-LAN) is then null. With
// another root it reads that tree's sysfs alone, which knows no addresses and no limits of the MTU.
func Look(root string, w Wanted) (Seen, error) { return newLooker(root).look(w) }

// looker remembers how fast a port was seen to be: the speed of a port that is down is unknown, but a test port that
// loses its link is one still.
type looker struct {
	root    string
	capable map[int]int // Mbit/s by interface index
}

func newLooker(root string) *looker {
	return &looker{root: filepath.Clean(cmp.Or(root, "/")), capable: map[int]int{}}
}

func (k *looker) look(w Wanted) (Seen, error) {
	fs, err := openSysfs(k.root)
	if err != nil {
		return Seen{}, err
	}
	defer fs.root.Close()
	seen := Seen{live: k.root == "/"}
	paths, err := board.DevicePaths(k.root)
	if err != nil && !seen.live {
		return Seen{}, err
	}
	if seen.live {
		seen.links, err = kernelLinks()
	} else {
		seen.links, err = fs.treeLinks()
	}
	if err != nil {
		return Seen{}, err
	}
	physical := map[string]string{} // device path by name
	for i := range seen.links {
		l := &seen.links[i]
		// A sysfs of another network namespace shows other interfaces under the same names.
		if n, ok := fs.number(path.Join(netClass, l.name, "ifindex")); seen.live && (!ok || n != l.index) {
			continue
		}
		devtype := ""
		l.wifi, devtype = fs.isWiFi(l.name)
		l.device = paths[l.name]
		if l.isPort(devtype) && !fs.exists(path.Join(netClass, l.name, "dsa")) { // that is the switch's inner end
			physical[l.name] = l.device
		}
	}
	if seen.live {
		seen.boot = fs.text("proc/sys/kernel/random/boot_id")
		if err := seen.readAddresses(); err != nil {
			return Seen{}, err
		}
	}
	roles, faults := w.Board.AssignRoles(physical)
	for _, err := range faults {
		seen.Faults = append(seen.Faults, err.Error())
	}
	var conn *ethnl.Conn
	if seen.live {
		if conn, err = ethnl.Open(); err == nil {
			defer conn.Close()
		}
	}
	isPhysical := map[int]bool{}
	for _, l := range seen.links {
		_, hard := physical[l.name]
		p := seen.basics(l)
		p.Role = roles[l.name]
		if !hard && (!l.mayBeNamed() || !w.named(p)) {
			continue
		}
		fs.fill(&p)
		if conn != nil {
			fillFromEthtool(&p, conn)
		}
		k.capable[l.index] = max(k.capable[l.index], w.capability(p, fs.pciID(p.Path)))
		isPhysical[l.index] = hard
		seen.Ports = append(seen.Ports, p)
	}
	for index := range k.capable { // an index never comes back, so what is gone can be forgotten
		if _, there := isPhysical[index]; !there {
			delete(k.capable, index)
		}
	}
	w.sortPorts(seen.Ports)
	w.choose(seen.Ports, k.capable, isPhysical)
	seen.Faults = append(seen.Faults, w.missing(seen.Ports, seen.links)...)
	return seen, nil
}

// isPort says whether an interface is a physical Ethernet port: a device, Ethernet framing, and neither Wi-Fi nor a
// modem nor the box's own USB gadget.
func (l link) isPort(devtype string) bool {
	if l.device == "" || !l.ether || l.wifi || l.kind != "" && l.kind != "dsa" {
		return false
	}
	gadget := slices.ContainsFunc(strings.Split(l.device, "/"), func(part string) bool {
		return part == "gadget" || strings.HasPrefix(part, "gadget.")
	})
	return !gadget && devtype != "gadget" && devtype != "wwan"
}

// mayBeNamed says whether an interface without a device may be a port because the config names it.
func (l link) mayBeNamed() bool {
	switch l.kind {
	case "bridge", "bond", "team", "vrf", "vlan":
		return false
	}
	return l.ether && !l.wifi
}

// what says what sort of interface it is.
func (l link) what() string {
	switch {
	case l.wifi:
		return "Wi-Fi"
	case l.kind == "vrf" || l.kind == "vlan":
		return "a " + strings.ToUpper(l.kind)
	case l.kind == "tun":
		return "a tap"
	case l.kind != "":
		return "a " + l.kind
	case l.device != "":
		return "a port"
	}
	return "of no known kind"
}

// readAddresses fills in the addresses and routes of the running kernel.
func (s *Seen) readAddresses() error {
	names := map[int]string{}
	for _, l := range s.links {
		names[l.index] = l.name
	}
	var err error
	if s.addresses, err = manager.Addresses(names); err != nil {
		return err
	}
	s.routes, err = manager.Routes(names)
	return err
}

// basics is a port as the list of interfaces, addresses and routes shows it.
func (s *Seen) basics(l link) appliance.Port {
	p := appliance.Port{
		Name: l.name, Index: l.index, Path: l.device, MAC: l.mac, MTU: l.mtu, MTUMin: l.mtuMin, MTUMax: l.mtuMax,
		Link: appliance.LinkDown, Duplex: appliance.DuplexUnknown, CarrierChanges: l.changes,
		Addresses: s.cidrs(l.name), Gateway: s.gateway(l.name),
		SupportedModes: []string{}, AdvertisedModes: []string{}, PeerModes: []string{},
	}
	if l.carrier {
		p.Link = appliance.LinkUp
	}
	if m, ok := s.byIndex(l.master); ok {
		p.Master, p.Bridge = m.name, m.kind == "bridge"
	}
	for _, v := range s.links {
		if v.kind == "vlan" && v.parent == l.index {
			p.VLANs = append(p.VLANs, appliance.VLAN{Name: v.name, ID: v.vlan, Addresses: s.cidrs(v.name)})
		}
	}
	slices.SortFunc(p.VLANs, func(a, b appliance.VLAN) int { return cmp.Compare(a.ID, b.ID) })
	return p
}

func (s *Seen) byIndex(index int) (link, bool) {
	i := slices.IndexFunc(s.links, func(l link) bool { return l.index == index })
	if i < 0 || index == 0 {
		return link{}, false
	}
	return s.links[i], true
}

func (s *Seen) byName(name string) (link, bool) {
	i := slices.IndexFunc(s.links, func(l link) bool { return l.name == name })
	if i < 0 {
		return link{}, false
	}
	return s.links[i], true
}

// cidrs lists an interface's addresses: IPv4, then IPv6, link-local last. One that another host holds is not ours.
func (s *Seen) cidrs(name string) []string {
	var found []manager.Address
	for _, a := range s.addresses {
		if a.Interface == name && a.Flags&unix.IFA_F_DADFAILED == 0 {
			found = append(found, a)
		}
	}
	rank := func(a manager.Address) int {
		switch ip := a.Prefix.Addr(); {
		case ip.Is4() && !a.LinkLocal():
			return 0
		case ip.Is4():
			return 1
		case !a.LinkLocal():
			return 2
		}
		return 3
	}
	slices.SortStableFunc(found, func(a, b manager.Address) int { return cmp.Compare(rank(a), rank(b)) })
	out := []string{}
	for _, a := range found {
		out = append(out, a.Prefix.String())
	}
	return out
}

// gateway is that of the interface's best default route, IPv4 first.
func (s *Seen) gateway(name string) string {
	best, metric, found := netip.Addr{}, 0, false
	for _, r := range s.routes { // IPv4 first
		if r.Destination.Bits() != 0 || r.Table != unix.RT_TABLE_MAIN {
			continue
		}
		for _, h := range r.Hops {
			better := !found || best.Is6() == h.Gateway.Is6() && r.Metric < metric
			if h.Interface == name && h.Gateway.IsValid() && better {
				best, metric, found = h.Gateway, r.Metric, true
			}
		}
	}
	if !found {
		return ""
	}
	return best.String()
}

// fill adds what sysfs knows, which is all of it on a kernel without ethtool netlink.
func (s sysfs) fill(p *appliance.Port) {
	at := func(attr string) string { return path.Join(netClass, p.Name, attr) }
	if p.Path != "" {
		p.Driver = s.linkName(path.Join(devices, p.Path, "driver"))
		p.USB = s.usb(p.Path)
		if p.USB == nil {
			p.PCIe = s.pcie(p.Path)
		}
	}
	speed, _ := s.number(at("speed"))
	p.SpeedMbps = knownSpeed(p, speed)
	p.Duplex = knownDuplex(p, s.text(at("duplex")))
}

// pciID is vendor:device of a PCI device, as lspci writes it; "" for another.
func (s sysfs) pciID(device string) string {
	hex := func(attr string) string { return strings.TrimPrefix(s.text(path.Join(devices, device, attr)), "0x") }
	vendor, product := hex("vendor"), hex("device")
	if device == "" || vendor == "" || product == "" {
		return ""
	}
	return vendor + ":" + product
}

// knownSpeed is nil without a link: what a driver then reports is the last speed, or none.
func knownSpeed(p *appliance.Port, mbps int) *int {
	if p.Link != appliance.LinkUp || mbps <= 0 {
		return nil
	}
	return &mbps
}

// knownDuplex does not believe a cdc driver that says half: usbnet fills in no duplex, and 0 means half.
func knownDuplex(p *appliance.Port, duplex string) string {
	switch {
	case p.Link != appliance.LinkUp:
		return appliance.DuplexUnknown
	case duplex == appliance.DuplexHalf && strings.HasPrefix(p.Driver, "cdc_"):
		return appliance.DuplexUnknown
	case duplex == appliance.DuplexFull, duplex == appliance.DuplexHalf:
		return duplex
	}
	return appliance.DuplexUnknown
}

// fillFromEthtool adds what the driver tells over ethtool netlink. What it does not tell stays unknown.
func fillFromEthtool(p *appliance.Port, conn *ethnl.Conn) {
	if d, err := conn.Driver(p.Name); err == nil {
		p.Firmware = d.Firmware
		if p.Driver == "" {
			p.Driver = d.Name
		}
	}
	if m, err := conn.LinkModes(p.Index); err == nil {
		p.Autoneg = &m.Autoneg
		p.SpeedMbps = knownSpeed(p, m.SpeedMbps)
		p.Duplex = knownDuplex(p, map[uint8]string{
			ethnl.DuplexHalf: appliance.DuplexHalf, ethnl.DuplexFull: appliance.DuplexFull,
		}[m.Duplex])
		p.SupportedModes, p.AdvertisedModes = ethnl.Modes(m.Supported), ethnl.Modes(m.Advertised)
		p.PeerModes = ethnl.Modes(m.Peer)
	}
	if f, err := conn.Features(p.Index); err == nil {
		p.Features = make(map[string]bool, len(f))
		for name, feature := range f {
			p.Features[name] = feature.Active
		}
	}
	if pause, err := conn.Pause(p.Index); err == nil {
		p.Pause = &appliance.Pause{Autoneg: pause.Autoneg, RX: pause.RX, TX: pause.TX}
	}
	if eee, err := conn.EEE(p.Index); err == nil {
		p.EEE = &appliance.EEE{Enabled: eee.Enabled, Active: eee.Active}
	}
	switch wol, err := conn.WoL(p.Index); {
	case err == nil:
		p.WoL = append([]string{}, wol.Active...)
	case errors.Is(err, ethnl.ErrNotSupported):
		p.WoL = []string{}
	}
}
