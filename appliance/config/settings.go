package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// Settings writes settings.toml: what buttons and web changed. One process writes; its goroutines may share a Settings.
type Settings struct {
	paths Paths
	log   *slog.Logger
	mu    sync.Mutex
}

// SettingError says that a setting was refused and nothing was written. Other errors are of the disk.
type SettingError struct {
	Key     string
	Message string
}

// Error returns one line.
func (e *SettingError) Error() string { return e.Message }

func refuse(key, format string, args ...any) error {
	return &SettingError{Key: key, Message: fmt.Sprintf(format, args...)}
}

// NewSettings returns the settings in p.StateDir. A nil log is none.
func NewSettings(p Paths, log *slog.Logger) *Settings {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Settings{paths: p, log: log}
}

// Set stores one value: a string, int, int64, whole float64, bool, []string or []any. It is on the disk when Set returns
// nil. A value equal to what it would cover takes the setting away. The error is a *SettingError where the value does not
// fit the rest of the config.
func (s *Settings) Set(key string, value any) error { return s.Patch(map[string]any{key: value}) }

// Reset takes settings away; without keys, all.
func (s *Settings) Reset(keys ...string) error {
	for _, k := range keys {
		if err := settable(k); err != nil {
			return err
		}
	}
	return s.change(func(values map[string]any, _ effective) error {
		for _, k := range keys {
			delete(values, k)
		}
		if len(keys) == 0 {
			clear(values)
		}
		return nil
	})
}

// Patch sets several keys together, or none of them. A nil value resets its key.
func (s *Settings) Patch(values map[string]any) error {
	return s.change(func(all map[string]any, below effective) error {
		for _, k := range sortedKeys(values) {
			if err := settable(k); err != nil {
				return err
			}
			if values[k] == nil {
				delete(all, k)
				continue
			}
			v := plain(values[k])
			f, _ := find(schema, k)
			var scratch Config
			if err := f.set(&scratch, v); err != nil {
				return refuse(k, "%s = %s: %v", k, show(v), err)
			}
			all[k] = f.get(scratch)
			if same(below.covers(k), all[k]) {
				delete(all, k)
			}
		}
		return nil
	})
}

// DropStale takes the settings away that Loaded.Stale names, so that they do not come back when the files change again.
func (s *Settings) DropStale() error {
	return s.change(func(map[string]any, effective) error { return nil })
}

// settable says what is wrong with a key.
func settable(k string) error {
	if f, ok := find(schema, k); ok && f.settable {
		return nil
	}
	if slices.Contains(knownKeys(), k) || strings.HasPrefix(k, portTable+".") || strings.HasPrefix(k, targetTable+".") {
		return refuse(k, "%s is no setting: it can only be changed in the config file", show(k))
	}
	var known []string
	for _, f := range schema {
		if f.settable {
			known = append(known, f.name)
		}
	}
	return refuse(k, "unknown setting %s: the nearest known one is %s", show(k), nearest(k, known))
}

// change reads what is there, lets edit alter the settings, checks the whole and writes it if it differs.
func (s *Settings) change(edit func(values map[string]any, below effective) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.paths.SettingsFile()
	if path == "" {
		return errors.New("there is no state folder to keep settings in")
	}
	sources := read(s.paths)
	var old source
	if n := len(sources); n > 0 && sources[n-1].settings {
		old, sources = sources[n-1], sources[:n-1]
	}
	// Files at fault are left out: the person at the box must get at least as far as the box itself.
	files := usable(sources)
	below := merge(files)
	before, err := s.present(old)
	if err != nil {
		return err
	}
	values, covered := map[string]any{}, map[string]any{}
	for _, l := range before.leaves {
		values[l.name] = l.value
	}
	maps.Copy(covered, before.covered)
	if whole, err := load(append(slices.Clone(sources), old)); err == nil {
		for _, k := range whole.Stale {
			delete(values, k)
		}
	}
	held := maps.Clone(values)
	if err := edit(values, below); err != nil {
		return err
	}
	after := layer{file: path, settings: true, covered: map[string]any{}}
	for _, f := range schema {
		v, ok := values[f.name]
		if !ok {
			continue
		}
		after.leaves = append(after.leaves, leaf{name: f.name, value: v})
		lies := below.covers(f.name)
		if _, known := covered[f.name]; known && equal(held[f.name], v) {
			// What it covered when it was made counts, whatever happens to be readable now.
			lies = recorded(f.name, covered)
		} else if equal(held[f.name], v) {
			lies = nil // made by hand, without knowing
		}
		maps.Copy(after.covered, lies)
	}
	// What did not fit before is the files' matter, not that of this change.
	known := merge(append(slices.Clone(files), before)).check()
	for _, p := range merge(append(slices.Clone(files), after)).check() {
		if !slices.ContainsFunc(known, func(k problem) bool { return k.message == p.message }) {
			return refuse(p.keys[0], "%s", p.message)
		}
	}
	data := after.toml()
	if string(data) == string(old.data) {
		return nil
	}
	return WriteFile(path, data, 0o644)
}

