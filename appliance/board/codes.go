package board

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Code is a key code of the kernel's include/uapi/linux/input-event-codes.h, 1 to KEY_MAX.
type Code uint16

// AnyCode stands for any ordinary key of the devices named: all but those the system itself acts on (KEY_POWER,
// KEY_SLEEP, KEY_WAKEUP).
const AnyCode Code = 0

// maxCode is KEY_MAX.
const maxCode = 0x2ff

// codeNames holds the codes that keys of such boxes, keypads and remote controls send. Any other is written as a
// number.
var codeNames = map[string]Code{
	"any":     AnyCode,
	"KEY_ESC": 1, "KEY_1": 2, "KEY_2": 3, "KEY_3": 4, "KEY_4": 5, "KEY_5": 6, "KEY_6": 7, "KEY_7": 8, "KEY_8": 9,
	"KEY_9": 10, "KEY_0": 11, "KEY_BACKSPACE": 14, "KEY_TAB": 15, "KEY_ENTER": 28, "KEY_SPACE": 57,
	"KEY_F1": 59, "KEY_F2": 60, "KEY_F3": 61, "KEY_F4": 62, "KEY_KP7": 71, "KEY_KP8": 72, "KEY_KP9": 73, "KEY_KP4": 75,
	"KEY_KP5": 76, "KEY_KP6": 77, "KEY_KP1": 79, "KEY_KP2": 80, "KEY_KP3": 81, "KEY_KP0": 82, "KEY_KPENTER": 96,
	"KEY_HOME": 102, "KEY_UP": 103, "KEY_PAGEUP": 104, "KEY_LEFT": 105, "KEY_RIGHT": 106, "KEY_END": 107,
	"KEY_DOWN": 108, "KEY_PAGEDOWN": 109, "KEY_VOLUMEDOWN": 114, "KEY_VOLUMEUP": 115, "KEY_POWER": 116,
	"KEY_MENU": 139, "KEY_SLEEP": 142, "KEY_WAKEUP": 143, "KEY_PROG1": 148, "KEY_PROG2": 149, "KEY_BACK": 158,
	"KEY_PLAYPAUSE": 164, "KEY_CONFIG": 171, "KEY_PROG3": 202, "KEY_PROG4": 203,
	"BTN_0": 0x100, "BTN_1": 0x101, "BTN_2": 0x102, "BTN_3": 0x103, "BTN_4": 0x104, "BTN_5": 0x105, "BTN_6": 0x106,
	"BTN_7": 0x107, "BTN_8": 0x108, "BTN_9": 0x109,
	"KEY_OK": 0x160, "KEY_SELECT": 0x161, "KEY_VENDOR": 0x168, "KEY_RESTART": 0x198,
}

// UnmarshalText reads a name ("BTN_1"), a number ("0x101") or "any".
func (c *Code) UnmarshalText(text []byte) error {
	s := string(text)
	if code, ok := codeNames[s]; ok {
		*c = code
		return nil
	}
	n, err := strconv.ParseUint(s, 0, 16)
	if err != nil || n == 0 || n > maxCode {
		return fmt.Errorf("key code %q is unknown: %suse a name of input-event-codes.h or a number from 1 to 0x%x",
			clip(s), didYouMean(s, slices.Sorted(maps.Keys(codeNames))), maxCode)
	}
	*c = Code(n)
	return nil
}

// MarshalText writes the name where there is one.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// String is the name of the code, else its number.
func (c Code) String() string {
	for name, code := range codeNames {
		if code == c {
			return name
		}
	}
	return fmt.Sprintf("0x%x", uint16(c))
}

// didYouMean proposes the known word that is nearest to a mistyped one, as the middle of a message; "" where none
// is near.
func didYouMean(word string, known []string) string {
	best, found := 3, ""
	for _, k := range known {
		if d := distance(strings.ToLower(clip(word)), strings.ToLower(k)); d < best {
			best, found = d, k
		}
	}
	if found == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q? ", found)
}

// distance counts the letters to insert, delete or replace to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
