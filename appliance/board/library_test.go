package board

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const userBoard = `title = "Bench box"
[match]
compatible = ["acme,bench"]
[[port]]
role = "dut"
match = ["pci0000:00/0000:00:03.0"]
speed_mbps = 10000
test = true
`

// TestBuiltin reads every built-in profile and composes every board with every HAT: the pins must not clash.
func TestBuiltin(t *testing.T) {
	lib, errs := load(tree(t.TempDir()))
	noErrors(t, errs)
	boards := []string{"generic", "nanopi-r2s", "nanopi-r3s", "nanopi-r4s", "nanopi-r5c", "nanopi-r5s", "nanopi-r6s",
		"raspberrypi", "wlanpi-go", "wlanpi-m4", "wlanpi-m4+", "wlanpi-neo2", "wlanpi-pro", "wlanpi-r4"}
	if got := lib.names(false); !slices.Equal(got, boards) {
		t.Errorf("boards %q, want %q", got, boards)
	}
	for _, name := range boards {
		for _, hat := range lib.names(true) {
			p, errs := lib.compose(lib[name], []string{hat})
			noErrors(t, errs)
			if p.Panel == nil || !slices.Contains(p.HATs, hat) {
				t.Errorf("%s with %s: panel %v, HATs %q", name, hat, p.Panel, p.HATs)
			}
		}
	}
}

func TestCompose(t *testing.T) {
	p, errs := Detect("testdata/trees/raspberrypi-4", Auto, "hat-adafruit-bonnet")
	noErrors(t, errs)
	if p.Name != "raspberrypi" || len(p.Keys) != 7 || p.Panel.Optional || len(p.Panel.Addresses) != 1 {
		t.Errorf("bonnet on a Pi: %s, %d keys, panel %+v", p.Name, len(p.Keys), p.Panel)
	}
	// The name of a HAT as the board's: the board below is detected.
	p, errs = Detect("testdata/trees/raspberrypi-5", "hat-waveshare-oled13")
	noErrors(t, errs)
	if p.Name != "raspberrypi" || p.Panel.Controller != SH1106 || len(p.Keys) != 8 {
		t.Errorf("OLED HAT on a Pi 5: %s, panel %+v, %d keys", p.Name, p.Panel, len(p.Keys))
	}
	// Another HAT in place of the one the board carries: its keys on lines go, too.
	p, errs = Detect("testdata/trees/wlanpi-m4", Auto, "hat-adafruit-bonnet")
	noErrors(t, errs)
	if p.Panel.Controller != SSD1306 || len(p.Keys) != 7 {
		t.Errorf("bonnet on an M4: panel %+v, %d keys", p.Panel, len(p.Keys))
	}
	// The one it carries anyway changes nothing.
	p, errs = Detect("testdata/trees/wlanpi-m4", Auto, "hat-waveshare-lcd144")
	noErrors(t, errs)
	if p.Panel == nil || p.Panel.Controller != ST7735 || len(p.Keys) != 8 {
		t.Errorf("its own HAT on an M4: panel %+v, %d keys", p.Panel, len(p.Keys))
	}
	// evdev keys stay where a HAT brings keys on lines.
	p, errs = Detect("testdata/trees/nanopi-r5s-vendor", Auto, "hat-oled-cp2112")
	noErrors(t, errs)
	if p.Panel == nil || len(p.Keys) != 2 {
		t.Errorf("USB panel on an R5S: panel %+v, %d keys", p.Panel, len(p.Keys))
	}
	for name, want := range map[string]string{"hat-adafruit-bonet": `did you mean "hat-adafruit-bonnet"?`,
		"nanopi-r5s": `no HAT is called "nanopi-r5s"`} {
		p, errs = Detect("testdata/trees/raspberrypi-4", Auto, name)
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), want) || p.Panel == nil {
			t.Errorf("%s: %v, panel %v", name, errs, p.Panel)
		}
	}
}

