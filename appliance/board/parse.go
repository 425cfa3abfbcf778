package board

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// definition is one profile file, checked but not yet composed with its HATs.
type definition struct {
	name   string
	source string // file it came from, for messages
	user   bool   // from /etc/linerate/boards
	title  string
	hat    bool

	compatible []string // patterns
	wlanpi     []string // patterns

	hats     []string
	hatsLine int

	panel *Panel
	keys  []Key
	leds  []LED
	ports []Port
}

// document is the TOML of a profile file. Pointers tell what was left out from what was set to nothing.
type document struct {
	Title string   `toml:"title"`
	HAT   bool     `toml:"hat"`
	HATs  []string `toml:"hats"`
	Match struct {
		Compatible  []string `toml:"compatible"`
		WLANPiModel []string `toml:"wlanpi_model"`
	} `toml:"match"`
	GPIO struct {
		Chips    []string `toml:"chips"`
		Active   string   `toml:"active"`
		Pull     string   `toml:"pull"`
		Debounce string   `toml:"debounce"`
	} `toml:"gpio"`
	Input struct {
		Devices []string `toml:"devices"`
	} `toml:"input"`
	Panel *panelTable `toml:"panel"`
	Port  []struct {
		Role      string   `toml:"role"`
		Match     []string `toml:"match"`
		SpeedMbps int      `toml:"speed_mbps"`
		Test      bool     `toml:"test"`
	} `toml:"port"`
	Key []keyTable `toml:"key"`
	LED []struct {
		Role  string   `toml:"role"`
		Names []string `toml:"names"`
	} `toml:"led"`
}

type panelTable struct {
	Controller   string   `toml:"controller"`
	Width        int      `toml:"width"`
	Height       int      `toml:"height"`
	Bus          string   `toml:"bus"`
	Addresses    []uint16 `toml:"addresses"`
	Optional     bool     `toml:"optional"`
	SpeedHz      int      `toml:"speed_hz"`
	DC           *int     `toml:"dc"`
	Reset        *int     `toml:"reset"`
	Backlight    *int     `toml:"backlight"`
	ColumnOffset int      `toml:"column_offset"`
	RowOffset    int      `toml:"row_offset"`
	Rotate       int      `toml:"rotate"`
	Order        string   `toml:"order"`
	Scan         int      `toml:"scan"`
	Sequential   bool     `toml:"sequential"`
	Contrast     *int     `toml:"contrast"`
}

type keyTable struct {
	Label    string  `toml:"label"`
	Short    string  `toml:"short"`
	Long     string  `toml:"long"`
	Codes    []Code  `toml:"codes"`
	Line     *int    `toml:"line"`
	Active   *string `toml:"active"`
	Pull     *string `toml:"pull"`
	Debounce *string `toml:"debounce"`
}

// Limits of a profile.
const (
	maxLine    = 1023    // offset of a GPIO line; the largest chips in use have some hundred
	maxEntries = 64      // of any list
	maxSpeed   = 400_000 // Mbit/s
)

