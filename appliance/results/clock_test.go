package results

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// box is a clock that a test moves.
type box struct {
	now    time.Time
	up     time.Duration
	synced bool
	boot   string
}

func (b *box) clock() Clock {
	return Clock{
		Now: func() time.Time { return b.now }, Uptime: func() time.Duration { return b.up },
		Synced: func() bool { return b.synced }, BootID: b.boot,
	}
}

func (b *box) pass(d time.Duration) { b.now, b.up = b.now.Add(d), b.up+d }

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestSystemClock(t *testing.T) {
	c := SystemClock("/")
	if len(c.BootID) != 36 || c.Uptime() < time.Second || time.Since(c.Now()) > time.Minute {
		t.Errorf("boot %q, up %v, now %v", c.BootID, c.Uptime(), c.Now())
	}
	s := c.Stamp()
	if s.Clock != Synced && s.Clock != Unsynced || s.Clock == Synced != c.Synced() {
		t.Errorf("clock %q", s.Clock)
	}
	root := t.TempDir()
	if id := SystemClock(root).BootID; id != "" {
		t.Errorf("boot %q in an empty tree", id)
	}
	file := filepath.Join(root, "proc/sys/kernel/random/boot_id")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("abc\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if id := SystemClock(root).BootID; id != "abc" {
		t.Errorf("boot %q, want abc", id)
	}
	if built().Before(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("built %v", built())
	}
}

