package netcfg

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/netcfg/manager"
)

// timer notes what it is told, as systemd would do it.
type timer struct {
	mu   sync.Mutex
	said []string
	do   func() // when it is started
}

func (f *timer) Restart(_ context.Context, unit string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, "start "+unit)
	if f.do != nil {
		f.do()
	}
	return nil
}

func (f *timer) Stop(_ context.Context, unit string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, "stop "+unit)
	return nil
}

func (f *timer) log() string { f.mu.Lock(); defer f.mu.Unlock(); return strings.Join(f.said, ", ") }

// running is a keeper that this boot's first pass lies behind of.
func running(t *testing.T) (*Keeper, *timer) {
	t.Helper()
	k, f := keeper(t), &timer{}
	k.timer = f
	k.writeBoots(boots{Boot: bootID(), Ended: true})
	must(t, os.MkdirAll(filepath.Join(k.runDir, RequestDir), 0o755))
	return k, f
}

// keepUntil runs the keeper until what is awaited holds; then it has ended, as if by kill -9: nothing is put back.
func keepUntil(t *testing.T, k *Keeper, w Wanted, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Keep(always(w)).Run(ctx, appliance.NewHub(appliance.State{})) }()
	until(t, what, ok)
	cancel()
	must(t, <-done)
}

func status(t *testing.T, k *Keeper) Status {
	t.Helper()
	s, err := ReadStatus(k.runDir)
	must(t, err)
	return s
}

// expire makes the time to confirm be over.
func expire(t *testing.T, k *Keeper) {
	t.Helper()
	tr := k.readTrial()
	if tr == nil {
		t.Fatal("no change waits")
	}
	tr.Began -= int64(ConfirmWithin / time.Second)
	b, err := json.Marshal(tr)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(k.dir, trialFile), b, 0o644))
}

func bothFree(t *testing.T) func() bool {
	return func() bool { return masterOf(t, "eth1") == "" && masterOf(t, "eth2") == "" }
}

// A connection goes over the bridge: the timer runs before the first step, and without a word everything comes back and
// stays, though the keeper was killed and started again. Another config is another change.
func TestUnconfirmedChangeIsTakenBack(t *testing.T) {
	bridged(t)
	ask := longConnection(t, "far2")
	must(t, ask("over the bridge"))
	k, f := running(t)
	f.do = func() {
		if bothFree(t)() || masterOf(t, "eth1") == "" || k.readTrial() == nil {
			t.Error("the timer starts after the change, or before its record")
		}
	}
	before, w := picture(t), wants(generic, "eth1", "eth2")
	keepUntil(t, k, w, "free, on trial", func() bool {
		s, err := ReadStatus(k.runDir)
		return bothFree(t)() && err == nil && s.Change != nil
	})
	if f.log() != "start "+rollbackTimer {
		t.Errorf("timer: %s", f.log())
	}
	must(t, ask("over the port"))
	again := NewKeeper(k.dir, k.runDir, nil)
	again.timer = f
	keepUntil(t, again, w, "still on trial", func() bool { s, err := ReadStatus(k.runDir); return err == nil && s.Change != nil })
	if again.readTrial() == nil || !bothFree(t)() {
		t.Error("a keeper that starts again ends the trial")
	}

	expire(t, k)
	if r, err := NewKeeper(k.dir, k.runDir, nil).Rollback(t.Context(), w); err != nil || !r.Good() { // as the timer does
		t.Fatalf("%s%v, %v", r.Text(), r.Errors(), err)
	}
	if d := diff(before, picture(t)); d != "" {
		t.Errorf("this differs from what was found:\n%s", d)
	}
	must(t, ask("over the bridge again"))
	keepUntil(t, k, w, "the keeper says why it does nothing", func() bool {
		s, err := ReadStatus(k.runDir)
		return err == nil && s.Held && slices.Contains(s.Notes, rolledBackNote)
	})
	if d := diff(before, picture(t)); d != "" {
		t.Errorf("the keeper made the change again:\n%s", d)
	}
	w.Ports.MTU = 1400
	keepUntil(t, k, w, "another config is tried", bothFree(t))
}

// Without systemd the keeper takes the change back itself.
func TestKeeperTakesChangeBackItself(t *testing.T) {
	bridged(t)
	must(t, longConnection(t, "far2")("over the bridge"))
	k, w := keeper(t), wants(generic, "eth1", "eth2")
	k.writeBoots(boots{Boot: bootID(), Ended: true})
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent")
	r := apply(t, k, w)
	if !bothFree(t)() || !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "could not be started") }) {
		t.Errorf("notes: %q", r.Notes)
	}
	expire(t, k)
	keepUntil(t, k, w, "the bridge is back", inBridge(t, "eth1", "eth2"))
}

