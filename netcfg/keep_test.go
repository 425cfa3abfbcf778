package netcfg

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"linerate/appliance"
	"linerate/appliance/config"
)

func alone(names ...string) func(appliance.State) bool {
	return func(s appliance.State) bool {
		return !slices.ContainsFunc(names, func(n string) bool {
			p := portOf(s, n)
			return p.Name == "" || p.Master != ""
		})
	}
}

// The keeper frees the ports, and frees one that is put back, within 300 ms on a machine that is not busy.
func TestKeepsPortsFree(t *testing.T) {
	bridged(t)
	k := keeper(t)
	hub := start(t, k.Keep(always(wants(generic, "eth1", "eth2"))))
	await(t, hub, "both alone", alone("eth1", "eth2"))
	addBridge(t, "br1")
	must(t, netlink.LinkSetMaster(byName(t, "eth2"), byName(t, "br1")))
	began := time.Now()
	until(t, "eth2 free again", func() bool { return masterOf(t, "eth2") == "" })
	if took := time.Since(began); took > time.Second {
		t.Errorf("eth2 was free after %v", took)
	} else {
		t.Logf("eth2 was free after %v", took)
	}
	// A new port of that name is wanted just as well: with a new index, whatever came before.
	remove("eth1")
	await(t, hub, "eth1 gone", func(s appliance.State) bool { return portOf(s, "eth1").Name == "" })
	addVeth(t, "eth1", "far1")
	if l, err := netlink.LinkByName("br1"); err == nil {
		must(t, netlink.LinkSetMaster(byName(t, "eth1"), l))
	}
	await(t, hub, "eth1 back and alone", alone("eth1"))
}

