package buttons

import (
	"encoding/binary"
	"unsafe"
)

// From the kernel's include/uapi/linux/input-event-codes.h.
const (
	evSyn      = 0x00
	evKey      = 0x01
	synReport  = 0
	synDropped = 3
	keyMax     = 0x2ff
)

// eventSize is the size of the kernel's struct input_event: a timeval of two longs, type and code of 16 bits each, and a
// value of 32 bits (include/uapi/linux/input.h).
const eventSize = 2*int(unsafe.Sizeof(uintptr(0))) + 8

// keyBits is one bit for each key code, as EVIOCGBIT and EVIOCGKEY fill it in. The kernel writes longs; that is the same
// as bytes in order on the little-endian machines there are.
type keyBits [keyMax/8 + 1]byte

func (b *keyBits) has(code uint16) bool { return code <= keyMax && b[code/8]&(1<<(code%8)) != 0 }

func (b *keyBits) set(code uint16, on bool) {
	if b[code/8] &^= 1 << (code % 8); on {
		b[code/8] |= 1 << (code % 8)
	}
}

// codeEdge is a key that went down or up.
type codeEdge struct {
	code uint16
	down bool
}

// eventStream decodes what is read from an input device. It holds less than one event between two calls.
type eventStream struct {
	size    int // of one event
	rest    []byte
	held    keyBits // keys that are down
	dropped bool    // the kernel's buffer ran over: nothing counts until the next report
}

// feed takes the next bytes. resync says that events were lost, so that the keys must be asked for and given to sync.
func (s *eventStream) feed(p []byte) (edges []codeEdge, resync bool) {
	s.rest = append(s.rest, p...)
	events := s.rest
	for ; len(events) >= s.size; events = events[s.size:] {
		e := events[s.size-8 : s.size]
		kind, code := binary.NativeEndian.Uint16(e), binary.NativeEndian.Uint16(e[2:])
		value := int32(binary.NativeEndian.Uint32(e[4:]))
		switch {
		case kind == evSyn && code == synDropped:
			s.dropped = true
		case kind == evSyn && code == synReport && s.dropped:
			s.dropped, resync = false, true
		case kind == evKey && !s.dropped && code <= keyMax && (value == 0 || value == 1): // 2 is auto-repeat
			if down := value == 1; s.held.has(code) != down {
				s.held.set(code, down)
				edges = append(edges, codeEdge{code, down})
			}
		}
	}
	s.rest = append(s.rest[:0], events...)
	return edges, resync
}

// sync takes which keys are down and returns the edges that lead there.
func (s *eventStream) sync(now keyBits) (edges []codeEdge) {
	for code := range uint16(keyMax + 1) {
		if down := now.has(code); down != s.held.has(code) {
			edges = append(edges, codeEdge{code, down})
		}
	}
	s.held = now
	return edges
}
