package iperf3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"linerate/appliance/throughput"
)

// Server runs the tests that clients ask for. Make it with NewServer; Serve may be called for several listeners at once.
type Server struct {
	wait     patience
	logs     *logLimiter
	log      *slog.Logger
	observer throughput.Observer
	portOf   func(netip.Addr) string
	seq      atomic.Int64 // of accepted connections

	mu       sync.Mutex
	opt      Options
	lobby    lobby
	byCookie map[cookie]*session
	byID     map[string]*session
	leaving  int // connections that linger
	boards   []*switchboard

	tell    sync.Mutex // orders what the QueueObserver is told
	waiting int        // how many it was told of
}

// NewServer makes a server that serves nobody yet.
func NewServer(o Options) *Server {
	o = o.withDefaults()
	return &Server{
		wait: defaultPatience(), logs: newLogLimiter(o.Log), log: o.Log, observer: o.Observer, portOf: o.PortOf, opt: o,
		lobby:    lobby{mode: o.Concurrency, maxTests: o.MaxTests, running: map[string]int{}},
		byCookie: map[cookie]*session{}, byID: map[string]*session{},
	}
}

// SetOptions changes what a running server does from now on; Observer, PortOf and Log stay what they were. Tests that run
// keep their slots.
func (s *Server) SetOptions(o Options) {
	s.mu.Lock()
	s.opt = o.withDefaults()
	s.lobby.setMode(s.opt.Concurrency, s.opt.MaxTests)
	s.mu.Unlock()
	s.tellWaiting()
}

func (s *Server) options() Options {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opt
}

// errTerminated is why a test ends that somebody at the box has ended.
var errTerminated = errors.New("ended at the box")

// Terminate ends a client's test, named by the id that the Observer gave it; the client prints "the server has terminated".
// It returns false if no such test runs.
func (s *Server) Terminate(id string) bool {
	s.mu.Lock()
	t := s.byID[id]
	s.mu.Unlock()
	if t == nil {
		return false
	}
	t.cancel(errTerminated)
	return true
}

// Serve accepts control and data connections until ctx ends, then ends every test that came by this listener and returns nil
// when the last goroutine is gone. It does not close the listener. A passing failure to accept (no file descriptors) is
// waited out; any other is returned.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		if d, ok := ln.(interface{ SetDeadline(time.Time) error }); !ok || d.SetDeadline(closeTime) != nil {
			_ = ln.Close()
		}
	})()
	pause := time.Duration(0)
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			seq := s.seq.Add(1)
			all.Go(func() { s.handle(ctx, conn, seq) })
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on %v: %w", ln.Addr(), err)
		default:
			pause = min(time.Second, max(5*time.Millisecond, 2*pause))
			s.logs.warn(netip.Addr{}, "cannot accept a connection, trying again", "error", err, "after", pause)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
}

// handle sees one connection through to its end. It is the only place where one is closed that is no test's.
func (s *Server) handle(ctx context.Context, conn net.Conn, seq int64) {
	g := newGuest(conn, time.Now())
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(closeTime) })()
	c, why := s.welcome(g)
	if why == nil {
		switch kind, t := s.introduce(g, c); kind {
		case dataConnection:
			if t.join(conn, seq) {
				return // the test owns it now
			}
			why = &paramError{text: "more streams than the test has"}
		case twice:
			why = &paramError{text: "its cookie is in use"}
		default:
			s.host(ctx, g, c)
			return
		}
	}
	s.send(g, why)
	s.linger(ctx, conn)
}

