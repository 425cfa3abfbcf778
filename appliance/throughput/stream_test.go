package throughput

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// pair is a TCP connection over loopback: near the stream's end, far the other.
func pair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

func stream(t *testing.T, conn *net.TCPConn, dir Direction, o StreamOptions) (*Stream, chan error) {
	t.Helper()
	s, err := NewStream(conn, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run() }()
	return s, ended
}

func within(t *testing.T, d time.Duration, what string, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(d):
		t.Fatalf("%s has not ended after %v", what, d)
		return nil
	}
}

// until polls a condition that the kernel makes true.
func until(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

func TestBytesArriveExactly(t *testing.T) {
	const n = 10<<20 + 12345
	for _, c := range []struct {
		name   string
		rx, tx StreamOptions
		copied bool
	}{
		{name: "discarded in the kernel"},
		{name: "copied", rx: StreamOptions{Copy: true}},
		{name: "sendfile", tx: StreamOptions{ZeroCopy: true}},
		{name: "small blocks", tx: StreamOptions{Block: 1000}},
		{name: "paced", tx: StreamOptions{RateBPS: 400e6}},
		{name: "bursts", tx: StreamOptions{RateBPS: 400e6, Block: 10000, Burst: 7}},
		{name: "read at a limited rate", rx: StreamOptions{MaxBPS: 400e6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			near, far := pair(t)
			c.tx.Budget = NewBudget(n)
			r, received := stream(t, near, RX, c.rx)
			s, sent := stream(t, far, TX, c.tx)
			if err := within(t, 20*time.Second, "the sender", sent); err != nil {
				t.Fatalf("sender: %v", err)
			}
			until(t, 10*time.Second, "all bytes acknowledged", func() bool { return s.Counters().Bytes == n })
			if c := s.Counters(); c.Due || c.Moved != n {
				t.Errorf("sender at its end: %+v", c)
			}
			far.CloseWrite()
			if err := within(t, 10*time.Second, "the receiver", received); !errors.Is(err, io.EOF) {
				t.Errorf("receiver ended by %v, want EOF", err)
			}
			if c := r.Counters(); c.Bytes != n || c.Moved != n {
				t.Errorf("received %d bytes, read %d, want %d", c.Bytes, c.Moved, n)
			}
			if s.MSS() == 0 || r.MSS() == 0 || s.Congestion() == "" {
				t.Errorf("MSS %d and %d, congestion control %q", s.MSS(), r.MSS(), s.Congestion())
			}
		})
	}
}

func TestStopEndsEveryLoop(t *testing.T) {
	for _, c := range []struct {
		name string
		dir  Direction
		opt  StreamOptions
	}{
		{"a receiver without bytes", RX, StreamOptions{}},
		{"a sender whose peer does not read", TX, StreamOptions{}},
		{"a sender that waits for its pace", TX, StreamOptions{RateBPS: 1000, Block: 1000, Burst: 1000}},
		{"sendfile to a peer that does not read", TX, StreamOptions{ZeroCopy: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			near, _ := pair(t)
			s, ended := stream(t, near, c.dir, c.opt)
			if c.dir == TX {
				until(t, 5*time.Second, "something sent", func() bool { return s.Counters().Moved > 0 })
			}
			s.Stop()
			s.Stop()
			if err := within(t, time.Second, "the loop", ended); err != nil {
				t.Errorf("ended by %v, want nil after Stop", err)
			}
		})
	}
}

func TestPeerThatResets(t *testing.T) {
	near, far := pair(t)
	_, ended := stream(t, near, TX, StreamOptions{})
	far.SetLinger(0)
	far.Close()
	if err := within(t, 2*time.Second, "the sender", ended); err == nil {
		t.Error("no error after a reset")
	}
}

// A receiver that sleeps until half a megabyte is there must not sleep on when its sender becomes slow.
func TestRateThatFalls(t *testing.T) {
	near, far := pair(t)
	r, _ := stream(t, near, RX, StreamOptions{})
	m := NewMeter([]Flow{r}, time.Second, time.Now())
	fast, _ := stream(t, far, TX, StreamOptions{RateBPS: 2e9})
	tick := time.NewTicker(TickTime)
	defer tick.Stop()
	for range 5 {
		m.Tick(<-tick.C)
	}
	if r.lowWater < 100<<10 {
		t.Fatalf("low water %d at 2 Gbit/s, want hundreds of KiB", r.lowWater)
	}
	fast.Stop()
	far.SetDeadline(time.Time{})
	var sent int64
	for range 10 { // 1 kbit/s
		n, err := far.Write(make([]byte, 12))
		if err != nil {
			t.Fatal(err)
		}
		sent += int64(n)
		m.Tick(<-tick.C)
	}
	if r.lowWater != 1 {
		t.Errorf("low water %d at 1 kbit/s, want 1", r.lowWater)
	}
	until(t, 200*time.Millisecond, "every byte read", func() bool {
		return r.Counters().Moved == fast.moved.Load()+sent
	})
}

// BenchmarkTCP moves payload over loopback, one stream.
func BenchmarkTCP(b *testing.B) {
	for _, c := range []struct {
		name string
		rx   StreamOptions
	}{{"discard", StreamOptions{}}, {"copy", StreamOptions{Copy: true}}} {
		b.Run(c.name, func(b *testing.B) {
			ln, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer ln.Close()
			far, err := net.Dial("tcp4", ln.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer far.Close()
			near, err := ln.Accept()
			if err != nil {
				b.Fatal(err)
			}
			defer near.Close()
			const piece = 1 << 20
			b.SetBytes(piece)
			r, err := NewStream(near.(*net.TCPConn), RX, c.rx)
			if err != nil {
				b.Fatal(err)
			}
			s, err := NewStream(far.(*net.TCPConn), TX, StreamOptions{Budget: NewBudget(int64(b.N) * piece)})
			if err != nil {
				b.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- r.Run() }()
			b.ReportAllocs()
			b.ResetTimer()
			if err := s.Run(); err != nil {
				b.Fatal(err)
			}
			far.(*net.TCPConn).CloseWrite()
			if err := <-ended; !errors.Is(err, io.EOF) {
				b.Fatal(err)
			}
		})
	}
}

// 64 streams that always have something to do must not keep the sampler from its ticks.
func TestLoopsLeaveTheSamplerItsTime(t *testing.T) {
	for range 64 {
		near, far := pair(t)
		r, received := stream(t, near, RX, StreamOptions{})
		s, sent := stream(t, far, TX, StreamOptions{})
		t.Cleanup(func() { s.Stop(); r.Stop(); <-sent; <-received })
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var late []time.Duration
	last := time.Now()
	for range 50 {
		<-tick.C
		late = append(late, time.Since(last))
		last = time.Now()
	}
	slices.Sort(late)
	if at := late[len(late)*9/10]; at > 200*time.Millisecond {
		t.Errorf("one tick in ten comes %v after the last, want 20ms", at)
	}
}
