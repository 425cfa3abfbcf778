package buttons

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"linerate/appliance"
	"linerate/appliance/board"
)

// oneKey is the profile of a box with one key.
var oneKey = []board.Key{
	{Label: "K1", Short: "down", Long: "select", Codes: []board.Code{0x101, 0x198},
		Devices: []string{"gpio-keys", "adc-keys"}},
}

func TestRecordedStreams(t *testing.T) {
	const down, sel = appliance.Down, appliance.Select
	tests := []struct {
		file  string
		name  string
		phys  string
		bus   uint16
		codes []uint16
		want  []appliance.Key
	}{
		{"gpio-keys", "gpio-keys", "gpio-keys/input0", 0x19, []uint16{0x198}, []appliance.Key{down, down}},
		{"keypad", "virtual keypad", "usb-1/input0", busUSB, []uint16{103, 108, 28, 1},
			[]appliance.Key{appliance.Up, down, sel, appliance.Back}},
		{"overrun", "gpio-keys", "gpio-keys/input0", 0x19, []uint16{0x198}, nil},
	}
	streams := recorded(t)
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			raw := streams[tt.file]
			if raw == nil || eventSize != 24 {
				t.Skip("recorded on a 64-bit kernel")
			}
			f := newFakes(t)
			d := f.plug("event0", tt.name, tt.phys, tt.bus, tt.codes...)
			b := startBox(t, Options{Root: f.root, Profile: board.Profile{Keys: oneKey}}, f.use)
			b.until("taken", d.isGrabbed)
			if _, err := d.events.Write(raw); err != nil {
				t.Fatal(err)
			}
			if tt.want == nil { // events were lost: the keys are asked for once more
				b.until("asked again", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.asked == 2 })
				return
			}
			b.pressedBecomes(tt.want...)
		})
	}
}

// A release that was lost in an overrun must not leave the key down, and one that was made in it counts.
func TestOverrun(t *testing.T) {
	f := newFakes(t)
	d := f.plug("event0", "gpio-keys", "gpio-keys/input0", 0x19, 0x101, 0x198)
	b := startBox(t, Options{Root: f.root, Profile: board.Profile{Keys: []board.Key{
		{Short: "up", Codes: []board.Code{0x101}, Devices: []string{"gpio-keys"}},
		{Short: "down", Codes: []board.Code{0x198}, Devices: []string{"gpio-keys"}},
	}}}, f.use)
	b.until("taken", d.isGrabbed)
	write := func(e ...inputEvent) {
		t.Helper()
		if _, err := d.events.Write(wire(eventSize, e...)); err != nil {
			t.Fatal(err)
		}
	}
	write(key(0x101, 1), report)
	b.pressedBecomes(appliance.Up)
	d.set(func() { d.bits = keyBits{}; d.bits.set(0x198, true) })
	write(dropped, key(0x101, 2), report)
	b.pressedBecomes(appliance.Up, appliance.Down)
	write(key(0x101, 1), report)
	b.pressedBecomes(appliance.Up, appliance.Down, appliance.Up)
}

func TestHotPlug(t *testing.T) {
	f := newFakes(t)
	if err := os.Remove(f.folder()); err != nil { // the kernel makes it with the first device
		t.Fatal(err)
	}
	b := startBox(t, Options{Root: f.root, Profile: board.Profile{Keys: oneKey}}, f.use)
	b.until("said that there are none", func() bool { return b.lines("no keys:") == 1 })
	if err := os.Mkdir(f.folder(), 0o755); err != nil {
		t.Fatal(err)
	}
	pad := f.plug("event0", "Pad", "usb-1/input0", busUSB, 72, 80, 96)
	b.until("taken", pad.isGrabbed)
	press := func(d *fake, code uint16) {
		t.Helper()
		if _, err := d.events.Write(wire(eventSize, key(code, 1), report, key(code, 0), report)); err != nil {
			t.Fatal(err)
		}
	}
	press(pad, 96)
	b.pressedBecomes(appliance.Select)

	f.unplug(pad)
	b.until("said that it is gone", func() bool { return b.lines("no more keys from it") == 1 })

	// The same name, another device.
	again := f.plug("event0", "Other", "usb-1/input0", busUSB, 72, 80, 96)
	b.until("taken", again.isGrabbed)
	press(again, 80)
	b.pressedBecomes(appliance.Select, appliance.Down)

	// The rest of a keyboard comes after its media keys: they are let go.
	f.plug("event1", "Keyboard", "usb-1/input1", busUSB, 16, 30, 28)
	b.until("let go", func() bool { return b.logged("part of a keyboard with letter keys") })
	press(again, 96)
	if got := b.wrong(); len(got) > 0 {
		t.Errorf("faults: %q", got)
	}
	if n := b.lines("no keys:"); n != 1 {
		t.Errorf("said %d times that there are no keys", n)
	}
	b.stop()
	if got := b.pressed(); !slices.Equal(got, []appliance.Key{appliance.Select, appliance.Down}) {
		t.Errorf("pressed %v after it was let go", got)
	}
}

