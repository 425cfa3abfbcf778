package runner

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// memory is a store without a disk.
type memory struct {
	mu   sync.Mutex
	seq  int
	list []results.Record
	err  error
}

func (m *memory) Reserve() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq++
	return strconv.Itoa(m.seq)
}

func (m *memory) Append(r results.Record) (results.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, r)
	return r, m.err
}

func (m *memory) all() []results.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.list)
}

// engineFunc is an engine in a line.
type engineFunc func(context.Context, throughput.Spec, func(throughput.Progress)) (throughput.Result, error)

func (f engineFunc) Run(ctx context.Context, s throughput.Spec, p func(throughput.Progress)) (throughput.Result, error) {
	return f(ctx, s, p)
}

// ten moves 2 Gbit/s for as long as it is asked to.
func ten(ctx context.Context, s throughput.Spec, progress func(throughput.Progress)) (throughput.Result, error) {
	r := throughput.Result{Engine: "iperf3", Role: throughput.Client, Peer: throughput.Text(s.Host), Local: "192.0.2.1",
		Family: 4, Protocol: s.Protocol, Direction: s.Direction, Valid: true, MSS: new(1448), Timestamps: true}
	for i := 1.0; i <= s.Seconds; i++ {
		select {
		case <-ctx.Done():
			r.Valid, r.Error = false, "cancelled"
			return r, nil
		case <-time.After(time.Second):
		}
		progress(throughput.Progress{ElapsedS: i, RXBPS: 2e9})
		r.Seconds, r.BPS, r.RXBPS, r.Bytes = i, 2e9, new(2e9), int64(i*2e9/8)
	}
	return r, nil
}

func port() appliance.Port {
	return appliance.Port{Name: "eth1", Role: "lan1", Index: 3, Link: appliance.LinkUp, SpeedMbps: new(2500), MTU: 1500,
		Duplex: appliance.DuplexFull, Driver: "r8169", Test: true, Addresses: []string{"192.0.2.1/24"}}
}

type bench struct {
	hub   *appliance.Hub
	store *memory
	rep   *Reporter
	run   *Runner
}

func newBench(engine engineFunc) *bench {
	cfg := config.Default()
	cfg.Targets = []config.Target{{Name: "core", Host: "192.0.2.10", Engine: "iperf3", Expect: 1.9e9}}
	b := &bench{hub: appliance.NewHub(appliance.New("t", "generic", "box", cfg)), store: &memory{}}
	b.hub.Publish(appliance.PortsSeen{At: time.Now(), Ports: []appliance.Port{port()}})
	b.rep = &Reporter{Hub: b.hub, Store: b.store, Log: slog.New(slog.DiscardHandler)}
	b.run = &Runner{Engines: map[string]throughput.Engine{"iperf3": engine}, Reporter: b.rep, Log: b.rep.Log,
		Local: func(context.Context, appliance.State, throughput.Spec) string { return "192.0.2.1" }}
	return b
}

func (b *bench) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		appliance.Run(ctx, b.hub, b.rep.Log, appliance.Task{Name: "runner", Run: b.run.Run})
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func (b *bench) press(keys ...appliance.Key) {
	for _, k := range keys {
		b.hub.Publish(appliance.ButtonPressed{At: time.Now(), Key: k})
	}
}

func TestPressRunsBothDirections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(ten)
		b.start(t)
		b.press(appliance.K1, appliance.K1)
		synctest.Wait()
		if s := b.hub.State(); len(s.Running) != 1 || s.Running[0].Target != "core" {
			t.Fatalf("running %v", s.Running)
		}
		time.Sleep(21 * time.Second)
		synctest.Wait()
		if len(b.store.all()) != 2 {
			t.Fatalf("%d results stored, want one a direction", len(b.store.all()))
		}
		rx, tx := b.store.all()[0], b.store.all()[1]
		if rx.Run != tx.Run || rx.ID == tx.ID || rx.Direction != throughput.RX || tx.Direction != throughput.TX {
			t.Errorf("run %q %q, id %q %q, direction %q %q", rx.Run, tx.Run, rx.ID, tx.ID, rx.Direction, tx.Direction)
		}
		if rx.Port != "eth1" || *rx.LinkMbps != 2500 || rx.Target != "core" || rx.Pass == nil || !*rx.Pass || rx.PossiblePercent == nil {
			t.Errorf("record %+v", rx)
		}
		if s := b.hub.State(); s.Request != nil || len(s.Running) != 0 || s.Page != appliance.PageResult {
			t.Errorf("request %v, %d running, page %s", s.Request, len(s.Running), s.Page)
		}
	})
}

func TestCancelEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(ten)
		b.start(t)
		b.press(appliance.K1, appliance.K1)
		time.Sleep(3500 * time.Millisecond)
		b.press(appliance.Select, appliance.Select)
		synctest.Wait()
		if s := b.hub.State(); s.Request != nil || len(s.Running) != 0 {
			t.Fatalf("request %v, %d running after the cancel", s.Request, len(s.Running))
		}
		if len(b.store.all()) != 1 || b.store.all()[0].Valid || b.store.all()[0].Error != "cancelled" || b.store.all()[0].Seconds != 3 {
			t.Errorf("stored %+v", b.store.all())
		}
	})
}

func TestSilentTargetEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		b := newBench(func(context.Context, throughput.Spec, func(throughput.Progress)) (throughput.Result, error) {
			calls++
			return throughput.Result{}, errors.New("192.0.2.10:5201 does not answer")
		})
		b.start(t)
		b.press(appliance.K1, appliance.K1)
		synctest.Wait()
		if calls != 1 || len(b.store.all()) != 1 || b.store.all()[0].Valid || !strings.Contains(string(b.store.all()[0].Error), "does not answer") {
			t.Errorf("%d calls, stored %+v", calls, b.store.all())
		}
		if s := b.hub.State(); s.Request != nil || s.Page != appliance.PageResult {
			t.Errorf("request %v, page %s", s.Request, s.Page)
		}
	})
}

func TestDyingEngineLeavesNothingRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		b := newBench(func(ctx context.Context, s throughput.Spec, p func(throughput.Progress)) (throughput.Result, error) {
			if !mended.Load() {
				panic("bug")
			}
			return ten(ctx, s, p)
		})
		b.start(t)
		b.press(appliance.K1, appliance.K1)
		synctest.Wait()
		s := b.hub.State()
		if s.Request != nil || len(s.Running) != 0 || s.Page != appliance.PageMessage || len(s.Faults) == 0 {
			t.Fatalf("request %v, %d running, page %s, faults %v", s.Request, len(s.Running), s.Page, s.Faults)
		}
		time.Sleep(5 * time.Second) // the supervisor has started it again
		mended.Store(true)
		b.press(appliance.Back, appliance.K1, appliance.K1)
		time.Sleep(25 * time.Second)
		if len(b.store.all()) != 2 {
			t.Errorf("%d results after the restart, want 2", len(b.store.all()))
		}
	})
}

func TestUnwritableStoreIsAFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(ten)
		b.store.err = errors.New("disk full")
		b.start(t)
		b.press(appliance.K1, appliance.K1)
		time.Sleep(25 * time.Second)
		s := b.hub.State()
		if len(s.Results) != 2 || len(s.Faults) != 1 || !strings.Contains(s.Faults[0].Title, "disk full") {
			t.Fatalf("%d results shown, faults %v", len(s.Results), s.Faults)
		}
		b.store.mu.Lock()
		b.store.err = nil
		b.store.mu.Unlock()
		b.press(appliance.K1, appliance.K1)
		time.Sleep(25 * time.Second)
		if s := b.hub.State(); len(s.Faults) != 0 {
			t.Errorf("faults %v after the disk works again", s.Faults)
		}
	})
}

func TestLinkChangeMakesInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(ten)
		id := b.rep.Started(throughput.Start{Peer: "192.0.2.7", Local: "192.0.2.1", Direction: throughput.RX})
		flapped := port()
		flapped.CarrierChanges = 2
		b.hub.Publish(appliance.PortsSeen{At: time.Now(), Ports: []appliance.Port{flapped}})
		b.rep.Finished(id, throughput.Result{Local: "192.0.2.1", Direction: throughput.RX, Valid: true, BPS: 1e9, RXBPS: new(1e9)})
		if r := b.store.all()[0]; r.Valid || r.Error == "" {
			t.Errorf("valid %v, error %q", r.Valid, r.Error)
		}
	})
}

