package buttons

import (
	"path/filepath"
	"slices"
	"strings"

	"linerate/appliance"
	"linerate/appliance/board"
)

// meaning is what a key of an input device does.
type meaning struct {
	short, long appliance.Key
	label       string // for messages
}

// printed are the keys that mean what stands on them, on keypads and remote controls; the names are those of the kernel's
// input-event-codes.h. On a number pad the arrows are those under the digits, and / * - are k1 k2 k3.
var printed = map[uint16]appliance.Key{
	103: appliance.Up, 72: appliance.Up, 104: appliance.Up, // UP KP8 PAGEUP
	115: appliance.Up, 0x220: appliance.Up, // VOLUMEUP BTN_DPAD_UP
	108: appliance.Down, 80: appliance.Down, 109: appliance.Down, // DOWN KP2 PAGEDOWN
	114: appliance.Down, 0x221: appliance.Down, // VOLUMEDOWN BTN_DPAD_DOWN
	105: appliance.Left, 75: appliance.Left, 0x222: appliance.Left, // LEFT KP4 BTN_DPAD_LEFT
	106: appliance.Right, 77: appliance.Right, 0x223: appliance.Right, // RIGHT KP6 BTN_DPAD_RIGHT
	28: appliance.Select, 96: appliance.Select, 76: appliance.Select, // ENTER KPENTER KP5
	57: appliance.Select, 0x160: appliance.Select, 0x161: appliance.Select, // SPACE OK SELECT
	1: appliance.Back, 14: appliance.Back, 158: appliance.Back, // ESC BACKSPACE BACK
	174: appliance.Back, 82: appliance.Back, 83: appliance.Back, // EXIT KP0 KPDOT
	2: appliance.K1, 59: appliance.K1, 98: appliance.K1, // 1 F1 KPSLASH
	148: appliance.K1, 0x201: appliance.K1, // PROG1 NUMERIC_1
	3: appliance.K2, 60: appliance.K2, 55: appliance.K2, // 2 F2 KPASTERISK
	149: appliance.K2, 0x202: appliance.K2, // PROG2 NUMERIC_2
	4: appliance.K3, 61: appliance.K3, 74: appliance.K3, // 3 F3 KPMINUS
	202: appliance.K3, 0x203: appliance.K3, // PROG3 NUMERIC_3
}

// system are the keys that the system acts on: KEY_POWER, KEY_SLEEP, KEY_WAKEUP.
var system = []uint16{116, 142, 143}

// Buses an external keypad comes on (include/uapi/linux/input.h).
const (
	busUSB       = 0x03
	busBluetooth = 0x05
)

// auto in [buttons] devices stands for what the box may take unasked.
const auto = "auto"

// choose says what the keys of a device mean, and why; none: the device is left alone. others are all devices there
// are, wanted is [buttons] devices with links resolved.
func choose(d deviceInfo, others []deviceInfo, wanted []string, profile []board.Key) (map[uint16]meaning, string) {
	named := slices.ContainsFunc(wanted, func(w string) bool { return w == d.name || w == d.path })
	unasked := slices.Contains(wanted, auto)
	if !named && !unasked {
		return nil, "not named in [buttons] devices"
	}
	keys, why := map[uint16]meaning{}, ""
	var anyKey *meaning
	for _, k := range profile {
		if !slices.ContainsFunc(k.Devices, func(name string) bool { return d.is(name) }) {
			continue
		}
		m := meaning{appliance.Key(k.Short), appliance.Key(k.Long), k.Label}
		for _, code := range k.Codes {
			if code == board.AnyCode {
				anyKey = &m
			} else if d.keys.has(uint16(code)) {
				keys[uint16(code)] = m
			}
		}
	}
	byProfile := len(keys) > 0
	switch {
	case named:
		d.addPrinted(keys)
		why = "named in [buttons] devices"
	case byProfile:
		why = "named by the board's profile"
	case slices.Contains([]string{"gpio-keys", "gpio-keys-polled", "adc-keys"}, d.driver()):
		d.addPrinted(keys)
		why = "keys of the box"
	default:
		if why = d.noKeypad(others); why != "" {
			return nil, why
		}
		d.addPrinted(keys)
		why = "a keypad without letter keys"
	}
	// A box whose keys say nothing does everything with one of them.
	if anyKey != nil && !byProfile && !complete(keys) {
		clear(keys)
		for code := range uint16(keyMax + 1) {
			if d.keys.has(code) && !slices.Contains(system, code) {
				keys[code] = *anyKey
			}
		}
		why = "its keys all do the same, as the board's profile says"
	}
	if len(keys) == 0 {
		return nil, "no key of it means anything here"
	}
	return keys, why
}

