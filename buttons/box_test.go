package buttons

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"linerate/appliance"
)

// box runs a session and keeps what comes of it.
type box struct {
	t    *testing.T
	stop func() // ends the session and waits for it

	mu     sync.Mutex
	log    bytes.Buffer
	keys   []appliance.Key
	faults []string
}

// startBox starts a session; adapt may change it before.
func startBox(t *testing.T, o Options, adapt func(*session)) *box {
	t.Helper()
	b := &box{t: t}
	o.Log = slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if o.Root == "" {
		o.Root = "/"
	}
	s := newSession(o, []string{auto}, b.take)
	if adapt != nil {
		adapt(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(ctx)
	}()
	b.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Error("the session does not end")
		}
	})
	t.Cleanup(b.stop)
	return b
}

func (b *box) take(e appliance.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := e.(type) {
	case appliance.ButtonPressed:
		b.keys = append(b.keys, e.Key)
	case appliance.FaultsSeen:
		b.faults = e.Titles
	}
}

// Write takes the log.
func (b *box) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

// lines counts the log's lines with the text.
func (b *box) lines(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for line := range strings.Lines(b.log.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (b *box) logged(text string) bool { return b.lines(text) > 0 }

func (b *box) pressed() []appliance.Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.keys)
}

func (b *box) presses(k appliance.Key) int {
	n := 0
	for _, p := range b.pressed() {
		if p == k {
			n++
		}
	}
	return n
}

func (b *box) wrong() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.faults)
}

// until waits for a condition, in real time.
func (b *box) until(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.t.Fatalf("not within 10 s: %s; pressed %v, faults %q, the log:\n%s", what, b.keys, b.faults, b.log.String())
		}
	}
}

// pressedBecomes waits for exactly these presses.
func (b *box) pressedBecomes(want ...appliance.Key) {
	b.t.Helper()
	b.until("presses", func() bool { return len(b.pressed()) >= len(want) })
	if got := b.pressed(); !slices.Equal(got, want) {
		b.t.Errorf("pressed %v, want %v", got, want)
	}
}

// fakes are input devices made of pipes, with the answers to the ioctls beside them.
type fakes struct {
	t       *testing.T
	root    string
	mu      sync.Mutex
	byPath  map[string]*fake
	refused int
	denied  map[string]error // what opening gives instead, by the device's name in its folder
}

type fake struct {
	info    deviceInfo
	events  *os.File // write end
	mu      sync.Mutex
	bits    keyBits
	grabbed bool
	grabErr error
	asked   int // for the keys that are down
}

func newFakes(t *testing.T) *fakes {
	f := &fakes{t: t, root: t.TempDir(), byPath: map[string]*fake{}, denied: map[string]error{}}
	if err := os.MkdirAll(f.folder(), 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fakes) folder() string { return filepath.Join(f.root, "dev/input") }

// use makes a session open these devices and no GPIO lines.
func (f *fakes) use(s *session) { s.openDevice = f.open }

// deny sets what opening a device gives; nil: it can be opened.
func (f *fakes) deny(event string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.denied[event] = err
}

// plug makes a device appear.
func (f *fakes) plug(event, name, phys string, bus uint16, codes ...uint16) *fake {
	f.t.Helper()
	d := &fake{info: deviceInfo{path: filepath.Join(f.folder(), event), name: name, phys: phys, bus: bus}}
	for _, c := range codes {
		d.info.keys.set(c, true)
	}
	f.mu.Lock()
	f.byPath[d.info.path] = d
	f.mu.Unlock()
	// The writing end is open before a reader can see it, or that one would read the end.
	hidden := filepath.Join(f.folder(), "new")
	if err := unix.Mkfifo(hidden, 0o600); err != nil {
		f.t.Fatal(err)
	}
	w, err := os.OpenFile(hidden, os.O_RDWR, 0)
	if err == nil {
		err = os.Rename(hidden, d.info.path)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	d.events = w
	f.t.Cleanup(func() { w.Close() })
	return d
}

// unplug makes it go as a device does: its reads fail, its name is gone.
func (f *fakes) unplug(d *fake) {
	f.t.Helper()
	if err := os.Remove(d.info.path); err != nil {
		f.t.Fatal(err)
	}
	d.events.Close()
}

func (f *fakes) open(path string) (*os.File, control, error) {
	f.mu.Lock()
	d, err := f.byPath[path], f.denied[filepath.Base(path)]
	if err != nil {
		f.refused++
	}
	f.mu.Unlock()
	if d == nil {
		err = syscall.ENOENT
	}
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	return file, d, err
}

func (d *fake) describe() (deviceInfo, error) { return d.info, nil }

func (d *fake) held() (keyBits, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	return d.bits, nil
}

func (d *fake) grab() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.grabbed = d.grabErr == nil
	return d.grabErr
}

func (d *fake) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *fake) isGrabbed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.grabbed
}
