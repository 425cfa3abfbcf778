package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// leaf is one key of a file and its value.
type leaf struct {
	table string // "": top level; portTable or targetTable
	entry string // match or name of the entry
	name  string // as in the schema of the table
	value any
	line  int
}

// key names the leaf in lists, errors and origins: "ports.mtu", "port.lan1.mtu".
func (l leaf) key() string {
	if l.table == "" {
		return l.name
	}
	return l.table + "." + l.entry + "." + l.name
}

// layer is one file, each of its keys known and of the right kind.
type layer struct {
	file     string
	settings bool
	leaves   []leaf
	covered  map[string]any // settings only: the values that lay below when the settings were made
}

// coveredTable of a settings file holds what the settings covered.
const coveredTable = "covered"

// parse reads a file strictly. It returns all errors there are, or a layer.
func parse(file string, data []byte, settings bool) (layer, Errors) {
	p := parser{layer: layer{file: file, settings: settings}}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // Windows editors mark UTF-8 so
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return layer{}, Errors{{File: file, Line: 1, Message: "is saved as UTF-16: save it as UTF-8"}}
	}
	var root map[string]any
	if err := toml.Unmarshal(data, &root); err != nil {
		e := Error{File: file, Message: strings.TrimPrefix(err.Error(), "toml: ")}
		var at *toml.DecodeError
		if errors.As(err, &at) {
			e.Line, _ = at.Position()
		}
		return layer{}, Errors{e}
	}
	p.lines = findLines(data)
	p.root(root)
	if len(p.errs) > 0 {
		p.errs.sort()
		return layer{}, p.errs
	}
	slices.SortStableFunc(p.layer.leaves, func(a, b leaf) int { return a.line - b.line })
	return p.layer, nil
}

type parser struct {
	layer layer
	lines map[string]int
	errs  Errors
}

func (p *parser) fail(path []string, format string, args ...any) {
	line := 0
	for ; line == 0 && len(path) > 0; path = path[:len(path)-1] {
		line = p.lines[join(path)]
	}
	p.errs = append(p.errs, Error{File: p.layer.file, Line: line, Message: fmt.Sprintf(format, args...)})
}

func (p *parser) root(root map[string]any) {
	known := knownKeys()
	for _, table := range sortedKeys(root) {
		value := root[table]
		at := []string{table}
		switch {
		case table == portTable:
			entries(p, table, value, "match", portSchema, Port{})
		case table == targetTable:
			entries(p, table, value, "name", targetSchema, Target{})
		case table == coveredTable && p.layer.settings:
			var ok bool
			if p.layer.covered, ok = value.(map[string]any); !ok {
				p.fail(at, "%s: want a table", table)
			}
		case !slices.Contains(known, table):
			p.fail(at, "unknown key %s: the nearest known one is %s", key(table), nearest(table, known))
		default:
			keys, ok := value.(map[string]any)
			if !ok {
				p.fail(at, "%s: want a table, as [%s]", table, table)
			}
			for _, k := range sortedKeys(keys) {
				p.top(table, k, keys[k], known)
			}
		}
	}
}

func (p *parser) top(table, k string, value any, known []string) {
	at := []string{table, k}
	name := table + "." + k
	f, ok := find(schema, name)
	if !ok {
		p.fail(at, "unknown key %s.%s: the nearest known one is %s", table, key(k), nearest(name, known))
		return
	}
	if p.layer.settings && !f.settable {
		p.fail(at, "%s is no setting: it can only be changed in the config file", name)
		return
	}
	if add(p, at, f, new(Config), value, name) {
		p.layer.leaves = append(p.layer.leaves, leaf{name: name, value: value, line: p.lines[join(at)]})
	}
}

// add checks one value.
func add[T any](p *parser, at []string, f field[T], into *T, value any, name string) bool {
	err := f.set(into, value)
	switch {
	case err == nil:
		return true
	case f.secret:
		p.fail(at, "%s: %v", name, err)
	default:
		p.fail(at, "%s = %s: %v", name, show(value), err)
	}
	return false
}

