package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"linerate/appliance/throughput"
)

// field is one key of a table that is kept in a T. Values are those of TOML: string, int64, bool, []any, map[string]any.
type field[T any] struct {
	name     string // below its table: "mtu"; of the top level with its table: "ports.mtu"
	set      func(*T, any) error
	get      func(T) any // what a file would say; nil: nothing
	settable bool
	secret   bool  // never shown, nor quoted in an error
	choices  []any // worth offering in a menu
}

func (f field[T]) menu(choices ...any) field[T] {
	f.settable, f.choices = true, choices
	return f
}

// notText stands for a value that is no text. No check takes it, so each says what it wants.
const notText = "\x00"

func find[T any](fields []field[T], name string) (field[T], bool) {
	i := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == name })
	if i < 0 {
		return field[T]{}, false
	}
	return fields[i], true
}

func secret[T any](f field[T]) field[T] {
	f.secret = true
	return f
}

func itself[S ~string](s S) string { return string(s) }

func text[T any](name string, check func(string) error, at func(*T) *string) field[T] {
	return field[T]{
		name: name,
		set: func(t *T, v any) error {
			s, ok := v.(string)
			if !ok {
				s = notText
			}
			if err := check(s); err != nil {
				return err
			}
			*at(t) = s
			return nil
		},
		get: func(t T) any { return orNil(*at(&t)) },
	}
}

// orNil leaves an absent text out.
func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func enum[T any, S ~string](name string, at func(*T) *S, values ...S) field[T] {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = fmt.Sprintf("%q", string(v))
	}
	want := errors.New("want " + orList(quoted))
	return field[T]{
		name: name,
		set: func(t *T, v any) error {
			s, ok := v.(string)
			if !ok || !slices.Contains(values, S(s)) {
				return want
			}
			*at(t) = S(s)
			return nil
		},
		get: func(t T) any { return string(*at(&t)) },
	}
}

func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func toggle[T any](name string, at func(*T) *bool) field[T] {
	return field[T]{
		name: name,
		set: func(t *T, v any) error {
			b, ok := v.(bool)
			if !ok {
				return errors.New("want true or false")
			}
			*at(t) = b
			return nil
		},
		get: func(t T) any { return *at(&t) },
	}
}

func number[T any](name string, low, high int64, at func(*T) *int) field[T] {
	return field[T]{
		name: name,
		set: func(t *T, v any) error {
			n, ok := v.(int64)
			if !ok || n < low || n > high {
				return fmt.Errorf("want a whole number from %d to %d", low, high)
			}
			*at(t) = int(n)
			return nil
		},
		get: func(t T) any { return int64(*at(&t)) },
	}
}

func choice[T any](name string, at func(*T) *int, values ...int) field[T] {
	f := number(name, 0, 0, at)
	f.set = func(t *T, v any) error {
		n, ok := v.(int64)
		if !ok || !slices.Contains(values, int(n)) {
			words := make([]string, len(values))
			for i, v := range values {
				words[i] = fmt.Sprint(v)
			}
			return errors.New("want " + orList(words))
		}
		*at(t) = int(n)
		return nil
	}
	return f
}

// parsed is a text that stands for something else.
func parsed[T, V any](name, wrongType string, parse func(string) (V, error), format func(V) string,
	at func(*T) *V) field[T] {
	return field[T]{
		name: name,
		set: func(t *T, v any) error {
			s, ok := v.(string)
			if !ok {
				return errors.New(wrongType)
			}
			x, err := parse(s)
			if err == nil {
				*at(t) = x
			}
			return err
		},
		get: func(t T) any { return format(*at(&t)) },
	}
}

func duration[T any](name string, at func(*T) *time.Duration) field[T] {
	return parsed(name, `want a duration in quotes, as "60s", "10m" or "0"`, parseDuration, formatDuration, at)
}

func rate[T any](name string, at func(*T) *float64) field[T] {
	return parsed(name, `want a rate in quotes, as "2.3G", "300M" or "0"`, ParseRate, FormatRate, at)
}

func stall[T any](name string, at func(*T) *time.Duration) field[T] {
	want := `want "auto" or a duration from 1 s on, as "10s"`
	return parsed(name, want, func(s string) (time.Duration, error) {
		d, err := parseDuration(s)
		switch {
		case s == Auto:
			return 0, nil
		case err != nil || d < time.Second:
			return 0, errors.New(want)
		}
		return d, nil
	}, func(d time.Duration) string {
		if d == 0 {
			return Auto
		}
		return formatDuration(d)
	}, at)
}

// numberOrWord is a number within bounds, "leave" (0) or "max" (-1).
func numberOrWord[T any, N ~int](name, what string, low, high int64, at func(*T) *N) field[T] {
	return field[T]{
		name: name,
		set: func(t *T, v any) error {
			n, ok := v.(int64)
			switch {
			case v == any(Leave):
				n = 0
			case v == any("max"):
				n = -1
			case !ok || n < low || n > high:
				return fmt.Errorf(`want %s from %d to %d, "max" or "leave"`, what, low, high)
			}
			*at(t) = N(n)
			return nil
		},
		get: func(t T) any {
			switch n := *at(&t); n {
			case 0:
				return Leave
			case -1:
				return "max"
			default:
				return int64(n)
			}
		},
	}
}

