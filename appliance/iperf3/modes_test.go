package iperf3

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"linerate/appliance/throughput"
)

// clients runs as many of Debian's clients at once, a moment apart, and returns what each reports and how long it took.
func clients(t *testing.T, srv *process, n int, args ...string) (reports []report, took []time.Duration) {
	t.Helper()
	reports, took = make([]report, n), make([]time.Duration, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			start := time.Now()
			reports[i] = iperf3(t, "", 40*time.Second, append([]string{
				"-c", "127.0.0.1", "-p", fmt.Sprint(srv.Port), "-T", fmt.Sprint("client", i)}, args...)...)
			took[i] = time.Since(start)
		})
		srv.await("the client to be seen", 10*time.Second, func(e processEvent) bool {
			return e.Kind == "started" && e.Start.Title == fmt.Sprint("client", i) || e.Kind == "waiting" && len(e.Waiting) >= i ||
				e.Kind == "finished" && reports[i].Error != ""
		})
	}
	all.Wait()
	return reports, took
}

func TestParallelClients(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "", Options{})
	reports, took := clients(t, srv, 3, "-t", "2")
	for i, r := range reports {
		if r.Error != "" || r.End.Received.Bytes == 0 {
			t.Errorf("client %d: %q, %d bytes", i, r.Error, r.End.Received.Bytes)
		}
		if took[i] > slack*4*time.Second {
			t.Errorf("client %d took %v: it had to wait", i, took[i])
		}
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "", Options{Concurrency: Queue})
	const n = 4
	reports, _ := clients(t, srv, n, "-t", "1")
	for i, r := range reports {
		if r.Error != "" || r.End.Received.Bytes == 0 {
			t.Errorf("client %d: %q, %d bytes", i, r.Error, r.End.Received.Bytes)
		}
	}
	// One at a time; of those who waited and were asked together, the quickest first.
	running, order := 0, []string{}
	srv.mu.Lock()
	defer srv.mu.Unlock()
	for _, e := range srv.events {
		switch e.Kind {
		case "started":
			order = append(order, e.Start.Title)
			if running++; running > 2 { // Finished is told a moment after the slot is free
				t.Errorf("%d tests at once", running)
			}
		case "finished":
			running--
		}
	}
	if len(order) != n || order[0] != "client0" {
		t.Errorf("served in the order %v", order)
	}
	if last := srv.events[len(srv.events)-1]; last.Kind == "waiting" && len(last.Waiting) > 0 {
		t.Errorf("somebody still waits: %v", last.Waiting)
	}
}

func TestQueueEndsInBusy(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "", Options{Concurrency: Queue, QueueWait: time.Second})
	reports, took := clients(t, srv, 2, "-t", "4")
	if reports[0].Error != "" {
		t.Errorf("the first: %q", reports[0].Error)
	}
	if !strings.Contains(reports[1].Error, "busy") || took[1] < time.Second || took[1] > slack*3*time.Second {
		t.Errorf("the second after %v: %q, want busy after 1s", took[1], reports[1].Error)
	}
}

// Of several that are asked for their parameters at once one gets the slot; the others wait for byte 10, which 3.12 does.
func TestQueueLosersWaitForTheirStreams(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "", Options{Concurrency: Queue})
	var keep []net.Conn
	defer func() {
		for _, c := range keep {
			c.Close()
		}
	}()
	// A test holds the port, so all those that come wait for byte 9.
	holder := dialRough(t, &keep, srv.addr()).params(goodParams)
	holder.streams(&keep, 1)
	holder.expect(1, 2)
	silent := dialRough(t, &keep, srv.addr()) // the oldest of those who wait, which never sends its parameters
	silent.send(silent.cookie[:])
	srv.await("the silent one to wait", 5*time.Second, func(e processEvent) bool { return len(e.Waiting) == 1 })
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			r := iperf3(t, "", 30*time.Second, "-c", "127.0.0.1", "-p", fmt.Sprint(srv.Port), "-t", "1", "-T", fmt.Sprint("loser", i))
			if r.Error != "" || r.End.Received.Bytes == 0 {
				t.Errorf("client %d: %q, %d bytes", i, r.Error, r.End.Received.Bytes)
			}
		})
	}
	srv.await("all to wait", 5*time.Second, func(e processEvent) bool { return len(e.Waiting) == 4 })
	start := time.Now()
	holder.Close()
	all.Wait()
	if took := time.Since(start); took > slack*5*time.Second {
		t.Errorf("three tests of 1 s took %v: somebody waited for the silent one", took)
	}
}

