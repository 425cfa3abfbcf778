package iperf3

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"linerate/appliance/throughput"
)

// The interoperability tests run the server as it runs on a box: a process of its own, of an unprivileged user, without a
// capability. The process is this test binary once more.
const serverEnv = "LINERATE_TEST_IPERF3_SERVER"

func TestMain(m *testing.M) {
	if spec := os.Getenv(serverEnv); spec != "" {
		os.Exit(serverProcess(spec))
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("8") // most tests wait for a deadline
	}
	os.Exit(m.Run())
}

// processSpec is what the server process is told; it answers with one processEvent a line.
type processSpec struct {
	Listen  string
	Options Options
	UID     int
}

type processEvent struct {
	Kind     string // listening, started, progressed (once), finished, waiting, usage
	ID       string
	Port     int
	Start    throughput.Start
	Result   throughput.Result
	Waiting  []throughput.Waiter
	Progress int // how many came before it ended
	Usage    usage
}

type usage struct {
	Goroutines, Sockets int
	Running             int // started and not finished
	HeapBytes           uint64
	ResidentBytes       uint64
	CPU                 float64 // s of this process
}

// processObserver writes what it is told to stdout.
type processObserver struct {
	mu       sync.Mutex
	out      *json.Encoder
	n        int
	finished int
	progress map[string]int
}

func (o *processObserver) write(e processEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.out.Encode(e)
}

func (o *processObserver) Started(s throughput.Start) string {
	o.mu.Lock()
	o.n++
	id := fmt.Sprint("test", o.n)
	o.mu.Unlock()
	o.write(processEvent{Kind: "started", ID: id, Start: s})
	return id
}

// running counts the tests that have not finished.
func (o *processObserver) running() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n - o.finished
}

func (o *processObserver) Progressed(id string, _ throughput.Progress) {
	o.mu.Lock()
	o.progress[id]++
	first := o.progress[id] == 3
	o.mu.Unlock()
	if first {
		o.write(processEvent{Kind: "progressed", ID: id})
	}
}

func (o *processObserver) Finished(id string, r throughput.Result) {
	o.mu.Lock()
	n := o.progress[id]
	delete(o.progress, id)
	o.finished++
	o.mu.Unlock()
	o.write(processEvent{Kind: "finished", ID: id, Result: r, Progress: n})
}

func (o *processObserver) Waiting(w []throughput.Waiter) {
	o.write(processEvent{Kind: "waiting", Waiting: w})
}

func serverProcess(spec string) int {
	var s processSpec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if s.UID != 0 {
		_ = syscall.Setgroups(nil)
		if err := syscall.Setresgid(s.UID, s.UID, s.UID); err != nil {
			fmt.Fprintln(os.Stderr, "drop group:", err)
			return 2
		}
		if err := syscall.Setresuid(s.UID, s.UID, s.UID); err != nil {
			fmt.Fprintln(os.Stderr, "drop user:", err)
			return 2
		}
	}
	o := &processObserver{out: json.NewEncoder(os.Stdout), progress: map[string]int{}}
	s.Options.Observer = o
	s.Options.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	ln, err := net.Listen("tcp", s.Listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	srv := NewServer(s.Options)
	port := ln.Addr().(*net.TCPAddr).Port
	udp, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	datagrams := make(chan error, 1)
	go func() { datagrams <- srv.ServeUDP(ctx, udp) }()
	o.write(processEvent{Kind: "listening", Port: port})
	go func() { // commands, until the parent closes stdin
		defer cancel()
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			verb, arg, _ := strings.Cut(in.Text(), " ")
			switch verb {
			case "terminate":
				srv.Terminate(arg)
			case "usage":
				u := measure()
				u.Running = o.running()
				o.write(processEvent{Kind: "usage", Usage: u})
			}
		}
	}()
	if err := errors.Join(srv.Serve(ctx, ln), <-datagrams); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// measure counts what a server may leave behind.
func measure() usage {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{Goroutines: runtime.NumGoroutine(), HeapBytes: m.HeapAlloc}
	var pages [2]uint64
	statm, _ := os.ReadFile("/proc/self/statm")
	_, _ = fmt.Sscan(string(statm), &pages[0], &pages[1])
	u.ResidentBytes = pages[1] * uint64(os.Getpagesize())
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, f := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			u.Sockets++
		}
	}
	c := throughput.ReadCPU()
	u.CPU = (c.ProcessUser + c.ProcessSystem).Seconds()
	return u
}