// welcome takes a connection into the lobby and reads its cookie.
func (s *Server) welcome(g *guest) (cookie, error) {
	var c cookie
	opt := s.options()
	if !opt.allowed(g.peer) {
		return c, refuse(codeAuth, "not in the list of who may test")
	}
	if opt.Concurrency == Exclusive {
		g.port = s.portOf(g.local)
		if s.busy(g.port) {
			return c, errBusy
		}
	}
	s.mu.Lock()
	out := s.lobby.enter(g)
	s.mu.Unlock()
	if out != nil {
		_ = out.conn.SetDeadline(closeTime)
		s.logs.warn(out.peer, "too many connections wait, the oldest is closed")
	}
	_ = g.conn.SetReadDeadline(deadline(s.wait.cookie))
	_, err := io.ReadFull(g.conn, c[:])
	switch {
	case err != nil:
		err = fmt.Errorf("no cookie came: %w", err)
	case !c.valid():
		err = fmt.Errorf("does not speak iperf3")
	}
	if err != nil {
		s.mu.Lock()
		s.lobby.leave(g)
		s.mu.Unlock()
	}
	return c, err
}

var errBusy = &paramError{text: "busy"}

// busy says whether a port has its fill of tests that have all their streams: who comes now is a client that must wait.
func (s *Server) busy(port string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lobby.running[port] == 0 {
		return false
	}
	for _, t := range s.byCookie {
		if t.guest.port == port && t.gathering {
			return false
		}
	}
	return true
}

type kind int

const (
	controlConnection kind = iota
	dataConnection
	twice
)

// introduce tells by its cookie what a connection is. A data connection leaves the lobby, a control connection begins to wait.
func (s *Server) introduce(g *guest, c cookie) (kind, *session) {
	port := g.port
	if port == "" {
		port = s.portOf(g.local)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.byCookie[c]; t != nil {
		s.lobby.leave(g)
		if t.gathering && t.guest.peer == g.peer {
			return dataConnection, t
		}
		return twice, nil
	}
	t := &session{srv: s, guest: g}
	s.byCookie[c] = t
	g.port, g.stage = port, waiting
	s.lobby.advance(port)
	return controlConnection, t
}

// host leads a control connection to a slot and runs its test.
func (s *Server) host(ctx context.Context, g *guest, c cookie) {
	s.mu.Lock()
	t := s.byCookie[c]
	s.mu.Unlock()
	ctl := newControl(ctx, g.conn)
	defer s.tellWaiting()
	defer func() {
		s.mu.Lock()
		delete(s.byCookie, c)
		s.lobby.leave(g)
		s.lobby.advance(g.port)
		s.mu.Unlock()
	}()
	err := s.usher(ctx, g, ctl, t)
	if err != nil {
		s.send(g, err)
		s.linger(ctx, g.conn)
		return
	}
	t.run(ctx)
}

// usher brings a control connection from its cookie to a slot.
func (s *Server) usher(ctx context.Context, g *guest, ctl *control, t *session) error {
	s.tellWaiting()
	giveUp := time.NewTimer(s.options().QueueWait)
	defer giveUp.Stop()
	if err := s.await(ctx, g.turn, g, ctl, giveUp.C); err != nil {
		return err
	}
	if err := ctl.writeState(stateParamExchange); err != nil {
		return fmt.Errorf("gone before its parameters: %w", err)
	}
	slow := time.AfterFunc(s.wait.late, func() {
		s.mu.Lock()
		s.lobby.demote(g)
		s.lobby.advance(g.port)
		s.mu.Unlock()
	})
	raw, err := ctl.readBlob(s.wait.params, maxParamsBytes)
	slow.Stop()
	switch {
	case errors.Is(err, errTooLong):
		return refuse(codeParams, "parameters: %v", err)
	case err != nil:
		return fmt.Errorf("no parameters came: %w", err)
	}
	p, err := decodeParams(raw)
	if err != nil {
		return err
	}
	if err := s.options().permit(p); err != nil {
		return err
	}
	t.p, t.ctl = p, ctl
	s.mu.Lock()
	g.stage = ready
	s.lobby.advance(g.port)
	s.mu.Unlock()
	return s.await(ctx, g.grant, g, ctl, giveUp.C)
}

// permit holds the parameters against the server's own limits.
func (o Options) permit(p params) error {
	if o.MaxDuration > 0 && p.Time+p.Omit > o.MaxDuration.Seconds() {
		c := codeDuration
		if knowsMaxDuration(p.Version) {
			c = codeMaxDuration
		}
		return refuse(c, "asks for %g s: the limit is %v", p.Time+p.Omit, o.MaxDuration)
	}
	if rate := p.Bandwidth * float64(p.connections()); o.MaxRate > 0 && rate > o.MaxRate {
		return refuse(codeTotalRate, "asks for %.0f bit/s: the limit is %.0f", rate, o.MaxRate)
	}
	return nil
}

// knowsMaxDuration holds for clients from 3.20 on.
func knowsMaxDuration(version string) bool {
	var major, minor int
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor)
	return major > 3 || major == 3 && minor >= 20
}

