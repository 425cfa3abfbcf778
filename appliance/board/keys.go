package board

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxDebounce is longer than any switch bounces.
const maxDebounce = 500 * time.Millisecond

func (c *checker) keys(doc *document) []Key {
	var out []Key
	if !c.must(len(doc.Key) <= maxEntries, "key", "%d keys: use at most %d", len(doc.Key), maxEntries) {
		return nil
	}
	active := c.level("gpio.active", doc.GPIO.Active)
	pull := c.pull("gpio.pull", doc.GPIO.Pull)
	debounce := c.debounce("gpio.debounce", doc.GPIO.Debounce)
	devices := doc.Input.Devices
	if len(devices) == 0 {
		devices = []string{"gpio-keys", "adc-keys"}
	}
	taken := map[Code]string{}
	for i, k := range doc.Key {
		path := fmt.Sprintf("key[%d]", i)
		key := Key{Label: k.Label, Short: k.Short, Long: k.Long}
		c.must(k.Label == "" || label(k.Label), path+".label", "label: use at most %d printable characters", maxText)
		c.must(k.Short != "", path, "key %d has no short: say what a short press means (%s)", i+1,
			strings.Join(KeyNames, ", "))
		c.oneOf(path+".short", k.Short, KeyNames...)
		if k.Long != "" {
			c.oneOf(path+".long", k.Long, KeyNames...)
			c.must(k.Long != k.Short, path+".long", "short and long both mean %q: leave long out", k.Long)
		}
		c.must((len(k.Codes) > 0) != (k.Line != nil), path, "key %q needs either codes (evdev) or line (GPIO)",
			key.name())
		c.must(k.Line != nil || k.Active == nil && k.Pull == nil && k.Debounce == nil, path,
			"key %q is read by evdev: active, pull and debounce are the kernel's", key.name())
		if k.Line != nil {
			c.between(path+".line", *k.Line, 0, maxLine)
			c.must(len(doc.GPIO.Chips) > 0, path+".line", "key %q is a GPIO line, but [gpio] chips is missing",
				key.name())
			key.Line = &Line{Chips: slices.Clone(doc.GPIO.Chips), Offset: *k.Line}
			key.Active, key.Pull, key.Debounce = active, pull, debounce
			if k.Active != nil {
				key.Active = c.level(path+".active", *k.Active)
			}
			if k.Pull != nil {
				key.Pull = c.pull(path+".pull", *k.Pull)
			}
			if k.Debounce != nil {
				key.Debounce = c.debounce(path+".debounce", *k.Debounce)
			}
		} else {
			key.Codes, key.Devices = k.Codes, slices.Clone(devices)
		}
		c.must(!slices.Contains(k.Codes, AnyCode) || len(k.Codes) == 1, path+".codes", `codes: "any" stands alone`)
		for _, code := range k.Codes {
			c.must(taken[code] == "", path+".codes", "keys %q and %q both have the code %s", taken[code],
				key.name(), code)
			taken[code] = key.name()
		}
		out = append(out, key)
	}
	return out
}

// name is what a message calls a key.
func (k Key) name() string {
	if k.Label != "" {
		return k.Label
	}
	return k.Short
}

// defaultDebounce is long enough for the switches of these boards and too short for a finger.
const defaultDebounce = 10 * time.Millisecond

func (c *checker) level(path, text string) Level {
	return Level(c.oneOf(path, text, string(Low), string(High)))
}

func (c *checker) pull(path, text string) Pull {
	return Pull(c.oneOf(path, text, string(PullNone), string(PullUp), string(PullDown)))
}

func (c *checker) debounce(path, text string) time.Duration {
	if text == "" {
		return defaultDebounce
	}
	d, err := time.ParseDuration(text)
	c.must(err == nil && d >= 0 && d <= maxDebounce, path, `%s = %q: use "0s" to %q`, path, clip(text), maxDebounce)
	return d
}

// pins sees that no GPIO line has two uses.
func (c *checker) pins(panel *Panel, keys []Key) {
	clash, path := sharedPin(panel, keys)
	c.must(clash == "", path, "%s", clash)
}

// sharedPin finds a GPIO line that a panel or the keys use twice: what to say about it, and the path of the second
// use.
func sharedPin(panel *Panel, keys []Key) (clash, path string) {
	type use struct {
		what, path string
		line       Line
	}
	var uses []use
	if panel != nil {
		pins := map[string]*int{"backlight": panel.Backlight, "dc": panel.DC, "reset": panel.Reset}
		for _, name := range slices.Sorted(maps.Keys(pins)) {
			if pins[name] != nil {
				uses = append(uses, use{"panel " + name, "panel." + name, Line{panel.Chips, *pins[name]}})
			}
		}
	}
	for i, k := range keys {
		if k.Line != nil {
			uses = append(uses, use{"key " + k.name(), fmt.Sprintf("key[%d].line", i), *k.Line})
		}
	}
	for i, b := range uses {
		for _, a := range uses[:i] {
			if a.line.Offset == b.line.Offset && overlap(a.line.Chips, b.line.Chips) {
				return fmt.Sprintf("line %d of %s is used twice, by %s and by %s", b.line.Offset, b.line.Chips[0],
					a.what, b.what), b.path
			}
		}
	}
	return "", ""
}

// overlap says whether two lists have a member in common.
func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}