// The change stays when it is confirmed by a request, or when whom it could cut off comes again.
func TestConfirmedChangeStays(t *testing.T) {
	for _, how := range []string{"request", "new connection"} {
		t.Run(how, func(t *testing.T) {
			bridged(t)
			send := longConnection(t, "far2")
			must(t, send("over the bridge"))
			k, f := running(t)
			w := wants(generic, "eth1", "eth2")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- k.Keep(always(w)).Run(ctx, appliance.NewHub(appliance.State{})) }()
			defer func() { cancel(); must(t, <-done) }()
			until(t, "on trial", func() bool { s, err := ReadStatus(k.runDir); return err == nil && s.Change != nil && bothFree(t)() })
			if how == "request" {
				name, err := WriteRequest(k.runDir, Request{RequestConfirm})
				must(t, err)
				until(t, "the answer", func() bool {
					i := slices.IndexFunc(status(t, k).Answers, func(a Answer) bool { return a.File == name && a.OK })
					return i >= 0
				})
			} else {
				must(t, send(dialAgain))
				addAddress(t, "eth1", "203.0.113.9/32") // an event: it looks again
			}
			until(t, "no change waits", func() bool { return k.readTrial() == nil && status(t, k).Change == nil })
			if f.log() != "start "+rollbackTimer+", stop "+rollbackTimer || !k.trusted(w) || !bothFree(t)() {
				t.Errorf("timer: %s", f.log())
			}
		})
	}
}

// At boot, when nobody is there yet, and where nobody could be cut off, there is no trial; nor without a place to record
// it is there a change.
func TestWhenThereIsNoTrial(t *testing.T) {
	bridged(t)
	k, f := running(t)
	if r := apply(t, k, wants(generic, "eth1", "eth2")); !r.Good() || !bothFree(t)() || f.log() != "" || k.readTrial() != nil {
		t.Errorf("nobody is connected: %v, timer %s", r.Errors(), f.log())
	}
	if _, err := k.Restore(t.Context(), wants(generic, "eth1", "eth2")); err != nil {
		t.Fatal(err)
	}
	must(t, longConnection(t, "far2")("over the bridge"))
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o644))
	nowhere := NewKeeper(filepath.Join(file, "state"), k.runDir, nil)
	nowhere.timer = f
	r := apply(t, nowhere, wants(generic, "eth1", "eth2"))
	if r.Good() || f.log() != "" || !inBridge(t, "eth1", "eth2")() {
		t.Errorf("changed without a record: %s%v, timer %q", r.Text(), r.Errors(), f.log())
	}
}

// A record that cannot be read is one that has run out.
func FuzzTrial(f *testing.F) {
	f.Add([]byte(`{"boot":"a","hash":"b","began":12,"peers":[{"local":"192.168.2.1:22","peer":"192.168.2.50:4000"}]}`))
	f.Add([]byte(`{"boot":`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tr := parseTrial(b)
		if tr == nil || len(tr.Peers) > maxPeers || tr.Boot == "" && !tr.over(ConfirmWithin) {
			t.Errorf("%q: %+v", b, tr)
		}
	})
}

