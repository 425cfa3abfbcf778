package cpu

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"linerate/appliance/config"
	"linerate/appliance/cpu/cputest"
)

// bench is a box in a folder, with a Control that begins anew each time, as a restarted process does.
type bench struct {
	t    *testing.T
	root string
	dir  string
}

func newBench(t *testing.T, b cputest.Box) bench {
	t.Helper()
	dir := t.TempDir()
	r := bench{t, filepath.Join(dir, "root"), filepath.Join(dir, "state", "cpu")}
	if err := b.Lay(r.root); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r bench) apply(want config.CPU) (Outcome, error) {
	return NewControl(r.root, r.dir, nil).Apply(want)
}

func (r bench) mustApply(want config.CPU) Outcome {
	r.t.Helper()
	out, err := r.apply(want)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r bench) write(policy int, file, value string) {
	r.t.Helper()
	if err := os.WriteFile(cputest.Path(r.root, policy, file), []byte(value+"\n"), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// now lists governor, least and most clock of each policy.
func (r bench) now() []string {
	var out []string
	for _, p := range Policies(r.root) {
		out = append(out, strings.Join([]string{p.Name, p.Governor, khz(p.Min), khz(p.Max)}, " "))
	}
	return out
}

func (r bench) expect(what string, want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.now()); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var (
	fast  = config.CPU{Governor: "performance", MinFreq: config.FrequencyMax}
	leave = config.CPU{Governor: config.Leave, MinFreq: config.FrequencyLeave}
)

var (
	r6s     = []string{"policy0 ondemand 408000 1800000", "policy4 ondemand 408000 2208000", "policy6 schedutil 408000 2304000"}
	r6sFast = []string{"policy0 performance 1800000 1800000", "policy4 performance 2304000 2304000",
		"policy6 performance 2304000 2304000"}
)

func TestEveryPolicy(t *testing.T) {
	r := newBench(t, cputest.NanoPiR6S())
	planned, err := NewControl(r.root, r.dir, nil).Plan(fast)
	if err != nil {
		t.Fatal(err)
	}
	r.expect("a plan changes nothing", r6s...)
	out := r.mustApply(fast)
	r.expect("fast", r6sFast...)
	var lines []string
	for _, c := range out.Changes {
		lines = append(lines, c.String())
	}
	want := []string{
		"policy0: scaling_governor ondemand -> performance",
		"policy0: scaling_min_freq 408000 -> 1800000",
		"policy4: scaling_max_freq 2208000 -> 2304000",
		"policy4: scaling_governor ondemand -> performance",
		"policy4: scaling_min_freq 408000 -> 2304000",
		"policy6: scaling_governor schedutil -> performance",
		"policy6: scaling_min_freq 408000 -> 2304000",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if len(planned.Changes) != len(out.Changes) {
		t.Errorf("planned %v", planned.Changes)
	}
	if out := r.mustApply(fast); len(out.Changes) != 0 {
		t.Errorf("the second time changes %v", out.Changes)
	}
	if _, err := NewControl(r.root, r.dir, nil).Restore(); err != nil {
		t.Fatal(err)
	}
	r.expect("restored", r6s...)
	if _, err := os.Stat(filepath.Join(r.dir, originalsFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("originals after Restore: %v", err)
	}
	if out, err := NewControl(r.root, r.dir, nil).Restore(); err != nil || len(out.Changes) > 0 {
		t.Errorf("Restore again: %v, %v", out, err)
	}
}

// TestOriginalsStay: what was there before our first change comes back, whatever happened between.
func TestOriginalsStay(t *testing.T) {
	r := newBench(t, cputest.NanoPiR6S())
	r.mustApply(fast)
	// The distribution's own service comes late, and we again.
	r.write(4, fileGovernor, "ondemand")
	r.write(4, fileMin, "408000")
	r.write(4, fileMax, "1800000")
	r.mustApply(fast)
	r.expect("applied over another service", r6sFast...)
	r.mustApply(config.CPU{Governor: "schedutil", MinFreq: 600000})
	r.expect("another config", "policy0 schedutil 600000 1800000", "policy4 schedutil 600000 2208000", "policy6 schedutil 600000 2304000")
	r.mustApply(leave)
	r.expect("left alone", r6s...)
	r.mustApply(fast)
	if _, err := NewControl(r.root, r.dir, nil).Restore(); err != nil {
		t.Fatal(err)
	}
	r.expect("restored", r6s...)
}

func TestLeave(t *testing.T) {
	r := newBench(t, cputest.NanoPiR6S())
	if out := r.mustApply(leave); len(out.Changes) > 0 {
		t.Errorf("changes %v", out.Changes)
	}
	if _, err := os.Stat(r.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was kept: %v", err)
	}
	r.mustApply(fast)
	r.write(0, fileGovernor, "powersave") // somebody's own wish, after ours
	r.mustApply(leave)
	r.expect("their wish stays", append([]string{"policy0 powersave 408000 1800000"}, r6s[1:]...)...)

	r = newBench(t, cputest.NanoPiR6S())
	r.mustApply(config.CPU{Governor: "performance"})
	r.expect("only the governor", "policy0 performance 408000 1800000", "policy4 performance 408000 2208000", "policy6 performance 408000 2304000")
	r.mustApply(config.CPU{Governor: config.Leave, MinFreq: config.FrequencyMax})
	r.expect("only the clock", "policy0 ondemand 1800000 1800000", "policy4 ondemand 2304000 2304000", "policy6 schedutil 2304000 2304000")
}

// TestKilledAnywhere: a process that dies after any of its writes does not cost an original.
func TestKilledAnywhere(t *testing.T) {
	for _, want := range []config.CPU{fast, leave} {
		for step := range 8 {
			r := newBench(t, cputest.NanoPiR6S())
			if want == leave {
				r.mustApply(fast)
			}
			before := r.now()
			file := filepath.Join(r.dir, originalsFile)
			kept, _ := os.ReadFile(file)
			changes := r.mustApply(want).Changes
			// Undo what a process killed at this step had not written yet. Originals are kept before the first write and
			// forgotten after the last.
			if want == leave {
				if err := os.WriteFile(file, kept, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range changes[min(step, len(changes)):] {
				r.write(Policy{Name: c.Policy}.number(), c.File, c.From)
			}
			if step == 0 && len(changes) > 0 {
				r.expect("killed before the first write", before...)
			}
			if out := r.mustApply(want); len(out.Changes) != max(0, len(changes)-step) {
				t.Errorf("step %d: changes %v", step, out.Changes)
			}
			if _, err := NewControl(r.root, r.dir, nil).Restore(); err != nil {
				t.Fatal(err)
			}
			r.expect("restored", r6s...)
		}
	}
}

func TestNextBoot(t *testing.T) {
	r := newBench(t, cputest.NanoPiR6S())
	r.mustApply(fast)
	next := cputest.NanoPiR6S()
	next.BootID = "another"
	next.Policies[0].Governor = "powersave"
	if err := next.Lay(r.root); err != nil {
		t.Fatal(err)
	}
	if out, err := NewControl(r.root, r.dir, nil).Restore(); err != nil || len(out.Changes) > 0 {
		t.Errorf("the last boot's originals were restored: %v, %v", out, err)
	}
	r.mustApply(fast)
	if _, err := NewControl(r.root, r.dir, nil).Restore(); err != nil {
		t.Fatal(err)
	}
	r.expect("this boot's own", append([]string{"policy0 powersave 408000 1800000"}, r6s[1:]...)...)
}

func TestWhatCannotBeHad(t *testing.T) {
	b := cputest.NanoPiR6S()
	b.Policies[1].Governors = "userspace ondemand"
	b.Policies[2].NoList = true
	r := newBench(t, b)
	out, err := r.apply(config.CPU{Governor: "performance", MinFreq: 2000000})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"policy0: min_freq 2000000 kHz is more than it can do: 1800000 kHz",
		"policy4: has no governor performance: there are userspace, ondemand",
	}
	if diff := cmp.Diff(want, out.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	r.expect("the rest", "policy0 performance 1800000 1800000", "policy4 ondemand 2000000 2208000", "policy6 performance 2000000 2304000")
	if out := r.mustApply(config.CPU{Governor: config.Leave, MinFreq: 5000}); len(out.Notes) != 3 {
		t.Errorf("notes %q", out.Notes)
	}
	r.expect("least", "policy0 ondemand 408000 1800000", "policy4 ondemand 408000 2208000", "policy6 schedutil 408000 2304000")
}

func TestNoCpufreq(t *testing.T) {
	for name, root := range map[string]string{"empty tree": t.TempDir(), "this machine, if it has none": "/"} {
		if len(Policies(root)) > 0 {
			continue
		}
		var log bytes.Buffer
		c := NewControl(root, filepath.Join(t.TempDir(), "state"), slog.New(slog.NewTextHandler(&log, nil)))
		for range 3 {
			out, err := c.Apply(fast)
			if err != nil || len(out.Changes) > 0 || len(out.Notes) != 1 || out.Notes[0] != noCpufreq {
				t.Errorf("%s: %v, %v", name, out, err)
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%s: said %d times", name, n)
		}
	}
}

// TestErrors: each says which file and why, and the rest is done.
func TestErrors(t *testing.T) {
	r := newBench(t, cputest.NanoPiR6S())
	least := cputest.Path(r.root, 4, fileMin)
	// A file that is none of the kernel's: the policy's limits are unknown then, and the rest is done.
	if err := os.Remove(least); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", least); err != nil {
		t.Fatal(err)
	}
	out, err := r.apply(fast)
	if err != nil || len(out.Notes) != 1 || out.Notes[0] != "policy4: its clock limits are unknown" {
		t.Errorf("%v, %v", out, err)
	}
	r.expect("the rest", r6sFast[0], "policy4 performance  2208000", r6sFast[2])
	for _, c := range []struct {
		path, want string
	}{
		{"/dev/full", "write 1 to /dev/full: no space left on device"},
		{"/dev/null", "read /dev/null back: /dev/null is no regular file"},
		{filepath.Join(r.root, "none"), "write 1 to " + filepath.Join(r.root, "none") + ": no such file or directory (the driver has no such file)"},
	} {
		if err := write(c.path, "1"); err == nil || err.Error() != c.want {
			t.Errorf("write %s: %v\nwant %s", c.path, err, c.want)
		}
	}
	for err, want := range map[error]string{
		&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}:  "permission denied (needs uid 0 or CAP_DAC_OVERRIDE)",
		&fs.PathError{Op: "write", Path: "x", Err: syscall.EPERM}:  "operation not permitted (needs uid 0 or CAP_DAC_OVERRIDE)",
		&fs.PathError{Op: "open", Path: "x", Err: syscall.EROFS}:   "read-only file system (/sys is mounted read-only, as in a container)",
		&fs.PathError{Op: "write", Path: "x", Err: syscall.EINVAL}: "invalid argument (the driver refuses this value)",
		syscall.EBUSY: "device or resource busy",
	} {
		if got := explain(err).Error(); got != want {
			t.Errorf("explain: %s, want %s", got, want)
		}
	}
}

// TestOneFails: what the kernel refuses of one policy costs the others nothing.
func TestOneFails(t *testing.T) {
	r := newBench(t, cputest.NanoPiR6S())
	b := cputest.NanoPiR6S()
	b.Policies[0].First = 8
	if err := b.Lay(r.root); err != nil {
		t.Fatal(err)
	}
	governor := cputest.Path(r.root, 4, fileGovernor)
	for _, path := range []string{governor, cputest.Path(r.root, 8, fileGovernor)} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/proc/version", path); err != nil { // can be read, and takes nothing from anybody
			t.Fatal(err)
		}
	}
	out, err := r.apply(fast)
	if err == nil || !strings.HasPrefix(err.Error(), "write performance to "+governor+": ") ||
		!strings.Contains(err.Error(), "policy8") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if len(out.Changes) != 7 {
		t.Errorf("changes %v", out.Changes)
	}
	now := r.now()
	if now[0] != r6sFast[0] || now[2] != r6sFast[2] || !strings.HasSuffix(now[1], " 2304000 2304000") {
		t.Errorf("now %q", now)
	}
}

// TestReadBack: a value that does not stick is an error. The kernel keeps 15 letters of a process's name, and says nothing.
func TestReadBack(t *testing.T) {
	const path = "/proc/self/comm"
	name, err := attribute(path)
	if err != nil {
		t.Skip(err)
	}
	defer write(path, name)
	if err := write(path, "performance"); err != nil {
		t.Error(err)
	}
	err = write(path, "performance-governor")
	if want := "wrote performance-governor to /proc/self/comm, but it says performance-gov"; err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// TestNoOriginalsNoChange: what could not be put back is not changed.
func TestNoOriginalsNoChange(t *testing.T) {
	r := newBench(t, cputest.NanoPiR6S())
	if err := os.WriteFile(filepath.Dir(r.dir), []byte("a file in the way"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := r.apply(fast); err == nil {
		t.Error("want an error")
	}
	r.expect("untouched", r6s...)

	r = newBench(t, cputest.NanoPiR6S())
	r.mustApply(fast)
	if err := os.WriteFile(filepath.Join(r.dir, originalsFile), []byte(`{"boot_id": "r6s", "pol`), 0o644); err != nil {
		t.Fatal(err)
	}
	c := NewControl(r.root, r.dir, nil)
	if _, err := c.Apply(leave); err == nil || !strings.Contains(err.Error(), "remove it to keep the cpu as it is now") {
		t.Errorf("Apply: %v", err)
	}
	if _, err := c.Restore(); err == nil {
		t.Error("Restore: want an error")
	}
	r.expect("untouched", r6sFast...)
}

func TestReadOnlyTree(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to give up root")
	}
	r := newBench(t, cputest.NanoPiR6S())
	// A thread without root's rights meets the files as the server would.
	err := unprivileged(func() error {
		return write(cputest.Path(r.root, 0, fileGovernor), "performance")
	})
	if err == nil || !strings.HasSuffix(err.Error(), "scaling_governor: permission denied (needs uid 0 or CAP_DAC_OVERRIDE)") {
		t.Errorf("error %v", err)
	}
}

// TestOrder: the lower limit never passes the upper, which older kernels refuse.
func TestOrder(t *testing.T) {
	p := Policy{Name: "policy0", Governor: "ondemand", Min: 1000, Max: 2000}
	for _, c := range []struct {
		name      string
		least     string
		most      string
		wantFiles string
	}{
		{"both up", "3000", "3000", "scaling_max_freq scaling_governor scaling_min_freq"},
		{"both down", "500", "500", "scaling_governor scaling_min_freq scaling_max_freq"},
		{"least alone", "2000", "2000", "scaling_governor scaling_min_freq"},
		{"nothing known", "", "", "scaling_governor"},
	} {
		var files []string
		low, high := p.Min, p.Max
		for _, ch := range order(p, map[string]string{fileGovernor: "performance", fileMin: c.least, fileMax: c.most}) {
			files = append(files, ch.File)
			switch n, _ := strconv.Atoi(ch.To); ch.File {
			case fileMin:
				low = n
			case fileMax:
				high = n
			}
			if low > high {
				t.Errorf("%s: %d passes %d", c.name, low, high)
			}
		}
		if got := strings.Join(files, " "); got != c.wantFiles {
			t.Errorf("%s: %s, want %s", c.name, got, c.wantFiles)
		}
	}
}