// Somebody who puts a port back again and again is left to it, and this is said once; another config is another try.
func TestKeeperStopsFighting(t *testing.T) {
	bridged(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var fights int
	var wg sync.WaitGroup
	addBridge(t, "br1")
	wg.Go(func() { // a network manager that wants eth2 in br1
		for ctx.Err() == nil {
			if masterOf(t, "eth2") == "" {
				if err := netlink.LinkSetMaster(byName(t, "eth2"), byName(t, "br1")); err == nil {
					fights++
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	addAddress(t, "br1", "203.0.113.1/24") // so that it is not removed when it is empty
	k, w := keeper(t), wants(generic, "eth1", "eth2")
	w.Port = []config.Port{gives("eth2", 0, "198.51.100.2/24"), gives("eth1", 0)}
	var mu sync.Mutex
	hub := start(t, k.Keep(func(appliance.State) Wanted { mu.Lock(); defer mu.Unlock(); return w }))
	stopped := func(s appliance.State) bool {
		return slices.ContainsFunc(s.Faults, func(f appliance.Fault) bool {
			return strings.HasPrefix(f.Title, "eth2: leave bridge br1: undone 3 times in a minute")
		})
	}
	await(t, hub, "the keeper gives up", stopped)
	until(t, "netcfg.json says so", func() bool {
		s, err := ReadStatus(k.runDir)
		return err == nil && len(s.Faults()) == 1
	})
	time.Sleep(5 * Settle)
	if masterOf(t, "eth2") != "br1" || masterOf(t, "eth1") != "" {
		t.Errorf("eth2 is in %q, eth1 in %q; want eth2 left to br1, eth1 free", masterOf(t, "eth2"), masterOf(t, "eth1"))
	}
	stop()
	wg.Wait()
	if fights < 3 || fights > 5 {
		t.Errorf("the port was taken back %d times", fights)
	}
	mu.Lock()
	w.Ports.MTU = 4000
	mu.Unlock()
	hub.Publish(appliance.Ticked{At: time.Now()})
	await(t, hub, "eth2 alone with the next config", alone("eth2"))
	await(t, hub, "no fault", func(s appliance.State) bool { return len(s.Faults) == 0 })
}

// What fails and is undone makes reports of its own; the keeper does not take them for a reason to try again at once.
func TestFailureIsNotRepeatedAtOnce(t *testing.T) {
	bridged(t)
	addAddress(t, "br0", "2001:db8:5::1/64")
	for _, port := range []string{"eth1", "eth2"} {
		must(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+port+"/disable_ipv6", []byte("1"), 0))
	}
	said := &counter{}
	k := keeper(t)
	k.log = said.logger()
	hub := start(t, k.Keep(always(wants(generic, "eth1", "eth2"))))
	await(t, hub, "the fault", func(s appliance.State) bool {
		return len(s.Faults) == 1 && strings.Contains(s.Faults[0].Title, "disable_ipv6=0")
	})
	time.Sleep(8 * Settle)
	if n := said.errors.Load(); n != 1 {
		t.Errorf("tried %d times in %v, want once", n, 8*Settle)
	}
	if masterOf(t, "eth1") != "br0" || !holds(t, "br0", "192.168.2.1/24") {
		t.Error("the bridge is not as before")
	}
	if len(hub.State().Faults) != 1 {
		t.Errorf("faults: %v", hub.State().Faults)
	}
}

// After --restore a keeper that runs keeps its hands off, until --once is asked for.
func TestKeeperMindsARestore(t *testing.T) {
	bridged(t)
	k, w := keeper(t), wants(generic, "eth1", "eth2")
	hub := start(t, k.Keep(always(w)))
	await(t, hub, "both alone", alone("eth1", "eth2"))
	person := NewKeeper(k.dir, k.runDir, nil)
	if r, err := person.Restore(t.Context(), w); err != nil || !r.Good() {
		t.Fatalf("restore: %s%v, %v", r.Text(), r.Errors(), err)
	}
	await(t, hub, "both in the bridge", func(s appliance.State) bool { return portOf(s, "eth1").Master == "br0" })
	time.Sleep(5 * Settle)
	if masterOf(t, "eth1") != "br0" || masterOf(t, "eth2") != "br0" || !holds(t, "br0", "192.168.2.1/24") {
		t.Error("the keeper undid the restore")
	}
	if s, err := ReadStatus(k.runDir); err != nil || !s.Held {
		t.Errorf("netcfg.json: held %v, %v", s.Held, err)
	}
	apply(t, person, w)
	await(t, hub, "both alone again", alone("eth1", "eth2"))
}

// Two that change the ports wait for one another, and say so when it takes too long.
func TestLock(t *testing.T) {
	k := NewKeeper(t.TempDir()+"/netcfg", t.TempDir(), nil)
	unlock, err := k.lock(t.Context())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	other := NewKeeper(k.dir, k.runDir, nil)
	if _, err := other.lock(ctx); err == nil || !strings.Contains(err.Error(), "another linerate netcfg") {
		t.Errorf("a second one: %v", err)
	}
	unlock()
	unlock, err = other.lock(t.Context())
	must(t, err)
	unlock()
}

func TestFollow(t *testing.T) {
	dir := t.TempDir()
	hub := start(t, Follow(dir, nil))
	say := func(texts ...string) {
		var s Status
		for _, x := range texts {
			s.Failed = append(s.Failed, Failure{Text: x})
		}
		must(t, writeStatus(dir, s))
	}
	has := func(texts ...string) func(appliance.State) bool {
		return func(s appliance.State) bool {
			return slices.EqualFunc(s.Faults, texts, func(f appliance.Fault, x string) bool {
				return f.Task == "netcfg" && f.Title == x
			})
		}
	}
	say("eth1: it broke")
	await(t, hub, "a fault", has("eth1: it broke"))
	say("eth1: it broke", "eth2: it broke")
	await(t, hub, "two", has("eth1: it broke", "eth2: it broke"))
	say()
	await(t, hub, "none", has())
	must(t, os.WriteFile(filepath.Join(dir, StatusFile), []byte("{"), 0o644))
	await(t, hub, "a damaged file", func(s appliance.State) bool {
		return len(s.Faults) == 1 && strings.Contains(s.Faults[0].Title, "netcfg.json")
	})
	must(t, os.Remove(filepath.Join(dir, StatusFile)))
	await(t, hub, "none, without the file", has())
	if err := Follow(dir+"/nowhere", nil).Run(t.Context(), hub); err == nil {
		t.Error("a folder that is not there is no error")
	}
}
