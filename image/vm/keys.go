package vm

import "bytes"

// Quit is what Typed gives for q, Ctrl-C and Ctrl-D.
const Quit = "quit"

// typed is what a terminal sends, and the key of the virtual keyboard that is meant; longer ones first.
var typed = []struct{ bytes, key string }{
	{"\x1b[A", "up"}, {"\x1b[B", "down"}, {"\x1b[C", "right"}, {"\x1b[D", "left"},
	{"\x1bOA", "up"}, {"\x1bOB", "down"}, {"\x1bOC", "right"}, {"\x1bOD", "left"},
	{"\r", "ret"}, {"\n", "ret"}, {"\x7f", "backspace"}, {"\b", "backspace"}, {"\x1b", "backspace"}, {"1", "f1"},
	{"q", Quit}, {"\x03", Quit}, {"\x04", Quit},
}

// Typed translates what was read from a terminal in raw mode into keys for Machine.Press. What means nothing is left out.
func Typed(b []byte) []string {
	var keys []string
next:
	for len(b) > 0 {
		for _, t := range typed {
			if rest, ok := bytes.CutPrefix(b, []byte(t.bytes)); ok {
				b = rest
				keys = append(keys, t.key)
				continue next
			}
		}
		b = b[1:]
	}
	return keys
}
