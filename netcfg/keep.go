package netcfg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"linerate/appliance"
)

// How the keeper deals with others: what was undone so often within so long is left as it is; what failed is tried
// again after retryFirst, then after twice as long each time.
const (
	maxUndone  = 3
	undoneIn   = time.Minute
	retryFirst = time.Minute
	retryMost  = 30 * time.Minute
)

// Keep returns the Task that makes the ports as they are wanted and keeps them so. wanted is asked again for each new
// State. It publishes PortsSeen, and FaultsSeen for what it cannot do, and writes netcfg.json.
func (k *Keeper) Keep(wanted func(appliance.State) Wanted) appliance.Task {
	const name = "netcfg"
	return appliance.Task{Name: name, Run: func(ctx context.Context, hub *appliance.Hub) error {
		eyes, tell, truce := newLooker("/"), teller{hub: hub, task: name}, newTruce()
		leased := clients{log: k.log}
		defer leased.leave()
		mark, boot := k.readBoots().begin(bootID())
		boot = boot && uptime() < bootWindow
		k.writeBoots(mark)
		wake := k.wake(ctx)
		return loop(ctx, hub, wanted, k.log, wake, func(w Wanted, fresh bool) error {
			if fresh {
				truce = newTruce()
			}
			k.serve(ctx, w)
			r, held, err := k.convergeAfterTest(ctx, eyes, w, boot, truce)
			if ctx.Err() != nil {
				return nil
			}
			if !mark.Ended && k.Safe() == "" {
				good := err == nil && !slices.ContainsFunc(r.Failed, func(f Failure) bool { return f.Step.vital })
				mark = mark.end(good)
				k.writeBoots(mark)
				if good && boot && !held {
					k.trust(w)
				}
			}
			boot = false
			if err != nil {
				return err
			}
			leased.update(r.leases)
			r.Failed = append(r.Failed, leased.failures()...)
			tell.ports(r.Seen.Ports)
			tell.faults(r.Errors())
			k.report(r, held)
			return nil
		})
	}}
}

const heldNote = "put back as found by a person: nothing is changed until the config differs or " +
	"`linerate netcfg --once` runs"

// How long the keeper waits for tests to end before it changes a port, and how often it looks.
const (
	testsMost = 10 * time.Minute
	testsLook = 500 * time.Millisecond
)

// convergeAfterTest converges, and where a test runs and a step is due, again when the test is over.
func (k *Keeper) convergeAfterTest(ctx context.Context, eyes *looker, w Wanted, boot bool, truce *truce) (Report, bool,
	error) {
	began := time.Now()
	for {
		waits := false
		r, held, err := k.converge(ctx, eyes, w, boot, truce, func() bool {
			waits = k.testing() && time.Since(began) < testsMost
			return waits
		})
		if !waits || err != nil {
			return r, held, err
		}
		select {
		case <-ctx.Done():
			return r, held, nil
		case <-time.After(testsLook):
		}
	}
}

// converge does what is to be done and left to be done; nothing, when a step is due and wait says so.
func (k *Keeper) converge(ctx context.Context, eyes *looker, w Wanted, boot bool, truce *truce, wait func() bool) (
	r Report, held bool, err error) {
	unlock, err := k.lock(ctx)
	if err != nil {
		return Report{}, false, err
	}
	defer unlock()
	if err := k.pastTrial(ctx, bootID()); err != nil {
		return Report{}, false, err
	}
	if t := k.readTrial(); t != nil {
		switch {
		case t.over(uptime()): // the timer was not there to do it
			r, err := k.rollback(ctx, w, t)
			return r, true, err
		case t.reached(connections()):
			k.log.Info("the change is kept: who could have been cut off has come by a new connection")
			if err := k.confirm(ctx, t); err != nil {
				return Report{}, false, err
			}
		}
	}
	why := k.Safe()
	if why == "" {
		why = k.held(w)
	}
	if why != "" {
		seen, err := eyes.look(w)
		k.ask(ctx, &seen)
		return Report{Seen: seen, Notes: []string{why}, Faults: seen.Faults}, true, err
	}
	var stopped []Failure
	r, err = k.apply(ctx, eyes, w, boot, func(steps []Step) (pass []Step) {
		pass, stopped = truce.pass(steps, time.Now())
		if len(pass) > 0 && wait() {
			return nil
		}
		return pass
	})
	truce.did(r.Done, r.Failed, time.Now())
	r.Undone = nil // seen again at once, and counted then
	r.Failed = append(r.Failed, stopped...)
	return r, false, err
}

// truce remembers what was done and what failed, so that the keeper neither fights with others nor repeats in a hurry
// what cannot be done. It is used by one goroutine.
type truce struct {
	done   map[string][]time.Time
	ended  map[string]Failure // undone too often: left alone for good
	failed map[string]*setback
}

type setback struct {
	failure Failure
	next    time.Time // when it is tried again
	wait    time.Duration
}

func newTruce() *truce {
	return &truce{done: map[string][]time.Time{}, ended: map[string]Failure{}, failed: map[string]*setback{}}
}