// entries reads an array of tables, each entry with a key of its own that names it.
func entries[T any](p *parser, table string, value any, id string, fields []field[T], scratch T) {
	if p.layer.settings {
		p.fail([]string{table}, "%s is no setting: it can only be changed in the config file", table)
		return
	}
	list, ok := value.([]any)
	if !ok {
		p.fail([]string{table}, "%s: want [[%s]], in double brackets, with a %s for each", table, table, id)
		return
	}
	if len(list) > maxEntries {
		p.fail([]string{table}, "%s: %d entries: want at most %d", table, len(list), maxEntries)
		return
	}
	seen := map[string]int{}
	for i, item := range list {
		at := []string{table, strconv.Itoa(i)}
		keys, ok := item.(map[string]any)
		if !ok {
			p.fail(at, "%s: want a list of tables, as [[%s]]", table, table)
			continue
		}
		name, ok := keys[id].(string)
		if !ok {
			p.fail(at, "[[%s]] has no %s: want one, in quotes", table, id)
			continue
		}
		line := p.lines[join(append(at, id))]
		if before := seen[name]; before > 0 {
			p.fail(append(at, id), "[[%s]] %s = %s stands on line %d already: put both into one",
				table, id, show(name), before)
			continue
		}
		seen[name] = line
		for _, k := range sortedKeys(keys) {
			l := leaf{table: table, entry: name, name: k, value: keys[k], line: p.lines[join(append(at, k))]}
			f, ok := find(fields, k)
			if !ok {
				p.fail(append(at, k), "unknown key %s.%s: the nearest known one is %s", table, key(k),
					nearest(table+"."+k, knownKeys()))
			} else if add(p, append(at, k), f, &scratch, l.value, l.key()) {
				p.layer.leaves = append(p.layer.leaves, l)
			}
		}
	}
}

func join(path []string) string { return strings.Join(path, "\x00") }

// findLines returns the line of each table and key of a valid document. Entries of arrays are numbered from 0.
func findLines(data []byte) map[string]int {
	l := lineFinder{lines: map[string]int{}, arrays: map[string]int{}}
	l.parser.Reset(data)
	var table []string
	for l.parser.NextExpression() {
		n := l.parser.Expression()
		switch n.Kind {
		case unstable.Table:
			table, _ = l.path(nil, n.Key())
		case unstable.ArrayTable:
			var at int
			table, at = l.path(nil, n.Key())
			name := join(table)
			if i, ok := l.arrays[name]; ok {
				l.arrays[name] = i + 1
			} else {
				l.arrays[name] = 0
			}
			table = append(table, strconv.Itoa(l.arrays[name]))
			l.lines[join(table)] = at
		case unstable.KeyValue:
			l.keyValue(table, n)
		}
	}
	return l.lines
}

type lineFinder struct {
	parser unstable.Parser
	lines  map[string]int
	arrays map[string]int // arrays of tables and the number of the last entry
}

// path follows a dotted key below a table and notes the line of each part that is new.
func (l *lineFinder) path(below []string, it unstable.Iterator) (path []string, line int) {
	path = slices.Clone(below)
	for it.Next() {
		if i, ok := l.arrays[join(path)]; ok && len(path) > len(below) {
			path = append(path, strconv.Itoa(i))
		}
		path = append(path, string(it.Node().Data))
		line = l.parser.Shape(it.Node().Raw).Start.Line
		if name := join(path); l.lines[name] == 0 {
			l.lines[name] = line
		}
	}
	return path, line
}

func (l *lineFinder) keyValue(below []string, n *unstable.Node) {
	path, _ := l.path(below, n.Key())
	l.value(path, n.Value())
}

func (l *lineFinder) value(path []string, n *unstable.Node) {
	switch n.Kind {
	case unstable.InlineTable:
		for it := n.Children(); it.Next(); {
			l.keyValue(path, it.Node())
		}
	case unstable.Array:
		i := 0
		for it := n.Children(); it.Next(); i++ {
			if it.Node().Kind == unstable.InlineTable {
				l.value(append(slices.Clone(path), strconv.Itoa(i)), it.Node())
			}
		}
	}
}
