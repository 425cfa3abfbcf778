//go:build bench

package iperf3

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBench compares the server with Debian's, round by round in turn, each in its own process and in the same network
// namespace, and writes appliance/throughput/BENCH.md. LINERATE_BENCH_ROUNDS (5), LINERATE_BENCH_SECONDS (4) and LINERATE_BENCH
// (a part of a figure's name) change how. LINERATE_BENCH_NEWEST may name the program of a newer iperf3 to compare with as well.
func TestBench(t *testing.T) {
	needPeer(t)
	rounds, seconds := number("LINERATE_BENCH_ROUNDS", 5), number("LINERATE_BENCH_SECONDS", 4)
	c := newCable(t)
	for _, ns := range []string{c.box, c.peer} { // as a real port has it: frames on the wire, GRO at the receiver
		c.run("ip netns exec " + ns + " ethtool -K eth0 tso off gso off gro on")
	}
	b := &bench{t: t, cable: c, seconds: seconds}
	b.contenders = append(b.contenders, &contender{name: "iperf3 3.12", pid: b.peer("iperf3", 5201), port: 5201})
	if newest := os.Getenv("LINERATE_BENCH_NEWEST"); newest != "" {
		b.contenders = append(b.contenders, &contender{name: "newest", pid: b.peer(newest, 5202), port: 5202})
	}
	discard, copying := startServer(t, c.box, Options{}), startServer(t, c.box, Options{Copy: true})
	b.contenders = append(b.contenders,
		&contender{name: "linerate", pid: discard.cmd.Process.Pid, port: discard.Port},
		&contender{name: "linerate, copy", pid: copying.cmd.Process.Pid, port: copying.Port, copies: true})
	for _, x := range b.contenders {
		x.pid = serverPID(t, x.pid)
	}

	var lines []string
	for _, f := range figures {
		if only := os.Getenv("LINERATE_BENCH"); only != "" && !strings.Contains(f.name, only) {
			continue
		}
		if f.rmem != 0 && !b.limitReceiveBuffers(f.rmem) {
			lines = append(lines, fmt.Sprintf("| %s | not measured: net.core.rmem_max cannot be set here | | | |", f.name))
			continue
		}
		lines = append(lines, b.figure(f, rounds)...)
		if b.restore != nil {
			b.restore()
		}
	}
	report := bytes.Buffer{}
	fmt.Fprintf(&report, "# What the throughput server costs\n\nWritten by `make bench`; client: Debian's iperf3 3.12 for every row, over two namespaces\n"+
		"joined by a veth with `tso off gso off gro on`. The server runs as an unprivileged process. Medians of %d rounds of %d s in turn;\n"+
		"a ratio is the median of the rounds' ratios to iperf3 3.12 in the same round.\n\n%s\n\n"+
		"| figure | iperf3 3.12 | linerate | ratio | goal (aim) |\n|---|---|---|---|---|\n%s\n", rounds, seconds, machine(), strings.Join(lines, "\n"))
	fmt.Println(report.String())
	if os.Getenv("LINERATE_BENCH") == "" {
		if err := os.WriteFile(filepath.Join("..", "throughput", "BENCH.md"), report.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func number(name string, or int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return or
}

// machine names what was measured on.
func machine() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	model := "unknown processor"
	raw, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(raw)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			model = strings.TrimSpace(v)
			break
		}
	}
	return fmt.Sprintf("Machine: %d x %s, Linux %s, %s, %s.", runtime.NumCPU(), model, unix.ByteSliceToString(u.Release[:]), runtime.GOARCH, runtime.Version())
}

type contender struct {
	name   string
	pid    int
	port   int
	copies bool
}

// figure is one line of the table: what to run and what of it to compare.
type figure struct {
	name    string
	args    string
	value   func(s sample) float64
	unit    string
	less    bool // is better
	least   float64
	aim     float64
	bound   float64 // absolute, in the unit; 0: the ratio counts
	copies  bool
	rmem    int
	lossMax float64 // of the datagrams
}

// sample is one run.
type sample struct {
	bytes   float64 // at the receiver
	bps     float64
	packets float64 // at the receiver
	sent    float64
	lost    float64
	cpu     float64 // s of the server process
}

