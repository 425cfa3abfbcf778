package board

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// positions knows the line of every key of a TOML document by its path: "panel.bus", "key[2].line".
type positions map[string]int

// locate finds all keys of a document that has already been parsed without an error.
func locate(data []byte) positions {
	at := positions{}
	var p unstable.Parser
	var ends []int // offsets of the line ends
	for i, b := range data {
		if b == '\n' {
			ends = append(ends, i)
		}
	}
	line := func(r unstable.Range) int { return 1 + sort.SearchInts(ends, int(r.Offset)) }
	join := func(base string, it unstable.Iterator) string {
		for it.Next() {
			base = strings.TrimPrefix(base+"."+strings.ToLower(string(it.Node().Data)), ".")
			if _, known := at[base]; !known {
				at[base] = line(it.Node().Raw)
			}
		}
		return base
	}
	var value func(path string, n *unstable.Node)
	value = func(path string, n *unstable.Node) {
		i := 0
		for it := n.Children(); it.Next(); {
			switch child := it.Node(); {
			case n.Kind == unstable.InlineTable:
				value(join(path, child.Key()), child.Value())
			case n.Kind == unstable.Array && child.Kind != unstable.Comment:
				element := fmt.Sprintf("%s[%d]", path, i)
				if child.Kind == unstable.InlineTable || child.Kind == unstable.String {
					at[element] = line(child.Raw)
				}
				value(element, child)
				i++
			}
		}
	}
	counts, table := map[string]int{}, ""
	p.Reset(data)
	for p.NextExpression() {
		switch n := p.Expression(); n.Kind {
		case unstable.Table:
			table = join("", n.Key())
		case unstable.ArrayTable:
			name := join("", n.Key())
			table = fmt.Sprintf("%s[%d]", name, counts[name])
			key := n.Key()
			key.Next()
			at[table] = line(key.Node().Raw)
			counts[name]++
		case unstable.KeyValue:
			value(join(table, n.Key()), n.Value())
		}
	}
	return at
}

// line is that of a path, else of the nearest table around it, else 1.
func (at positions) line(path string) int {
	for path != "" {
		if n, ok := at[path]; ok {
			return n
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 1
}

// decode reads a document strictly into v. Its error is one line that begins with file and line.
func decode(file string, data []byte, v any) error {
	err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(v)
	var missing *toml.StrictMissingError
	var bad *toml.DecodeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &missing) && len(missing.Errors) > 0:
		first := &missing.Errors[0]
		row, _ := first.Position()
		key := first.Key()
		name := strings.Join(key, ".")
		hint := didYouMean(key[len(key)-1], keysOf(reflect.TypeOf(v), key[:len(key)-1]))
		return fmt.Errorf("%s:%d: unknown key %q: %sremove it or correct it", file, row, clip(name), hint)
	case errors.As(err, &bad):
		row, _ := bad.Position()
		return fmt.Errorf("%s:%d: %s", file, row, strings.TrimPrefix(bad.Error(), "toml: "))
	default:
		return fmt.Errorf("%s: %w", file, err)
	}
}

// keysOf lists the keys that the table at path can hold.
func keysOf(t reflect.Type, path []string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var keys []string
	for f := range t.Fields() {
		name := f.Tag.Get("toml")
		if len(path) > 0 && strings.EqualFold(name, path[0]) {
			return keysOf(f.Type, path[1:])
		}
		keys = append(keys, name)
	}
	if len(path) > 0 {
		return nil
	}
	return keys
}
