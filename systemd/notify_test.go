package systemd

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// hang is an Event at which the Hub stays until it is let go.
type hang struct{ entered, free chan struct{} }

func (h hang) When() time.Time {
	close(h.entered)
	<-h.free
	return time.Time{}
}

// hangHub returns when the Hub hangs, and what lets it go.
func hangHub(hub *appliance.Hub) (free func()) {
	h := hang{make(chan struct{}), make(chan struct{})}
	go hub.Publish(h)
	<-h.entered
	return func() { close(h.free) }
}

func newHub() *appliance.Hub {
	return appliance.NewHub(appliance.New("test", "test", "test", config.Default()))
}

func runTask(t *testing.T, task appliance.Task, hub *appliance.Hub) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- task.Run(ctx, hub) }()
	return func() {
		t.Helper()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Error("the Task does not end")
		}
	}
}

func TestNotify(t *testing.T) {
	systemd := startManager(t)
	t.Setenv("WATCHDOG_USEC", "200000")
	m := Open(nil)
	hub := newHub()
	var serving atomic.Bool
	stop := runTask(t, m.Notify(func(s appliance.State) bool { return serving.Load() && s.Version == "test" }), hub)

	systemd.until("status", func() bool { return systemd.count("STATUS=no test yet") == 1 })
	systemd.until("pings before it is ready", func() bool { return systemd.count("WATCHDOG=1") >= 2 })
	if n := systemd.count("READY=1"); n != 0 {
		t.Errorf("READY=1 %d times before the server accepts", n)
	}
	serving.Store(true)
	systemd.until("ready", func() bool { return systemd.count("READY=1") == 1 })

	hub.Publish(appliance.TestFinished{At: time.Now(), Record: results.Record{
		Stamp: results.Stamp{ID: "1", Seq: 1},
		Result: throughput.Result{Direction: throughput.RX, BPS: 2.351e9, Peer: "192.0.2.7", Valid: true,
			PossiblePercent: new(99.6)},
	}})
	systemd.until("the last result", func() bool {
		return systemd.count("STATUS=last: RX 2.35 Gbit/s with 192.0.2.7 (100 % of the possible)") == 1
	})

	// A Hub that hangs gets no more pings, and holds nobody up at the end.
	defer hangHub(hub)()
	systemd.until("pings end", func() bool {
		before := systemd.count("WATCHDOG=1")
		time.Sleep(m.watchdog) // four rounds
		return systemd.count("WATCHDOG=1") == before
	})
	stop()
	systemd.until("stopping", func() bool { return systemd.count("STOPPING=1") == 1 })
	if n := systemd.count("READY=1"); n != 1 {
		t.Errorf("READY=1 %d times", n)
	}
}

// A Hub that hung and goes on is pinged for again.
func TestNotifyRecovers(t *testing.T) {
	systemd := startManager(t)
	t.Setenv("WATCHDOG_USEC", "100000")
	m := Open(nil)
	hub := newHub()
	free := hangHub(hub)
	stop := runTask(t, m.Notify(nil), hub)
	defer stop()
	time.Sleep(2 * m.watchdog)
	if all := systemd.all(); strings.Contains(all, "READY=1") || strings.Contains(all, "WATCHDOG=1") {
		t.Errorf("the Hub has not answered, and yet: %s", all)
	}
	free()
	systemd.until("ready and pinged", func() bool { return systemd.count("READY=1") == 1 && systemd.count("WATCHDOG=1") > 2 })
}

// Without a watchdog there are no pings, without a manager there is nothing.
func TestNotifyWithLess(t *testing.T) {
	systemd := startManager(t)
	hub := newHub()
	stop := runTask(t, Open(nil).Notify(nil), hub)
	systemd.until("ready", func() bool { return systemd.count("READY=1") == 1 })
	stop()
	if n := systemd.count("WATCHDOG=1"); n != 0 {
		t.Errorf("pinged %d times", n)
	}

	var log bytes.Buffer
	stop = runTask(t, Open(slog.New(slog.NewTextHandler(&log, nil))).Notify(nil), hub)
	stop()
	if log.Len() > 0 {
		t.Errorf("said without a manager: %s", &log)
	}
}

// A socket that nobody reads is said once and disturbs nothing.
func TestNotifyToNobody(t *testing.T) {
	systemd := startManager(t)
	t.Setenv("WATCHDOG_USEC", "40000")
	var log bytes.Buffer
	m := Open(slog.New(slog.NewTextHandler(&log, nil)))
	systemd.conn.Close()
	stop := runTask(t, m.Notify(nil), newHub())
	time.Sleep(5 * m.watchdog)
	stop()
	for line := range strings.Lines(log.String()) {
		if strings.Count(log.String(), line) > 1 {
			t.Errorf("said again and again: %s", line)
		}
	}
	if log.Len() == 0 {
		t.Error("not said at all")
	}
}

func TestStatus(t *testing.T) {
	result := func(change func(*results.Record)) results.Record {
		r := results.Record{Result: throughput.Result{Direction: throughput.TX, BPS: 941.3e6, Peer: "10.0.0.9", Valid: true}}
		change(&r)
		return r
	}
	plain := func(*results.Record) {}
	tests := []struct {
		name  string
		state appliance.State
		want  string
	}{
		{"nothing yet", appliance.State{}, "no test yet"},
		{"a result", appliance.State{Results: []results.Record{result(plain), result(plain)}},
			"last: TX 941.3 Mbit/s with 10.0.0.9"},
		{"to a target", appliance.State{Results: []results.Record{result(func(r *results.Record) {
			r.Target, r.Direction = "core", throughput.Both
		})}}, "last: RX+TX 941.3 Mbit/s with core"},
		{"a result that failed", appliance.State{Results: []results.Record{result(func(r *results.Record) {
			r.Valid, r.Error = false, "client vanished"
		})}}, "last: TX with 10.0.0.9: client vanished"},
		{"a test runs, one waits", appliance.State{Running: []*appliance.Test{
			{Peer: "10.0.0.9", Direction: throughput.RX}, {Peer: "10.0.0.8", Waiting: true},
		}, Results: []results.Record{result(plain)}}, "testing RX with 10.0.0.9; last: TX 941.3 Mbit/s with 10.0.0.9"},
		{"two tests", appliance.State{Running: []*appliance.Test{{Peer: "a"}, {Peer: "b"}}}, "2 tests running"},
		{"a fault", appliance.State{Faults: []appliance.Fault{{Task: "iperf3", Title: "listen on :5201: taken"}}},
			"no test yet; fault: iperf3: listen on :5201: taken"},
		{"faults", appliance.State{Faults: []appliance.Fault{{Task: "a", Title: "b"}, {Task: "c", Title: "d"}}},
			"no test yet; 2 faults, the first: a: b"},
		{"a stranger's text", appliance.State{Results: []results.Record{result(func(r *results.Record) {
			r.Valid, r.Error = false, "x\nREADY=1\x00\xff"
		})}}, "last: TX with 10.0.0.9: x READY=1 "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Status(tt.state); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
	long := Status(appliance.State{Faults: []appliance.Fault{{Title: strings.Repeat("é", 500)}}})
	if len(long) > maxStatus || !strings.HasPrefix(long, "no test yet; fault: : éé") {
		t.Errorf("%d bytes: %s", len(long), long)
	}
}
