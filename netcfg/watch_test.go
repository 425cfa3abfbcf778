package netcfg

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/netcfg/netnstest"
)

// start runs a Task until the test ends, and fails the test if it ends with an error.
func start(t *testing.T, task appliance.Task) *appliance.Hub {
	t.Helper()
	hub := appliance.NewHub(appliance.State{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- task.Run(ctx, hub) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", task.Name, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s does not end with its context", task.Name)
		}
	})
	return hub
}

// await waits for a State, in the order they are published.
func await(t *testing.T, hub *appliance.Hub, what string, ok func(appliance.State) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for s := range hub.Watch(ctx) {
		if ok(s) {
			return
		}
	}
	var ports []string
	for _, p := range hub.State().Ports {
		ports = append(ports, p.Name+" "+p.Link+" in "+p.Master+" "+strings.Join(p.Addresses, " "))
	}
	t.Fatalf("%s: not within 10 s; ports %q, faults %v", what, ports, hub.State().Faults)
}

func portOf(s appliance.State, name string) appliance.Port {
	i := slices.IndexFunc(s.Ports, func(p appliance.Port) bool { return p.Name == name })
	if i < 0 {
		return appliance.Port{}
	}
	return s.Ports[i]
}

func always(w Wanted) func(appliance.State) Wanted {
	return func(appliance.State) Wanted { return w }
}

func TestWatchFollowsTheKernel(t *testing.T) {
	bridged(t)
	hub := start(t, Watch(always(wants(generic, "eth1", "eth2", "lan9")), nil))
	await(t, hub, "both ports, in their bridge", func(s appliance.State) bool {
		return portOf(s, "eth1").Master == "br0" && portOf(s, "eth2").Master == "br0"
	})
	await(t, hub, "a fault for the port that is not there", func(s appliance.State) bool {
		return len(s.Faults) == 1 && strings.HasPrefix(s.Faults[0].Title, "no port lan9")
	})
	must(t, netlink.LinkSetNoMaster(byName(t, "eth1")))
	await(t, hub, "eth1 alone", func(s appliance.State) bool {
		return portOf(s, "eth1").Name != "" && portOf(s, "eth1").Master == ""
	})
	addAddress(t, "eth1", "192.0.2.1/24")
	addRoute(t, "eth1", "0.0.0.0/0", "192.0.2.254", 1)
	await(t, hub, "address and gateway", func(s appliance.State) bool {
		p := portOf(s, "eth1")
		return slices.Contains(p.Addresses, "192.0.2.1/24") && p.Gateway == "192.0.2.254"
	})
	must(t, netlink.LinkSetDown(byName(t, "far1")))
	await(t, hub, "no link", func(s appliance.State) bool { return portOf(s, "eth1").Link == appliance.LinkDown })
	old := portOf(hub.State(), "eth1").Index
	remove("eth1")
	await(t, hub, "eth1 gone", func(s appliance.State) bool { return portOf(s, "eth1").Name == "" && len(s.Ports) == 1 })
	addVeth(t, "eth1", "far1")
	await(t, hub, "eth1 back", func(s appliance.State) bool { return portOf(s, "eth1").Index > old })
}

