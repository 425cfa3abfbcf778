package buttons

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"linerate/appliance"
	"linerate/appliance/config"
)

func TestDecoder(t *testing.T) {
	const up, down, left, right = appliance.Up, appliance.Down, appliance.Left, appliance.Right
	const sel, back, k1, k2, k3 = appliance.Select, appliance.Back, appliance.K1, appliance.K2, appliance.K3
	tests := []struct {
		name, in string
		want     []appliance.Key // up to the flush
		flushed  []appliance.Key
	}{
		{"CSI arrows", "\x1b[A\x1b[B\x1b[C\x1b[D", []appliance.Key{up, down, right, left}, nil},
		{"SS3 arrows", "\x1bOA\x1bOB\x1bOC\x1bOD", []appliance.Key{up, down, right, left}, nil},
		{"arrow with Ctrl", "\x1b[1;5A", []appliance.Key{up}, nil},
		{"Enter, line feed, space", "\r\n ", []appliance.Key{sel, sel, sel}, nil},
		{"Backspace of both kinds", "\x7f\b", []appliance.Key{back, back}, nil},
		{"digits", "1234", []appliance.Key{k1, k2, k3}, nil},
		{"quit", "q\x03\x04", []appliance.Key{Quit, Quit, Quit}, nil},
		{"Esc alone", "\x1b", nil, []appliance.Key{back}},
		{"Esc twice", "\x1b\x1b", []appliance.Key{back}, []appliance.Key{back}},
		{"Esc, then an arrow", "\x1b\x1b[A", []appliance.Key{back, up}, nil},
		{"Delete, F5, Home are nothing", "\x1b[3~\x1b[15~\x1b[H1", []appliance.Key{k1}, nil},
		{"F1 of a VT100 is nothing", "\x1bOP2", []appliance.Key{k2}, nil},
		{"Alt-q does not quit", "\x1bq3", []appliance.Key{k3}, nil},
		{"Ctrl-C within a sequence", "\x1b[\x031", []appliance.Key{Quit, k1}, nil},
		{"a sequence that breaks off", "\x1b[1;", nil, nil},
		{"a sequence without end", "\x1b[" + strings.Repeat("1", 500) + "A1", []appliance.Key{k1, k1}, nil},
		{"letters and UTF-8 are nothing", "wasdä", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var whole, pieces Decoder
			got := whole.Decode([]byte(tt.in))
			var slow []appliance.Key
			for i := range len(tt.in) {
				slow = append(slow, pieces.Decode([]byte{tt.in[i]})...)
			}
			if !slices.Equal(got, slow) {
				t.Errorf("in one piece %v, byte by byte %v", got, slow)
			}
			if strings.Contains(tt.name, "without end") { // where it is given up is not promised, that it is, is
				if len(got) == 0 || whole.Waiting() {
					t.Errorf("%v, still waiting: %v", got, whole.Waiting())
				}
				return
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("keys %v, want %v", got, tt.want)
			}
			if flushed := whole.Flush(); !slices.Equal(flushed, tt.flushed) {
				t.Errorf("flushed %v, want %v", flushed, tt.flushed)
			}
		})
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte("\x1b[A\x1bOB\r1q\x1b"), 3)
	f.Add([]byte("\x1b[1;5A\x1b[3~\x7f"), 1)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		cut = max(0, min(cut, len(in)))
		var whole, parts Decoder
		keys := whole.Decode(in)
		cutKeys := append(parts.Decode(in[:cut]), parts.Decode(in[cut:])...)
		if !slices.Equal(keys, cutKeys) {
			t.Errorf("cut at %d: %v, in one piece: %v", cut, cutKeys, keys)
		}
		if len(keys) > len(in) {
			t.Errorf("%d keys out of %d bytes", len(keys), len(in))
		}
		if len(whole.sequence) > maxControl {
			t.Errorf("keeps %d bytes", len(whole.sequence))
		}
	})
}

func TestKeyboardTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := appliance.NewHub(appliance.New("test", "test", "test", config.Default()))
		r, w := io.Pipe()
		quits := 0
		task := Keyboard(r, func() { quits++ })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- task.Run(ctx, hub) }()

		page := func() appliance.Page { synctest.Wait(); return hub.State().Page }
		write := func(s string) {
			if _, err := io.WriteString(w, s); err != nil {
				t.Fatal(err)
			}
		}
		write("\r") // leaves the boot page
		if got := page(); got != appliance.PageHome {
			t.Fatalf("after Enter: page %s", got)
		}
		write("\x1b[B")
		if got := page(); got != appliance.PageMenu {
			t.Fatalf("after an arrow: page %s", got)
		}
		// Esc is Back, but only when nothing follows it.
		write("\x1b")
		time.Sleep(escapeWait - time.Millisecond)
		if got := page(); got != appliance.PageMenu {
			t.Fatalf("before the wait is over: page %s", got)
		}
		time.Sleep(2 * time.Millisecond)
		if got := page(); got != appliance.PageHome {
			t.Fatalf("after Esc alone: page %s", got)
		}
		// An arrow in two pieces is an arrow.
		write("\x1b")
		time.Sleep(escapeWait / 2)
		write("OB")
		if got := page(); got != appliance.PageMenu {
			t.Fatalf("after an arrow in two pieces: page %s", got)
		}
		write("q")
		synctest.Wait()
		if quits != 1 {
			t.Errorf("quit was called %d times", quits)
		}

		// A run after this one goes on reading, and the end of the input ends nothing.
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		go func() { done <- task.Run(ctx, hub) }()
		write("\x7f")
		if got := page(); got != appliance.PageHome {
			t.Errorf("after a restart: page %s", got)
		}
		w.Close()
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("ended with its input: %v", err)
		default:
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
