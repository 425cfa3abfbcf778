package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
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

// CheckFile loads one file, laid over the defaults, as if it were the only one. Of a file named settings.toml it checks each
// setting alone, since what it is laid over is not known. An error is of type Errors.
func CheckFile(path string) (Loaded, error) {
	data, err := readFile(path, true)
	if errors.Is(err, fs.ErrNotExist) {
		err = errNone
	}
	if err == nil && filepath.Base(path) == settingsName {
		_, errs := parse(path, data, true)
		return Loaded{Config: Default()}, errs.orNone()
	}
	return load([]source{{file: path, data: data, err: err}})
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
