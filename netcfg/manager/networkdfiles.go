package manager

import (
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var networkdDirs = []string{
	"/etc/systemd/network", "/run/systemd/network", "/usr/local/lib/systemd/network", "/usr/lib/systemd/network",
	"/lib/systemd/network",
}

// Starts says whether a link enables systemd-networkd.service, and nothing masks it.
func (*Networkd) Starts() bool { return enabled("systemd-networkd.service") }

// enabled says whether systemd starts a service at boot, which can be asked before it has.
func enabled(service string) bool {
	for _, dir := range []string{"/etc/systemd/system", "/run/systemd/system"} {
		if to, err := os.Readlink(filepath.Join(dir, service)); err == nil && to == "/dev/null" {
			return false
		}
	}
	for _, dir := range []string{"/etc/systemd/system", "/run/systemd/system", "/run/systemd/generator*",
		"/usr/lib/systemd/system", "/lib/systemd/system"} {
		for _, how := range []string{"wants", "requires"} {
			if found, _ := filepath.Glob(dir + "/*." + how + "/" + service); len(found) > 0 {
				return true
			}
		}
	}
	return false
}

// Read reads the .network files that are not ours.
func (*Networkd) Read() Own {
	files := unitFiles(networkdDirs, networkdSuffix)
	return networkdFiles(slices.DeleteFunc(files, func(u unitFile) bool {
		return strings.HasPrefix(u.name, path.Base(networkdLasting)) || strings.HasPrefix(u.name, path.Base(networkdTentative))
	}))
}

type networkdFiles []unitFile

// BridgeOf goes by the first file that matches. Of a port that is not there yet neither name nor driver are known: for
// it any file counts that makes a member of a bridge.
func (f networkdFiles) BridgeOf(c Candidate) string {
	for _, u := range f {
		bridge := value(u.settings, "Network", "Bridge")
		if c.Name == "" && bridge == "" || !networkdMatches(u.settings, c) {
			continue
		}
		return bridge
	}
	return ""
}

// networkdMatches says whether a [Match] section means a port, as far as it is known; what is not known may be.
func networkdMatches(settings []setting, c Candidate) bool {
	any := false
	for _, s := range settings {
		any = any || s.section == "Match" && s.key != ""
	}
	if !any {
		return false
	}
	for key, have := range map[string]string{
		"Name": c.Name, "OriginalName": c.Name, "Path": c.IDPath, "Driver": c.Driver, "MACAddress": c.MAC,
		"PermanentMACAddress": c.MAC, "Type": "ether", "Kind": "none",
	} {
		patterns := words(settings, "Match", key)
		if len(patterns) == 0 || have == "" {
			continue
		}
		not := strings.HasPrefix(patterns[0], "!")
		patterns[0] = strings.TrimPrefix(patterns[0], "!")
		found := slices.ContainsFunc(patterns, func(p string) bool {
			ok, err := path.Match(strings.ReplaceAll(strings.ToLower(p), "[!", "[^"), strings.ToLower(have))
			return ok && err == nil
		})
		if found == not {
			return false
		}
	}
	return true
}

// Static lists the addresses and routes that the files give an interface.
func (f networkdFiles) Static(name string) (addresses []netip.Prefix, routes []Route) {
	for _, u := range f {
		patterns := words(u.settings, "Match", "Name")
		if !slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
			continue
		}
		var open *Route
		hop := func() *Hop { return &open.Hops[0] }
		for _, s := range u.settings {
			switch s.section + "." + s.key {
			case "Network.Address", "Address.Address":
				if p, err := netip.ParsePrefix(s.value); err == nil && len(addresses) < maxKept {
					addresses = append(addresses, p)
				}
			case "Network.Gateway":
				if gw, err := netip.ParseAddr(s.value); err == nil && len(routes) < maxKept {
					routes = append(routes, routeTo(name, defaultOf(gw), gw))
				}
			case "Route.": // a new section
				if open = nil; len(routes) < maxKept {
					routes = append(routes, routeTo(name, netip.Prefix{}, netip.Addr{}))
					open = &routes[len(routes)-1]
				}
			case "Route.Gateway":
				if gw, err := netip.ParseAddr(s.value); err == nil && open != nil {
					hop().Gateway = gw
				}
			case "Route.Destination":
				if p, err := netip.ParsePrefix(s.value); err == nil && open != nil {
					open.Destination = p
				}
			case "Route.Metric":
				if n, err := strconv.ParseUint(s.value, 10, 31); err == nil && open != nil {
					open.Metric = int(n)
				}
			}
		}
		for i := range routes {
			if gw := routes[i].Hops[0].Gateway; !routes[i].Destination.IsValid() && gw.IsValid() {
				routes[i].Destination = defaultOf(gw)
			}
		}
		return addresses, slices.DeleteFunc(routes, func(r Route) bool { return !r.Destination.IsValid() })
	}
	return nil, nil
}

// maxKept addresses and routes of a bridge are taken over.
const maxKept = 64

func routeTo(name string, destination netip.Prefix, gateway netip.Addr) Route {
	return Route{Destination: destination, Hops: []Hop{{Interface: name, Gateway: gateway}}, Table: unix.RT_TABLE_MAIN,
		Type: unix.RTN_UNICAST, Protocol: unix.RTPROT_STATIC}
}

func defaultOf(gateway netip.Addr) netip.Prefix {
	if gateway.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
