package buttons

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"linerate/appliance"
	"linerate/appliance/board"
)

// codeRange is all codes from the first to the last.
func codeRange(from, to uint16) (codes []uint16) {
	for c := from; c <= to; c++ {
		codes = append(codes, c)
	}
	return codes
}

func input(path, name, phys string, bus uint16, codes ...uint16) deviceInfo {
	d := deviceInfo{path: path, name: name, phys: phys, bus: bus}
	for _, c := range codes {
		d.keys.set(c, true)
	}
	return d
}

func TestChoose(t *testing.T) {
	const up, down, sel, back, k1 = appliance.Up, appliance.Down, appliance.Select, appliance.Back, appliance.K1
	one := meaning{down, sel, "K1"}
	generic := []board.Key{
		{Short: "down", Long: "select", Codes: []board.Code{board.AnyCode}, Devices: []string{"gpio-keys"}},
	}
	r5s := append([]board.Key{
		{Label: "MASK", Short: "back", Codes: []board.Code{0x168}, Devices: []string{"gpio-keys", "adc-keys"}},
	}, oneKey...)
	laptop := codeRange(1, 127)
	gpioKeys := func(codes ...uint16) deviceInfo {
		return input("/dev/input/event0", "gpio-keys", "gpio-keys/input0", 0x19, codes...)
	}
	usb := func(name, phys string, codes ...uint16) deviceInfo {
		return input("/dev/input/event5", name, phys, busUSB, codes...)
	}
	keyboard := usb("Keyboard", "usb-1.2/input0", laptop...)
	tests := []struct {
		name    string
		device  deviceInfo
		others  []deviceInfo
		wanted  string // separated by commas
		profile []board.Key
		want    map[uint16]meaning
		why     string
	}{
		{"R5S, vendor's kernel: K1 is BTN_1", gpioKeys(0x101), nil, "auto", r5s,
			map[uint16]meaning{0x101: one}, "profile"},
		{"R5S LTS, mainline: RESET is KEY_RESTART, the node has another name",
			input("/dev/input/event0", "gpio-keys-reset", "gpio-keys/input0", 0x19, 0x198), nil, "auto", r5s,
			map[uint16]meaning{0x198: one}, "profile"},
		{"R5S: the maskrom key",
			input("/dev/input/event1", "adc-keys", "adc-keys/input0", 0x19, 0x168), nil, "auto", r5s,
			map[uint16]meaning{0x168: {back, "", "MASK"}}, "profile"},
		{"R5S: the power key of the PMIC stays the system's",
			input("/dev/input/event1", "rk805 pwrkey", "rk805_pwrkey/input0", 0x19, 116), nil, "auto", r5s,
			nil, "means anything"},
		{"no profile knows the box: one key does all", gpioKeys(0x198, 116), nil, "auto", generic,
			map[uint16]meaning{0x198: {down, sel, ""}}, "all do the same"},
		{"no profile, Enter alone does all", gpioKeys(28), nil, "auto", generic,
			map[uint16]meaning{28: {down, sel, ""}}, "all do the same"},
		{"no profile, but the keys say what they are", gpioKeys(28, 103, 108), nil, "auto", generic,
			map[uint16]meaning{28: {short: sel}, 103: {short: up}, 108: {short: down}}, "keys of the box"},
		{"gpio-keys that no profile names", gpioKeys(158), nil, "auto", nil,
			map[uint16]meaning{158: {short: back}}, "keys of the box"},
		{"a lid switch", gpioKeys(), nil, "auto", generic, nil, "means anything"},
		{"a number pad", usb("USB Keypad", "usb-1/input0", 69, 72, 80, 96, 98, 82), nil, "auto", r5s,
			map[uint16]meaning{72: {short: up}, 80: {short: down}, 96: {short: sel}, 98: {short: k1}, 82: {short: back}},
			"keypad"},
		{"a remote control on Bluetooth",
			input("/dev/input/event3", "Remote", "aa:bb:cc:dd:ee:ff", busBluetooth, 103, 108, 0x160, 158, 116),
			nil, "auto", nil,
			map[uint16]meaning{103: {short: up}, 108: {short: down}, 0x160: {short: sel}, 158: {short: back}}, "keypad"},
		{"a laptop's keyboard",
			input("/dev/input/event0", "AT Translated Set 2 keyboard", "isa0060/serio0/input0", 0x11, laptop...),
			nil, "auto", generic, nil, "built in"},
		{"a laptop's keyboard on USB", keyboard, nil, "auto", generic, nil, "letter keys"},
		{"one letter is enough", usb("Keyboard", "usb-1/input0", 28, 103, 108, 50), nil, "auto", generic,
			nil, "letter keys"},
		{"the media keys of a keyboard", usb("Keyboard Consumer Control", "usb-1.2/input1", 28, 103, 108, 115),
			[]deviceInfo{keyboard}, "auto", generic, nil, "part of a keyboard"},
		{"a keypad beside another plug's keyboard", usb("Pad", "usb-1.3/input1", 28, 103),
			[]deviceInfo{keyboard}, "auto", generic,
			map[uint16]meaning{28: {short: sel}, 103: {short: up}}, "keypad"},
		{"a keyboard that calls itself gpio-keys", usb("gpio-keys", "usb-1.3/input0", laptop...), nil, "auto", r5s,
			nil, "letter keys"},
		{"a mouse", usb("Mouse", "usb-1.3/input0", 0x110, 0x111, 28, 103), nil, "auto", generic, nil, "pointer"},
		{"a game pad", usb("Pad", "usb-1.3/input0", 0x130, 0x220, 0x161), nil, "auto", generic, nil, "pointer"},
		{"volume keys only", usb("Headset", "usb-1.3/input0", 114, 115), nil, "auto", generic, nil, "cannot both"},
		{"ThinkPad's extra buttons",
			input("/dev/input/event4", "ThinkPad Extra Buttons", "thinkpad_acpi/input0", 0x19, 28, 103, 148),
			nil, "auto", generic, nil, "built in"},
		{"a keyboard that is named", usb("Keyboard", "usb-1/input0", 16, 28, 103), nil, "Keyboard", generic,
			map[uint16]meaning{28: {short: sel}, 103: {short: up}}, "named in"},
		{"a device named by its path", usb("Pad", "usb-1/input0", 28), nil, "auto,/dev/input/event5", generic,
			map[uint16]meaning{28: {short: sel}}, "named in"},
		{"without auto only the named ones", gpioKeys(0x101), nil, "Keyboard", r5s, nil, "not named"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			keys, why := choose(tt.device, append(tt.others, tt.device), strings.Split(tt.wanted, ","), tt.profile)
			if !maps.Equal(keys, tt.want) {
				t.Errorf("keys %v, want %v", keys, tt.want)
			}
			if !strings.Contains(why, tt.why) {
				t.Errorf("why %q, want %q", why, tt.why)
			}
		})
	}
}

