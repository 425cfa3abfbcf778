package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

// DHCP keeps an IPv4 address on a port that no network manager owns: leased from a server (RFC 2131), renewed at T1,
// rebound at T2, asked for again when the link was away; and a link-local one (RFC 3927) after [LinkLocalAfter] without
// an offer, so that a laptop plugged straight in works. It asks on all the while, and gives the link-local address up
// when a server answers.
//
// Starting returns at once. The address stays until Stop, which releases it; Leave ends the client and leaves the address
// as it is until it expires, for another process to ask for it again. Methods may be called from any goroutine.
type DHCP struct {
	name    string
	log     *slog.Logger
	wire    dhcpWire
	carrier chan bool // holds the newest state
	cancel  context.CancelFunc
	done    sync.WaitGroup

	mu    sync.Mutex
	fault string
	leave bool
}

// LinkLocalAfter is how long a port with a link waits for an offer before it gives itself an address.
const LinkLocalAfter = 10 * time.Second

// How often is asked: at once, then after twice as long each time.
const (
	askFirst = 2 * time.Second
	askMost  = 30 * time.Second
	askLimit = 4 * time.Second // one exchange
	renewMin = 60 * time.Second
)

// lease is what a server gave.
type lease struct {
	address       netip.Prefix
	routes        []Route // the default one and others, of the interface
	server        netip.Addr
	at            time.Time
	t1, t2, valid time.Duration // from at
}

// dhcpWire is the port and who answers on it.
type dhcpWire interface {
	ask(ctx context.Context) (lease, error)              // discover, offer, request, acknowledgement
	reask(ctx context.Context, l lease) (lease, error)   // the same address, after the link was away
	renew(ctx context.Context, l lease) (lease, error)   // of its server
	rebind(ctx context.Context, l lease) (lease, error)  // of any server
	release(l lease)                                     //
	set(l lease) error                                   // on the port
	unset(l lease)                                       //
	linkLocal(ctx context.Context) (netip.Prefix, error) // gives the port a free one
	refresh(p netip.Prefix)                              // it expires otherwise, should this process die
	unsetLinkLocal(p netip.Prefix)                       //
}

// errRefused says that the server takes the address back (DHCPNAK).
var errRefused = errors.New("refused by the server")

// StartDHCP starts with the link as it is told.
func StartDHCP(name string, carrier bool, log *slog.Logger) *DHCP {
	return startDHCP(name, carrier, log, newDHCPPort(name, log))
}

func startDHCP(name string, carrier bool, log *slog.Logger, wire dhcpWire) *DHCP {
	ctx, cancel := context.WithCancel(context.Background())
	d := &DHCP{name: name, log: log, wire: wire, carrier: make(chan bool, 1), cancel: cancel}
	d.carrier <- carrier
	d.done.Go(func() { d.run(ctx) })
	return d
}

// Carrier tells whether there is a link. Telling it twice does no harm.
func (d *DHCP) Carrier(up bool) {
	for {
		select {
		case d.carrier <- up:
			return
		default:
		}
		select { // take out what is older
		case <-d.carrier:
		default:
		}
	}
}

// Stop releases the address, takes it from the port, and returns when that is done.
func (d *DHCP) Stop() { d.cancel(); d.done.Wait() }

// Leave ends the client and leaves the address on the port.
func (d *DHCP) Leave() {
	d.mu.Lock()
	d.leave = true
	d.mu.Unlock()
	d.Stop()
}

// Fault says what is wrong at the port itself; "" where at most nobody answers.
func (d *DHCP) Fault() string { d.mu.Lock(); defer d.mu.Unlock(); return d.fault }

