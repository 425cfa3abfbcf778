package buttons

import (
	"context"
	"io"
	"time"

	"linerate/appliance"
)

// escapeWait is how long an escape byte may wait for the rest of a sequence; alone it is the Esc key. A terminal sends
// the sequence in one go, a slow line in pieces.
const escapeWait = 50 * time.Millisecond

// Quit is what Decode returns for q, Ctrl-C and Ctrl-D. It is no key of the box.
const Quit appliance.Key = "quit"

// typed are the keys that are one byte.
var typed = map[byte]appliance.Key{
	'\r': appliance.Select, '\n': appliance.Select, ' ': appliance.Select,
	0x7f: appliance.Back, '\b': appliance.Back,
	'1': appliance.K1, '2': appliance.K2, '3': appliance.K3,
	'q': Quit, 'Q': Quit, 0x03: Quit, 0x04: Quit,
}

// arrows are the last bytes of the sequences of the arrow keys (ECMA-48 cursor functions, as VT100 and xterm send them).
var arrows = map[byte]appliance.Key{
	'A': appliance.Up, 'B': appliance.Down, 'C': appliance.Right, 'D': appliance.Left,
}

const (
	esc        = 0x1b
	maxControl = 32 // bytes of a sequence; what is longer is none
)

// Decoder turns the bytes of a terminal in raw mode into keys: the arrows (ESC [ A and ESC O A, also with modifiers), Enter
// and Space, Backspace and Esc, 1 2 3. Bytes and sequences it does not know are passed over whole, so that a Delete key
// is not taken for Esc. The zero value is ready.
type Decoder struct {
	sequence []byte // ESC and what has come of it
}

// Decode takes the next bytes and returns the keys they complete.
func (d *Decoder) Decode(p []byte) []appliance.Key {
	var keys []appliance.Key
	for _, b := range p {
		switch {
		case b == esc:
			if len(d.sequence) == 1 { // Esc twice
				keys = append(keys, appliance.Back)
			}
			d.sequence = []byte{esc}
		case len(d.sequence) == 0 || b < ' ': // a control character ends a sequence
			d.sequence = nil
			if key, ok := typed[b]; ok {
				keys = append(keys, key)
			}
		case len(d.sequence) == 1 && b != '[' && b != 'O': // Alt and a key
			d.sequence = nil
		case len(d.sequence) == 1 || b < 0x40 && len(d.sequence) < maxControl: // CSI, SS3, a parameter
			d.sequence = append(d.sequence, b)
		default: // the final byte, 0x40 and above
			if key, ok := arrows[b]; ok {
				keys = append(keys, key)
			}
			d.sequence = nil
		}
	}
	return keys
}

// Waiting says whether an escape byte waits for the rest of its sequence.
func (d *Decoder) Waiting() bool { return len(d.sequence) > 0 }

// Flush ends a sequence that does not go on: an escape byte alone was the Esc key.
func (d *Decoder) Flush() []appliance.Key {
	alone := len(d.sequence) == 1
	d.sequence = nil
	if alone {
		return []appliance.Key{appliance.Back}
	}
	return nil
}

// Keyboard is the Task that reads keys from a terminal in raw mode (or from anything else) and publishes them. quit is called
// for q, Ctrl-C and Ctrl-D, as often as they are typed. At the end of r it waits for its context.
//
// The caller owns r. A Read that blocks outlives the Task and takes the next bytes, so there is one Task for one r.
func Keyboard(r io.Reader, quit func()) appliance.Task {
	chunks := make(chan []byte)
	started := false
	return appliance.Task{Name: "keyboard", Run: func(ctx context.Context, hub *appliance.Hub) error {
		if !started { // a second run goes on with the reader of the first
			started = true
			go pump(r, chunks)
		}
		press := func(keys []appliance.Key) {
			for _, k := range keys {
				if k == Quit {
					quit()
				} else {
					hub.Publish(appliance.ButtonPressed{At: time.Now(), Key: k})
				}
			}
		}
		var d Decoder
		for source := (<-chan []byte)(chunks); ; {
			var late <-chan time.Time
			if d.Waiting() {
				late = time.After(escapeWait)
			}
			select {
			case <-ctx.Done():
				return nil
			case p, open := <-source:
				if !open {
					source = nil
				}
				press(d.Decode(p))
			case <-late:
				press(d.Flush())
			}
		}
	}}
}

// pump reads until the end.
func pump(r io.Reader, chunks chan<- []byte) {
	defer close(chunks)
	for {
		p := make([]byte, 64)
		n, err := r.Read(p)
		if n > 0 {
			chunks <- p[:n]
		}
		if err != nil {
			return
		}
	}
}
