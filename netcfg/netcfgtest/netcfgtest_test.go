package netcfgtest

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"linerate/appliance"
)

// history walks through the changes of the first hour.
func history(seed uint64) (times []time.Duration, seen [][]appliance.Port) {
	for at := time.Duration(0); at < time.Hour; {
		ports, next := Ports(seed, at)
		times, seen = append(times, at), append(seen, ports)
		if next == 0 {
			break
		}
		at = next
	}
	return times, seen
}

func TestSameSeedSameHistory(t *testing.T) {
	times, seen := history(1)
	again, seenAgain := history(1)
	if !reflect.DeepEqual(times, again) || !reflect.DeepEqual(seen, seenAgain) {
		t.Error("the same seed shows another history")
	}
	if other, _ := history(2); reflect.DeepEqual(times, other) {
		t.Error("another seed shows the same history")
	}
}

// For any seed: every moment is one that a real box could be in, and all that a demo is to show does happen.
func TestPortsBehave(t *testing.T) {
	for seed := range uint64(12) {
		times, seen := history(seed)
		asked, flapped := map[string]time.Duration{}, map[string]int{}
		for i, ports := range seen {
			if i > 0 && times[i] <= times[i-1] {
				t.Fatalf("seed %d: time goes from %v to %v", seed, times[i-1], times[i])
			}
			if i > 0 && reflect.DeepEqual(ports, seen[i-1]) {
				t.Errorf("seed %d: nothing changed at %v", seed, times[i])
			}
			for _, p := range ports {
				up := p.Link == appliance.LinkUp
				if up != (p.SpeedMbps != nil) || up != (p.Duplex == appliance.DuplexFull) || up != (len(p.PeerModes) > 0) {
					t.Errorf("seed %d at %v: %s is half up: %+v", seed, times[i], p.Name, p)
				}
				if up != (p.CarrierChanges%2 == 1) {
					t.Errorf("seed %d at %v: %s has link %v after %d changes", seed, times[i], p.Name, up, p.CarrierChanges)
				}
				if !up && len(p.Addresses) > 0 || up && len(p.Addresses) == 0 {
					t.Errorf("seed %d at %v: %s: link %s with addresses %v", seed, times[i], p.Name, p.Link, p.Addresses)
				}
				if asking := up && len(p.Addresses) == 1; asking && i+1 < len(times) {
					asked[p.Name] = max(asked[p.Name], times[i+1]-times[i])
				}
				flapped[p.Name] = p.CarrierChanges
			}
		}
		for _, name := range []string{"eth0", "eth1", "eth2", "eth3"} {
			if asked[name] == 0 {
				t.Errorf("seed %d: %s never asks for an address", seed, name)
			}
		}
		if flapped["eth0"] != 1 || flapped["eth1"] < 20 || flapped["eth2"] < 40 {
			t.Errorf("seed %d: changes of carriers in an hour: %v", seed, flapped)
		}
	}
}

func TestLooksLikeAnR5S(t *testing.T) {
	ports, _ := Ports(1, time.Minute)
	speeds, tests := map[string]int{}, map[string]bool{}
	for _, p := range ports {
		if p.SpeedMbps != nil {
			speeds[p.Label()] = *p.SpeedMbps
		}
		tests[p.Label()] = p.Test
	}
	if want := map[string]int{"wan": 1000, "lan1": 2500, "lan2": 2500, "eth3": 1000}; !reflect.DeepEqual(speeds, want) {
		t.Errorf("speeds %v, want %v", speeds, want)
	}
	if want := map[string]bool{"wan": false, "lan1": true, "lan2": true, "eth3": true}; !reflect.DeepEqual(tests, want) {
		t.Errorf("test ports %v, want %v", tests, want)
	}
	if u := ports[3].USB; u == nil || u.SpeedMbps != 480 {
		t.Errorf("the adapter's USB = %+v, want one in a USB 2 socket", u)
	}
	if early, _ := Ports(1, time.Second); len(early) != 3 {
		t.Errorf("%d ports after a second, want 3: the adapter is plugged in later", len(early))
	}
}

// The Task publishes each change at its time, and goes on where it was when it is started again.
func TestSimulate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := appliance.NewHub(appliance.State{})
		task := Simulate(3, time.Now)
		run := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- task.Run(ctx, hub) }()
			return func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		check := func(at time.Duration) {
			t.Helper()
			synctest.Wait()
			want, _ := Ports(3, at)
			got := hub.State().Ports
			for _, w := range want {
				found := false
				for _, g := range got {
					found = found || g.Name == w.Name && g.Link == w.Link && reflect.DeepEqual(g.Addresses, w.Addresses)
				}
				if !found {
					t.Errorf("at %v: no %s with link %s and %v among %v", at, w.Name, w.Link, w.Addresses, got)
				}
			}
		}
		stop := run()
		check(0)
		times, _ := history(3)
		last := time.Duration(0)
		for i, at := range times[1:20] {
			if i == 10 {
				stop()
				stop = run()
			}
			time.Sleep(at - last)
			last = at
			check(at)
		}
		stop()
	})
}
