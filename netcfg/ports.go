package netcfg

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/appliance/config"
	"linerate/netcfg/ethnl"
)

// Wanted is what the ports shall be: the board's profile and the parts of the config that speak of ports. It is never
// changed once handed over.
type Wanted struct {
	Board board.Profile
	Ports config.Ports
	Port  []config.Port
}

// MultiGigMbps is the speed from which "auto" takes a port for a test port.
const MultiGigMbps = 2500

// means says whether a word of the config (a role, an interface name, a device path) means the port. A device path may
// be whole or a part of one, in whole components: "0001:01:00.0", "platform/fe2a0000.ethernet".
func means(word string, p appliance.Port) bool {
	if word == p.Name || word == p.Role && word != "" {
		return true
	}
	want := strings.FieldsFunc(strings.TrimPrefix(word, "/sys/devices/"), func(r rune) bool { return r == '/' })
	have := strings.Split(p.Path, "/")
	if len(want) == 0 || p.Path == "" {
		return false
	}
	for i := 0; i+len(want) <= len(have); i++ {
		if slices.Equal(have[i:i+len(want)], want) {
			return true
		}
	}
	return false
}

// named says whether the config names the port, in select or in a [[port]].
func (w Wanted) named(p appliance.Port) bool {
	for _, word := range w.words() {
		if means(word.text, p) {
			return true
		}
	}
	return false
}

// word is a name that a person wrote, and where.
type word struct{ text, where string }

func (w Wanted) words() []word {
	var out []word
	for _, s := range w.Ports.Select {
		if s != config.Auto {
			out = append(out, word{s, "[ports] select"})
		}
	}
	for _, p := range w.Port {
		out = append(out, word{p.Match, "[[port]] match"})
	}
	return out
}

// chosen says whether the port is one that the config speaks of at all.
func (w Wanted) chosen(p appliance.Port) bool { return p.Test || w.named(p) }

// forPort returns what is wanted of one port: of the [[port]] that means it, else what all have in common.
func (w Wanted) forPort(p appliance.Port) config.Port {
	for _, c := range w.Port {
		if means(c.Match, p) {
			return c
		}
	}
	return config.Port{MTU: w.Ports.MTU, Address: w.Ports.Address, Native: true}
}

// sortPorts puts the ports in the order of the profile, those without a role last, by name.
func (w Wanted) sortPorts(ports []appliance.Port) {
	rank := func(p appliance.Port) int {
		i := slices.IndexFunc(w.Board.Ports, func(b board.Port) bool { return b.Role == p.Role })
		if i < 0 {
			return len(w.Board.Ports)
		}
		return i
	}
	slices.SortFunc(ports, func(a, b appliance.Port) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(len(a.Name), len(b.Name)),
			strings.Compare(a.Name, b.Name))
	})
}

// choose marks the test ports by [ports] select. capable holds what each port can do, in Mbit/s, by its index; 0 is
// unknown. physical says which ports "auto" may take.
func (w Wanted) choose(ports []appliance.Port, capable map[int]int, physical map[int]bool) {
	auto := slices.Contains(w.Ports.Select, config.Auto)
	multiGig := slices.ContainsFunc(ports, func(p appliance.Port) bool {
		return physical[p.Index] && capable[p.Index] >= MultiGigMbps
	})
	for i := range ports {
		p := &ports[i]
		p.Test = auto && physical[p.Index] && (!multiGig || capable[p.Index] >= MultiGigMbps)
		for _, word := range w.Ports.Select {
			p.Test = p.Test || word != config.Auto && means(word, *p)
		}
	}
}

// capability is the fastest a port can do, in Mbit/s: by its supported modes; where the driver tells none, by the speed
// it has now or what is known of its driver, whichever is more (a 2.5G adapter in a 1G switch is still one); else by
// the board's profile. 0 is unknown.
func (w Wanted) capability(p appliance.Port, pciID string) int {
	best := 0
	for _, mode := range p.SupportedModes {
		best = max(best, ethnl.SpeedOf(mode))
	}
	if best > 0 {
		return best
	}
	if p.SpeedMbps != nil {
		best = *p.SpeedMbps
	}
	if best = max(best, driverSpeed(p, pciID)); best > 0 {
		return best
	}
	for _, b := range w.Board.Ports {
		if b.Role == p.Role && b.Role != "" {
			return b.SpeedMbps
		}
	}
	return 0
}

// driverSpeeds holds drivers whose hardware is all of one speed or faster (kernel drivers/net/ethernet and
// drivers/net/usb, and Realtek's own r812x).
var driverSpeeds = map[string]int{
	"r8125": 2500, "r8126": 5000, "r8127": 10000, "igc": 2500, "aqc111": 5000, "atlantic": 2500,
	"ixgbe": 10000, "ixgbevf": 10000, "i40e": 10000, "ice": 10000, "mlx4_en": 10000, "mlx5_core": 10000,
	"bnxt_en": 10000, "bnx2x": 10000, "cxgb4": 10000, "qede": 10000, "sfc": 10000, "thunderbolt-net": 10000,
}

// deviceSpeeds holds chips that share a driver with slower ones, by vendor and product.
var deviceSpeeds = map[string]int{
	"10ec:8125": 2500, "10ec:3000": 2500, "10ec:8162": 2500, "10ec:8126": 5000, "10ec:8127": 10000, // PCI, r8169
	"0bda:8156": 2500, "0bda:8155": 2500, "0bda:8157": 5000, "0bda:8159": 10000, // USB, r8152 or cdc_ncm
	"2eca:c101": 5000, "20f4:e05a": 5000, "0b95:2790": 5000, // USB, AQC111U under cdc_ncm
}

func driverSpeed(p appliance.Port, pciID string) int {
	if s := driverSpeeds[p.Driver]; s > 0 {
		return s
	}
	if p.USB != nil {
		return deviceSpeeds[p.USB.Vendor+":"+p.USB.Product]
	}
	return deviceSpeeds[pciID]
}

// missing says of each name in the config that no port answers to it.
func (w Wanted) missing(ports []appliance.Port, links []link) []string {
	var labels, out []string
	for _, p := range ports {
		labels = append(labels, p.Label())
	}
	there := "there is no Ethernet port"
	if len(labels) > 0 {
		there = "there are " + strings.Join(labels, ", ")
	}
	for _, word := range w.words() {
		if slices.ContainsFunc(ports, func(p appliance.Port) bool { return means(word.text, p) }) {
			continue
		}
		say := fmt.Sprintf("no port %s (%s): %s", word.text, word.where, there)
		if i := slices.IndexFunc(links, func(l link) bool { return l.name == word.text }); i >= 0 {
			say = fmt.Sprintf("%s is %s, not an Ethernet port (%s): %s", word.text, links[i].what(), word.where, there)
		}
		if !slices.Contains(out, say) {
			out = append(out, say)
		}
	}
	return out
}