func TestJudge(t *testing.T) {
	marked, bare := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(marked, "run/systemd/timesync"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(marked, "run/systemd/timesync/synchronized"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		status int32
		err    error
		root   string
		want   bool
	}{
		{"kept on time", 0x2001, nil, bare, true},
		{"never set", 0x40, nil, marked, false},
		{"forbidden, but timesyncd has it", 0x40, syscall.EPERM, marked, true},
		{"forbidden, and nobody says", 0, syscall.EPERM, bare, false},
	} {
		if got := judge(c.status, c.err, c.root); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestAgeAndWhen(t *testing.T) {
	time.Local = time.UTC
	for _, c := range []struct {
		name string
		then Stamp
		now  box
		want string
	}{
		{"same boot, clock not set", Stamp{BootID: "a", UptimeS: 10, Clock: Unsynced}, box{up: 15 * time.Second, boot: "a"}, "5 s ago"},
		{"same boot, the clock stepped back two years", Stamp{BootID: "a", UptimeS: 10, Clock: Synced, Time: noon.AddDate(2, 0, 0)},
			box{up: 190 * time.Second, boot: "a", now: noon, synced: true}, "3 min ago"},
		{"another boot, clocks set", Stamp{BootID: "a", UptimeS: 10, Clock: Synced, Time: noon},
			box{boot: "b", now: noon.Add(5 * time.Hour), synced: true}, "5 h ago"},
		{"yesterday", Stamp{BootID: "a", Clock: Synced, Time: noon}, box{boot: "b", now: noon.Add(25 * time.Hour), synced: true},
			"2026-11-30 12:00"},
		{"clock set then, not now", Stamp{BootID: "a", Clock: Synced, Time: noon}, box{boot: "b", now: noon.AddDate(-2, 0, 0)},
			"2026-11-30 12:00"},
		{"clock set now, not then", Stamp{BootID: "a", Clock: Unsynced, Time: noon}, box{boot: "b", now: noon, synced: true},
			"clock not set"},
		{"from the future", Stamp{BootID: "a", Clock: Synced, Time: noon.Add(time.Hour)}, box{boot: "b", now: noon, synced: true},
			"0 s ago"},
		{"two days up, clock not set", Stamp{BootID: "a", UptimeS: 0, Clock: Unsynced}, box{up: 49 * time.Hour, boot: "a"},
			"2 days ago"},
		{"no boot id", Stamp{Clock: Unsynced}, box{up: time.Hour}, "clock not set"},
	} {
		if got := When(c.then, c.now.clock()); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestClockSteps: the clock of a box without a battery goes two years back and forth; order and ages do not care, and
// once the clock is set the times come right, for ever.
func TestClockSteps(t *testing.T) {
	dir := t.TempDir()
	b := &box{now: noon.AddDate(-2, 0, 0), up: time.Minute, boot: "boot 1"}
	s := mustOpen(t, dir, b.clock())
	mustAppend := func(want string) {
		t.Helper()
		r, err := s.Append(example(1))
		if err != nil || r.ID != want {
			t.Fatalf("id %s, %v; want %s", r.ID, err, want)
		}
	}
	mustAppend("1") // really noon - 10 min
	b.pass(5 * time.Minute)
	b.now = b.now.AddDate(4, 0, 0)
	mustAppend("2") // really noon - 5 min
	b.pass(3 * time.Minute)
	b.now = b.now.AddDate(-4, 0, 0)
	mustAppend("3") // really noon - 2 min
	for i, r := range s.Last(0) {
		if r.Seq != uint64(3-i) || r.Clock != Unsynced {
			t.Errorf("place %d: seq %d, %s", i, r.Seq, r.Clock)
		}
		if age, ok := b.clock().Age(r.Stamp); !ok || age != []time.Duration{0, 3, 8}[i]*time.Minute {
			t.Errorf("seq %d: age %v, %v", r.Seq, age, ok)
		}
	}
	b.pass(2 * time.Minute)
	b.now, b.synced = noon, true

	want := []time.Time{noon.Add(-2 * time.Minute), noon.Add(-5 * time.Minute), noon.Add(-10 * time.Minute)}
	check := func(what string, list []Record, skip int) {
		t.Helper()
		if len(list) != skip+3 {
			t.Fatalf("%s: %d results", what, len(list))
		}
		for i, r := range list[skip:] {
			if !r.Time.Equal(want[i]) || r.Clock != Synced || r.Seq != uint64(3-i) {
				t.Errorf("%s: seq %d at %v (%s), want %v", what, r.Seq, r.Time, r.Clock, want[i])
			}
		}
	}
	check("as soon as the clock is set", s.Last(0), 0)
	read, _, err := Read(filepath.Join(dir, FileName), 0, b.clock())
	if err != nil {
		t.Fatal(err)
	}
	check("read by another process", read, 0)
	if r, ok := s.Get("1"); !ok || !r.Time.Equal(want[2]) {
		t.Errorf("Get: %v, %v", r.Time, ok)
	}

	size := fileSize(t, dir)
	for range 3 {
		if err := s.NoteClock(); err != nil {
			t.Fatal(err)
		}
	}
	if n := fileSize(t, dir) - size; n < 100 || n > 200 {
		t.Errorf("the moment took %d bytes, want one line", n)
	}
	mustClose(t, s)
	// The next boot has no clock again, and no idea of this one's time but what was written down.
	*b = box{now: noon.AddDate(-2, 0, 0), up: time.Minute, boot: "boot 2"}
	s = mustOpen(t, dir, b.clock())
	check("after the next boot", s.Last(0), 0)
	mustAppend("4")
	if r := s.Last(1)[0]; r.Clock != Unsynced {
		t.Errorf("the next boot's own: %s", r.Clock)
	}
	s.maxResults = 4
	mustAppend("5")
	s.work.Wait()
	mustClose(t, s)
	s = mustOpen(t, dir, b.clock())
	list := s.Last(0)
	if last := list[len(list)-1]; last.Seq != 3 || !last.Time.Equal(want[0]) {
		t.Errorf("after a rewrite: seq %d at %v, want 3 at %v", last.Seq, last.Time, want[0])
	}
}

// TestClockSetDuringRewrite: the line that tells the time is not lost between two logs.
func TestClockSetDuringRewrite(t *testing.T) {
	d := newMemDisk(nil)
	b := &box{now: noon.AddDate(-2, 0, 0), up: time.Minute, boot: "boot 1"}
	s, err := open(d, "/state", b.clock(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(example(1)); err != nil {
		t.Fatal(err)
	}
	f, err := d.create(newFileName)
	if err != nil {
		t.Fatal(err)
	}
	c := s.copyMost(f)
	b.now, b.synced = noon, true
	if err := s.NoteClock(); err != nil {
		t.Fatal(err)
	}
	if err := s.replace(c); err != nil {
		t.Fatal(err)
	}
	if list := reopen(t, d); len(list) != 1 || !list[0].Time.Equal(noon) || list[0].Clock != Synced {
		t.Errorf("%v", list[0].Stamp)
	}
}

// TestLaterResultTellsTheTime: without a line of its own, a result with a set clock tells the time of its boot.
func TestLaterResultTellsTheTime(t *testing.T) {
	dir := t.TempDir()
	b := &box{now: noon.AddDate(-2, 0, 0), up: time.Minute, boot: "boot 1"}
	s := mustOpen(t, dir, b.clock())
	if _, err := s.Append(example(1)); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Hour)
	b.now, b.synced = noon, true
	if _, err := s.Append(example(2)); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	later := &box{now: noon.Add(24 * time.Hour), boot: "boot 2"}
	list, _, err := Read(filepath.Join(dir, FileName), 0, later.clock())
	if err != nil || len(list) != 2 || !list[1].Time.Equal(noon.Add(-time.Hour)) {
		t.Errorf("%v, %v", list, err)
	}
}

func mustOpen(t *testing.T, dir string, c Clock) *Store {
	t.Helper()
	s, err := Open(dir, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func mustClose(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func fileSize(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
