package iperf3

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"linerate/appliance/throughput"
)

const (
	maxGuests  = 1024 // connections without a slot
	maxOffered = 8    // of a queue that may send parameters at once
)

// stage of a connection on its way to a slot.
type stage int

const (
	silent  stage = iota // no cookie yet
	waiting              // a control connection that waits for byte 9
	offered              // byte 9 is out, no parameters yet
	late                 // the same for too long: it does not hold up others any more
	ready                // valid parameters are in: it waits for byte 10
)

// guest is a connection that has no slot. Exactly one of grant and deny is closed in the end, if it stays.
type guest struct {
	conn        net.Conn
	peer, local netip.Addr
	port        string
	since       time.Time
	stage       stage
	turn        chan struct{} // closed: byte 9 may go
	grant       chan struct{} // closed: it has a slot
	deny        chan struct{} // closed: busy
	settled     bool          // grant or deny is closed
}

func newGuest(conn net.Conn, now time.Time) *guest {
	return &guest{
		conn: conn, peer: addrOf(conn.RemoteAddr()), local: addrOf(conn.LocalAddr()), since: now,
		turn: make(chan struct{}), grant: make(chan struct{}), deny: make(chan struct{}),
	}
}

// addrOf is the address alone, IPv4-mapped as IPv4; the zero Addr where there is none.
func addrOf(a net.Addr) netip.Addr {
	switch t := a.(type) {
	case *net.TCPAddr:
		return t.AddrPort().Addr().Unmap()
	case *net.UDPAddr:
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// lobby knows who waits and which port is in use. It decides; it does no I/O. Not safe for concurrent use: the server's lock
// guards it.
type lobby struct {
	mode     Concurrency
	maxTests int
	guests   []*guest // oldest first, those that were late at the end
	running  map[string]int
}

// enter takes a connection in and returns the one that has to go for it, or nil. Whoever has come least far goes first, of
// those the oldest; never the newcomer.
func (l *lobby) enter(g *guest) (out *guest) {
	if len(l.guests) >= maxGuests {
		out = l.guests[0]
		for _, o := range l.guests {
			if o.stage < out.stage {
				out = o
			}
		}
		l.leave(out)
	}
	l.guests = append(l.guests, g)
	return out
}

// leave forgets a connection. The lobby must be advanced afterwards where it was more than silent.
func (l *lobby) leave(g *guest) {
	if i := slices.Index(l.guests, g); i >= 0 {
		l.guests = slices.Delete(l.guests, i, i+1)
	}
}

// demote puts a connection whose parameters do not come behind the others.
func (l *lobby) demote(g *guest) {
	if g.stage != offered {
		return
	}
	g.stage = late
	l.leave(g)
	l.guests = append(l.guests, g)
}

// release gives a slot back.
func (l *lobby) release(port string) {
	if l.running[port]--; l.running[port] <= 0 {
		delete(l.running, port)
	}
}

func (l *lobby) settle(g *guest, grant bool) {
	if g.settled {
		return
	}
	g.settled = true
	if !grant {
		close(g.deny)
		return
	}
	l.running[g.port]++
	l.leave(g)
	close(g.grant)
}

// offer lets byte 9 go.
func (l *lobby) offer(g *guest) {
	g.stage = offered
	close(g.turn)
}

// advance lets everybody on a port go as far as the mode permits. It is called after each change.
func (l *lobby) advance(port string) {
	// A copy: whoever is granted a slot leaves the list.
	mine := make([]*guest, 0, 8)
	pending := 0
	for _, g := range l.guests {
		if g.port == port && g.stage > silent && !g.settled {
			mine = append(mine, g)
			if g.stage == offered {
				pending++
			}
		}
	}
	limit := 1
	if l.mode == Parallel {
		limit = l.maxTests
	}
	for _, g := range mine {
		free := l.running[port] < limit
		switch {
		case g.stage == ready && (free || l.mode != Queue):
			l.settle(g, free)
		case g.stage == waiting && l.mode == Parallel:
			l.offer(g)
		case g.stage == waiting && l.mode == Exclusive:
			if free {
				l.offer(g)
			} else {
				l.settle(g, false)
			}
		}
	}
	if l.mode != Queue || l.running[port] > 0 {
		return
	}
	for _, g := range mine {
		if g.stage == waiting && pending < maxOffered {
			l.offer(g)
			pending++
		}
	}
}

// setMode changes the rules for those who wait as well.
func (l *lobby) setMode(mode Concurrency, maxTests int) {
	l.mode, l.maxTests = mode, maxTests
	ports := map[string]bool{}
	for _, g := range l.guests {
		ports[g.port] = true
	}
	for p := range ports {
		l.advance(p)
	}
}

// waiters are those who wait for a port that is in use, oldest first; with port "" for any.
func (l *lobby) waiters(port string) []throughput.Waiter {
	var w []throughput.Waiter
	for _, g := range l.guests {
		if l.mode == Queue && (port == "" || g.port == port) && l.running[g.port] > 0 && g.stage > silent && g.stage != late && !g.settled {
			w = append(w, throughput.Waiter{Peer: g.peer.String(), Local: g.local.String(), Since: g.since})
		}
	}
	return w
}