func TestExclusive(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "", Options{Concurrency: Exclusive})
	var keep []net.Conn
	defer func() {
		for _, c := range keep {
			c.Close()
		}
	}()
	r := dialRough(t, &keep, srv.addr()).params(goodParams)
	r.streams(&keep, 1)
	r.expect(1, 2)
	start := time.Now()
	if second := iperf3(t, "", 10*time.Second, "-c", "127.0.0.1", "-p", fmt.Sprint(srv.Port), "-t", "1"); !strings.Contains(second.Error, "busy") {
		t.Errorf("the second: %q, want busy", second.Error)
	}
	dialRough(t, &keep, srv.addr()).expect(0xff) // without a word
	if took := time.Since(start); took > slack*time.Second {
		t.Errorf("busy after %v, want at once", took)
	}
	r.Close()
	// Back to back, each must find the slot free that the one before has left.
	for i := range 10 {
		if r := iperf3(t, "", 10*time.Second, "-c", "127.0.0.1", "-p", fmt.Sprint(srv.Port), "-n", "1M"); r.Error != "" {
			t.Fatalf("test %d in a row: %q", i, r.Error)
		}
	}
}

// Whoever loses the race for the slot after byte 9 is told busy in place of byte 10.
func TestExclusiveRace(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "", Options{Concurrency: Exclusive})
	var keep []net.Conn
	defer func() {
		for _, c := range keep {
			c.Close()
		}
	}()
	a, b := dialRough(t, &keep, srv.addr()), dialRough(t, &keep, srv.addr())
	for _, r := range []*rough{a, b} {
		r.send(r.cookie[:])
		r.expect(9)
	}
	b.blob(goodParams)
	b.expect(10)
	a.blob(goodParams)
	a.expect(0xff)
}

func TestMaxTests(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "", Options{MaxTests: 2})
	var keep []net.Conn
	defer func() {
		for _, c := range keep {
			c.Close()
		}
	}()
	for range 2 {
		r := dialRough(t, &keep, srv.addr()).params(goodParams)
		r.streams(&keep, 1)
		r.expect(1, 2)
	}
	dialRough(t, &keep, srv.addr()).params(goodParams).expect(0xff)
}

// Ports are measured apart.
func TestSlotsAreCountedPerPort(t *testing.T) {
	t.Parallel()
	ports := func(a netip.Addr) string { return a.String() }
	s := serve(t, Options{Concurrency: Exclusive, PortOf: ports}, "127.0.0.1:0", "127.0.0.2:0")
	var keep []net.Conn
	defer func() {
		for _, c := range keep {
			c.Close()
		}
	}()
	r := dialRough(t, &keep, s.addrs[0]).params(goodParams)
	r.streams(&keep, 1)
	r.expect(1, 2)
	dialRough(t, &keep, s.addrs[0]).expect(0xff)
	probe(t, s.addrs[1])
}

// served is a Server in this process.
type served struct {
	*Server
	addrs []string
	seen  *recorder
	stop  context.CancelFunc
}

// recorder is an Observer that keeps what it is told.
type recorder struct {
	mu       sync.Mutex
	started  []throughput.Start
	finished map[string]throughput.Result
	waiting  []throughput.Waiter
	progress int
}

func (r *recorder) Started(s throughput.Start) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = append(r.started, s)
	return fmt.Sprint("t", len(r.started))
}

func (r *recorder) Progressed(string, throughput.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress++
}

func (r *recorder) Finished(id string, res throughput.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished[id] = res
}

func (r *recorder) Waiting(w []throughput.Waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = w
}

func (r *recorder) result(t *testing.T, id string, limit time.Duration) throughput.Result {
	t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		r.mu.Lock()
		res, ok := r.finished[id]
		r.mu.Unlock()
		if ok {
			return res
		}
	}
	t.Fatalf("no result of %s within %v", id, limit)
	return throughput.Result{}
}

// serve runs a server on the addresses until the test ends; Serve must then return.
func serve(t *testing.T, o Options, listen ...string) *served {
	t.Helper()
	s := &served{seen: &recorder{finished: map[string]throughput.Result{}}}
	o.Observer = s.seen
	s.Server = NewServer(o)
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	ended := make(chan error, len(listen))
	for _, l := range listen {
		ln, err := net.Listen("tcp", l)
		if err != nil {
			t.Fatal(err)
		}
		s.addrs = append(s.addrs, ln.Addr().String())
		go func() {
			defer ln.Close()
			ended <- s.Serve(ctx, ln)
		}()
	}
	t.Cleanup(func() {
		cancel()
		for range listen {
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("Serve: %v", err)
				}
			case <-time.After(slack * 5 * time.Second):
				t.Error("Serve did not return within 5 s of its context's end")
			}
		}
	})
	return s
}

