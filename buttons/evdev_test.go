package buttons

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inputEvent is one event as the tests write it.
type inputEvent struct {
	kind, code uint16
	value      int32
}

// wire is the events as a kernel with longs of size/2-4 bytes writes them.
func wire(size int, events ...inputEvent) []byte {
	var b []byte
	for i, e := range events {
		stamp := make([]byte, size-8)
		stamp[0] = byte(i) // must not matter
		b = append(b, stamp...)
		b = binary.NativeEndian.AppendUint16(b, e.kind)
		b = binary.NativeEndian.AppendUint16(b, e.code)
		b = binary.NativeEndian.AppendUint32(b, uint32(e.value))
	}
	return b
}

func key(code uint16, value int32) inputEvent { return inputEvent{evKey, code, value} }

var (
	report  = inputEvent{evSyn, synReport, 0}
	dropped = inputEvent{evSyn, synDropped, 0}
)

func TestEventStream(t *testing.T) {
	tests := []struct {
		name   string
		events []inputEvent
		want   []codeEdge
		resync bool
	}{
		{"press and release", []inputEvent{key(108, 1), report, key(108, 0), report},
			[]codeEdge{{108, true}, {108, false}}, false},
		{"a USB keypad sends the scan code before",
			[]inputEvent{{4, 4, 0x70058}, key(96, 1), report, {4, 4, 0x70058}, key(96, 0), report},
			[]codeEdge{{96, true}, {96, false}}, false},
		{"auto-repeat is nothing",
			[]inputEvent{key(28, 1), report, key(28, 2), {0, 0, 1}, key(28, 2), {0, 0, 1}, key(28, 0), report},
			[]codeEdge{{28, true}, {28, false}}, false},
		{"down twice is once", []inputEvent{key(28, 1), key(28, 1), report}, []codeEdge{{28, true}}, false},
		{"up without down is nothing", []inputEvent{key(28, 0), report}, nil, false},
		{"unknown types, values and codes are nothing",
			[]inputEvent{{2, 0, 5}, {3, 1, 9}, key(28, -1), key(28, 7), key(0x300, 1), key(0xffff, 1)}, nil, false},
		{"lost events: what follows up to the report does not count",
			[]inputEvent{key(2, 1), report, dropped, key(2, 0), key(3, 1), report, key(4, 1), report},
			[]codeEdge{{2, true}, {4, true}}, true},
		{"lost events, report still to come", []inputEvent{dropped, key(2, 1)}, nil, false},
	}
	for _, tt := range tests {
		for _, size := range []int{16, 24} { // 32 and 64 bit
			t.Run(tt.name, func(t *testing.T) {
				raw := wire(size, tt.events...)
				whole := eventStream{size: size}
				got, resync := whole.feed(raw)
				if !slices.Equal(got, tt.want) || resync != tt.resync {
					t.Errorf("size %d: edges %v, resync %v, want %v, %v", size, got, resync, tt.want, tt.resync)
				}
				pieces := eventStream{size: size}
				var slow []codeEdge
				for i := range raw {
					edges, _ := pieces.feed(raw[i : i+1])
					slow = append(slow, edges...)
				}
				if !slices.Equal(slow, tt.want) {
					t.Errorf("size %d, byte by byte: edges %v, want %v", size, slow, tt.want)
				}
			})
		}
	}
}

func TestEventStreamSync(t *testing.T) {
	s := eventStream{size: eventSize}
	s.feed(wire(eventSize, key(2, 1), key(3, 1), report))
	var now keyBits
	now.set(3, true)
	now.set(0x2ff, true)
	if got, want := s.sync(now), []codeEdge{{2, false}, {0x2ff, true}}; !slices.Equal(got, want) {
		t.Errorf("edges %v, want %v", got, want)
	}
	if got := s.sync(now); got != nil {
		t.Errorf("the second time: %v", got)
	}
	if got, _ := s.feed(wire(eventSize, key(0x2ff, 0))); !slices.Equal(got, []codeEdge{{0x2ff, false}}) {
		t.Errorf("after it: %v", got)
	}
}

// recorded returns the streams in testdata/events: what a device of a 64-bit kernel sent, in hexadecimal, and # comments.
func recorded(tb testing.TB) map[string][]byte {
	tb.Helper()
	files, err := filepath.Glob("testdata/events/*")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no recorded streams: %v", err)
	}
	streams := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		var raw []byte
		for line := range strings.Lines(string(text)) {
			data, _, _ := strings.Cut(line, "#")
			b, err := hex.DecodeString(strings.Join(strings.Fields(data), ""))
			if err != nil {
				tb.Fatalf("%s: %v", file, err)
			}
			raw = append(raw, b...)
		}
		streams[filepath.Base(file)] = raw
	}
	return streams
}

func FuzzEventStream(f *testing.F) {
	for _, raw := range recorded(f) {
		f.Add(raw, 24, 7)
	}
	f.Add(wire(16, key(108, 1), report, dropped, key(108, 0), report), 16, 33)
	f.Fuzz(func(t *testing.T, raw []byte, size, cut int) {
		if size != 16 && size != 24 {
			size = 24
		}
		cut = max(0, min(cut, len(raw)))
		whole, parts := eventStream{size: size}, eventStream{size: size}
		edges, resync := whole.feed(raw)
		first, a := parts.feed(raw[:cut])
		second, b := parts.feed(raw[cut:])
		if !slices.Equal(edges, append(first, second...)) || resync != (a || b) {
			t.Errorf("cut at %d differs", cut)
		}
		if whole.held != parts.held || !bytes.Equal(whole.rest, parts.rest) || whole.dropped != parts.dropped {
			t.Error("another state")
		}
		if len(edges) > len(raw)/size || len(whole.rest) >= size {
			t.Errorf("%d edges out of %d bytes, %d bytes kept", len(edges), len(raw), len(whole.rest))
		}
		down := map[uint16]bool{}
		for _, e := range edges {
			if down[e.code] == e.down {
				t.Errorf("key %d is %v twice", e.code, e.down)
			}
			down[e.code] = e.down
		}
		for _, e := range whole.sync(keyBits{}) {
			if e.down || !down[e.code] {
				t.Errorf("letting go of all keys gives %v", e)
			}
		}
	})
}