var (
	profileName = regexp.MustCompile(`^[a-z0-9][a-z0-9+._-]{0,47}$`)
	reserved    = []string{Auto, "none", "terminal"}           // what [board] profile and [display] panel say besides
	roleName    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,14}$`) // shorter than IFNAMSIZ, so it fits wherever a name does
	// usbDevice is a component that depends on the order of plugging: usb2, 2-1.4, 2-1:1.0.
	usbDevice = regexp.MustCompile(`^(usb[0-9]+|[0-9]+-[0-9]+(\.[0-9]+)*(:[0-9]+\.[0-9]+)?)$`)
)

// parse reads one profile file strictly. file is its name for messages, name that of the profile. The error is one
// line: file, line, what is wrong and what to write in its place.
func parse(file, name string, data []byte) (*definition, error) {
	if !profileName.MatchString(name) {
		return nil, fmt.Errorf("%s: %q cannot be a profile's name: use small letters, digits and + . _ -", file,
			clip(name))
	}
	if slices.Contains(reserved, name) {
		return nil, fmt.Errorf("%s: %q means something else in the config: rename the file", file, name)
	}
	if len(data) > maxProfileBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes", file, maxProfileBytes)
	}
	var doc document
	if err := decode(file, data, &doc); err != nil {
		return nil, err
	}
	d := &definition{name: name, source: file, title: doc.Title, hat: doc.HAT, hats: doc.HATs,
		compatible: doc.Match.Compatible, wlanpi: doc.Match.WLANPiModel}
	c := checker{file: file, at: locate(data)}
	d.hatsLine = c.at.line("hats")
	c.head(&doc)
	d.ports = c.ports(&doc)
	d.panel = c.panel(&doc)
	d.keys = c.keys(&doc)
	d.leds = c.leds(&doc)
	c.pins(d.panel, d.keys)
	if c.err != nil {
		return nil, c.err
	}
	return d, nil
}

// checker turns the tables into the vocabulary and keeps the first thing that is wrong with them.
type checker struct {
	file string
	at   positions
	err  error
}

// must notes what is wrong at a path unless ok.
func (c *checker) must(ok bool, path, format string, args ...any) bool {
	if !ok && c.err == nil {
		c.err = fmt.Errorf("%s:%d: %s", c.file, c.at.line(path), fmt.Sprintf(format, args...))
	}
	return ok
}

// list checks the length and the members of a list of texts; none may stand there twice.
func (c *checker) list(path string, list []string, valid func(string) bool, want string) {
	if !c.must(len(list) <= maxEntries, path, "%s holds %d entries: use at most %d", path, len(list), maxEntries) {
		return
	}
	for i, s := range list {
		here := fmt.Sprintf("%s[%d]", path, i)
		c.must(valid(s), here, "%s = %q: use %s", path, clip(s), want)
		c.must(!slices.Contains(list[:i], s), here, "%s = %q stands there twice: remove one", path, clip(s))
	}
}

// oneOf checks a word against those known; "" stands for the first of them.
func (c *checker) oneOf(path, word string, known ...string) string {
	if word == "" {
		return known[0]
	}
	c.must(slices.Contains(known, word), path, "%s = %q is unknown: %suse %s", path, clip(word),
		didYouMean(word, known), strings.Join(known, ", "))
	return word
}

// between checks a number.
func (c *checker) between(path string, n, lo, hi int) {
	c.must(n >= lo && n <= hi, path, "%s = %d is out of range: use %d to %d", path, n, lo, hi)
}

func (c *checker) head(doc *document) {
	c.must(doc.Title != "", "title", `title is missing: write title = "what the box is called"`)
	c.must(printable(doc.Title) && clip(doc.Title) == doc.Title, "title", "title: use at most %d printable characters",
		maxText)
	pattern := func(s string) bool {
		body := strings.TrimSuffix(s, "*")
		return body != "" && clip(s) == s && printable(s) && !strings.Contains(body, "*")
	}
	word := func(s string) bool { return pattern(s) && !strings.Contains(s, " ") }
	c.list("match.compatible", doc.Match.Compatible, word,
		`a string of the device tree ("vendor,board"), or its beginning and *`)
	c.list("match.wlanpi_model", doc.Match.WLANPiModel, pattern,
		"a first line of /etc/wlanpi-model, or its beginning and *")
	c.list("hats", doc.HATs, profileName.MatchString, "the name of a HAT profile")
	c.list("gpio.chips", doc.GPIO.Chips, label, "the label of a GPIO chip, as gpiodetect shows it")
	c.list("input.devices", doc.Input.Devices, label, "the name of an input device, as in /proc/bus/input/devices")
	if doc.HAT {
		c.must(len(doc.Match.Compatible)+len(doc.Match.WLANPiModel) == 0, "match",
			"a HAT is not detected: remove [match]")
		c.must(len(doc.HATs) == 0, "hats", "a HAT carries no HATs: name them in the board's profile")
		c.must(len(doc.Port) == 0, "port", "a HAT has no ports: name them in the board's profile")
	}
}

// label accepts the names that the kernel gives to chips, devices and LEDs.
func label(s string) bool { return s != "" && clip(s) == s && printable(s) }

func (c *checker) ports(doc *document) []Port {
	var out []Port
	roles, matchers := map[string]bool{}, map[string]string{}
	if !c.must(len(doc.Port) <= maxEntries, "port", "%d ports: use at most %d", len(doc.Port), maxEntries) {
		return nil
	}
	for i, p := range doc.Port {
		path := fmt.Sprintf("port[%d]", i)
		c.must(roleName.MatchString(p.Role), path+".role", "role = %q: use at most 15 small letters, digits and -",
			clip(p.Role))
		c.must(!roles[p.Role], path+".role", "two ports are called %q: rename one", p.Role)
		roles[p.Role] = true
		c.must(len(p.Match) > 0, path, "port %s has no match: name components of its device path", p.Role)
		c.list(path+".match", p.Match, matcher, "whole components of a device path that end before usbN "+
			`("fe2a0000.ethernet", "pci0001:10/0001:10:00.0")`)
		for j, m := range p.Match {
			c.must(matchers[m] == "", fmt.Sprintf("%s.match[%d]", path, j), "ports %s and %s have the same match %q",
				matchers[m], p.Role, m)
			matchers[m] = p.Role
		}
		c.between(path+".speed_mbps", p.SpeedMbps, 0, maxSpeed)
		out = append(out, Port{Role: p.Role, Match: p.Match, SpeedMbps: p.SpeedMbps, Test: p.Test})
	}
	return out
}

// matcher says whether a text is made of whole path components that do not depend on the order of plugging.
func matcher(s string) bool {
	if clip(s) != s || !printable(s) {
		return false
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part == "." || part == ".." || part == "net" || usbDevice.MatchString(part) ||
			strings.HasSuffix(part, ":") || strings.ContainsAny(part, "*? ") {
			return false
		}
	}
	return true
}

// ledName accepts what can be a folder of /sys/class/leds.
func ledName(s string) bool { return label(s) && !strings.Contains(s, "/") && s[0] != '.' }

func (c *checker) leds(doc *document) []LED {
	var out []LED
	roles := map[string]bool{}
	if !c.must(len(doc.LED) <= maxEntries, "led", "%d LEDs: use at most %d", len(doc.LED), maxEntries) {
		return nil
	}
	for i, l := range doc.LED {
		path := fmt.Sprintf("led[%d]", i)
		c.must(roleName.MatchString(l.Role), path+".role", `role = %q: use "power" or the role of a port`, clip(l.Role))
		c.must(!roles[l.Role], path+".role", "two LEDs are called %q: put their names into one list", l.Role)
		roles[l.Role] = true
		c.must(len(l.Names) > 0, path, "LED %s has no names: list those of /sys/class/leds", l.Role)
		c.list(path+".names", l.Names, ledName, "a name as in /sys/class/leds")
		out = append(out, LED{Role: l.Role, Names: l.Names})
	}
	return out
}
