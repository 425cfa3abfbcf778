package board

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// AssignRoles gives the ports their roles: paths holds the device path of each interface as DevicePaths returns it,
// roles the role of each interface that has one. It looks at nothing but its arguments.
//
// A role's matchers are tried in order, and the first that fits any port decides. A matcher fits where its
// components stand next to each other in the path, each of them whole, before the first usbN: what follows depends
// on the order in which things were plugged in. Where a matcher fits two ports nobody can say which is meant, so
// neither gets the role and a fault names both; likewise for a port that two roles claim.
func (p Profile) AssignRoles(paths map[string]string) (roles map[string]string, faults []error) {
	claims := map[string][]string{} // interface -> roles
	for _, port := range p.Ports {
		for _, matcher := range port.Match {
			fits := fitting(matcher, paths)
			if len(fits) == 0 {
				continue
			}
			if len(fits) > 1 {
				faults = append(faults, fmt.Errorf("board profile %s: %q of port %s fits %s, so none gets the role; "+
					"lengthen it in /%s/%s.toml", p.Name, matcher, port.Role, strings.Join(fits, " and "),
					boardsDir, p.Name))
			} else {
				claims[fits[0]] = append(claims[fits[0]], port.Role)
			}
			break
		}
	}
	roles = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		if claimed := claims[name]; len(claimed) > 1 {
			faults = append(faults, fmt.Errorf("board profile %s: ports %s fit one interface, %s, so it gets none; "+
				"correct /%s/%s.toml", p.Name, strings.Join(claimed, " and "), name, boardsDir, p.Name))
			continue
		}
		roles[name] = claims[name][0]
	}
	return roles, faults
}

// fitting lists the interfaces whose device a matcher fits, sorted.
func fitting(matcher string, paths map[string]string) []string {
	var fits []string
	want := strings.Split(matcher, "/")
	for name, path := range paths {
		if containsRun(stablePart(path), want) {
			fits = append(fits, name)
		}
	}
	slices.Sort(fits)
	return fits
}

// usbBus is the component of the USB root hub: usb1, usb2 ... in the order the controllers were found.
var usbBus = regexp.MustCompile(`^usb[0-9]+$`)

// stablePart splits a device path and ends it before any usbN.
func stablePart(path string) []string {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	if i := slices.IndexFunc(parts, usbBus.MatchString); i >= 0 {
		parts = parts[:i]
	}
	return parts
}

// containsRun says whether want stands in have without a gap.
func containsRun(have, want []string) bool {
	for i := 0; i+len(want) <= len(have); i++ {
		if slices.Equal(have[i:i+len(want)], want) {
			return true
		}
	}
	return false
}