func TestTerminate(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "", Options{})
	done := make(chan report, 1)
	go func() {
		done <- iperf3(t, "", 20*time.Second, "-c", "127.0.0.1", "-p", fmt.Sprint(srv.Port), "-t", "30", "-T", "to be ended")
	}()
	id := srv.started("to be ended", 5*time.Second).ID
	srv.await("progress", 5*time.Second, func(e processEvent) bool { return e.Kind == "progressed" && e.ID == id })
	srv.say("terminate " + id)
	if r := <-done; !strings.Contains(r.Error, "the server has terminated") {
		t.Errorf("the client prints %q", r.Error)
	}
	if _, r := srv.finished("to be ended", 5*time.Second); r.Valid || r.Error != "ended at the box" || r.Bytes == 0 {
		t.Errorf("valid %v, error %q, %d bytes", r.Valid, r.Error, r.Bytes)
	}
	s := serve(t, Options{}, "127.0.0.1:0")
	if s.Terminate("nothing") || s.Terminate("") {
		t.Error("a test was ended that does not run")
	}
}

// The end of the context ends every state.
func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Concurrency: Parallel}, "127.0.0.1:0")
	var keep []net.Conn
	defer func() {
		for _, c := range keep {
			c.Close()
		}
	}()
	dialRough(t, &keep, s.addrs[0])
	r := dialRough(t, &keep, s.addrs[0])
	r.send(r.cookie[:])
	r.expect(9)
	dialRough(t, &keep, s.addrs[0]).params(goodParams).expect(10)
	running := dialRough(t, &keep, s.addrs[0]).params(goodParams)
	running.streams(&keep, 1)
	running.expect(1, 2)
	results := toResults(t, s.addrs[0], &keep)
	s.stop()
	running.expect(11)
	results.expect(11)
	if got := s.seen.result(t, "t2", 5*time.Second); got.Valid || got.Error != "the server was stopped" {
		t.Errorf("valid %v, error %q", got.Valid, got.Error)
	}
	// serve's clean-up looks whether Serve returns.
}

func TestAllow(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, "127.0.0.1:0")
	var keep []net.Conn
	r := dialRough(t, &keep, s.addrs[0])
	defer r.Close()
	r.expectError(codeAuth)
	s.SetOptions(Options{Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("127.0.0.0/8")}})
	probe(t, s.addrs[0])
}

func TestMaxDuration(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "", Options{MaxDuration: 2 * time.Second})
	p := fmt.Sprint(srv.Port)
	if r := iperf3(t, "", 20*time.Second, "-c", "127.0.0.1", "-p", p, "-t", "3"); r.Error == "" || strings.Contains(r.Error, "int_errno") {
		t.Errorf("3 s of 2: %q, want a text that 3.12 knows", r.Error)
	}
	if r := iperf3(t, "", 20*time.Second, "-c", "127.0.0.1", "-p", p, "-t", "0", "-T", "endless"); !strings.Contains(r.Error, "terminated") {
		t.Errorf("an endless test: %q", r.Error)
	}
	if _, r := srv.finished("endless", 5*time.Second); r.Valid || r.Seconds < 2 || r.Seconds > slack*5 {
		t.Errorf("valid %v after %g s", r.Valid, r.Seconds)
	}
}

func TestMaxRate(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "", Options{MaxRate: 100e6})
	p := fmt.Sprint(srv.Port)
	if r := iperf3(t, "", 20*time.Second, "-c", "127.0.0.1", "-p", p, "-b", "60M", "-P", "2"); !strings.Contains(r.Error, "total required bandwidth is larger than server limit") {
		t.Errorf("120 Mbit/s of 100: %q", r.Error)
	}
	for _, args := range []string{"-t 2", "-t 2 -R", "-t 2 -P 4"} {
		title := "limited " + args
		if r := iperf3(t, "", 20*time.Second, append(strings.Fields(args), "-c", "127.0.0.1", "-p", p, "-T", title)...); r.Error != "" {
			t.Errorf("%s: %q", args, r.Error)
		}
		// Receiving, what the sockets hold comes on top.
		if _, r := srv.finished(title, 5*time.Second); r.BPS > 200e6 || r.BPS < 50e6 {
			t.Errorf("%s: %.0f bit/s, want about 100e6", args, r.BPS)
		}
	}
}

// A rate so low that a block takes longer than the watchdog waits must end well.
func TestLowRateIsNoStall(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "", Options{Stall: 2 * time.Second})
	var all sync.WaitGroup
	for _, args := range []string{"-b 200k -t 8", "-b 200k -t 8 -R"} { // a block of 128 KiB each 5.2 s
		all.Go(func() {
			r := iperf3(t, "", 30*time.Second, append(strings.Fields(args), "-c", "127.0.0.1", "-p", fmt.Sprint(srv.Port), "-T", args)...)
			if r.Error != "" || r.End.Received.Bytes == 0 {
				t.Errorf("%s: %q, %d bytes", args, r.Error, r.End.Received.Bytes)
			}
			if _, res := srv.finished(args, 5*time.Second); !res.Valid {
				t.Errorf("%s: %q", args, res.Error)
			}
		})
	}
	all.Wait()
}
