package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

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