// usable parses the files and leaves out those at fault.
func usable(sources []source) []layer {
	var files []layer
	for _, src := range sources {
		if l, errs := parse(src.file, src.data, false); src.err == nil && src.hint == "" && len(errs) == 0 {
			files = append(files, l)
		}
	}
	var errs Errors
	for {
		e := merge(files)
		problems := e.check()
		if len(problems) == 0 {
			return files
		}
		files = new(Loaded).blame(e, problems, &errs)
	}
}

// present reads the settings there are. What cannot be used is kept under another name, so that a key press is never
// refused for ever because of it.
func (s *Settings) present(old source) (layer, error) {
	if old.file == "" {
		return layer{}, nil
	}
	err := old.err
	if err == nil {
		l, errs := parse(old.file, old.data, true)
		if len(errs) == 0 {
			return l, nil
		}
		err = errs
	}
	aside := old.file + ".bad"
	if e := os.Rename(old.file, aside); e != nil {
		return layer{}, fmt.Errorf("%w; it cannot be put aside: %w", err, e)
	}
	s.log.Warn("settings could not be read and were put aside", "file", aside, "error", err)
	return layer{}, nil
}

// recorded returns what a settings file says that a setting covered.
func recorded(name string, covered map[string]any) map[string]any {
	out := map[string]any{name: covered[name]}
	for k, v := range covered {
		if name == "ports.mtu" && strings.HasPrefix(k, portTable+".") {
			out[k] = v
		}
	}
	return out
}

func same(covered map[string]any, value any) bool {
	for _, v := range covered {
		if !equal(v, value) {
			return false
		}
	}
	return true
}

func equal(a, b any) bool { return a != nil && b != nil && format(a) == format(b) }

// toml writes the file.
func (l layer) toml() []byte {
	var b strings.Builder
	b.WriteString("# Written by linerate: what buttons and web changed, laid over the config files.\n" +
		"# `linerate config reset` clears it.\n")
	last := ""
	for _, x := range l.leaves {
		table, name := split(x.name)
		if table != last {
			fmt.Fprintf(&b, "\n[%s]\n", table)
			last = table
		}
		fmt.Fprintf(&b, "%s = %s\n", name, format(x.value))
	}
	if len(l.covered) > 0 {
		b.WriteString("\n# What the settings stand in for; one is dropped when this changes in a file.\n[" + coveredTable + "]\n")
		for _, k := range sortedKeys(l.covered) {
			fmt.Fprintf(&b, "%s = %s\n", quote(k), format(l.covered[k]))
		}
	}
	return []byte(b.String())
}

// plain turns what Go code and JSON bring into the values of TOML.
func plain(v any) any {
	switch v := v.(type) {
	case int:
		return int64(v)
	case float64:
		if n := int64(v); float64(n) == v {
			return n
		}
	case []string:
		list := make([]any, len(v))
		for i, s := range v {
			list[i] = s
		}
		return list
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = plain(x)
		}
		return list
	}
	return v
}