// await waits for go to be closed; meanwhile it notices when the client hangs up.
func (s *Server) await(ctx context.Context, goOn <-chan struct{}, g *guest, ctl *control, giveUp <-chan time.Time) error {
	select {
	case <-goOn:
		return nil
	default:
	}
	gone := make(chan error, 1)
	_ = g.conn.SetReadDeadline(time.Time{})
	go func() {
		_, err := ctl.in.Peek(1)
		gone <- err
	}()
	var err error
	left := false
	select {
	case <-goOn:
	case <-g.deny:
		err = errBusy
	case <-giveUp:
		err = errBusy
	case <-ctx.Done():
		err = ctx.Err()
	case err = <-gone:
		left = true
		if err == nil {
			err = refuse(codeMessage, "sent something while it had to wait")
		} else {
			err = fmt.Errorf("gone while it waited: %w", err)
		}
	}
	if !left {
		_ = g.conn.SetReadDeadline(closeTime)
		<-gone
	}
	if err != nil {
		// The slot may have come at the same moment: it goes back.
		s.mu.Lock()
		if g.settled {
			select {
			case <-g.grant:
				s.lobby.release(g.port)
			default:
			}
		}
		g.settled = true
		s.lobby.leave(g)
		s.lobby.advance(g.port)
		s.mu.Unlock()
	}
	return err
}

// send tells a client why it is refused, with the protocol's own bytes, and logs it.
func (s *Server) send(g *guest, why error) {
	var refused *paramError
	ctl := control{conn: g.conn}
	switch {
	case errors.As(why, &refused) && refused.code != 0:
		_ = ctl.writeError(refused.code)
	case refused != nil:
		_ = ctl.writeState(stateAccessDenied)
	}
	s.logs.info(g.peer, "client refused", "reason", why)
}

// linger closes a connection so that the peer can still read what was sent last: half now, the rest when it has closed too,
// at the latest after patience.linger. Nothing of it stays in the kernel.
func (s *Server) linger(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	s.mu.Lock()
	s.leaving++
	many := s.leaving > maxGuests
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.leaving--
		s.mu.Unlock()
	}()
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok || many || half.CloseWrite() != nil {
		return
	}
	_ = conn.SetReadDeadline(deadline(s.wait.linger))
	if ctx.Err() != nil { // it may have ended before the deadline was set
		return
	}
	const most = 64 << 20
	n, err := io.Copy(io.Discard, io.LimitReader(conn, most))
	if tcp, ok := conn.(*net.TCPConn); ok && (err != nil || n == most) {
		_ = tcp.SetLinger(0)
	}
}

// tellWaiting tells the QueueObserver who waits now.
func (s *Server) tellWaiting() {
	q, ok := s.observer.(throughput.QueueObserver)
	if !ok {
		return
	}
	s.tell.Lock()
	defer s.tell.Unlock()
	s.mu.Lock()
	w := s.lobby.waiters("")
	s.mu.Unlock()
	if len(w) == 0 && s.waiting == 0 {
		return
	}
	s.waiting = len(w)
	q.Waiting(w)
}

// stall is how long a test on a port may be without progress.
func (s *Server) stall(port string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.opt.Stall > 0:
		return s.opt.Stall
	case s.opt.Concurrency == Exclusive || len(s.lobby.waiters(port)) > 0:
		return 10 * time.Second
	}
	return 60 * time.Second
}