// is says whether this is the device a profile names: by its name, or by its driver, since the name follows that of a node
// in the device tree.
func (d deviceInfo) is(name string) bool { return d.name == name || d.driver() == name }

// driver is what the kernel's own drivers give as the place ("gpio-keys/input0"); what is plugged in cannot feign it.
func (d deviceInfo) driver() string {
	driver, _, _ := strings.Cut(d.phys, "/")
	return driver
}

func (d deviceInfo) addPrinted(keys map[uint16]meaning) {
	for code, key := range printed {
		if _, ok := keys[code]; !ok && d.keys.has(code) {
			keys[code] = meaning{short: key}
		}
	}
}

// complete says whether everything can be reached: something goes on, something selects.
func complete(keys map[uint16]meaning) bool {
	var on, selects bool
	for _, m := range keys {
		for _, k := range []appliance.Key{m.short, m.long} {
			on = on || k == appliance.Down || k == appliance.Up
			selects = selects || k == appliance.Select
		}
	}
	return on && selects
}

// noKeypad says why a device is no keypad that may be taken unasked; "" where it is one.
func (d deviceInfo) noKeypad(others []deviceInfo) string {
	keys := map[uint16]meaning{}
	d.addPrinted(keys)
	switch {
	case len(keys) == 0:
		return "no key of it means anything here"
	case d.bus != busUSB && d.bus != busBluetooth:
		return "built in, and not named by the board's profile"
	case d.letters():
		return "a keyboard: it has letter keys"
	case d.pointer():
		return "a pointer or a game pad"
	case !complete(keys):
		return "it cannot both move and select"
	}
	// The media keys of a keyboard are a device of their own on the same plug.
	for _, o := range others {
		if o.plug() == d.plug() && o.letters() {
			return "part of a keyboard with letter keys (" + o.path + ")"
		}
	}
	return ""
}

// plug is where a device is plugged in, without the number of the function.
func (d deviceInfo) plug() string {
	if i := strings.LastIndex(d.phys, "/input"); i >= 0 {
		return d.phys[:i]
	}
	return d.phys
}

// letters says whether there is a letter key: KEY_Q to KEY_P, KEY_A to KEY_L, KEY_Z to KEY_M.
func (d deviceInfo) letters() bool { return d.any(16, 25) || d.any(30, 38) || d.any(44, 50) }

// pointer says whether there is a button of a mouse, joystick, game pad or tablet: BTN_MOUSE up to the last of BTN_DIGI.
func (d deviceInfo) pointer() bool { return d.any(0x110, 0x14f) }

func (d deviceInfo) any(from, to uint16) bool {
	for code := from; code <= to; code++ {
		if d.keys.has(code) {
			return true
		}
	}
	return false
}

// sharesSystem says whether the device carries a key that the system acts on, so that it is not taken for the box alone.
func (d deviceInfo) sharesSystem() bool {
	return slices.ContainsFunc(system, d.keys.has)
}

// resolve follows the links of the paths in [buttons] devices (/dev/input/by-id/...) below root.
func resolve(root string, devices []string) []string {
	out := slices.Clone(devices)
	for i, w := range out {
		if !strings.HasPrefix(w, "/") {
			continue
		}
		path := filepath.Join(root, w)
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		out[i] = path
	}
	return out
}