func mtu[T any](name string, at func(*T) *MTU) field[T] {
	return numberOrWord(name, "a number of bytes", minMTU, maxMTU, at)
}

// frequency bounds are those of a typing error: 1 MHz to 100 GHz. What a processor can do is known only on the box.
func frequency[T any](name string, at func(*T) *Frequency) field[T] {
	return numberOrWord(name, "a number of kHz", 1_000, 100_000_000, at)
}

// maxEntries of any list in a config.
const maxEntries = 256

// list is an array of texts, each parsed on its own; none may stand twice.
func list[T any, V comparable](name string, least int, parse func(string) (V, error), format func(V) string,
	at func(*T) *[]V) field[T] {
	return field[T]{
		name: name,
		set: func(t *T, v any) error {
			items, ok := v.([]any)
			if !ok {
				_, err := parse(notText)
				return fmt.Errorf("want a list in brackets; of each entry: %w", err)
			}
			if len(items) < least || len(items) > maxEntries {
				return fmt.Errorf("want a list of %d to %d entries", least, maxEntries)
			}
			var out []V
			for _, item := range items {
				s, ok := item.(string)
				if !ok {
					s = notText
				}
				x, err := parse(s)
				if err != nil {
					return fmt.Errorf("entry %s: %w", show(item), err)
				}
				if slices.Contains(out, x) {
					return fmt.Errorf("entry %s stands twice", show(item))
				}
				out = append(out, x)
			}
			*at(t) = out
			return nil
		},
		get: func(t T) any {
			out := []any{}
			for _, x := range *at(&t) {
				out = append(out, format(x))
			}
			return out
		},
	}
}

func addresses[T any](name string, at func(*T) *[]Address) field[T] {
	f := list(name, 1, parseAddress, Address.String, at)
	set := f.set
	f.set = func(t *T, v any) error {
		if err := set(t, v); err != nil {
			return err
		}
		for _, a := range *at(t) {
			if len(*at(t)) > 1 && (a.Method == AddressAuto || a.Method == AddressManager) {
				return fmt.Errorf("%q stands alone or not at all", a)
			}
		}
		return nil
	}
	return f
}

func setVLANs(p *Port, v any) error {
	items, ok := v.([]any)
	if !ok || len(items) > maxEntries {
		return errors.New(`want a list, as [{ id = 130, address = ["dhcp"] }]`)
	}
	var out []VLAN
	for i, item := range items {
		table, ok := item.(map[string]any)
		if !ok {
			return errors.New(`want a list of tables, as [{ id = 130, address = ["dhcp"] }]`)
		}
		vlan := VLAN{Address: []Address{{Method: AddressAuto}}}
		for _, key := range sortedKeys(table) {
			f, ok := find(vlanSchema, key)
			if !ok {
				return unknownIn("vlan", key, names(vlanSchema))
			}
			if err := f.set(&vlan, table[key]); err != nil {
				return fmt.Errorf("entry %d, %s = %s: %w", i+1, key, show(table[key]), err)
			}
		}
		if vlan.ID == 0 {
			return fmt.Errorf("entry %d has no id", i+1)
		}
		if slices.ContainsFunc(out, func(o VLAN) bool { return o.ID == vlan.ID }) {
			return fmt.Errorf("id %d stands twice", vlan.ID)
		}
		out = append(out, vlan)
	}
	p.VLAN = out
	return nil
}

func getVLANs(p Port) any {
	out := []any{}
	for _, v := range p.VLAN {
		entry := map[string]any{}
		for _, f := range vlanSchema {
			entry[f.name] = f.get(v)
		}
		out = append(out, entry)
	}
	return out
}

var (
	namePattern     = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)
	governorPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,14}$`) // CPUFREQ_NAME_LEN 16, include/linux/cpufreq.h
	pinPattern      = regexp.MustCompile(`^(auto|off|[0-9]{4,8})$`)
)

func matches(p *regexp.Regexp, s, want string) error {
	if !p.MatchString(s) {
		return errors.New("want " + want)
	}
	return nil
}

func checkName(s string) error { return matches(namePattern, s, `a name, as "auto" or "nanopi-r5s"`) }
func checkGovernor(s string) error {
	return matches(governorPattern, s, `a governor, as "performance", or "leave"`)
}
func checkPIN(s string) error {
	return matches(pinPattern, s, `"auto", "off" or 4 to 8 digits in quotes`)
}

// checkText takes what can stand in one line of a display and of a log.
func checkText(s string) error {
	bad := func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' }
	if s == "" || len(s) > 256 || strings.TrimSpace(s) != s || strings.ContainsFunc(s, bad) {
		return errors.New("want a text in quotes, 1 to 256 bytes, in one line")
	}
	return nil
}

func checkTargetName(s string) error {
	if s == Auto {
		return errors.New(`want another name: "auto" means any target`)
	}
	return checkText(s)
}

func checkHost(s string) error {
	if checkText(s) != nil || strings.ContainsAny(s, " /@") {
		return errors.New(`want a host's name or address, as "192.0.2.10"`)
	}
	return nil
}

func selector(s string) (string, error) { return s, checkText(s) }

func parseDirection(s string) (throughput.Direction, error) {
	switch d := throughput.Direction(s); d {
	case throughput.RX, throughput.TX, throughput.Both:
		return d, nil
	}
	return "", errors.New(`want "rx", "tx" or "both"`)
}
