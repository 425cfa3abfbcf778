package iperf3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"linerate/appliance/throughput"
)

// session is one test of a client, from its control connection to its end. Nothing of it outlives it.
type session struct {
	srv    *Server
	guest  *guest
	ctl    *control
	p      params
	id     string
	cancel context.CancelCauseFunc
	log    *slog.Logger
	hangUp func() // ends the UDP streams; nil without

	guarded time.Duration // by which the kernel watches the control connection

	// Guarded by the server's lock.
	gathering bool // streams may join
	joined    []member
	complete  chan struct{} // closed when all have joined
}

// member is a data connection and its place in the order of accepting, which decides its role.
type member struct {
	conn *net.TCPConn
	seq  int64
}

// join takes in a data connection; false if it is none too many or comes too late.
func (t *session) join(conn net.Conn, seq int64) bool {
	tcp, ok := conn.(*net.TCPConn)
	t.srv.mu.Lock()
	defer t.srv.mu.Unlock()
	if !ok || !t.gathering || len(t.joined) >= t.p.connections() {
		return false
	}
	t.joined = append(t.joined, member{tcp, seq})
	if len(t.joined) == t.p.connections() {
		t.gathering = false
		close(t.complete)
	}
	return true
}

// ending is why a test did not end as the client and the server had agreed. code, if any, is what the client is told.
type ending struct {
	code  code
	state state // sent in place of an error if not 0
	text  string
}

func (e *ending) Error() string { return e.text }

// run sees a test through that has its slot: streams, payload, results, and the one way out.
func (t *session) run(ctx context.Context) {
	s := t.srv
	release := sync.OnceFunc(func() {
		s.mu.Lock()
		t.gathering = false
		delete(s.byID, t.id)
		s.lobby.release(t.guest.port)
		s.lobby.advance(t.guest.port)
		s.mu.Unlock()
		s.tellWaiting()
	})
	defer release()
	serving := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.ctl.ctx = ctx
	leave := sync.OnceFunc(t.ctl.interrupt(ctx))
	defer leave()

	t.cancel = cancel
	t.id = s.observer.Started(throughput.Start{
		Peer: t.guest.peer.String(), Local: t.guest.local.String(), Direction: t.p.direction(), Protocol: t.p.Protocol,
		Streams: t.p.Streams, Seconds: t.p.Time, Title: t.p.Title, Client: t.p.Version,
	})
	t.log = s.log.With("peer", t.guest.peer, "test", t.id)
	s.mu.Lock()
	t.gathering, t.complete = t.p.Protocol == throughput.TCP, make(chan struct{})
	if t.id != "" {
		s.byID[t.id] = t
	}
	s.mu.Unlock()
	t.log.Info("test begins", "direction", t.p.direction(), "protocol", t.p.Protocol, "streams", t.p.Streams,
		"seconds", t.p.Time, "client", t.p.Version)

	c := newCourse(t.p, throughput.Server, s.options().Copy)
	err := t.play(ctx, c)
	if ctx.Err() != nil && !errors.As(err, new(*ending)) {
		err = context.Cause(ctx)
	}
	var end *ending
	switch {
	case err == nil:
	case errors.Is(err, errTerminated), serving.Err() != nil:
		end = &ending{state: stateServerTerminate, text: errTerminated.Error()}
		if serving.Err() != nil {
			end.text = "the server was stopped"
		}
	case !errors.As(err, &end):
		end = &ending{text: err.Error()}
	}
	release() // before the client can know that it has ended, and come back
	switch {
	case end == nil:
		_ = t.ctl.writeState(stateDisplayResults)
	case end.state != 0:
		_ = t.ctl.writeState(end.state)
	case end.code != 0:
		_ = t.ctl.writeError(end.code)
	}
	r := c.result(t.guest.peer, t.guest.local)
	if end != nil {
		r.Valid, r.Error = false, throughput.Text(end.text)
		t.log.Info("test ended early", "reason", end.text, "bytes", r.Bytes)
	} else {
		t.log.Info("test ended", "bytes", r.Bytes, "bps", r.BPS)
	}

	// The rest needs no slot. After an error the streams stay as they are until the client has read why: a reset, or the end
	// of its payload, might overtake that.
	var closing sync.WaitGroup
	defer closing.Wait()
	s.mu.Lock()
	joined := t.joined
	s.mu.Unlock()
	c.stop()
	if t.hangUp != nil {
		t.hangUp()
	}
	leave()
	closing.Go(func() {
		s.linger(serving, t.ctl.conn)
		for _, m := range joined {
			if end != nil {
				_ = m.conn.SetLinger(0)
				_ = m.conn.Close()
			}
		}
	})
	for _, m := range joined {
		if end == nil {
			closing.Go(func() { s.linger(serving, m.conn) })
		}
	}
	s.observer.Finished(t.id, r)
}

