package board

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDetectTrees reads one tree a board, vendor's and mainline kernels apart, and looks at every answer that a
// user sees.
func TestDetectTrees(t *testing.T) {
	const lcdKeys = "up down left right select k1 k2 k3"
	for _, test := range []struct {
		tree, profile, model string
		panel                string // controller WxH bus
		keys                 string // short presses
		roles                map[string]string
	}{
		{"nanopi-r5s-mainline", "nanopi-r5s", "FriendlyElec NanoPi R5S", "", "down back",
			map[string]string{"eth0": "lan1", "eth1": "lan2", "eth2": "wan"}},
		{"nanopi-r5s-swapped", "nanopi-r5s", "FriendlyElec NanoPi R5S", "", "down back",
			map[string]string{"eth2": "lan1", "eth1": "lan2", "eth0": "wan"}},
		{"nanopi-r5s-vendor", "nanopi-r5s", "FriendlyElec NanoPi R5S", "", "down back",
			map[string]string{"eth1": "lan1", "eth2": "lan2", "eth0": "wan"}},
		{"nanopi-r5c-mainline", "nanopi-r5c", "FriendlyElec NanoPi R5C", "", "down",
			map[string]string{"eth0": "lan", "eth1": "wan"}},
		{"nanopi-r5c-vendor", "nanopi-r5c", "FriendlyElec NanoPi R5C", "", "down",
			map[string]string{"eth1": "lan", "eth0": "wan"}},
		{"nanopi-r6s-mainline", "nanopi-r6s", "FriendlyElec NanoPi R6S", "", "down back",
			map[string]string{"eth2": "lan1", "eth0": "lan2", "eth1": "wan"}},
		{"nanopi-r6s-vendor", "nanopi-r6s", "FriendlyElec NanoPi R6S", "", "down back",
			map[string]string{"eth1": "lan1", "eth0": "lan2", "eth2": "wan"}},
		{"nanopi-r4s-mainline", "nanopi-r4s", "FriendlyElec NanoPi R4S", "", "down",
			map[string]string{"eth1": "lan", "eth0": "wan"}},
		{"nanopi-r4s-vendor", "nanopi-r4s", "FriendlyElec NanoPi R4S", "", "down",
			map[string]string{"eth1": "lan", "eth0": "wan"}},
		{"nanopi-r3s-mainline", "nanopi-r3s", "FriendlyElec NanoPi R3S", "", "down",
			map[string]string{"eth1": "lan", "eth0": "wan"}},
		{"nanopi-r3s-vendor", "nanopi-r3s", "FriendlyElec NanoPi R3S", "", "down",
			map[string]string{"eth1": "lan", "eth0": "wan"}},
		{"nanopi-r2s-mainline", "nanopi-r2s", "FriendlyElec NanoPi R2S", "", "down",
			map[string]string{"eth1": "lan", "eth0": "wan"}},
		{"nanopi-r2s-vendor", "nanopi-r2s", "FriendlyElec NanoPi R2S", "", "down",
			map[string]string{"eth1": "lan", "eth0": "wan"}},
		{"wlanpi-neo2", "wlanpi-neo2", "FriendlyARM NanoPi NEO 2", "ssd1306 128x64 i2c-0", "back down select",
			map[string]string{"eth0": "lan"}},
		{"wlanpi-pro", "wlanpi-pro", "WLAN Pi Pro", "ssd1351 128x128 spidev0.0", "up down left right select",
			map[string]string{"eth0": "lan"}},
		{"wlanpi-r4", "wlanpi-r4", "WLAN Pi R4", "st7735 128x128 spidev0.0", lcdKeys, map[string]string{"eth0": "lan"}},
		{"wlanpi-m4", "wlanpi-m4", "WLAN Pi M4", "st7735 128x128 spidev0.0", lcdKeys, map[string]string{"eth0": "lan"}},
		{"wlanpi-m4+", "wlanpi-m4+", "WLAN Pi M4+", "st7735 128x128 spidev0.0", lcdKeys, map[string]string{"eth0": "lan"}},
		{"wlanpi-go", "wlanpi-go", "WLAN Pi Go", "st7735 128x128 spidev0.0", lcdKeys, map[string]string{"eth0": "lan"}},
		{"raspberrypi-3", "raspberrypi", "Raspberry Pi 3 Model B Plus Rev 1.3", "ssd1306 128x64 i2c-1", "",
			map[string]string{}},
		{"raspberrypi-4", "raspberrypi", "Raspberry Pi 4 Model B Rev 1.4", "ssd1306 128x64 i2c-1", "",
			map[string]string{"eth0": "lan"}},
		{"raspberrypi-cm4", "raspberrypi", "Raspberry Pi Compute Module 4 Rev 1.0", "ssd1306 128x64 i2c-1", "",
			map[string]string{"eth1": "lan"}},
		{"raspberrypi-5", "raspberrypi", "Raspberry Pi 5 Model B Rev 1.0", "ssd1306 128x64 i2c-1", "",
			map[string]string{"eth0": "lan"}},
		{"pc", "generic", "Intel Corporation NUC11TNKi5", "", "down", map[string]string{}},
	} {
		t.Run(test.tree, func(t *testing.T) {
			root := filepath.Join("testdata/trees", test.tree)
			p, errs := Detect(root, Auto)
			noErrors(t, errs)
			panel := ""
			if p.Panel != nil {
				panel = describe(p.Panel)
			}
			var keys []string
			for _, k := range p.Keys {
				keys = append(keys, k.Short)
			}
			paths, err := DevicePaths(root)
			if err != nil {
				t.Fatal(err)
			}
			roles, errs := p.AssignRoles(paths)
			noErrors(t, errs)
			got := []any{p.Name, p.Model, panel, strings.Join(keys, " "), roles}
			want := []any{test.profile, test.model, test.panel, test.keys, test.roles}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			if p.Known() != (test.profile != Generic) || len(p.Why) < 2 {
				t.Errorf("known %v, why %q", p.Known(), p.Why)
			}
		})
	}
}

