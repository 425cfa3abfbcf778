package netcfg

import (
	"crypto/sha256"
	"net"
	"strings"

	"linerate/appliance"
)

// seed tells this box from all others, and is the same at each boot: the serial number that the firmware gives, else the
// machine's id (machine-id(5)); "" where there is neither.
func (s sysfs) seed() string {
	serial := strings.Trim(s.text("proc/device-tree/serial-number"), "\x00 \n")
	if strings.Trim(serial, "0") != "" {
		return serial
	}
	return s.text("etc/machine-id")
}

// stableMAC is a locally administered unicast address (IEEE 802, 8.2) for a port of a box, the same at each boot. nil
// without a seed: then a box would have the address of others.
func stableMAC(seed, place string) net.HardwareAddr {
	if seed == "" {
		return nil
	}
	sum := sha256.Sum256([]byte("linerate port\x00" + seed + "\x00" + place))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^1 | 2
	return mac
}

// ownMAC is the address that a port gets from us: one whose driver makes up another at each boot would be a stranger to
// every DHCP server each time. nil for one that has its own.
func (m managed) ownMAC(p appliance.Port) net.HardwareAddr {
	place := p.Path
	if place == "" {
		place = p.Name
	}
	mac := stableMAC(m.seed, place)
	if mac == nil || !m.random[p.Name] && m.macs[p.Name] != mac.String() {
		return nil
	}
	return mac
}