// play is the test itself. A nil error means that results were exchanged and only DISPLAY_RESULTS is left to send.
func (t *session) play(ctx context.Context, c *course) error {
	gather := t.gather
	if t.p.Protocol == throughput.UDP {
		gather = t.gatherUDP
	}
	if err := gather(ctx, c); err != nil {
		return err
	}
	if err := t.ctl.writeState(stateTestStart, stateTestRunning); err != nil {
		return fmt.Errorf("client gone before the test: %w", err)
	}
	if t.p.direction() != throughput.TX {
		defer throughput.KeepOff(interfaceOf(t.guest.local))()
	}
	c.start()
	if err := t.watch(ctx, c); err != nil {
		return err
	}
	return t.exchange(ctx, c)
}

// gather waits for the TCP streams.
func (t *session) gather(ctx context.Context, c *course) error {
	s := t.srv
	if err := t.ctl.writeState(stateCreateStreams); err != nil {
		return fmt.Errorf("client gone before its streams: %w", err)
	}
	timeout := time.NewTimer(s.wait.streams)
	defer timeout.Stop()
	control := t.listen()
	defer control.close()
	select {
	case <-t.complete:
	case <-timeout.C:
		s.mu.Lock()
		n := len(t.joined)
		t.gathering = false
		s.mu.Unlock()
		return &ending{code: codeStream, text: fmt.Sprintf("client opened %d of %d streams in %v", n, t.p.connections(), s.wait.streams)}
	case m := <-control.in:
		return early(m)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	slices.SortFunc(t.joined, func(a, b member) int { return cmp.Compare(a.seq, b.seq) })
	conns := t.joined
	s.mu.Unlock()
	opt := s.options()
	for i, m := range conns {
		dir := t.direction(i)
		dress(m.conn, t.p, dir, t.p.patience(s.stall(t.guest.port)))
		if err := c.add(m.conn, dir, opt.MaxRate/float64(t.p.connections())); err != nil {
			return &ending{code: codeStream, text: err.Error()}
		}
	}
	return nil
}

// direction of the i-th stream.
func (t *session) direction(i int) throughput.Direction {
	if t.p.Reverse && !t.p.Bidir || t.p.Bidir && i >= t.p.Streams {
		return throughput.TX
	}
	return throughput.RX
}

// message is what came on the control connection, and when.
type message struct {
	state state
	err   error
	at    time.Time
}

// listener reads one state byte while its owner also waits for other things.
type listener struct {
	in   chan message
	conn net.Conn
	done chan struct{}
}

// listen waits for one byte without a time limit. close must be called before the control connection is read otherwise; a byte
// that came at the same moment is kept for the next reader.
func (t *session) listen() *listener { return t.ctl.listen() }

func (c *control) listen() *listener {
	l := &listener{in: make(chan message, 1), conn: c.conn, done: make(chan struct{})}
	err := c.readWithin(0)
	go func() {
		defer close(l.done)
		if err == nil {
			_, err = c.in.Peek(1)
		}
		m := message{err: err, at: time.Now()}
		if b, _ := c.in.Peek(min(1, c.in.Buffered())); err == nil && len(b) == 1 {
			m.state = state(b[0])
		}
		l.in <- m
	}()
	return l
}

func (l *listener) close() {
	_ = l.conn.SetReadDeadline(closeTime)
	<-l.done
}

// early is what a message means that comes while none but an abort makes sense.
func early(m message) error {
	switch {
	case errors.Is(m.err, unix.ETIMEDOUT):
		return &ending{text: "client has gone: its control connection answers no more"}
	case m.err != nil:
		return &ending{text: "client closed the control connection"}
	case m.state == stateClientTerminate:
		return &ending{text: codeTerminated.String()}
	}
	return &ending{code: codeMessage, text: fmt.Sprintf("client sent control byte %d out of turn", m.state)}
}

// watch lets the payload flow until the client says that it is done.
func (t *session) watch(ctx context.Context, c *course) error {
	s := t.srv
	control := t.listen()
	defer control.close()
	tick := time.NewTicker(throughput.TickTime)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case m := <-control.in:
			c.ended = m.at
			if m.err != nil || m.state != stateTestEnd {
				return early(m)
			}
			_, _ = t.ctl.in.Discard(1)
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case now := <-c.omit:
			c.meter.Reset(now)
		case now := <-tick.C:
			p := c.tick(now)
			if n%2 == 0 {
				s.observer.Progressed(t.id, p)
			}
			if err := t.judge(c, now); err != nil {
				return err
			}
		}
	}
}

