package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// DefaultOrigin is the Key.Origin of a value that stands in no file.
const DefaultOrigin = "default"

// Key is one key of the effective config.
type Key struct {
	Key      string `json:"key"`      // as "ports.mtu" or "port.lan1.mtu"
	Value    any    `json:"value"`    // as a file would say it: string, int64, bool, []any, map[string]any; a PIN is masked
	Origin   string `json:"origin"`   // FILE:LINE, or default
	Settable bool   `json:"settable"` // Settings may change it
	Choices  []any  `json:"choices,omitempty"`
}

// String returns the key as a line of TOML.
func (k Key) String() string { return k.Key + " = " + format(k.Value) }

// Loaded is what all layers together say.
type Loaded struct {
	Config Config
	Keys   []Key    // every effective key, in the order of the reference
	Notes  []string // what a person should know, one line each: settings that were dropped and why
	Files  []string // that were read, the lowest layer first
	Stale  []string // keys of the settings that Notes calls dropped; Settings.DropStale removes them

	print [sha256.Size]byte // of all that was read
}

// Load reads all layers. Where an error (of type Errors) is returned, the Loaded beside it is what remains without the
// files at fault: enough to start with, but a box that has a good config keeps that one.
func Load(p Paths) (Loaded, error) { return load(read(p)) }

// CheckFile checks one file, laid over the defaults, without using it. Of a file named settings.toml it checks each
// setting alone, since what it is laid over is not known. An error is of type Errors.
func CheckFile(path string) error {
	data, err := readFile(path, true)
	if errors.Is(err, fs.ErrNotExist) {
		err = errNone
	}
	if err == nil && filepath.Base(path) == settingsName {
		_, errs := parse(path, data, true)
		return errs.orNone()
	}
	_, err = load([]source{{file: path, data: data, err: err}})
	return err
}

func load(sources []source) (Loaded, error) {
	var errs Errors
	var layers []layer
	out := Loaded{print: fingerprint(sources)}
	for _, s := range sources {
		if s.hint != "" {
			out.Notes = append(out.Notes, s.hint)
			continue
		}
		if s.err != nil {
			errs = append(errs, Error{File: s.file, Message: s.err.Error()})
			continue
		}
		l, wrong := parse(s.file, s.data, s.settings)
		if len(wrong) > 0 {
			errs = append(errs, wrong...)
			continue
		}
		layers = append(layers, l)
		out.Files = append(out.Files, s.file)
	}
	// A setting is stale when what it covered has changed, which nobody can tell while a file is at fault.
	if len(errs) == 0 {
		layers = out.dropCovered(layers)
	}
	for {
		e := merge(layers)
		problems := e.check()
		if len(problems) == 0 {
			e.fill(&out)
			return out, errs.orNone()
		}
		layers = out.blame(e, problems, &errs)
	}
}

// dropCovered leaves out the settings whose covered values are others now.
func (out *Loaded) dropCovered(layers []layer) []layer {
	if len(layers) == 0 || !layers[len(layers)-1].settings {
		return layers
	}
	files, settings := layers[:len(layers)-1], layers[len(layers)-1]
	below := merge(files)
	kept := settings
	kept.leaves = nil
	for _, l := range settings.leaves {
		changed, ok := below.changed(l.name, settings.covered)
		if !ok {
			kept.leaves = append(kept.leaves, l)
			continue
		}
		out.drop(l, changed)
	}
	return append(slices.Clone(files), kept)
}

func (out *Loaded) drop(l leaf, why string) {
	out.Stale = append(out.Stale, l.name)
	out.Notes = append(out.Notes, fmt.Sprintf("setting %s = %s dropped: %s", l.name, show(l.value), why))
}

// blame returns the layers without what causes the problems: a setting, or a whole file.
func (out *Loaded) blame(e effective, problems []problem, errs *Errors) []layer {
	kept := slices.Clone(e.layers)
	bad := map[int]bool{}
	for _, p := range problems {
		// The topmost of the keys it is about came last, so it is the one that does not fit.
		key := slices.MaxFunc(p.keys, func(a, b string) int { return e.origin(a).layer - e.origin(b).layer })
		o := e.origin(key)
		l := kept[o.layer]
		if !l.settings {
			*errs = append(*errs, Error{File: l.file, Line: o.line, Message: p.message})
			bad[o.layer] = true
			continue
		}
		if i := slices.IndexFunc(l.leaves, func(x leaf) bool { return x.key() == key }); i >= 0 {
			out.drop(l.leaves[i], p.message)
			kept[o.layer].leaves = slices.Delete(slices.Clone(l.leaves), i, i+1)
		}
	}
	var rest []layer
	for i, l := range kept {
		if !bad[i] {
			rest = append(rest, l)
		}
	}
	return rest
}