// A watcher that has nothing to report publishes nothing and takes no time of the processor.
func TestIdleWatchUsesNoCPU(t *testing.T) {
	bridged(t)
	hub := start(t, Watch(always(wants(generic, "eth1", "eth2")), nil))
	settled := func(s appliance.State) bool {
		for _, p := range s.Ports {
			if p.Link != appliance.LinkUp || len(p.Addresses) == 0 {
				return false
			}
		}
		return len(s.Ports) == 2
	}
	await(t, hub, "both ports", settled)
	time.Sleep(3 * Settle) // what the kernel still reports of the start
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	states := hub.Watch(ctx)
	<-states
	cpu := func() time.Duration {
		var u unix.Rusage
		must(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := cpu()
	select {
	case s := <-states:
		t.Errorf("published though nothing changed: %v", s.Ports)
	case <-time.After(time.Second):
	}
	if used := cpu() - before; used > 20*time.Millisecond {
		t.Errorf("%v of processor time in an idle second", used)
	}
}

// Another config counts at once.
func TestWatchFollowsTheConfig(t *testing.T) {
	bridged(t)
	var mu sync.Mutex
	w := wants(generic, "eth1")
	hub := start(t, Watch(func(appliance.State) Wanted { mu.Lock(); defer mu.Unlock(); return w }, nil))
	await(t, hub, "eth1", func(s appliance.State) bool { return len(s.Ports) == 1 })
	mu.Lock()
	w = wants(generic, "eth1", "eth2")
	mu.Unlock()
	hub.Publish(appliance.Ticked{At: time.Now()})
	await(t, hub, "eth2", func(s appliance.State) bool { return portOf(s, "eth2").Test })
}

// When the kernel drops reports, the subscription is made anew, and a change is reported as one may have been lost.
func TestSubscriptionOutlivesAnOverrun(t *testing.T) {
	addVeth(t, "eth1", "far1")
	said := &lines{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const least = 1 // the kernel rounds it up to about two reports
	changes, ended, err := subscribe(ctx, slog.New(said), least)
	must(t, err)
	up, down := byName(t, "eth1"), byName(t, "far1")
	for end := time.Now().Add(20 * time.Second); !said.has("more changes of links than could be taken"); {
		if time.Now().After(end) {
			t.Fatal("no overrun in 20 s")
		}
		must(t, netlink.LinkSetMTU(up, 1400))
		must(t, netlink.LinkSetMTU(down, 1400))
		must(t, netlink.LinkSetMTU(up, 1500))
		must(t, netlink.LinkSetMTU(down, 1500))
	}
	for quiet := false; !quiet; {
		select {
		case <-changes:
		case <-time.After(200 * time.Millisecond):
			quiet = true
		}
	}
	must(t, netlink.LinkSetMTU(up, 1300))
	select {
	case <-changes:
	case err := <-ended:
		t.Fatalf("ended: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("no report after the overrun")
	}
}

// lines is a log handler that keeps messages.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r.Message)
	return nil
}

func (l *lines) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all, func(s string) bool { return strings.Contains(s, part) })
}

// A burst of reports is one reason to look, Settle after the first of it, however long it goes on.
func TestSleepGathersABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := make(chan struct{}, 1)
		go func() {
			for range 100 {
				select {
				case changes <- struct{}{}:
				default:
				}
				time.Sleep(Settle / 5)
			}
		}()
		w, start, looks := wants(generic, "eth1"), time.Now(), 0
		for range 3 {
			fresh, err := sleep(t.Context(), changes, nil, nil, nil, nil, always(w), &w)
			if fresh || err != nil {
				t.Fatalf("fresh %v, %v", fresh, err)
			}
			looks++
			took, least := time.Since(start), time.Duration(looks)*Settle
			if most := least + time.Duration(looks)*Settle/5; took < least || took > most {
				t.Errorf("look %d after %v, want between %v and %v", looks, took, least, most)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}

// The other reasons to wake: a minute, another wish, the end of the subscription, the end of it all.
func TestSleepWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wants(generic, "eth1")
		tick := time.NewTicker(reread)
		defer tick.Stop()
		began := time.Now()
		fresh, err := sleep(t.Context(), nil, nil, nil, nil, tick.C, always(w), &w)
		if fresh || err != nil || time.Since(began) != time.Minute {
			t.Errorf("the minute: %v, %v after %v", fresh, err, time.Since(began))
		}
		states := make(chan appliance.State, 2)
		other := wants(generic, "eth2")
		states <- appliance.State{}
		states <- appliance.State{Name: "other"}
		wish := func(s appliance.State) Wanted {
			if s.Name == "other" {
				return other
			}
			return wants(generic, "eth1")
		}
		fresh, err = sleep(t.Context(), nil, nil, states, nil, nil, wish, &w)
		if !fresh || err != nil || w.Ports.Select[0] != "eth2" {
			t.Errorf("another wish: %v, %v, %v", fresh, err, w.Ports.Select)
		}
		ended := make(chan error, 1)
		ended <- unix.EBADF
		if _, err := sleep(t.Context(), nil, nil, nil, ended, nil, wish, &w); !errors.Is(err, unix.EBADF) {
			t.Errorf("the subscription's end: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if fresh, err := sleep(ctx, nil, nil, nil, nil, nil, wish, &w); fresh || err != nil {
			t.Errorf("the end: %v, %v", fresh, err)
		}
	})
}

func TestWatchEndsBeforeItBegins(t *testing.T) {
	netnstest.Need(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Watch(always(wants(generic, "auto")), nil).Run(ctx, appliance.NewHub(appliance.State{})); err != nil {
		t.Error(err)
	}
}