// guard lets the kernel find out whether the client is still there, though nothing is said for the whole of a test: a UDP
// sender would notice nothing else.
func (t *session) guard(stall time.Duration) {
	tcp, ok := t.ctl.conn.(*net.TCPConn)
	if !ok || stall == t.guarded {
		return
	}
	t.guarded = stall
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: max(time.Second, stall/2), Interval: max(time.Second, stall/10), Count: 10,
	})
	// A little later than the payload's own watchdog, which knows more.
	limit := stall + 2*time.Second
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
		})
	}
}

// judge ends a test that goes nowhere or too far.
func (t *session) judge(c *course, now time.Time) error {
	opt := t.srv.options()
	elapsed := now.Sub(c.began)
	stall := t.srv.stall(t.guest.port)
	t.guard(stall)
	if idle, limit := c.meter.Idle(), t.p.patience(stall); idle >= limit {
		c.ended = c.meter.Moving()
		return &ending{code: codeNoMessage, text: fmt.Sprintf("no progress with %v for %v", t.guest.peer, limit)}
	}
	if received := c.meter.Received(); opt.MaxRate > 0 && t.p.Protocol == throughput.UDP && elapsed > 2*time.Second &&
		float64(received)*8 > 1.1*opt.MaxRate*elapsed.Seconds() { // nothing holds back a UDP sender
		return &ending{code: codeTotalRate, text: fmt.Sprintf("sends more than the limit of %.0f bit/s", opt.MaxRate)}
	}
	if opt.MaxDuration > 0 && elapsed > opt.MaxDuration+time.Second {
		return &ending{state: stateServerTerminate, text: fmt.Sprintf("longer than the limit of %v", opt.MaxDuration)}
	}
	if whole := seconds(t.p.Time + t.p.Omit); t.p.Time > 0 && elapsed > whole+t.srv.wait.grace {
		return &ending{code: codeDuration, text: fmt.Sprintf("client did not end its test of %v", whole)}
	}
	return nil
}

// patience is how long nothing may move: at a low rate at least the time of three blocks.
func (p params) patience(stall time.Duration) time.Duration {
	if p.Bandwidth <= 0 {
		return stall
	}
	block := float64(p.Len*max(1, p.Burst)) * 8 / p.Bandwidth
	return max(stall, seconds(min(3*block, throughput.MaxSeconds)))
}

// exchange stops the senders, takes the client's results, lets what is in flight arrive, and sends ours.
func (t *session) exchange(ctx context.Context, c *course) error {
	s := t.srv
	c.halt()
	if err := t.ctl.writeState(stateExchangeResults); err != nil {
		return fmt.Errorf("client gone before its results: %w", err)
	}
	raw, err := t.ctl.readBlob(s.wait.results, maxResultsBytes)
	if err == nil {
		err = c.hear(raw)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return &ending{code: codeResults, text: fmt.Sprintf("client sent no valid results: %v", err)}
	}
	c.finish(ctx, s.wait.quiet, s.wait.drain)
	ours := c.ours()
	if t.p.ServerOutput {
		if s.options().OutputJSON {
			ours.OutputJSON = c.outputJSON(t.guest.peer, t.guest.local)
		} else {
			ours.OutputText = c.outputText(t.guest.peer, t.guest.local)
		}
	}
	if err := t.ctl.writeBlob(ours.encode()); err != nil {
		return fmt.Errorf("client gone before our results: %w", err)
	}
	return nil
}