func TestNoPercentOfNothing(t *testing.T) {
	b := newBench(ten)
	r := throughput.Result{Local: "192.0.2.1", Protocol: throughput.TCP, Direction: throughput.TX, Error: "the server is busy"}
	b.rep.Finished(b.rep.Started(throughput.Start{Peer: "192.0.2.7", Local: "192.0.2.1"}), r)
	if got := b.store.all()[0]; got.LineRatePercent != nil || got.PossiblePercent != nil || got.LinkMbps == nil {
		t.Errorf("a test that moved nothing: %+v; want its link, and no percent of it", got)
	}
}

func TestSharedPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(ten)
		start := throughput.Start{Peer: "192.0.2.7", Local: "192.0.2.1", Direction: throughput.RX}
		one, two := b.rep.Started(start), b.rep.Started(start)
		elsewhere := b.rep.Started(throughput.Start{Peer: "127.0.0.1", Local: "127.0.0.1", Direction: throughput.RX})
		for i := 1.0; i <= 10; i++ {
			for _, id := range []string{one, two, elsewhere} {
				b.rep.Progressed(id, throughput.Progress{ElapsedS: i, RXBPS: 1.1e9})
			}
		}
		result := throughput.Result{Local: "192.0.2.1", Direction: throughput.RX, Valid: true, BPS: 1.1e9, RXBPS: new(1.1e9),
			Family: 4, MSS: new(1448), Timestamps: true}
		b.rep.Finished(one, result)
		r := b.store.all()[0]
		if !slices.Equal(r.SharedWith, []string{two}) {
			t.Errorf("shared with %v, want %s alone", r.SharedWith, two)
		}
		if *r.PortBPS < 2.0e9 || *r.PortBPS > 2.2e9 || *r.LineRatePercent < 80 {
			t.Errorf("port %g bit/s, %g %% of the line; want those of both tests", *r.PortBPS, *r.LineRatePercent)
		}
	})
}

func TestResolve(t *testing.T) {
	b := newBench(ten)
	found := appliance.NewHub(appliance.New("t", "generic", "box", config.Default()))
	found.Publish(appliance.TargetsSeen{Found: []appliance.Target{{Name: "192.0.2.7", Host: "192.0.2.7", Source: appliance.SourcePeer}}})
	if got, err := Resolve(found.State(), throughput.Spec{Target: "192.0.2.7"}); err != nil || got.Host != "192.0.2.7" {
		t.Errorf("a target that was found: %+v, %v", got, err)
	}
	s := b.hub.State()
	for _, c := range []struct {
		in       throughput.Spec
		host     string
		bind     string
		mentions string
	}{
		{in: throughput.Spec{Host: "core"}, host: "192.0.2.10"},
		{in: throughput.Spec{Target: "core"}, host: "192.0.2.10"},
		{in: throughput.Spec{Host: "203.0.113.5", Via: "lan1"}, host: "203.0.113.5", bind: "eth1"},
		{in: throughput.Spec{Target: "edge"}, mentions: `"edge" is not known`},
		{in: throughput.Spec{Host: "203.0.113.5", Via: "lan7"}, mentions: `no port "lan7"`},
		{in: throughput.Spec{}, mentions: "neither host nor target"},
	} {
		got, err := Resolve(s, c.in)
		if c.mentions != "" {
			if err == nil || !strings.Contains(err.Error(), c.mentions) {
				t.Errorf("%+v: error %v, want %q", c.in, err, c.mentions)
			}
			continue
		}
		if err != nil || got.Host != c.host || got.Bind != c.bind {
			t.Errorf("%+v: %+v, %v", c.in, got, err)
		}
	}
}

func TestSeekServers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listening := netip.MustParseAddrPort(l.Addr().String())
	found := ask(t.Context(), []appliance.Target{
		{Host: "127.0.0.1", TCPPort: int(listening.Port())},
		{Host: "127.0.0.1", TCPPort: 1},
	})
	if !*found[0].Answers || *found[1].Answers {
		t.Errorf("answers %v and %v, want the listening one alone", *found[0].Answers, *found[1].Answers)
	}
}
