package netcfg

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/netcfg/manager"
)

// originals is what was found before the first change, and what was given since. It outlives a boot, so that everything
// can be put back as it was, and a change that broke off half-way can be finished.
type originals struct {
	Ports   []originalPort   `json:"ports"`
	Bridges []originalBridge `json:"bridges"`
}

// originalPort is one port as it was found. It is known by its device path, without one by its name.
type originalPort struct {
	Name      string               `json:"name"`
	Path      string               `json:"path"`
	Bridge    string               `json:"bridge"` // "" where it stood alone
	MTU       int                  `json:"mtu"`
	Up        bool                 `json:"up"`
	Addresses []manager.Address    `json:"addresses"`        // static ones
	Member    map[string]string    `json:"member,omitempty"` // of /sys/class/net/X/brport
	VLANs     []manager.MemberVLAN `json:"vlans,omitempty"`  // of a bridge that filters by VLAN

	Given    []given `json:"given"`     // addresses it has from us
	GivenMTU int     `json:"given_mtu"` // the MTU it has from us; 0: none
}

// given is an address that a port has from us.
type given struct {
	Address manager.Address `json:"address"`
	Moved   bool            `json:"moved"` // it was its bridge's; else the config lists it
}

// originalBridge is a bridge as it was found.
type originalBridge struct {
	Name      string               `json:"name"`
	Index     int                  `json:"index"` // of the interface that our ports left last, and in which boot: only
	Boot      string               `json:"boot"`  // that one is ours to empty and remove, not a later one of its name
	MAC       string               `json:"mac"`
	Up        bool                 `json:"up"`
	Settings  map[string]string    `json:"settings"` // of /sys/class/net/X/bridge
	VLANs     []manager.MemberVLAN `json:"vlans,omitempty"`
	Addresses []manager.Address    `json:"addresses"`
	Routes    []manager.Route      `json:"routes"`
}

// madeBridge is what an AddBridge step needs.
type madeBridge struct {
	mac      string
	settings map[string]string
	vlans    []manager.MemberVLAN
}

func (o *originals) port(p appliance.Port) *originalPort {
	i := slices.IndexFunc(o.Ports, func(q originalPort) bool {
		if p.Path != "" || q.Path != "" {
			return p.Path == q.Path
		}
		return p.Name == q.Name
	})
	if i < 0 {
		return nil
	}
	return &o.Ports[i]
}