// Every built-in profile can do everything with its keys, and its words are those of the appliance.
func TestProfiles(t *testing.T) {
	for _, p := range profiles(t) {
		keys := map[uint16]meaning{}
		for i, k := range p.Keys {
			keys[uint16(i)] = meaning{appliance.Key(k.Short), appliance.Key(k.Long), k.Label}
		}
		if len(keys) > 0 && !complete(keys) {
			t.Errorf("%s: its keys cannot both move and select", p.Name)
		}
	}
	known := map[string]bool{}
	for _, k := range appliance.Keys {
		known[string(k)] = true
	}
	for _, name := range board.KeyNames {
		if !known[name] {
			t.Errorf("board knows a key %q, the appliance does not", name)
		}
	}
}

// profiles are those of the package board for some boxes.
func profiles(t *testing.T) (list []board.Profile) {
	t.Helper()
	names := []string{
		"nanopi-r5s", "nanopi-r5c", "nanopi-r6s", "wlanpi-neo2", "wlanpi-pro", "wlanpi-r4", "raspberrypi", "generic",
	}
	for _, name := range names {
		p, errs := board.Detect(filepath.Join(t.TempDir(), "none"), name)
		if p.Name != name {
			t.Fatalf("profile %s: %v", name, errs)
		}
		list = append(list, p)
	}
	return list
}

func TestRequestNumbers(t *testing.T) {
	// As the kernel's headers give them for x86-64 and arm64.
	for _, tt := range []struct {
		name      string
		got, want uintptr
	}{
		{"EVIOCGID", evioc(eviocgid, 8), 0x80084502},
		{"EVIOCGNAME(256)", evioc(eviocgname, 256), 0x81004506},
		{"EVIOCGPHYS(256)", evioc(eviocgphys, 256), 0x81004507},
		{"EVIOCGKEY(96)", evioc(eviocgkey, 96), 0x80604518},
		{"EVIOCGBIT(EV_KEY, 96)", evioc(eviocgbit+evKey, 96), 0x80604521},
		{"EVIOCGRAB", eviocgrab, 0x40044590},
	} {
		if tt.got != tt.want {
			t.Errorf("%s is %#x, want %#x", tt.name, tt.got, tt.want)
		}
	}
}