// process is a running server of ours.
type process struct {
	t     *testing.T
	Port  int
	cmd   *exec.Cmd
	stdin io.WriteCloser

	mu     sync.Mutex
	events []processEvent
	wake   chan struct{}
	log    bytes.Buffer
}

// startServer runs our server as uid 65534; in names the network namespace, "" the present one. It ends with the test.
func startServer(t *testing.T, in string, o Options) *process {
	t.Helper()
	s := processSpec{Listen: ":0", Options: o}
	if os.Getuid() == 0 {
		s.UID = 65534
	}
	spec, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{self}
	if in != "" {
		args = append([]string{"ip", "netns", "exec", in}, args...)
	}
	p := &process{t: t, cmd: exec.Command(args[0], args[1:]...), wake: make(chan struct{}, 1)}
	p.cmd.Env = append(os.Environ(), serverEnv+"="+string(spec))
	p.cmd.Stderr = &lockedWriter{mu: &p.mu, w: &p.log}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		dec := json.NewDecoder(out)
		for {
			var e processEvent
			if dec.Decode(&e) != nil {
				return
			}
			p.mu.Lock()
			p.events = append(p.events, e)
			p.mu.Unlock()
			select {
			case p.wake <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() {
		_ = p.stdin.Close()
		stuck := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
		<-read
		err := p.cmd.Wait()
		if !stuck.Stop() {
			t.Error("the server process did not end within 10 s of being told to")
		} else if err != nil {
			t.Errorf("the server process: %v", err)
		}
		if t.Failed() {
			t.Logf("server's log:\n%s", p.log.String())
		}
	})
	p.Port = p.await("the listener", 10*time.Second, func(e processEvent) bool { return e.Kind == "listening" }).Port
	return p
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// await returns the first event that fits, of those that came and will come.
func (p *process) await(what string, limit time.Duration, fits func(processEvent) bool) processEvent {
	p.t.Helper()
	timeout := time.After(limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for seen := 0; ; {
		p.mu.Lock()
		for ; seen < len(p.events); seen++ {
			if fits(p.events[seen]) {
				e := p.events[seen]
				p.mu.Unlock()
				return e
			}
		}
		p.mu.Unlock()
		select {
		case <-tick.C:
		case <-timeout:
			p.t.Fatalf("%s did not come within %v", what, limit)
		}
	}
}

// finished waits for the result of the test with that title.
func (p *process) finished(title string, limit time.Duration) (processEvent, throughput.Result) {
	p.t.Helper()
	started := p.started(title, limit)
	e := p.await("the result of "+title, limit, func(e processEvent) bool { return e.Kind == "finished" && e.ID == started.ID })
	return e, e.Result
}

func (p *process) started(title string, limit time.Duration) processEvent {
	p.t.Helper()
	return p.await("the start of "+title, limit, func(e processEvent) bool { return e.Kind == "started" && e.Start.Title == title })
}

func (p *process) say(line string) {
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// usage asks for the present one.
func (p *process) usage() usage {
	p.t.Helper()
	p.mu.Lock()
	n := len(p.events)
	p.mu.Unlock()
	p.say("usage")
	i := 0
	return p.await("usage", 10*time.Second, func(e processEvent) bool { i++; return i > n && e.Kind == "usage" }).Usage
}

func (p *process) addr() string { return fmt.Sprintf("127.0.0.1:%d", p.Port) }

// report is what iperf3 -J prints.
type report struct {
	Start struct {
		Connected []struct {
			Socket int `json:"socket"`
		} `json:"connected"`
		TCPMSS int `json:"tcp_mss"`
	} `json:"start"`
	Intervals []json.RawMessage `json:"intervals"`
	End       struct {
		Streams []struct {
			UDP struct {
				Bytes      int64   `json:"bytes"`
				Lost       int64   `json:"lost_packets"`
				Packets    int64   `json:"packets"`
				OutOfOrder int64   `json:"out_of_order"`
				Jitter     float64 `json:"jitter_ms"`
				Sender     bool    `json:"sender"`
			} `json:"udp"`
		} `json:"streams"`
		Sent            reportSum `json:"sum_sent"`
		Received        reportSum `json:"sum_received"`
		SentReverse     reportSum `json:"sum_sent_bidir_reverse"`
		ReceivedReverse reportSum `json:"sum_received_bidir_reverse"`
		Sum             reportSum `json:"sum"`
		SenderCC        string    `json:"sender_tcp_congestion"`
		ReceiverCC      string    `json:"receiver_tcp_congestion"`
		CPU             struct {
			Host   float64 `json:"host_total"`
			Remote float64 `json:"remote_total"`
		} `json:"cpu_utilization_percent"`
	} `json:"end"`
	ServerText string          `json:"server_output_text"`
	ServerJSON json.RawMessage `json:"server_output_json"`
	Error      string          `json:"error"`
	raw        string
}

type reportSum struct {
	Bytes       int64   `json:"bytes"`
	Seconds     float64 `json:"seconds"`
	BPS         float64 `json:"bits_per_second"`
	Retransmits *int64  `json:"retransmits"`
	Jitter      float64 `json:"jitter_ms"`
	Lost        float64 `json:"lost_packets"`
	Packets     float64 `json:"packets"` // 3.12 writes what is below 0 as almost 2^64
}

// needPeer skips a test where Debian's iperf3 is missing.
func needPeer(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("needs iperf3")
	}
}

// iperf3 runs the peer with -J in the namespace in ("" is the present one) and returns what it reports. It never hangs longer
// than limit.
func iperf3(t *testing.T, in string, limit time.Duration, args ...string) report {
	t.Helper()
	needPeer(t)
	all := append([]string{"iperf3", "-J"}, args...)
	if in != "" {
		all = append([]string{"ip", "netns", "exec", in}, all...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("%v: did not end within %v", all, limit)
		return report{Error: "hangs"}
	}
	var r report
	text := out
	if at := bytes.IndexByte(out, '{'); at > 0 { // behind a warning
		out = out[at:]
	}
	if e := json.Unmarshal(out, &r); e != nil {
		first, _, _ := strings.Cut(string(text), "\n")
		r.Error = fmt.Sprintf("%s (%v, %v)", first, err, e)
	}
	r.raw = string(out)
	return r
}

// agree says whether two sizes are the same within 2 % and what the sockets of so many streams may hold (tcp_rmem, tcp_wmem).
func agree(a, b int64, streams int) bool {
	diff := max(a-b, b-a)
	return diff <= max(a, b)/50+int64(streams)*(40<<20)
}

var busyCores = make(chan struct{}, 2)

// heavy waits until the test may use a whole core: a machine with two would measure nothing else if all did at once.
func heavy(t *testing.T) {
	busyCores <- struct{}{}
	t.Cleanup(func() { <-busyCores })
}

// outOfOrder reads from a server's own JSON how many datagrams came late.
func outOfOrder(t *testing.T, raw json.RawMessage) int64 {
	t.Helper()
	var s struct {
		End struct {
			Sum struct {
				OutOfOrder int64 `json:"out_of_order"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Errorf("server's JSON: %v: %.300s", err, raw)
	}
	return s.End.Sum.OutOfOrder
}