// key is what a step is about. The index tells a port that was plugged in again from one that was changed back.
func (s Step) key() string {
	return fmt.Sprintf("%s %s %d %s %d %v %v %s", s.Kind, s.Port, s.index, s.bridge, s.mtu, s.address.Prefix,
		s.route.Destination, s.path())
}

// pass lets through the steps that shall be done now. The others, and all that belong to the same bridge, are held
// back; why says so for each that is the reason.
func (t *truce) pass(steps []Step, now time.Time) (pass []Step, why []Failure) {
	groups := map[string]bool{}
	held := make([]bool, len(steps))
	needed := map[string]bool{}
	for i, s := range steps {
		key := s.key()
		needed[key] = true
		if recent := t.recent(key, now); len(recent) >= maxUndone {
			if _, ended := t.ended[key]; !ended {
				text := fmt.Sprintf("%s: undone %d times in a minute%s: left as it is; tell it that the port is "+
					"not its own, or set bridge = \"keep\"", s.Text, len(recent), by(suspects()))
				t.ended[key] = Failure{Step: s, Port: s.Port, Text: text}
			}
		}
		failure, stop := t.ended[key]
		if f := t.failed[key]; !stop && f != nil && now.Before(f.next) {
			failure, stop = f.failure, true
		}
		if stop {
			held[i] = true
			why = append(why, failure)
			groups[s.group] = s.group != ""
		}
	}
	for i, s := range steps {
		if !held[i] && !groups[s.group] {
			pass = append(pass, s)
		}
	}
	for key := range t.failed {
		if !needed[key] {
			delete(t.failed, key) // it has come true some other way
		}
	}
	return pass, why
}

func (t *truce) recent(key string, now time.Time) []time.Time {
	t.done[key] = slices.DeleteFunc(t.done[key], func(at time.Time) bool { return now.Sub(at) > undoneIn })
	recent := t.done[key]
	if len(recent) == 0 {
		delete(t.done, key)
	}
	return recent
}

// did records what was done and what failed.
func (t *truce) did(done []Step, failed []Failure, now time.Time) {
	for _, s := range done {
		t.done[s.key()] = append(t.done[s.key()], now)
		delete(t.failed, s.key())
	}
	for _, f := range failed {
		if f.Step.Kind == "" {
			continue // not a step: there is nothing to hold back
		}
		key := f.Step.key()
		wait := retryFirst
		if old := t.failed[key]; old != nil {
			wait = min(2*old.wait, retryMost)
		}
		t.failed[key] = &setback{failure: f, next: now.Add(wait), wait: wait}
	}
}

// managers are the programs that put ports into bridges, by their name in /proc/PID/comm (15 characters at most).
var managers = map[string]string{
	"systemd-network": "systemd-networkd", "NetworkManager": "NetworkManager", "netifd": "netifd", "dhcpcd": "dhcpcd",
	"connmand": "ConnMan", "wickedd": "wicked", "ifplugd": "ifplugd", "dhclient": "dhclient",
	"ovs-vswitchd": "Open vSwitch",
	"dockerd":      "Docker", "libvirtd": "libvirt", "incusd": "Incus", "lxd": "LXD", "hostapd": "hostapd",
}

// suspects lists the programs that run here and might have changed a port back, as "NetworkManager (pid 412)". The
// kernel's reports do not name who caused them.
func suspects() []string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
		if err != nil {
			continue
		}
		if name := managers[strings.TrimSpace(string(comm))]; name != "" {
			out = append(out, fmt.Sprintf("%s (pid %d)", name, pid))
		}
	}
	return out
}

func by(suspects []string) string {
	if len(suspects) == 0 {
		return " by another program"
	}
	return ", likely by " + strings.Join(suspects, " or ")
}

// Follow returns the Task that turns what the keeper could not do, as netcfg.json in runDir has it, into faults. It
// needs no privilege. Without the folder it fails, to be started again by its supervisor.
func Follow(runDir string, log *slog.Logger) appliance.Task {
	const name = "netcfg"
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return appliance.Task{Name: name, Run: func(ctx context.Context, hub *appliance.Hub) error {
		tell := teller{hub: hub, task: name}
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return fmt.Errorf("watch %s: %w", runDir, err)
		}
		defer watcher.Close()
		if err := watcher.Add(runDir); err != nil {
			return fmt.Errorf("watch %s: %w", runDir, cmp.Or(errors.Unwrap(err), err))
		}
		for {
			switch status, err := ReadStatus(runDir); {
			case err == nil:
				tell.faults(status.Faults()) // Watch sees for itself what does not exist
			case errors.Is(err, fs.ErrNotExist):
				tell.faults(nil)
			default:
				log.Warn("cannot tell what the network keeper did", "error", err)
				tell.faults([]string{err.Error()})
			}
			if err := nextOf(ctx, watcher, StatusFile); err != nil || ctx.Err() != nil {
				return err
			}
		}
	}}
}

// nextOf waits until the named file in the watched folder is replaced or removed.
func nextOf(ctx context.Context, watcher *fsnotify.Watcher, name string) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-watcher.Events:
			if filepath.Base(e.Name) == name && !e.Has(fsnotify.Chmod) {
				return nil
			}
		case err := <-watcher.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				return nil // something happened: look
			}
			return err
		}
	}
}