func TestAtRisk(t *testing.T) {
	seen := Seen{}
	seen.addresses = []manager.Address{manager.Given("br0", netip.MustParsePrefix("192.168.2.1/24")),
		manager.Given("eth3", netip.MustParsePrefix("198.51.100.1/24"))}
	c := func(local, peer string) connection {
		return connection{netip.MustParseAddrPort(local), netip.MustParseAddrPort(peer)}
	}
	ssh, test, inside := c("192.168.2.1:22", "192.168.2.50:40000"), c("198.51.100.1:5201", "198.51.100.2:40001"),
		c("192.168.2.1:80", "198.51.100.1:40002")
	all := []connection{ssh, test, inside, c("127.0.0.1:22", "127.0.0.1:4")}
	for name, test := range map[string]struct {
		steps []Step
		want  []connection
	}{
		"leaving the bridge":    {[]Step{{Kind: LeaveBridge, Port: "eth1", bridge: "br0"}}, []connection{ssh}},
		"an address goes":       {[]Step{{Kind: RemoveAddress, Port: "eth3"}}, []connection{test}},
		"another port":          {[]Step{{Kind: LeaveBridge, Port: "eth5", bridge: "br5"}}, nil},
		"nothing that disturbs": {[]Step{{Kind: AddAddress, Port: "br0"}, {Kind: SetUp, Port: "eth3"}}, nil},
	} {
		if got := atRisk(seen, test.steps, all); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	tr := trial{Peers: []connection{ssh}}
	for name, test := range map[string]struct {
		now  []connection
		want bool
	}{
		"the old one":    {[]connection{ssh}, false},
		"somebody else":  {[]connection{test}, false},
		"the same again": {[]connection{ssh, c("192.168.2.1:22", "192.168.2.50:40009")}, true},
	} {
		if got := tr.reached(test.now); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestBoots(t *testing.T) {
	var b boots
	first := false
	play := func(what string) {
		switch what[:1] {
		case "+":
			b, first = b.begin(what[1:])
		case "g":
			b = b.end(true)
		case "f":
			b = b.end(false)
		}
	}
	for name, test := range map[string]struct {
		play []string
		want int
	}{
		"three failures":              {[]string{"+1", "f", "+2", "f", "+3", "f"}, 3},
		"three power cuts":            {[]string{"+1", "+2", "+3", "+4"}, 0},
		"a good one between":          {[]string{"+1", "f", "+2", "g", "+3", "f"}, 1},
		"crashes count once a boot":   {[]string{"+1", "+1", "+1", "+1"}, 1},
		"three boots that crash":      {[]string{"+1", "+1", "+2", "+2", "+3", "+3"}, 3},
		"a later failure in one boot": {[]string{"+1", "g", "f", "f"}, 0},
	} {
		b = boots{}
		for _, p := range test.play {
			play(p)
		}
		if b.Failed != test.want {
			t.Errorf("%s: %d failed, want %d", name, b.Failed, test.want)
		}
	}
	if play("+9"); !first {
		t.Error("a new boot's first keeper is not the first")
	}
	if play("+9"); first {
		t.Error("the second is the first too")
	}
}

// Hands off: the file on the boot partition, and three boots that failed. A person leaves the latter.
func TestSafeMode(t *testing.T) {
	bridged(t)
	k, _ := running(t)
	w := wants(generic, "eth1", "eth2")
	k.bootRoot = t.TempDir()
	must(t, os.MkdirAll(filepath.Join(k.bootRoot, "boot"), 0o755))
	file := filepath.Join(k.bootRoot, "boot", safeFile)
	must(t, os.WriteFile(file, nil, 0o644))
	before := picture(t)
	said := func(word string) func() bool {
		return func() bool {
			s, err := ReadStatus(k.runDir)
			return err == nil && strings.Contains(s.Safe, word) && slices.Contains(s.Faults(), s.Safe)
		}
	}
	keepUntil(t, k, w, "it says why", said("/boot/linerate-safe"))
	must(t, os.Remove(file))
	k.writeBoots(boots{Boot: "another", Failed: maxFailed, Ended: true})
	keepUntil(t, k, w, "it says why", said("3 boots"))
	if d := diff(before, picture(t)); d != "" {
		t.Errorf("changed:\n%s", d)
	}
	if text, err := k.Confirm(t.Context()); err != nil || k.Safe() != "" {
		t.Errorf("%q, %v", text, err)
	}
	keepUntil(t, k, w, "it works again", bothFree(t))
}

// While a test runs nothing is changed; when it is over, it is.
func TestKeeperWaitsForTests(t *testing.T) {
	bridged(t)
	k, _ := running(t)
	lock, err := os.Create(filepath.Join(k.runDir, "testing"))
	must(t, err)
	defer lock.Close()
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_SH))
	start(t, k.Keep(always(wants(generic, "eth1", "eth2"))))
	time.Sleep(2 * testsLook) // nothing tells that it does nothing
	if !inBridge(t, "eth1", "eth2")() {
		t.Fatal("changed during a test")
	}
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_UN))
	until(t, "free after the test", bothFree(t))
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB)) // the keeper does not hold it
}

func TestTakeRequests(t *testing.T) {
	k, _ := running(t)
	dir := filepath.Join(k.runDir, RequestDir)
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte(`{"request":"restore"}`), 0o600))
	for name, content := range map[string]string{
		"good.json": `{"request":"confirm"}`, "large.json": `{"request":"confirm"}` + strings.Repeat(" ", maxRequest),
		"odd.json": `{"request":"format"}`, "half.json": `{"request":`, "readme": "x", ".hidden.json": `{"request":"restore"}`,
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	must(t, os.Symlink(secret, filepath.Join(dir, "link.json")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo.json"), 0o644))
	requests, files := k.takeRequests()
	if len(requests) != 1 || requests[0].Request != RequestConfirm || files[0] != "good" {
		t.Errorf("requests %v of %v", requests, files)
	}
	var refused []string
	for _, a := range k.answers {
		if a.OK || a.Text == "" {
			t.Errorf("answer %+v", a)
		}
		refused = append(refused, a.File)
	}
	slices.Sort(refused)
	if want := []string{"fifo", "half", "large", "link", "odd"}; !slices.Equal(refused, want) {
		t.Errorf("refused %v, want %v", refused, want)
	}
	if again, _ := k.takeRequests(); len(again) > 0 {
		t.Error("a request is there twice")
	}
	if _, err := os.Stat(secret); errors.Is(err, os.ErrNotExist) {
		t.Error("what the link leads to is gone")
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"request":"confirm"}`))
	f.Add([]byte(`{"request":"mtu","port":"eth1","bytes":9000}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRequest(b); err == nil && r.Request != RequestConfirm && r.Request != RequestRestore {
			t.Errorf("%q is %q", b, r.Request)
		}
	})
}