func TestUserProfiles(t *testing.T) {
	root := t.TempDir()
	write(t, root, "proc/device-tree/compatible", "acme,bench\x00acme,soc\x00")
	write(t, root, boardsDir+"/bench.toml", userBoard)
	p, errs := Detect(root, Auto)
	noErrors(t, errs)
	if p.Name != "bench" || p.Ports[0].Role != "dut" ||
		!slices.Contains(p.Why, "profile bench comes from /etc/linerate/boards/bench.toml") {
		t.Errorf("%s, ports %v, why %q", p.Name, p.Ports, p.Why)
	}

	// Shadowing is allowed and said.
	write(t, root, boardsDir+"/nanopi-r5s.toml", strings.Replace(userBoard, "acme,bench", "friendlyarm,nanopi-r5s", 1))
	write(t, root, "proc/device-tree/compatible", "friendlyarm,nanopi-r5s\x00")
	p, errs = Detect(root, Auto)
	noErrors(t, errs)
	if p.Name != "nanopi-r5s" || p.Ports[0].Role != "dut" || !slices.Contains(p.Why,
		"/etc/linerate/boards/nanopi-r5s.toml shadows the built-in profile nanopi-r5s") {
		t.Errorf("%s, ports %v, why %q", p.Name, p.Ports, p.Why)
	}

	// A file that is wrong costs one line, and the built-in profile serves.
	write(t, root, boardsDir+"/nanopi-r5s.toml", userBoard+"colour = 1\n")
	p, errs = Detect(root, Auto)
	if p.Name != "nanopi-r5s" || len(p.Ports) != 3 || len(errs) != 1 || !strings.HasPrefix(errs[0].Error(),
		"/etc/linerate/boards/nanopi-r5s.toml:9: unknown key") || !strings.Contains(errs[0].Error(), "built-in profile") {
		t.Errorf("%s, ports %v, errors %v", p.Name, p.Ports, errs)
	}
}

func TestUserProfilesHostile(t *testing.T) {
	root := t.TempDir()
	write(t, root, boardsDir+"/big.toml", strings.Repeat("#", maxProfileBytes+1))
	write(t, root, boardsDir+"/UPPER.toml", userBoard)
	write(t, root, boardsDir+"/none.toml", userBoard)
	write(t, root, boardsDir+"/generic.toml", "title = \"x\"\nhat = true\n") // a HAT in a board's place
	write(t, root, boardsDir+"/.bench.toml.swp", "editor")
	write(t, root, boardsDir+"/.hidden.toml", "editor")
	write(t, root, boardsDir+"/bench.toml~", "editor")
	write(t, root, boardsDir+"/dir.toml/x", "a folder")
	p, errs := Detect(root, Auto)
	if p.Name != Generic || len(p.Keys) != 1 || len(errs) != 4 {
		t.Errorf("%s with %d keys; errors %v", p.Name, len(p.Keys), errs)
	}
	for _, err := range errs {
		if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "/etc/linerate/boards/") {
			t.Errorf("not one line naming the file: %v", err)
		}
	}
	for i := range maxProfiles + 5 {
		write(t, root, fmt.Sprintf("%s/a%03d.toml", boardsDir, i), userBoard)
	}
	if _, errs = Detect(root, Auto); len(errs) == 0 || !strings.Contains(errs[0].Error(), "only the first 64") {
		t.Errorf("many files: %v", errs)
	}
}

// TestHATsOfUserBoard composes in a user's file; what does not fit is left out with the file's line.
func TestHATsOfUserBoard(t *testing.T) {
	root := t.TempDir()
	board := "title = \"x\"\nhats = [\"hat-waveshare-oled13\", %q]\n[gpio]\nchips = [\"pinctrl-rp1\"]\n" +
		"[[key]]\nshort = \"back\"\nline = 12\n"
	for hat, want := range map[string]string{
		"hat-adafruit-bonnet": "mine.toml:2: hat-adafruit-bonnet brings a second panel beside that of hat-waveshare-oled13",
		"hat-keys":            "hat-keys does not fit: line 12 of pinctrl-rp1 is used twice, by key back and by key k1",
		"hat-nothing":         `mine.toml:2: no HAT is called "hat-nothing"`,
	} {
		write(t, root, boardsDir+"/hat-keys.toml", "title = \"keys\"\nhat = true\n[gpio]\nchips = [\"pinctrl-rp1\"]\n"+
			"[[key]]\nshort = \"k1\"\nline = 12\n")
		write(t, root, boardsDir+"/mine.toml", fmt.Sprintf(board, hat))
		p, errs := Detect(root, "mine")
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), want) || len(p.Keys) != 9 || p.Panel.Controller != SH1106 {
			t.Errorf("%s: %v, %d keys", hat, errs, len(p.Keys))
		}
	}
}
