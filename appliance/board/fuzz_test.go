package board

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// oneLiner says whether a message stays on its line of a terminal or a log.
func oneLiner(s string) bool { return strings.IndexFunc(s, unicode.IsControl) < 0 }

// FuzzParse feeds profile files. What is refused is refused in one line with file and line; what is taken can be
// used by a driver without another look.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(userBoard))
	entries, _ := builtin.ReadDir("profiles")
	for _, e := range entries {
		data, _ := builtin.ReadFile("profiles/" + e.Name())
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parse("x.toml", "x", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "x.toml:") || !oneLiner(err.Error()) {
				t.Fatalf("no clear line: %q", err)
			}
			return
		}
		if !printable(d.title) || d.title == "" {
			t.Errorf("title %q", d.title)
		}
		for _, k := range d.keys {
			if !slices.Contains(KeyNames, k.Short) || (k.Line == nil) == (len(k.Codes) == 0) ||
				k.Line != nil && (len(k.Line.Chips) == 0 || k.Line.Offset < 0 || k.Debounce < 0) {
				t.Errorf("key %+v", k)
			}
		}
		if clash, _ := sharedPin(d.panel, d.keys); clash != "" {
			t.Error(clash)
		}
		if p := d.panel; p != nil {
			c := controllers[p.Controller]
			bus, err := ParseBus(p.Bus)
			if err != nil || bus.IsSPI() == (len(p.Addresses) > 0) || bus.IsSPI() && p.DC == nil ||
				p.Width < 1 || p.Height < 1 || p.Width > max(c.width, c.height) {
				t.Errorf("panel %+v, %v", p, err)
			}
		}
		for _, p := range d.ports {
			if p.Role == "" || len(p.Match) == 0 || slices.ContainsFunc(p.Match, func(s string) bool { return !matcher(s) }) {
				t.Errorf("port %+v", p)
			}
		}
	})
}

// FuzzFacts feeds what a box says of itself. There is always a profile, and nothing that is shown breaks a line.
func FuzzFacts(f *testing.F) {
	lib, _ := load(tree(f.TempDir()))
	f.Add([]byte("WLAN Pi M4+\n"), []byte("raspberrypi,4-compute-module\x00brcm,bcm2711\x00"), "auto")
	f.Add([]byte("\xef\xbb\xbfWLAN Pi Pro\r\n"), []byte("friendlyarm,nanopi-r5s"), "nanopi-r5")
	f.Add([]byte(nil), []byte("\x00\x00a\x00friendlyelec,nanopi-r5s-c1\x00\xff"), "")
	f.Fuzz(func(t *testing.T, model, compatible []byte, name string) {
		facts := facts{wlanpi: parseModelLine(model), compatible: parseCompatible(compatible), model: oneLine(compatible)}
		d, why, err := lib.choose(facts, name)
		if d == nil || d.hat && name != d.name {
			t.Fatalf("profile %v", d)
		}
		for _, line := range append(why, facts.wlanpi, facts.model, fmt.Sprint(err)) {
			if !oneLiner(line) {
				t.Errorf("breaks a line: %q", line)
			}
		}
		again, _, _ := lib.choose(facts, name)
		if again != d {
			t.Errorf("%s once and %s again", d.name, again.name)
		}
	})
}

// FuzzAssignRoles feeds matchers and paths: no interface has two roles and no role two interfaces.
func FuzzAssignRoles(f *testing.F) {
	f.Add("a.pcie/pci0000:00", "b", "platform/a.pcie/pci0000:00/x", "platform/b/usb1/1-1")
	f.Fuzz(func(t *testing.T, m1, m2, path1, path2 string) {
		p := Profile{Name: "p", Ports: []Port{{Role: "r1", Match: []string{m1, m2}}, {Role: "r2", Match: []string{m2}}}}
		roles, _ := p.AssignRoles(map[string]string{"e1": path1, "e2": path2})
		if len(roles) == 2 && roles["e1"] == roles["e2"] {
			t.Errorf("%v", roles)
		}
		for _, role := range roles {
			if role != "r1" && role != "r2" {
				t.Errorf("%v", roles)
			}
		}
	})
}