// origin of a key: the layer and the line in it. layer is -1 for a default.
type origin struct {
	layer int
	line  int
}

type placed struct {
	leaf
	origin
}

// effective is the layers laid over one another.
type effective struct {
	layers  []layer
	leaves  map[string]placed // by leaf.key()
	ports   []string          // matches in the order of the files
	targets []string          // names
	config  Config
}

// merge lays each layer over the ones before.
func merge(layers []layer) effective {
	e := effective{layers: layers, leaves: map[string]placed{}, config: Default()}
	for i, l := range layers {
		for _, x := range l.leaves {
			e.leaves[x.key()] = placed{x, origin{i, x.line}}
			if x.table == portTable && !slices.Contains(e.ports, x.entry) {
				e.ports = append(e.ports, x.entry)
			}
			if x.table == targetTable && !slices.Contains(e.targets, x.entry) {
				e.targets = append(e.targets, x.entry)
			}
		}
	}
	c := &e.config
	apply(e, schema, c, "")
	for _, match := range e.ports {
		p := Port{MTU: c.Ports.MTU, Address: c.Ports.Address, Native: true}
		apply(e, portSchema, &p, portTable+"."+match+".")
		if e.bySetting("ports.mtu") {
			p.MTU = c.Ports.MTU
		}
		c.Port = append(c.Port, p)
	}
	for _, name := range e.targets {
		t := Target{Engine: "iperf3"}
		apply(e, targetSchema, &t, targetTable+"."+name+".")
		c.Targets = append(c.Targets, t)
	}
	return e
}

// apply sets what the layers say; each value was checked when its file was parsed.
func apply[T any](e effective, fields []field[T], into *T, prefix string) {
	for _, f := range fields {
		if l, ok := e.leaves[prefix+f.name]; ok {
			_ = f.set(into, l.value)
		}
	}
}

func (e effective) origin(key string) origin {
	if l, ok := e.leaves[key]; ok {
		return l.origin
	}
	return origin{layer: -1}
}

func (e effective) bySetting(key string) bool {
	o := e.origin(key)
	return o.layer >= 0 && e.layers[o.layer].settings
}

// covers returns the values that a setting of the key covers: its own, and for the MTU that of each [[port]] as well.
func (e effective) covers(name string) map[string]any {
	f, _ := find(schema, name)
	out := map[string]any{name: f.get(e.config)}
	if name == "ports.mtu" {
		for _, match := range e.ports {
			if l, ok := e.leaves[portTable+"."+match+".mtu"]; ok {
				out[l.key()] = l.value
			}
		}
	}
	return out
}

// changed says what became of a value that the setting covered; ok is false while all are as they were, or where the
// setting does not know what it covered.
func (e effective) changed(name string, covered map[string]any) (what string, ok bool) {
	if _, known := covered[name]; !known {
		return "", false
	}
	now := e.covers(name)
	for _, k := range sortedKeys(now) {
		if !reflect.DeepEqual(now[k], covered[k]) {
			return fmt.Sprintf("%s now says %s = %s", e.where(k), k, format(now[k])), true
		}
	}
	for _, k := range sortedKeys(covered) {
		if _, here := now[k]; !here && k != name && name == "ports.mtu" && strings.HasPrefix(k, portTable+".") {
			return k + " stands in no file any more", true
		}
	}
	return "", false
}

func (e effective) where(key string) string {
	o := e.origin(key)
	if o.layer < 0 {
		return DefaultOrigin
	}
	return e.layers[o.layer].file + ":" + strconv.Itoa(o.line)
}

