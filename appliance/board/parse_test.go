package board

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// whole uses every table; a line can be replaced or added to break one thing at a time.
const whole = `title = "Everything"
hats = []
[match]
compatible = ["acme,box", "acme,box-*"]
wlanpi_model = ["WLAN Pi X"]
[gpio]
chips = ["gpio4", "pinctrl"]
active = "high"
pull = "down"
debounce = "20ms"
[input]
devices = ["acme keys"]
[panel]
controller = "st7735"
width = 128
height = 128
bus = "spidev0.0"
speed_hz = 40_000_000
dc = 25
reset = 27
backlight = 24
column_offset = 2
row_offset = 1
rotate = 180
order = "bgr"
scan = 0x60
contrast = 7
[[port]]
role = "lan1"
match = ["fe2a0000.ethernet", "pci0001:10/0001:10:00.0"]
speed_mbps = 2500
test = true
[[port]]
role = "wan"
match = ["pci0000:00"]
[[key]]
label = "K1"
short = "up"
long = "k1"
line = 6
[[key]]
short = "down"
line = 7
active = "low"
pull = "none"
debounce = "0s"
[[key]]
short = "select"
codes = ["BTN_1", "0x1ff"]
[[led]]
role = "power"
names = ["red:power", "sys_led"]
`

func TestParseWhole(t *testing.T) {
	d, err := parse("x.toml", "x", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	p := d.panel
	if p.Controller != ST7735 || !p.Colour || *p.DC != 25 || *p.Reset != 27 || *p.Backlight != 24 || p.Rotate != 180 ||
		p.Order != "bgr" || p.Scan != 0x60 || *p.Contrast != 7 || p.Chips[1] != "pinctrl" || len(p.Addresses) != 0 {
		t.Errorf("panel %+v", p)
	}
	up, down, sel := d.keys[0], d.keys[1], d.keys[2]
	if up.Long != "k1" || up.Active != High || up.Pull != PullDown || up.Debounce != 20*time.Millisecond ||
		up.Line.Offset != 6 || up.Line.Chips[0] != "gpio4" || up.Codes != nil {
		t.Errorf("up %+v", up)
	}
	if down.Active != Low || down.Pull != PullNone || down.Debounce != 0 {
		t.Errorf("down %+v", down)
	}
	if sel.Codes[0] != 0x101 || sel.Codes[1] != 0x1ff || sel.Devices[0] != "acme keys" || sel.Line != nil {
		t.Errorf("select %+v", sel)
	}
}

// TestParseErrors breaks one thing at a time; every error is one line with file, line (@: that of what was
// replaced) and what to write.
func TestParseErrors(t *testing.T) {
	for _, test := range []struct{ old, new, want string }{
		{`title = "Everything"`, ``, `x.toml:@: title is missing`},
		{`title = "Everything"`, `titel = "Everything"`, `x.toml:@: unknown key "titel": did you mean "title"? remove`},
		{`rotate = 180`, `rotat = 180`, `x.toml:@: unknown key "panel.rotat": did you mean "rotate"?`},
		{`line = 7`, `lien = 7`, `x.toml:@: unknown key "key.lien": did you mean "line"?`},
		{`[input]`, `[inptu]`, `x.toml:@: unknown key "inptu": did you mean "input"?`},
		{`rotate = 180`, `rotate = "180"`, `x.toml:@: `},
		{`rotate = 180`, `rotate = 90`, `x.toml:@: rotate = 90: use 0 or 180`},
		{`rotate = 180`, `rotate =`, `x.toml:@: `},
		{`line = 7`, `line = 6`, `x.toml:@: line 6 of gpio4 is used twice, by key K1 and by key down`},
		{`line = 7`, `line = 24`, `x.toml:@: line 24 of gpio4 is used twice, by panel backlight and by key down`},
		{`reset = 27`, `reset = 25`, `x.toml:@: line 25 of gpio4 is used twice, by panel dc and by panel reset`},
		{`line = 7`, `line = -1`, `x.toml:@: key[1].line = -1 is out of range: use 0 to 1023`},
		{`line = 7`, ``, `x.toml:41: key "down" needs either codes (evdev) or line (GPIO)`},
		{`line = 7`, `line = 7` + "\n" + `codes = ["BTN_2"]`, `x.toml:41: key "down" needs either`},
		{`active = "low"`, `active = "lo"`, `x.toml:@: key[1].active = "lo" is unknown: did you mean "low"? use low, high`},
		{`active = "high"`, `active = "1"`, `x.toml:@: gpio.active = "1" is unknown: use low, high`},
		{`pull = "none"`, `pull = "upp"`, `x.toml:@: key[1].pull = "upp" is unknown: did you mean "up"? use none, up, down`},
		{`debounce = "0s"`, `debounce = "10us0"`, `x.toml:@: key[1].debounce = "10us0": use "0s" to "500ms"`},
		{`debounce = "20ms"`, `debounce = "2s"`, `x.toml:@: gpio.debounce = "2s": use`},
		{`chips = ["gpio4", "pinctrl"]`, ``, `is a GPIO line, but [gpio] chips is missing`},
		{`chips = ["gpio4", "pinctrl"]`, `chips = ["gpio4", "gpio4"]`, `x.toml:@: gpio.chips = "gpio4" stands there twice`},
		{`short = "down"`, `short = "dwn"`, `x.toml:@: key[1].short = "dwn" is unknown: did you mean "down"? use up,`},
		{`short = "down"`, ``, `x.toml:41: key 2 has no short`},
		{`long = "k1"`, `long = "up"`, `x.toml:@: short and long both mean "up": leave long out`},
		{`"BTN_1", "0x1ff"`, `"BTN1"`, `x.toml:@: key code "BTN1" is unknown: did you mean "BTN_1"? use a name`},
		{`"BTN_1", "0x1ff"`, `"0x300"`, `x.toml:@: key code "0x300" is unknown`},
		{`"BTN_1", "0x1ff"`, `"any", "BTN_1"`, `x.toml:@: codes: "any" stands alone`},
		{`"BTN_1", "0x1ff"`, `"BTN_1", "0x101"`, `x.toml:@: keys "select" and "select" both have the code BTN_1`},
		{`codes = ["BTN_1", "0x1ff"]`, "codes = [\"BTN_1\"]\nactive = \"low\"", `x.toml:47: key "select" is read by evdev`},
		{`controller = "st7735"`, `controller = "st7734"`, `x.toml:@: panel.controller = "st7734" is unknown: did you mean`},
		{`controller = "st7735"`, ``, `x.toml:13: panel has no controller`},
		{`controller = "st7735"`, `controller = "ssd1306"`, `x.toml:25: ssd1306 has one colour: remove order`},
		{`width = 128`, `width = 200`, `x.toml:@: 200x128 at 2,1 does not fit into the 162x132 pixels of st7735`},
		{`width = 128`, ``, `x.toml:13: panel.width = 0 is out of range`},
		{`scan = 0x60`, `scan = 0x68`, `x.toml:@: scan = 0x68: use bits 5 to 7`},
		{`order = "bgr"`, `order = "grb"`, `x.toml:@: panel.order = "grb" is unknown`},
		{`contrast = 7`, `contrast = 256`, `x.toml:@: panel.contrast = 256 is out of range: use 0 to 255`},
		{`bus = "spidev0.0"`, `bus = "i2c-1"`, `x.toml:@: bus = "i2c-1": st7735 is on SPI only, use spidevX.Y`},
		{`bus = "spidev0.0"`, ``, `x.toml:13: bus "": use i2c-N, spidevX.Y or an I2C adapter's name`},
		{`dc = 25`, ``, `x.toml:13: a panel on SPI needs dc`},
		{`dc = 25`, "dc = 25\naddresses = [0x3c]", `x.toml:20: addresses are for I2C: remove them`},
		{`speed_hz = 40_000_000`, `speed_hz = 40`, `x.toml:@: speed_hz = 40: use`},
		{`role = "wan"`, `role = "lan1"`, `x.toml:@: two ports are called "lan1": rename one`},
		{`role = "wan"`, `role = "WAN port"`, `x.toml:@: role = "WAN port": use at most 15 small letters`},
		{`match = ["pci0000:00"]`, ``, `x.toml:33: port wan has no match`},
		{`match = ["pci0000:00"]`, `match = ["pci0000:"]`, `x.toml:@: port[1].match = "pci0000:": use whole components`},
		{`match = ["pci0000:00"]`, `match = ["fe2a0000.ethernet"]`, `x.toml:@: ports lan1 and wan have the same match`},
		{`match = ["pci0000:00"]`, `match = ["a.usb/usb5/5-1"]`, `x.toml:@: port[1].match = "a.usb/usb5/5-1": use whole`},
		{`match = ["pci0000:00"]`, "match = [\n\"a\",\n\"/b\"]", `x.toml:37: port[1].match = "/b": use whole`},
		{`speed_mbps = 2500`, `speed_mbps = -1`, `x.toml:@: port[0].speed_mbps = -1 is out of range`},
		{`compatible = ["acme,box", "acme,box-*"]`, `compatible = ["*"]`, `x.toml:@: match.compatible = "*": use a string`},
		{`compatible = ["acme,box", "acme,box-*"]`, `compatible = ["a*b"]`, `x.toml:@: match.compatible = "a*b": use`},
		{`wlanpi_model = ["WLAN Pi X"]`, `wlanpi_model = ["WLAN\tPi"]`, `x.toml:@: match.wlanpi_model = "WLAN\tPi": use`},
		{`hats = []`, `hats = ["Hat!"]`, `x.toml:@: hats = "Hat!": use the name of a HAT profile`},
		{`hats = []`, `hat = true`, `a HAT is not detected: remove [match]`},
		{`names = ["red:power", "sys_led"]`, `names = ["../x"]`, `x.toml:@: led[0].names = "../x": use a name`},
		{`names = ["red:power", "sys_led"]`, ``, `x.toml:50: LED power has no names`},
		{`title = "Everything"`, "title = \"a\"\ntitle = \"b\"", `x.toml:2: `},
		{`[panel]`, "panel = 3", `x.toml:@: `},
		{`title = "Everything"`, "title = \"\xff\"", `x.toml:@: `},
	} {
		text := strings.Replace(whole, test.old, test.new, 1)
		if text == whole {
			t.Fatalf("%q does not occur", test.old)
		}
		line := 1 + strings.Count(whole[:strings.Index(whole, test.old)], "\n")
		want := strings.Replace(test.want, "@", strconv.Itoa(line), 1)
		_, err := parse("x.toml", "x", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s -> %s:\n got %v\nwant %s", test.old, test.new, err, want)
		}
	}
}

// TestParseMono breaks what only panels on I2C have.
func TestParseMono(t *testing.T) {
	panel := "title = \"x\"\n[panel]\ncontroller = \"ssd1306\"\nwidth = 128\nheight = 64\nbus = \"i2c-1\"\n%s\n"
	for add, want := range map[string]string{
		"":                         "",
		"addresses = [0x3d, 0x3c]": "",
		"sequential = true":        "",
		"addresses = [0x40]":       "x.toml:7: address 0x40: ssd1306 answers at [0x3c 0x3d] only",
		"addresses = [0x3c, 0x3c]": "x.toml:7: address 0x3c stands there twice",
		"addresses = [-1]":         "x.toml:7: ",
		"speed_hz = 400000":        "x.toml:7: speed_hz is for SPI",
		"scan = 0x60":              "x.toml:7: ssd1306 has no MADCTL",
		"row_offset = 8":           "does not fit into the 128x64 pixels of ssd1306",
		"reset = 4":                "x.toml:7: panel reset is a GPIO line, but [gpio] chips is missing",
	} {
		d, err := parse("x.toml", "x", fmt.Appendf(nil, panel, add))
		switch {
		case want == "" && (err != nil || len(d.panel.Addresses) != 2 || d.panel.Colour):
			t.Errorf("%s: %v", add, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", add, err, want)
		}
	}
	for _, name := range []string{"", "UP", "a/b", ".x", "auto", "none", strings.Repeat("a", 49)} {
		if _, err := parse("f", name, []byte("title = \"x\"\n")); err == nil {
			t.Errorf("a profile may be called %q", name)
		}
	}
}

// TestInlineTables finds lines in arrays of inline tables, too.
func TestInlineTables(t *testing.T) {
	_, err := parse("x.toml", "x", []byte(`title = "x"
gpio = { chips = ["a"] }
key = [
  { short = "up", line = 1 },
  # a comment
  { short = "down", line = 1 },
]
`))
	want := "x.toml:6: line 1 of a is used twice, by key up and by key down"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestParseBus(t *testing.T) {
	for text, want := range map[string]Bus{
		"i2c-0":       {I2C: 0, SPI: -1},
		"i2c-12":      {I2C: 12, SPI: -1},
		"spidev1.2":   {I2C: -1, SPI: 1, CS: 2},
		"i2c-ch341-u": {I2C: -1, SPI: -1, Adapter: "i2c-ch341-u"},
		"CP2112 SMBus Bridge on hidraw*": {I2C: -1, SPI: -1,
			Adapter: "CP2112 SMBus Bridge on hidraw*"},
	} {
		if got, err := ParseBus(text); got != want || err != nil || got.IsSPI() != (want.SPI >= 0) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "*", "a\nb", strings.Repeat("a", 49)} {
		if _, err := ParseBus(text); err == nil {
			t.Errorf("%q is a bus", text)
		}
	}
}

// TestParseBound: a file of the largest size that holds nothing but list entries is refused at once.
func TestParseBound(t *testing.T) {
	var b strings.Builder
	b.WriteString("title = \"x\"\n[match]\ncompatible = [\n")
	for i := 0; b.Len() < maxProfileBytes-20; i++ {
		fmt.Fprintf(&b, "%q,\n", strconv.Itoa(i))
	}
	b.WriteString("]\n")
	start := time.Now()
	_, err := parse("x.toml", "x", []byte(b.String()))
	if err == nil || !strings.Contains(err.Error(), "x.toml:3: match.compatible holds") {
		t.Error(err)
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("took %v", d)
	}
}