func perGB(s sample) float64     { return s.cpu / (s.bytes / 1e9) }
func gbps(s sample) float64      { return s.bps / 1e9 }
func kpps(s sample) float64      { return s.packets / 1000 }
func sentKpps(s sample) float64  { return s.sent / 1000 }
func perPacket(s sample) float64 { return s.cpu / s.sent * 1e6 }

var figures = []figure{
	{name: "TCP receive at 2.35 Gbit/s, 1 stream", args: "--fq-rate 2.35G", value: perGB, unit: "CPU s/GB", less: true, least: 0.60, aim: 0.35},
	{name: "TCP receive at 2.35 Gbit/s, 4 streams", args: "--fq-rate 587M -P 4", value: perGB, unit: "CPU s/GB", less: true, least: 0.60, aim: 0.35},
	{name: "TCP receive at 2.35 Gbit/s, payload copied", args: "--fq-rate 2.35G", value: perGB, unit: "CPU s/GB", less: true, least: 0.85, aim: 0.70, copies: true},
	{name: "TCP receive, 1 stream", args: "", value: gbps, unit: "Gbit/s", least: 1.0, aim: 1.05},
	{name: "TCP receive, 4 streams", args: "-P 4", value: gbps, unit: "Gbit/s", least: 1.0, aim: 1.10},
	{name: "TCP send, 1 stream", args: "-R", value: gbps, unit: "Gbit/s", least: 1.0, aim: 1.10},
	{name: "TCP send, 4 streams", args: "-R -P 4", value: gbps, unit: "Gbit/s", least: 1.0, aim: 1.10},
	{name: "TCP send saturated, 1 stream, cost", args: "-R", value: perGB, unit: "CPU s/GB", less: true, least: 1.05, aim: 0.92},
	{name: "TCP send at 2.35 Gbit/s", args: "-R -b 2.35G", value: perGB, unit: "CPU s/GB", less: true, bound: 0.16},
	{name: "UDP send, 1400 bytes", args: "-u -R -b 0 -l 1400", value: sentKpps, unit: "k datagrams/s", least: 2.5, aim: 3.0},
	{name: "UDP send, 1400 bytes, cost", args: "-u -R -b 0 -l 1400", value: perPacket, unit: "CPU us/datagram", less: true, least: 0.45, aim: 0.31},
	{name: "UDP receive at `-b 0`", args: "-u -b 0", value: kpps, unit: "k datagrams/s", least: 1.2, aim: 1.2, lossMax: 0.01},
	{name: "UDP receive at `-b 0`, rmem_max 212992", args: "-u -b 0", value: kpps, unit: "k datagrams/s", least: 1.2, aim: 1.2, rmem: 212992, lossMax: 1},
}

type bench struct {
	t          *testing.T
	cable      *cable
	seconds    int
	contenders []*contender
	restore    func()
}

// peer runs `iperf3 -s` in the box's namespace.
func (b *bench) peer(program string, port int) int {
	cmd := exec.Command("ip", "netns", "exec", b.cable.box, program, "-s", "-p", strconv.Itoa(port))
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for limit := time.Now().Add(5 * time.Second); !listens(cmd.Process.Pid, port); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			b.t.Fatalf("%s does not listen", program)
		}
	}
	return cmd.Process.Pid
}

