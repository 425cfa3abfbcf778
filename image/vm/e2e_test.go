package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// needs skips a test that was not asked for, or cannot be here. Virtual machines take the processors for minutes, so
// `go test ./...` leaves them to make.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if os.Getenv("LINERATE_VM") == "" {
		t.Skip("starts virtual machines: `make e2e` and `make powercut` run it")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: the files of the virtual box belong to several users")
	}
	if err := Available(programs...); err != nil {
		t.Skip(err)
	}
}

// keep is the folder of the pictures and logs of a run.
func keep(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("../../bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// bench is a box on the bench: what a test knows of it from outside, and a hand inside.
type bench struct {
	*testing.T
	box      *Box
	machine  *Machine
	boots    int
	dir      string
	server   string // 127.0.0.1:port that leads to the box's server, by lan1
	outside  string // port of an iperf3 server of this machine's, as the box reaches it
	times    *os.File
	kernelAt time.Time // of the present boot

	slow       float64                       // how many times slower than alone on its machine the box runs
	firstFrame func(time.Duration) time.Time // waits for the boot page
}

const goodConfig = `[ports]
mtu = 4000

[[target]]
name = "bench"
host = "192.168.2.2"
tcp_port = %s
`

func newBench(t *testing.T) *bench {
	needs(t, "iperf3")
	b := &bench{T: t, dir: keep(t, "e2e"), outside: strconv.Itoa(freePort(t))}
	forward := freePort(t)
	b.server = strconv.Itoa(forward)
	var err error
	if b.times, err = os.Create(filepath.Join(b.dir, "times.txt")); err != nil {
		t.Fatal(err)
	}
	logFile, err := os.Create(filepath.Join(b.dir, "vm.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(b.times.Close(), logFile.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	since := time.Now()
	b.box, err = Prepare(ctx, Options{
		Binary:  "../../bin/linux-arm64/linerate",
		Forward: map[string]int{"lan1": forward},
		Files:   map[string]string{"etc/linerate/linerate.toml": fmt.Sprintf(goodConfig, b.outside)},
		Log:     slog.New(slog.NewTextHandler(logFile, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if b.machine != nil {
			b.off()
		}
		if err := b.box.Close(); err != nil {
			t.Error(err)
		}
	})
	for module, why := range b.box.Kernel.Missing {
		t.Logf("note: the kernel lacks %s: %s", module, why)
	}
	b.time("box made ready", time.Since(since))
	return b
}

// freePort is a port of 127.0.0.1 that nobody listens on.
func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (b *bench) time(what string, d time.Duration) {
	line := fmt.Sprintf("%-46s %6.1f s", what, d.Seconds())
	fmt.Fprintln(b.times, line)
	b.Log("note: " + line)
}

// on boots the box and waits until the tests' shell answers.
func (b *bench) on() {
	b.Helper()
	m, err := b.box.Boot()
	if err != nil {
		b.Fatal(err)
	}
	b.machine = m
	b.boots++
	b.firstFrame = b.watch("boot")
	b.within(4*time.Minute, "systemctl is-active -q linerate || systemctl start linerate") // boots meanwhile
	b.kernelAt = b.kernelStart()
}

// off takes the power away, and keeps what is to be seen.
func (b *bench) off() {
	b.Helper()
	m := b.machine
	b.machine = nil
	name := func(s string) string { return filepath.Join(b.dir, fmt.Sprintf("boot%d-%s", b.boots, s)) }
	var errs []error
	errs = append(errs, os.WriteFile(name("console.txt"), []byte(m.Console()), 0o644), os.MkdirAll(name("panel"), 0o755))
	for _, shown := range settled(m.Panel.History()) {
		file := fmt.Sprintf("%07.2fs.png", shown.At.Sub(m.Started).Seconds())
		errs = append(errs, save(filepath.Join(name("panel"), file), shown.Picture))
	}
	if faults := m.Panel.Faults(); len(faults) > 0 {
		b.Errorf("the panel was told what its data sheet forbids: %q", faults)
	}
	m.Kill()
	if err := errors.Join(errs...); err != nil {
		b.Error(err)
	}
}

// settled leaves out pictures that were only half drawn: those that another one followed at once.
func settled(history []Shown) []Shown {
	var out []Shown
	for i, s := range history {
		if i+1 == len(history) || history[i+1].At.Sub(s.At) > 150*time.Millisecond {
			out = append(out, s)
		}
	}
	return out
}

// run runs a command in the box.
func (b *bench) run(command string) string {
	b.Helper()
	return b.within(time.Minute, command)
}

func (b *bench) within(limit time.Duration, command string) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	out, err := b.machine.Run(ctx, command)
	if err != nil {
		b.Fatalf("%v\n%s\nconsole:\n%s", err, out, b.machine.Console())
	}
	return strings.TrimSpace(out)
}

// until waits in the box for a condition of the shell.
func (b *bench) until(limit time.Duration, what, condition string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit+20*time.Second)
	defer cancel()
	const script = `now() { read up idle </proc/uptime; echo ${up%%%%.*}; }
		end=$(($(now)+%d)); until %s; do [ $(now) -lt $end ] || exit 9; sleep 0.2; done`
	if _, err := b.machine.Run(ctx, fmt.Sprintf(script, int(limit.Seconds()), condition)); err != nil {
		journal := b.run("journalctl -b --no-pager -o short-monotonic -n 60; cat /run/linerate/netcfg.json | head -c 1000; ip -br a")
		b.Fatalf("not within %s: %s (%v)\n%s", limit, what, err, journal)
	}
}

// shows waits until the panel shows the golden picture of that name. The watch may have been set up before what makes the
// picture.
func (b *bench) shows(name string, limit time.Duration, rects ...image.Rectangle) time.Time {
	b.Helper()
	return b.watch(name, rects...)(limit)
}

func (b *bench) watch(name string, rects ...image.Rectangle) func(limit time.Duration) time.Time {
	b.Helper()
	panel := b.machine.Panel
	g, err := loadGolden(name)
	if *update && name != "boot" {
		return func(limit time.Duration) time.Time { return b.learn(name, rects) }
	}
	if err != nil {
		b.Fatalf("%v (go test -update makes it)", err)
	}
	wait := panel.Watch(g.matches)
	return func(limit time.Duration) time.Time {
		b.Helper()
		ctx, cancel := context.WithTimeout(b.Context(), limit)
		defer cancel()
		at, err := wait(ctx)
		now := panel.Picture()
		if err != nil {
			_ = save(filepath.Join(b.dir, name+"-instead.png"), now)
			b.Errorf("%s: %v; now it shows another picture, %d pixels differ (bin/e2e/%s-instead.png)", name, err, g.differs(now), name)
			return at
		}
		_ = save(filepath.Join(b.dir, name+".png"), now)
		return at
	}
}

// learn waits until the picture has changed, or seconds have passed, and then stands still; it becomes the golden one.
func (b *bench) learn(name string, rects []image.Rectangle) time.Time {
	for patience := 3 * time.Second; patience > 0; {
		select {
		case <-b.machine.Panel.Changed():
			patience = 700 * time.Millisecond
		case <-time.After(patience):
			patience = 0
		}
	}
	if err := errors.Join(os.MkdirAll("testdata", 0o755),
		save(goldenPath(name), mask(b.machine.Panel.Picture(), rects...))); err != nil {
		b.Fatal(err)
	}
	return time.Now()
}

// press presses a key of the virtual keyboard.
func (b *bench) press(key string) {
	b.Helper()
	if err := b.machine.Press(key); err != nil {
		b.Fatal(err)
	}
}

// stored is what of a result these tests look at.
type stored struct {
	ID        string
	Seq       int
	Role      string
	Direction string
	Port      string
	BPS       float64
	Valid     bool
	Error     *string
}

func (b *bench) results() []stored {
	b.Helper()
	var list []stored
	text := b.run("linerate results --json")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		b.Fatalf("%v in %q", err, text)
	}
	return list
}

// client runs Debian's iperf3 against the box from outside.
func (b *bench) client(args ...string) []byte {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "iperf3", append([]string{"-c", "127.0.0.1", "-p", b.server, "-J"}, args...)...).CombinedOutput()
	if err != nil {
		b.Errorf("iperf3 from outside: %v: %s", err, out)
	}
	return out
}

// journalTime is when, after the kernel's start, the server's journal said something.
func (b *bench) journalTime(text string) time.Duration {
	b.Helper()
	line := b.run("journalctl -b -u linerate -o short-monotonic --no-pager | grep -m1 -F '" + text + "'")
	m := regexp.MustCompile(`^\[ *([0-9.]+)\]`).FindStringSubmatch(line)
	if m == nil {
		b.Fatalf("no time in %q", line)
	}
	seconds, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(seconds * float64(time.Second))
}

// kernelStart finds out when, by this machine's clock, the kernel started.
func (b *bench) kernelStart() time.Time {
	up := strings.Fields(b.run("cat /proc/uptime"))[0]
	seconds, err := strconv.ParseFloat(up, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Now().Add(-time.Duration(seconds * float64(time.Second)))
}

// quietBoot is how long the box takes to accept on two processors that have nothing else to do.
const quietBoot = 25 * time.Second

// bootTimes prints how long it took.
func (b *bench) bootTimes() {
	b.Helper()
	accepts := b.journalTime("throughput server accepts")
	b.slow = max(1, accepts.Seconds()/quietBoot.Seconds())
	b.time(fmt.Sprintf("boot %d: kernel start to server accepting", b.boots), accepts)
	b.time(fmt.Sprintf("boot %d: kernel start to first frame", b.boots), b.firstFrame(time.Minute).Sub(b.kernelAt))
	b.time(fmt.Sprintf("boot %d: kernel start to ports alone", b.boots), b.alone())
	name := filepath.Join(b.dir, fmt.Sprintf("boot%d-blame.txt", b.boots))
	blame := b.run("systemd-analyze blame --no-pager | head -40; " +
		"systemd-analyze critical-chain --no-pager linerate.service")
	if err := os.WriteFile(name, []byte(blame), 0o644); err != nil {
		b.Error(err)
	}
}

// alone waits until the two test ports are in no bridge, and says when, after the kernel's start, they were seen so.
func (b *bench) alone() time.Duration {
	b.Helper()
	b.until(2*time.Minute, "the keeper has freed the ports",
		`[ -e /run/linerate/netcfg.json ] && [ -z "$(ip -o link show master br0)" ] && ip -4 -o addr show eth1 | grep -q inet`)
	return time.Since(b.kernelAt)
}

func TestEndToEnd(t *testing.T) {
	b := newBench(t)
	whole := time.Now()
	b.on()

	step := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			outer := b.T
			b.T = t
			defer func() { b.T = outer }()
			f(t)
		})
	}
	step("ports are alone and stay so", func(t *testing.T) {
		b.bootTimes()
		seen := b.run("networkctl reload; networkctl reconfigure eth1 eth2; timeout 4 ip -o monitor link | grep -c 'master br0' || true; " +
			"ip -o link show master br0")
		if seen != "0" {
			t.Errorf("networkd was asked to configure the ports anew, and they came back into the bridge: %s", seen)
		}
	})
	step("governor and min frequency", func(t *testing.T) {
		b.until(time.Minute, "governor performance", "[ $(cat /sys/devices/system/cpu/cpufreq/policy0/scaling_governor) = performance ]")
		if got := b.run("cd /sys/devices/system/cpu/cpufreq/policy0; cat scaling_min_freq cpuinfo_max_freq"); got != "1992000\n1992000" {
			t.Errorf("min and max frequency are %q", got)
		}
		if log := b.run("journalctl -b -u linerate-netcfg -o cat --no-pager"); !strings.Contains(log, "from=powersave to=performance") {
			t.Errorf("the keeper does not say that the governor was powersave:\n%s", log)
		}
	})
	step("mtu", func(t *testing.T) {
		b.until(time.Minute, "MTU of both test ports", "[ $(cat /sys/class/net/eth1/mtu)$(cat /sys/class/net/eth2/mtu) = 40004000 ]")
		if got := b.run("cat /sys/class/net/eth0/mtu"); got != "1500" {
			t.Errorf("the MTU of the port that is not for tests became %s", got)
		}
	})
	step("pages", func(t *testing.T) {
		b.shows("home", 30*time.Second)
	})
	step("a client from outside gets a report, the panel shows it live", func(t *testing.T) {
		live := b.watch("running", runningMask...)
		var report struct {
			End struct {
				SumReceived struct {
					Bytes int64 `json:"bytes"`
				} `json:"sum_received"`
			} `json:"end"`
		}
		done := make(chan []byte)
		go func() { done <- b.client("-t", "6") }()
		live(20 * time.Second)
		out := <-done
		if err := json.Unmarshal(out, &report); err != nil || report.End.SumReceived.Bytes == 0 {
			t.Errorf("no report: %v\n%s", err, out)
		}
		if list := b.results(); len(list) != 1 || list[0].Role != "server" || list[0].Port != "eth1" || !list[0].Valid || list[0].BPS == 0 {
			t.Errorf("stored: %+v", list)
		}
	})
	step("a key starts a test to a server outside", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		server := exec.CommandContext(ctx, "iperf3", "-s", "-p", b.outside, "-B", "127.0.0.1")
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { cancel(); _ = server.Wait() }()
		b.press("f1") // k1: the test page, then the test
		b.shows("test", 10*time.Second)
		b.press("f1")
		b.until(90*time.Second, "both directions are stored", "[ $(linerate results --json | grep -c '\"role\": *\"client\"') = 2 ]")
	})
	step("a result survives a power cut", func(t *testing.T) {
		before := b.results()
		if len(before) != 3 {
			t.Fatalf("%d results, not 3: %+v", len(before), before)
		}
		addresses := b.run("ip -br link; ip -4 -br addr")
		b.off()
		b.box.Disk.Cut(newChance(t), 0)
		b.on()
		if after := b.results(); !slices.EqualFunc(before, after, func(a, b stored) bool { return a.ID == b.ID && a.BPS == b.BPS }) {
			t.Errorf("before the cut %+v, after it %+v", before, after)
		}
		b.bootTimes()
		if now := b.run("ip -br link; ip -4 -br addr"); withoutStates(now) != withoutStates(addresses) {
			t.Errorf("MAC or address is another one:\n%s\nbefore:\n%s", now, addresses)
		}
	})
	step("the second boot enslaves nothing", func(t *testing.T) {
		if got := b.run("journalctl -b -k -o cat --no-pager | grep -E 'br0: port .*(blocking|forwarding)' || true"); got != "" {
			t.Errorf("the kernel's journal says:\n%s", got)
		}
	})
	step("a bad config shows its error while the server serves", func(t *testing.T) {
		shown := b.watch("config-error")
		b.run("echo 'mtuu = 9000' >>/etc/linerate/linerate.toml")
		shown(30 * time.Second)
		b.client("-t", "1")
		b.run("sed -i /mtuu/d /etc/linerate/linerate.toml")
		b.until(time.Minute, "the config is in force again", "! linerate status --json | grep -q mtuu")
	})
	step("a cable out and in is seen within 2 s", func(t *testing.T) {
		b.press("backspace")
		b.shows("home-tested", 20*time.Second, resultMask...)
		out := b.watch("cable-out", resultMask...)
		cable := func(up bool, seen func() time.Time) {
			at := time.Now()
			if err := b.machine.SetLink("lan2", up); err != nil {
				t.Fatal(err)
			}
			took := seen().Sub(at)
			b.time(map[bool]string{false: "cable out, seen on the panel", true: "cable in, seen on the panel"}[up], took)
			if limit := time.Duration(2 * b.slow * float64(time.Second)); took > limit && !*update {
				t.Errorf("the panel showed it after %s, more than %s", took, limit)
			}
		}
		cable(false, func() time.Time { return out(20 * time.Second) })
		gone, err := loadGolden("cable-out")
		if err != nil {
			t.Fatal(err)
		}
		in := b.machine.Panel.Watch(func(p *image.Gray) bool { return !gone.matches(p) })
		cable(true, func() time.Time {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			at, err := in(ctx)
			if err != nil {
				t.Error(err)
			}
			return at
		})
		if !*update {
			b.shows("home-tested", 20*time.Second, resultMask...)
		}
	})
	step("killed with -9 it is back with no connection refused", func(t *testing.T) {
		out := b.within(2*time.Minute, `cat >/tmp/knock <<'K'
n=0 refused=0 old=$(systemctl show -p MainPID --value linerate)
(sleep 1; kill -9 $old) &
for i in $(seq 400); do
	(exec 3<>/dev/tcp/127.0.0.1/5201) 2>/tmp/error || { grep -q refused /tmp/error && refused=$((refused+1)); }
	n=$((n+1))
	new=$(cat /sys/fs/cgroup/system.slice/linerate.service/cgroup.procs 2>/dev/null)
	[ -n "$new" ] && [ "$new" != "$old" ] && [ -z "$back" ] && back=$i
	[ -n "$back" ] && [ $i -gt $((back+40)) ] && break
done
echo "$n connections, $refused refused, another process from $back on"
K
bash /tmp/knock`)
		t.Log("note: " + out)
		if !strings.Contains(out, " 0 refused") || !regexp.MustCompile(`from [0-9]+ on`).MatchString(out) {
			t.Error(out)
		}
	})
	step("a LED can be written from inside the sandbox", func(t *testing.T) {
		b.until(time.Minute, "the server is back", "systemctl is-active -q linerate")
		b.run(`p=$(systemctl show -p MainPID --value linerate) led=/sys/class/leds/green:lan-1/brightness
			inside() { nsenter -t $p -m setpriv --reuid linerate --regid linerate --clear-groups --bounding-set -all sh -c "$1"; }
			inside "echo 1 >$led" && [ $(cat $led) != 0 ] && inside "echo 0 >$led" && [ $(cat $led) = 0 ]`)
		// The sandbox is one.
		if out, err := b.machine.Run(t.Context(), "nsenter -t $(systemctl show -p MainPID --value linerate) -m touch /etc/x"); err == nil {
			t.Errorf("in the sandbox a file can be made in /etc: %s", out)
		}
	})
	if t.Failed() {
		for _, unit := range []string{"linerate", "linerate-netcfg"} {
			t.Logf("journal of %s:\n%s", unit, b.run("journalctl --no-pager -o short-monotonic -u "+unit+" | tail -80"))
		}
	}
	_ = os.WriteFile(filepath.Join(b.dir, "journal.txt"), []byte(b.run("journalctl -b --no-pager -o short-monotonic")), 0o644)
	b.time("from power-on to the last check", time.Since(whole))
}

// withoutStates leaves out what may differ between two boots: the bridge's state, and its random MAC address.
func withoutStates(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 2 && strings.HasPrefix(f[0], "eth") {
			out = append(out, f[0]+" "+f[2])
		}
	}
	return strings.Join(out, "\n")
}

// runningMask is where numbers vary on the page of a running test: the time, the rate with its unit, the curve and the bar.
var runningMask = []image.Rectangle{image.Rect(64, 0, 128, 8), image.Rect(0, 8, 128, 36)}

// resultMask leaves the two test ports of the home page: below them stands the last result, and what of all else there is
// no room for takes turns.
var resultMask = []image.Rectangle{image.Rect(0, 36, 128, 64)}