func (o *originals) bridge(name string) *originalBridge {
	i := slices.IndexFunc(o.Bridges, func(b originalBridge) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return &o.Bridges[i]
}

// clone shares nothing that a plan changes.
func (o originals) clone() originals {
	o.Ports, o.Bridges = slices.Clone(o.Ports), slices.Clone(o.Bridges)
	for i := range o.Ports {
		o.Ports[i].Given = slices.Clone(o.Ports[i].Given)
	}
	return o
}

// keepPort records a port as it is, unless it is recorded already.
func (o *originals) keepPort(p appliance.Port, seen Seen) *originalPort {
	if old := o.port(p); old != nil {
		old.Name = p.Name // it may be called otherwise since the last boot
		if old.Bridge == "" && p.Bridge {
			old.Bridge, old.Member, old.VLANs = p.Master, seen.settings[p.Name], seen.vlans[p.Name]
		}
		return old
	}
	l, _ := seen.byName(p.Name)
	kept := originalPort{Name: p.Name, Path: p.Path, MTU: p.MTU, Up: l.up,
		Addresses: []manager.Address{}, Given: []given{}}
	if p.Bridge {
		kept.Bridge, kept.Member, kept.VLANs = p.Master, seen.settings[p.Name], seen.vlans[p.Name]
	}
	for _, a := range seen.addresses {
		if a.Interface == p.Name && a.Static() && !a.LinkLocal() {
			kept.Addresses = append(kept.Addresses, a)
		}
	}
	o.Ports = append(o.Ports, kept)
	return &o.Ports[len(o.Ports)-1]
}

// keepBridge records a bridge as it is, unless it is recorded already.
func (o *originals) keepBridge(name string, seen Seen) {
	l, ok := seen.byName(name)
	if !ok {
		return
	}
	if old := o.bridge(name); old != nil {
		old.Index, old.Boot = l.index, seen.boot
		return
	}
	kept := originalBridge{Name: name, Index: l.index, Boot: seen.boot, MAC: l.mac, Up: l.up,
		Settings: seen.settings[name], VLANs: seen.vlans[name], Addresses: []manager.Address{}, Routes: []manager.Route{}}
	kept.Addresses = append(kept.Addresses, seen.movable(name)...)
	for _, r := range seen.routes {
		if r.Uses(name) && !r.Learnt() {
			kept.Routes = append(kept.Routes, r)
		}
	}
	o.Bridges = append(o.Bridges, kept)
}

// give remembers an address that a port gets from us.
func (o *originalPort) give(a manager.Address, moved bool) {
	o.Given = slices.DeleteFunc(o.Given, func(g given) bool { return g.Address.Prefix == a.Prefix })
	o.Given = append(o.Given, given{Address: a, Moved: moved})
}

// Bounds of the file of originals; three ports make 3 KiB.
const (
	originalsFile  = "originals.json"
	maxOriginals   = 1 << 20
	maxKeptEntries = 1024
)

// load reads what was kept; none is no error. A file that cannot be used is one: going on without would lose what it
// holds.
func (o *originals) load(dir string) error {
	path := filepath.Join(dir, originalsFile)
	b, err := readRegular(path, maxOriginals)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		*o = originals{}
		return nil
	}
	if err == nil {
		*o, err = parseOriginals(b)
	}
	if err != nil {
		return fmt.Errorf("what was found before the first change: %s: %w; mend it, or remove it to take the present "+
			"state for the original", path, err)
	}
	return nil
}

func parseOriginals(b []byte) (originals, error) {
	var o originals
	if err := json.Unmarshal(b, &o); err != nil {
		return originals{}, err
	}
	if len(o.Ports) > maxKeptEntries || len(o.Bridges) > maxKeptEntries {
		return originals{}, fmt.Errorf("more than %d ports or bridges", maxKeptEntries)
	}
	good := func(name string) bool { // as the kernel's dev_valid_name
		return name != "" && len(name) < 16 && name != "." && name != ".." && !strings.ContainsAny(name, "/: \t\n")
	}
	for _, p := range o.Ports {
		if !good(p.Name) || p.MTU < 0 || p.Bridge != "" && !good(p.Bridge) {
			return originals{}, fmt.Errorf("port %q is not one that could have been kept", p.Name)
		}
		for _, a := range p.Addresses {
			if !a.Prefix.IsValid() {
				return originals{}, fmt.Errorf("port %s: an address that is none", p.Name)
			}
		}
		for _, g := range p.Given {
			if !g.Address.Prefix.IsValid() {
				return originals{}, fmt.Errorf("port %s: an address that is none", p.Name)
			}
		}
	}
	for _, b := range o.Bridges {
		if !good(b.Name) {
			return originals{}, fmt.Errorf("bridge %q is not one that could have been kept", b.Name)
		}
		for _, a := range b.Addresses {
			if !a.Prefix.IsValid() {
				return originals{}, fmt.Errorf("bridge %s: an address that is none", b.Name)
			}
		}
		for _, r := range b.Routes {
			if !r.Destination.IsValid() || len(r.Hops) == 0 {
				return originals{}, fmt.Errorf("bridge %s: a route that is none", b.Name)
			}
		}
	}
	return o, nil
}

// save is on the disk when it returns: what was found must be there before it is changed.
func (o originals) save(dir string) error {
	b, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, originalsFile), append(b, '\n'), 0o644, true); err != nil {
		return fmt.Errorf("keep what was found before the first change: %w; nothing was changed", err)
	}
	return nil
}