// TestSwappedNames shows the same box under two kernels: the roles follow the jacks, whatever the interfaces are
// called.
func TestSwappedNames(t *testing.T) {
	byJack := func(tree string) (map[string]string, map[string]string) {
		root := filepath.Join("testdata/trees", tree)
		p, errs := Detect(root, "")
		noErrors(t, errs)
		paths, err := DevicePaths(root)
		if err != nil {
			t.Fatal(err)
		}
		roles, errs := p.AssignRoles(paths)
		noErrors(t, errs)
		jacks, names := map[string]string{}, map[string]string{}
		for name, role := range roles {
			jacks[paths[name]], names[name] = role, role
		}
		return jacks, names
	}
	jacks, names := byJack("nanopi-r5s-mainline")
	swappedJacks, swappedNames := byJack("nanopi-r5s-swapped")
	if !maps.Equal(jacks, swappedJacks) || len(jacks) != 3 {
		t.Errorf("the same jacks have other roles: %v and %v", jacks, swappedJacks)
	}
	if maps.Equal(names, swappedNames) {
		t.Error("the two trees do not differ in their names, so they prove nothing")
	}
}

func TestChoose(t *testing.T) {
	lib, errs := load(tree(t.TempDir()))
	noErrors(t, errs)
	user, err := parse("/etc/linerate/boards/mine.toml", "mine",
		[]byte("title = \"mine\"\n[match]\ncompatible = [\"friendlyarm,*\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	user.user = true
	withUser := maps.Clone(lib)
	withUser["mine"] = user
	withModel := maps.Clone(lib)
	withModel["aaa"] = &definition{name: "aaa", wlanpi: []string{"WLAN Pi X"},
		compatible: []string{"friendlyarm,nanopi-r5s"}}
	cm4 := []string{"raspberrypi,4-compute-module", "brcm,bcm2711"}
	for _, test := range []struct {
		what   string
		lib    library
		name   string
		wlanpi string
		dt     []string
		want   string
	}{
		{"nothing known", lib, Auto, "", nil, "generic"},
		{"first string wins", lib, Auto, "", []string{"friendlyarm,nanopi-r5c", "friendlyarm,nanopi-r5s"}, "nanopi-r5c"},
		{"later string", lib, Auto, "", []string{"acme,box", "friendlyarm,nanopi-r6s"}, "nanopi-r6s"},
		{"vendor's C1", lib, Auto, "", []string{"friendlyelec,nanopi-r5s-c1", "rockchip,rk3568"}, "nanopi-r5s"},
		{"LTS", lib, Auto, "", []string{"friendlyarm,nanopi-r5s-lts", "rockchip,rk3568"}, "nanopi-r5s"},
		{"no board but its chip", lib, Auto, "", []string{"rockchip,rk3568"}, "generic"},
		{"a name in the config wins", lib, "nanopi-r4s", "WLAN Pi Pro", cm4, "nanopi-r4s"},
		{"the model before the device tree", lib, Auto, "WLAN Pi Pro", cm4, "wlanpi-pro"},
		{"the model alone", lib, Auto, "WLAN Pi M4+", nil, "wlanpi-m4+"},
		{"a model to come", lib, Auto, "WLAN Pi M5", cm4, "wlanpi-m4"},
		{"fpms2's wrong string", lib, Auto, "WLANPi Pro", cm4, "raspberrypi"},
		{"the script's last word", lib, Auto, "Unknown", cm4, "raspberrypi"},
		{"a card moved to another board", lib, Auto, "WLAN Pi Pro", []string{"friendlyarm,nanopi-neo2"}, "wlanpi-neo2"},
		{"both asked for, one there", withModel, Auto, "", []string{"friendlyarm,nanopi-r5s"}, "nanopi-r5s"},
		{"both there", withModel, Auto, "WLAN Pi X", []string{"friendlyarm,nanopi-r5s"}, "aaa"},
		{"the user's before built-in ones", withUser, Auto, "", []string{"friendlyarm,nanopi-r5s"}, "mine"},
		{"the user's where it does not fit", withUser, Auto, "", []string{"friendlyelec,nanopi-r5s"}, "nanopi-r5s"},
	} {
		d, why, err := test.lib.choose(facts{wlanpi: test.wlanpi, compatible: test.dt}, test.name)
		if err != nil || d.name != test.want {
			t.Errorf("%s: %s, %v (%q); want %s", test.what, d.name, err, why, test.want)
		}
	}
	d, _, err := lib.choose(facts{compatible: cm4}, "rasberrypi")
	if d.name != "raspberrypi" || err == nil || !strings.Contains(err.Error(), `did you mean "raspberrypi"?`) {
		t.Errorf("a mistyped name: %s, %v", d.name, err)
	}
}

func TestModelLine(t *testing.T) {
	for content, want := range map[string]string{
		"WLAN Pi M4+\n":                         "WLAN Pi M4+",
		"WLAN Pi Pro":                           "WLAN Pi Pro",
		"WLAN Pi R4\r\n":                        "WLAN Pi R4",
		"\xef\xbb\xbfWLAN Pi Go\nMain board: x": "WLAN Pi Go",
		"":                                      "",
		"\n\nWLAN Pi R4":                        "",
		"\x1b[2JWLAN Pi\xff R4\n":               "[2JWLAN Pi R4",
		strings.Repeat("x", 5000):               strings.Repeat("x", maxText),
	} {
		if got := parseModelLine([]byte(content)); got != want {
			t.Errorf("%q: %q, want %q", content, got, want)
		}
	}
}

// write makes a file and its folders in a tree.
func write(t *testing.T, root, name, content string) {
	t.Helper()
	file := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func noErrors(t *testing.T, errs []error) {
	t.Helper()
	for _, err := range errs {
		t.Error(err)
	}
}

func describe(p *Panel) string {
	return fmt.Sprintf("%s %dx%d %s", p.Controller, p.Width, p.Height, p.Bus)
}

// TestJSON holds the names that INTERFACE promises for `linerate board`.
func TestJSON(t *testing.T) {
	read := func(tree string) map[string]any {
		p, errs := Detect(filepath.Join("testdata/trees", tree), Auto)
		noErrors(t, errs)
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	pro := read("wlanpi-pro")
	if got := slices.Sorted(maps.Keys(pro)); !slices.Equal(got, []string{"hats", "keys", "leds", "model", "panel", "ports",
		"profile", "why"}) {
		t.Errorf("keys %q", got)
	}
	panel := pro["panel"].(map[string]any)
	want := map[string]any{"controller": "ssd1351", "width": 128.0, "height": 128.0, "bus": "spidev0.0", "colour": true}
	for name, value := range want {
		if panel[name] != value {
			t.Errorf("panel %s = %v, want %v", name, panel[name], value)
		}
	}
	key := pro["keys"].([]any)[1].(map[string]any)
	if key["short"] != "down" || key["active"] != "low" || key["pull"] != "up" || key["debounce_ms"] != 10.0 {
		t.Errorf("key %v", key)
	}
	r5s := read("nanopi-r5s-mainline")
	if v, there := r5s["panel"]; v != nil || !there {
		t.Errorf("panel %v, want null", v)
	}
	if codes := r5s["keys"].([]any)[0].(map[string]any)["codes"].([]any); codes[0] != "BTN_1" {
		t.Errorf("codes %v", codes)
	}
	for _, name := range []string{"hats", "leds", "ports"} {
		if _, ok := read("pc")[name].([]any); !ok {
			t.Errorf("%s is no array where there is nothing", name)
		}
	}
}