func (d *DHCP) failed(what string, err error) {
	text := ""
	if err != nil {
		text = fmt.Sprintf("%s: %s: %v", d.name, what, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if text != d.fault && text != "" {
		d.log.Warn(text)
	}
	d.fault = text
}

// client is the state of a run.
type client struct {
	*DHCP
	up        bool
	held      *lease
	linkLocal netip.Prefix // valid: the port has it
	since     time.Time    // of the link, or of the loss of the lease
	wait      time.Duration
	moved     bool // the link was away: it may be another network
}

func (d *DHCP) run(ctx context.Context) {
	c := &client{DHCP: d}
	defer c.end()
	for ctx.Err() == nil {
		if !c.up {
			c.dropLinkLocal() // the next wire is another
			c.sleep(ctx, -1)
			continue
		}
		switch {
		case c.held == nil:
			c.discover(ctx)
		case c.moved:
			c.confirm(ctx)
		default:
			c.keep(ctx)
		}
	}
}

// sleep ends when the time is over (never, if it is negative), when the link changes, or with ctx.
func (c *client) sleep(ctx context.Context, long time.Duration) {
	var over <-chan time.Time
	if long >= 0 {
		t := time.NewTimer(long)
		defer t.Stop()
		over = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case up := <-c.carrier:
			if up == c.up {
				continue
			}
			c.up, c.moved = up, true
			c.since, c.wait = time.Now(), 0
			return
		}
	}
}

// discover asks for a lease, once, and waits before the next time.
func (c *client) discover(ctx context.Context) {
	limit, left := askLimit, LinkLocalAfter-time.Since(c.since)
	switch {
	case left > 0:
		limit = min(limit, left)
	case c.linkLocal.IsValid():
		c.wire.refresh(c.linkLocal)
	default:
		p, err := c.wire.linkLocal(ctx)
		c.failed("give itself a link-local address", err)
		if err != nil {
			c.since = time.Now().Add(askMost - LinkLocalAfter) // all are taken, or the port refuses: later
		} else {
			c.log.Info(c.name + ": nobody offers an address: it is " + p.String())
			c.linkLocal = p
		}
	}
	within, cancel := context.WithTimeout(ctx, limit)
	l, err := c.wire.ask(within)
	cancel()
	if err == nil {
		c.bind(l)
		return
	}
	c.wait = min(max(2*c.wait, askFirst), askMost)
	pause := c.wait
	if !c.linkLocal.IsValid() {
		pause = max(0, min(pause, LinkLocalAfter-time.Since(c.since)))
	}
	c.sleep(ctx, pause)
}

// bind puts a lease on the port, in the place of the one before.
func (c *client) bind(l lease) {
	if c.held != nil && c.held.address != l.address {
		c.wire.unset(*c.held)
	}
	err := c.wire.set(l)
	if c.failed("take the leased address "+l.address.String(), err); err != nil {
		c.held = nil
		return
	}
	if c.held == nil || c.held.address != l.address {
		c.log.Info(fmt.Sprintf("%s: leased %v from %v for %v", c.name, l.address, l.server, l.valid))
	}
	c.held, c.moved, c.wait = &l, false, 0
	c.dropLinkLocal()
}

func (c *client) dropLinkLocal() {
	if c.linkLocal.IsValid() {
		c.wire.unsetLinkLocal(c.linkLocal)
		c.linkLocal = netip.Prefix{}
	}
}

func (c *client) drop(why string) {
	c.log.Info(fmt.Sprintf("%s: lost %v: %s", c.name, c.held.address, why))
	c.wire.unset(*c.held)
	c.held, c.since, c.wait = nil, time.Now(), 0
}

// confirm asks for the held address again after the link was away. Without an answer it stays until it expires: the
// server may be away (RFC 2131, 3.2); a refusal says that this is another network.
func (c *client) confirm(ctx context.Context) {
	limit, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	l, err := c.wire.reask(limit, *c.held)
	switch {
	case err == nil:
		c.bind(l)
	case errors.Is(err, errRefused):
		c.drop("another network")
	case ctx.Err() == nil:
		c.moved = false
		if time.Since(c.held.at) < c.held.valid {
			return
		}
		c.drop("it has expired")
	}
}

// keep waits for T1 and T2 and acts then.
func (c *client) keep(ctx context.Context) {
	age := time.Since(c.held.at)
	if age < c.held.t1 {
		c.sleep(ctx, c.held.t1-age)
		return
	}
	if age >= c.held.valid {
		c.drop("it has expired")
		return
	}
	again, next := c.wire.renew, c.held.t2
	if age >= c.held.t2 {
		again, next = c.wire.rebind, c.held.valid
	}
	limit, cancel := context.WithTimeout(ctx, min(askLimit, c.held.valid-age))
	defer cancel()
	l, err := again(limit, *c.held)
	switch {
	case err == nil:
		c.bind(l)
	case errors.Is(err, errRefused):
		c.drop("the server takes it back")
	case ctx.Err() == nil: // half of what is left, a minute at least (RFC 2131, 4.4.5), but not beyond
		left := next - time.Since(c.held.at)
		c.sleep(ctx, max(0, min(left, max(left/2, renewMin))))
	}
}

// end leaves nothing behind, unless it shall.
func (c *client) end() {
	c.mu.Lock()
	leave := c.leave
	c.mu.Unlock()
	if leave {
		return
	}
	c.dropLinkLocal()
	if c.held != nil {
		c.wire.release(*c.held)
		c.wire.unset(*c.held)
	}
}