// What cannot be opened is said once, shown as a fault, and works as soon as it can be.
func TestTrouble(t *testing.T) {
	f := newFakes(t)
	d := f.plug("event0", "gpio-keys", "gpio-keys/input0", 0x19, 0x198)
	f.deny("event0", syscall.EACCES)
	b := startBox(t, Options{Root: f.root, Profile: board.Profile{Keys: oneKey}}, f.use)
	b.until("fault", func() bool { return slices.Equal(b.wrong(), []string{"cannot read event0"}) })
	nudge := func() { // as udev does when it sets the rights
		t.Helper()
		if err := os.Chmod(d.info.path, 0o660); err != nil {
			t.Fatal(err)
		}
	}
	nudge()
	if n := b.lines("permission denied"); n != 1 || !b.logged("must be in the group input") {
		t.Errorf("said %d times that it may not be opened", n)
	}
	d.set(func() { d.grabErr = syscall.EBUSY })
	f.deny("event0", nil)
	b.until("another fault", func() bool { nudge(); return slices.Equal(b.wrong(), []string{"cannot use gpio-keys"}) })
	for range 5 {
		nudge()
	}
	d.set(func() { d.grabErr = nil })
	b.until("all is well", func() bool { nudge(); return d.isGrabbed() && len(b.wrong()) == 0 })
	if n := b.lines("another program has taken these keys"); n != 1 {
		t.Errorf("said %d times that another program has them", n)
	}
	if _, err := d.events.Write(wire(eventSize, key(0x198, 1), report, key(0x198, 0), report)); err != nil {
		t.Fatal(err)
	}
	b.pressedBecomes(appliance.Down)
}

// A device that has just come and cannot be opened for a moment is no trouble.
func TestRightsThatComeLate(t *testing.T) {
	f := newFakes(t)
	b := startBox(t, Options{Root: f.root, Profile: board.Profile{Keys: oneKey}}, f.use)
	b.until("started", func() bool { return b.logged("no keys:") })
	f.deny("event0", syscall.EACCES)
	real := f.plug("event0", "gpio-keys", "gpio-keys/input0", 0x19, 0x198)
	b.until("tried", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.refused > 0 })
	f.deny("event0", nil)
	if err := os.Chmod(real.info.path, 0o660); err != nil {
		t.Fatal(err)
	}
	b.until("taken", real.isGrabbed)
	if b.logged("permission") || len(b.wrong()) > 0 {
		t.Errorf("faults %q", b.wrong())
	}
}

func TestNamedDevices(t *testing.T) {
	f := newFakes(t)
	keyboard := f.plug("event0", "Big keyboard", "usb-1/input0", busUSB, 16, 30, 28, 103)
	pad := f.plug("event1", "Pad", "usb-2/input0", busUSB, 72, 80, 96)
	other := f.plug("event2", "Other pad", "usb-3/input0", busUSB, 72, 80, 96)
	if err := os.MkdirAll(filepath.Join(f.folder(), "by-id"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../event1", filepath.Join(f.folder(), "by-id", "usb-pad")); err != nil {
		t.Fatal(err)
	}
	b := startBox(t, Options{Root: f.root}, func(s *session) {
		f.use(s)
		s.wanted = []string{"Big keyboard", "/dev/input/by-id/usb-pad", "Nothing"}
	})
	b.until("both taken", func() bool { return keyboard.isGrabbed() && pad.isGrabbed() })
	b.until("what is missing is a fault", func() bool { return slices.Equal(b.wrong(), []string{"no keys Nothing"}) })
	if other.isGrabbed() {
		t.Error("took a device that is not named")
	}
	late := f.plug("event3", "Nothing", "", busUSB, 28)
	b.until("found", func() bool { return late.isGrabbed() && len(b.wrong()) == 0 })
}

// A key that is down when the box starts starts no test, and after a time it is a fault.
func TestHeldFromTheStart(t *testing.T) {
	f := newFakes(t)
	d := f.plug("event0", "gpio-keys", "gpio-keys/input0", 0x19, 0x198)
	d.bits.set(0x198, true)
	b := startBox(t, Options{Root: f.root, Profile: board.Profile{Keys: oneKey}}, f.use)
	b.until("taken", d.isGrabbed)
	again := wire(eventSize, key(0x198, 0), report, key(0x198, 1), report, key(0x198, 0), report)
	if _, err := d.events.Write(again); err != nil {
		t.Fatal(err)
	}
	b.pressedBecomes(appliance.Down)
}

// What the reader of an unplugged device still has to say must not end the one that was plugged in at the same path.
func TestLastWordsOfAReader(t *testing.T) {
	s := newSession(Options{Root: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, []string{auto}, func(appliance.Event) {})
	const path = "/dev/input/event0"
	keys := map[uint16]meaning{28: {short: appliance.Select}}
	old := s.adopt(path, keys, 0)
	s.forget(path)
	s.adopt(path, keys, 0)
	s.take(news{switchID: switchID{path, 28}, life: old, at: time.Now(), down: true})
	s.take(news{switchID: switchID{source: path}, life: old, ended: true, err: syscall.ENODEV})
	if k := s.switches[switchID{path, 28}]; k == nil || k.Contact.level {
		t.Errorf("the new device's key: %+v", k)
	}
}