// serverPID is the process itself: `ip netns exec` becomes it.
func serverPID(t *testing.T, pid int) int {
	if _, err := processCPU(pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// processCPU reads the processor clock of a process, ended threads included (clock_getcpuclockid(3)).
func processCPU(pid int) (float64, error) {
	const cpuclockSched = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuclockSched), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return float64(ts.Nano()) / 1e9, nil
}

// limitReceiveBuffers sets net.core.rmem_max until restore.
func (b *bench) limitReceiveBuffers(bytes int) bool {
	const path = "/proc/sys/net/core/rmem_max"
	before, err := os.ReadFile(path)
	if err != nil || os.WriteFile(path, []byte(strconv.Itoa(bytes)), 0o644) != nil {
		return false
	}
	b.restore = func() { _ = os.WriteFile(path, before, 0o644); b.restore = nil }
	b.t.Cleanup(func() {
		if b.restore != nil {
			b.restore()
		}
	})
	return true
}

func (b *bench) figure(f figure, rounds int) []string {
	values, ratios, losses := map[*contender][]float64{}, map[*contender][]float64{}, map[*contender][]float64{}
	base := b.contenders[0]
	for range rounds {
		var first float64
		for _, c := range b.contenders {
			if c != base && c.copies != f.copies && !strings.HasPrefix(c.name, "newest") {
				continue
			}
			s, err := b.run(f, c)
			if err != nil {
				b.t.Errorf("%s, %s: %v", f.name, c.name, err)
				continue
			}
			v := f.value(s)
			if c == base {
				first = v
			}
			values[c] = append(values[c], v)
			ratios[c] = append(ratios[c], v/first)
			losses[c] = append(losses[c], s.lost/math.Max(1, s.packets))
		}
	}
	var lines []string
	for _, c := range b.contenders[1:] {
		if len(values[c]) == 0 {
			continue
		}
		v, r := median(values[c]), median(ratios[c])
		goal, met := "", false
		switch {
		case f.bound > 0:
			goal, met = fmt.Sprintf("<= %.2f %s", f.bound, f.unit), v <= f.bound
		case f.less:
			goal, met = fmt.Sprintf("<= %.2f (%.2f)", f.least, f.aim), r <= f.least
		default:
			goal, met = fmt.Sprintf(">= %.2f (%.2f)", f.least, f.aim), r >= f.least*0.97 // 3 % of noise on rates
		}
		loss := ""
		if f.lossMax > 0 {
			loss = fmt.Sprintf(", %.1f %% lost", 100*median(losses[c]))
			met = met && median(losses[c]) <= f.lossMax
		}
		if !met && !strings.HasPrefix(c.name, "newest") {
			goal += " **missed**"
		}
		was := ""
		if f.lossMax > 0 {
			was = fmt.Sprintf(", %.1f %% lost", 100*median(losses[base]))
		}
		name := f.name
		if c.name == "newest" {
			name += " (ratio of the newest iperf3)"
		}
		line := fmt.Sprintf("| %s, %s | %.3g%s | %.3g%s | %.2f | %s |", name, f.unit, median(values[base]), was, v, loss, r, goal)
		b.t.Log(line)
		lines = append(lines, line)
	}
	return lines
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

// run is one test of the peer's client against a contender.
func (b *bench) run(f figure, c *contender) (sample, error) {
	args := append(strings.Fields(f.args), "-c", "192.0.2.1", "-p", strconv.Itoa(c.port), "-t", strconv.Itoa(b.seconds))
	before, err := processCPU(c.pid)
	if err != nil {
		return sample{}, err
	}
	r := iperf3(b.t, b.cable.peer, time.Duration(b.seconds+20)*time.Second, args...)
	after, err := processCPU(c.pid)
	switch {
	case r.Error != "":
		return sample{}, fmt.Errorf("the client reports %q", r.Error)
	case err != nil:
		return sample{}, err
	}
	s := sample{cpu: after - before, bytes: float64(r.End.Received.Bytes), bps: r.End.Received.BPS}
	if strings.Contains(f.args, "-u") {
		var end struct {
			End struct {
				Sum struct {
					Bytes   float64 `json:"bytes"`
					Packets float64 `json:"packets"`
					Lost    float64 `json:"lost_packets"`
					Seconds float64 `json:"seconds"`
				} `json:"sum"`
				Sent struct {
					Packets float64 `json:"packets"`
				} `json:"sum_sent"`
			} `json:"end"`
		}
		if err := json.Unmarshal([]byte(r.raw[strings.IndexByte(r.raw, '{'):]), &end); err != nil {
			return sample{}, err
		}
		sum := end.End.Sum
		s.packets, s.lost, s.sent = sum.Packets-sum.Lost, sum.Lost, math.Max(sum.Packets, end.End.Sent.Packets)
		s.packets, s.sent = s.packets/sum.Seconds, s.sent/sum.Seconds
		s.lost /= sum.Seconds
		s.cpu /= sum.Seconds
	}
	return s, nil
}