// fill describes the result key by key.
func (e effective) fill(out *Loaded) {
	c := e.config
	out.Config = c
	for _, f := range schema {
		k := Key{Key: f.name, Value: f.get(c), Origin: e.where(f.name), Settable: f.settable, Choices: f.choices}
		if f.secret && strings.ContainsAny(fmt.Sprint(k.Value), "0123456789") {
			k.Value = "****"
		}
		if f.name == "test.target" {
			for _, t := range c.Targets {
				k.Choices = append(slices.Clone(k.Choices), t.Name)
			}
		}
		out.Keys = append(out.Keys, k)
	}
	for _, p := range c.Port {
		out.Keys = append(out.Keys, describe(e, portSchema, p, portTable+"."+p.Match+".", map[string]string{
			"mtu": "ports.mtu", "address": "ports.address",
		})...)
	}
	for _, t := range c.Targets {
		out.Keys = append(out.Keys, describe(e, targetSchema, t, targetTable+"."+t.Name+".", nil)...)
	}
}

// describe lists an entry. inherits names the keys whose value comes from elsewhere where the entry has none.
func describe[T any](e effective, fields []field[T], t T, prefix string, inherits map[string]string) []Key {
	var keys []Key
	for _, f := range fields {
		value := f.get(t)
		if value == nil {
			continue
		}
		from := prefix + f.name
		if other := inherits[f.name]; other != "" {
			if _, own := e.leaves[from]; !own || other == "ports.mtu" && e.bySetting(other) {
				from = other
			}
		}
		keys = append(keys, Key{Key: prefix + f.name, Value: value, Origin: e.where(from)})
	}
	return keys
}

// problem is what does not fit together though each value is good. keys are those that it is about.
type problem struct {
	keys    []string
	message string
}

// check holds the config together as a whole. The defaults pass.
func (e effective) check() []problem {
	var out []problem
	fail := func(message string, keys ...string) { out = append(out, problem{keys, message}) }
	c := e.config
	for _, t := range c.Targets {
		if t.Host == "" {
			fail(fmt.Sprintf("[[target]] %s has no host: want its name or address", show(t.Name)), targetTable+"."+t.Name+".name")
		}
	}
	if name := c.Test.Target; name != Auto && !slices.Contains(e.targets, name) {
		message := fmt.Sprintf("test.target = %s names no [[target]]", show(name))
		if len(e.targets) > 0 {
			message += ": the nearest is " + show(nearest(name, e.targets))
		}
		fail(message, "test.target")
	}
	held := map[netip.Addr]string{}
	for _, p := range c.Port {
		prefix := portTable + "." + p.Match + "."
		hold := func(list []Address, key string) {
			for _, a := range list {
				if a.Method != AddressStatic {
					continue
				}
				if before, ok := held[a.Prefix.Addr()]; ok {
					fail(fmt.Sprintf("%s has the address %s of %s", key, a, before), key, before)
				}
				held[a.Prefix.Addr()] = key
			}
		}
		if _, own := e.leaves[prefix+"address"]; own {
			hold(p.Address, prefix+"address")
		}
		for _, v := range p.VLAN {
			hold(v.Address, prefix+"vlan")
		}
	}
	listens := []struct {
		on  bool
		key string
		at  string
	}{
		{c.Server.Enable, "server.listen", c.Server.Listen},
		{c.Nuttcp.Enable, "nuttcp.listen", c.Nuttcp.Listen},
		{c.Web.Enable && c.Web.Listen != Auto, "web.listen", c.Web.Listen},
	}
	for i, a := range listens {
		for _, b := range listens[:i] {
			if a.on && b.on && collide(a.at, b.at) {
				fail(fmt.Sprintf("%s = %q and %s = %q want the same port", b.key, b.at, a.key, a.at), a.key, b.key)
			}
		}
	}
	return out
}

// collide says whether two listeners want the same port of the same address.
func collide(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	any := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return err != nil || ip.IsUnspecified()
	}
	return portA == portB && portA != "0" && (hostA == hostB || any(hostA) || any(hostB))
}

// fingerprint tells whether anything that was read, or could not be read, is another than before.
func fingerprint(sources []source) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, s := range sources {
		fmt.Fprintf(h, "%q %v %q %v %d\n", s.file, s.settings, s.hint, s.err, len(s.data))
		h.Write(s.data)
	}
	h.Sum(sum[:0])
	return sum
}
