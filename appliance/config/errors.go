package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Error is one thing that is wrong with a file.
type Error struct {
	File    string
	Line    int // from 1; 0: the file as a whole
	Message string
}

// Error returns one line: file, line, what is wrong.
func (e Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Message
	}
	return e.File + ":" + strconv.Itoa(e.Line) + ": " + e.Message
}

// Errors is all that is wrong, in the order of files and lines; never empty where it is an error. It is the error of Load
// and CheckFile.
type Errors []Error

// Error returns one line: the first error and how many follow.
func (e Errors) Error() string {
	switch len(e) {
	case 0:
		return "no error"
	case 1:
		return e[0].Error()
	}
	return fmt.Sprintf("%s (and %d more)", e[0].Error(), len(e)-1)
}

// orNone keeps an empty list from becoming an error.
func (e Errors) orNone() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

func (e Errors) sort() {
	slices.SortStableFunc(e, func(a, b Error) int { return a.Line - b.Line })
}

// format writes a value as TOML, in one line.
func format(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case []any:
		words := make([]string, len(v))
		for i, x := range v {
			words[i] = format(x)
		}
		return "[" + strings.Join(words, ", ") + "]"
	case map[string]any:
		words := make([]string, 0, len(v))
		for _, k := range sortedKeys(v) {
			words = append(words, key(k)+" = "+format(v[k]))
		}
		if len(words) == 0 {
			return "{}"
		}
		return "{ " + strings.Join(words, ", ") + " }"
	}
	return fmt.Sprint(v)
}

// quote writes a basic string: what JSON escapes, TOML does too.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string and a buffer: cannot fail
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007f`)
}

// key writes a key bare where it may be.
func key(s string) string {
	bare := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}
	if s != "" && strings.TrimFunc(s, bare) == "" {
		return s
	}
	return quote(s)
}

// show writes a value for an error: short, and of a secret nothing.
func show(v any) string {
	const most = 60
	s := format(v)
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
