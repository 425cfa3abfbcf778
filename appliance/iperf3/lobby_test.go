package iperf3

import (
	"net"
	"testing"
	"time"
)

func arrive(l *lobby, port string) *guest {
	a, _ := net.Pipe()
	g := newGuest(a, time.Unix(0, 0))
	g.port = port
	l.enter(g)
	return g
}

// bring lets a guest show its cookie.
func bring(l *lobby, port string) *guest {
	g := arrive(l, port)
	g.stage = waiting
	l.advance(port)
	return g
}

func isReady(l *lobby, g *guest) {
	g.stage = ready
	l.advance(g.port)
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestLobbyParallel(t *testing.T) {
	l := &lobby{mode: Parallel, maxTests: 2, running: map[string]int{}}
	var all []*guest
	for range 3 {
		g := bring(l, "lan1")
		if !closed(g.turn) {
			t.Fatal("byte 9 is held back")
		}
		all = append(all, g)
	}
	for _, g := range all {
		isReady(l, g)
	}
	if !closed(all[0].grant) || !closed(all[1].grant) || closed(all[2].grant) || !closed(all[2].deny) {
		t.Error("want two tests and the third denied")
	}
	other := bring(l, "lan2")
	isReady(l, other)
	if !closed(other.grant) {
		t.Error("another port must not be touched")
	}
	l.release("lan1")
	late := bring(l, "lan1")
	isReady(l, late)
	if !closed(late.grant) || l.running["lan1"] != 2 {
		t.Errorf("a slot that was given back is not free; %d run", l.running["lan1"])
	}
}

func TestLobbyQueue(t *testing.T) {
	l := &lobby{mode: Queue, maxTests: 16, running: map[string]int{}}
	first := bring(l, "lan1")
	isReady(l, first)
	if !closed(first.grant) {
		t.Fatal("the first must run")
	}
	var all []*guest
	for range 12 {
		g := bring(l, "lan1")
		if closed(g.turn) || closed(g.deny) {
			t.Fatal("byte 9 must be held back while a test runs")
		}
		all = append(all, g)
	}
	if w := l.waiters("lan1"); len(w) != 12 || len(l.waiters("lan2")) != 0 {
		t.Errorf("%d wait", len(w))
	}
	l.release("lan1")
	l.advance("lan1")
	for i, g := range all {
		if closed(g.turn) != (i < maxOffered) {
			t.Errorf("guest %d: byte 9 %v, want it for the oldest %d", i, closed(g.turn), maxOffered)
		}
	}
	// The third is the quickest, the others hold their parameters.
	isReady(l, all[2])
	isReady(l, all[0])
	if !closed(all[2].grant) || closed(all[0].grant) || closed(all[0].deny) {
		t.Error("the winner runs, the loser waits for byte 10")
	}
	// The second is silent: it goes behind the others and its place is free for one more.
	l.release("lan1")
	l.advance("lan1")
	if !closed(all[0].grant) {
		t.Error("whose parameters are in comes first")
	}
	l.demote(all[1])
	l.release("lan1")
	l.advance("lan1")
	if l.guests[len(l.guests)-1] != all[1] {
		t.Error("the silent one is not at the end")
	}
	for i := range 11 {
		if i != 1 && !closed(all[i].turn) {
			t.Errorf("guest %d has no turn, though only the silent one and those before it have", i)
		}
	}
	if closed(all[11].turn) {
		t.Error("more than 8 are offered at once")
	}
	isReady(l, all[1]) // after all
	if !closed(all[1].grant) {
		t.Error("a late one may still run when nobody else is ready")
	}
}

func TestLobbyExclusive(t *testing.T) {
	l := &lobby{mode: Exclusive, running: map[string]int{}}
	a, b := bring(l, "lan1"), bring(l, "lan1")
	isReady(l, b)
	isReady(l, a)
	if !closed(b.grant) || !closed(a.deny) {
		t.Error("the quicker one runs, the other is told busy")
	}
	if c := bring(l, "lan1"); !closed(c.deny) {
		t.Error("who comes while a test runs is told busy")
	}
	if d := bring(l, "lan2"); !closed(d.turn) {
		t.Error("another port is free")
	}
}

func TestLobbyEvictsWhoCameLeastFar(t *testing.T) {
	l := &lobby{mode: Queue, maxTests: 1, running: map[string]int{"lan1": 1}}
	real := bring(l, "lan1")
	oldest := arrive(l, "")
	for range maxGuests - 2 {
		arrive(l, "")
	}
	newest := newGuest(nil2(), time.Unix(0, 0))
	if out := l.enter(newest); out != oldest {
		t.Error("the oldest silent connection must go, not a client that waits its turn, nor the newcomer")
	}
	if len(l.guests) != maxGuests || l.guests[0] != real || l.guests[len(l.guests)-1] != newest {
		t.Errorf("%d guests", len(l.guests))
	}
}

func nil2() net.Conn { a, _ := net.Pipe(); return a }

func TestLobbyModeChanges(t *testing.T) {
	l := &lobby{mode: Queue, maxTests: 1, running: map[string]int{"lan1": 1}}
	a, b := bring(l, "lan1"), bring(l, "lan1")
	l.setMode(Parallel, 16)
	if !closed(a.turn) || !closed(b.turn) {
		t.Error("who waited in a queue goes on when there is none any more")
	}
	l = &lobby{mode: Queue, maxTests: 1, running: map[string]int{"lan1": 1}}
	c := bring(l, "lan1")
	l.setMode(Exclusive, 1)
	if !closed(c.deny) {
		t.Error("who waited in a queue is told busy when there is none any more")
	}
}
