package iperf3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strconv"
	"time"

	"linerate/appliance/throughput"
)

// Client runs tests against any iperf3 server. The zero value is ready; it is safe for concurrent use.
type Client struct {
	Log     *slog.Logger  // nil: discard
	Copy    bool          // copy received payload to user space
	Version string        // announced to the server; "": linerate
	Stall   time.Duration // nothing moves although bytes are due; 0: 20 s

	hurry time.Duration // for tests: how long to wait for the server, in place of the constants below
}

// within is how long the client waits for something of the server.
func (c *Client) within(usual time.Duration) time.Duration {
	if c.hurry > 0 {
		return c.hurry
	}
	return usual
}

const (
	// A server with a queue holds back its first byte for as long as it makes clients wait.
	clientQueueTime = 75 * time.Second
	clientStateTime = 15 * time.Second // for the server's next control byte
	clientStall     = 20 * time.Second
	flushTime       = time.Second // for what was sent of a number of bytes to be acknowledged
)

var _ throughput.Engine = (*Client)(nil)

// Run runs one test; see throughput.Engine. Host must be set, Via and Bind name an address or an interface, not a role.
func (c *Client) Run(ctx context.Context, spec throughput.Spec, progress func(throughput.Progress)) (throughput.Result, error) {
	spec = spec.WithDefaults()
	a := &attempt{client: c, spec: spec, progress: progress}
	if progress == nil {
		a.progress = func(throughput.Progress) {}
	}
	if spec.TCPPort == 0 {
		a.spec.TCPPort = DefaultPort
	}
	a.p = askFor(a.spec, c.Version)
	a.course = newCourse(a.p, throughput.Client, c.Copy)
	a.course.interval = seconds(a.spec.IntervalS)
	err := spec.Check()
	if err == nil && spec.Host == "" {
		err = errors.New("host is missing: name the server to test against")
	}
	if err == nil {
		err = a.run(ctx)
	}
	r := a.course.result(a.peer, a.local)
	if !a.peer.IsValid() {
		r.Peer, r.Local = throughput.Text(spec.Host), ""
		if ip, e := netip.ParseAddr(spec.Host); e != nil {
			r.Peer = ""
		} else if ip.Is6() {
			r.Family = 6
		}
	}
	if _, e := netip.ParseAddr(spec.Host); e != nil {
		r.PeerName = throughput.Text(spec.Host)
	}
	if r.ServerOutput = a.course.peer.OutputText; r.ServerOutput == "" {
		r.ServerOutput = string(a.course.peer.OutputJSON)
	}
	r.Target, r.Label = throughput.Text(spec.Target), throughput.Text(spec.Label)
	if err == nil {
		return r, nil
	}
	r.Valid, r.Error = false, throughput.Text(err.Error())
	if a.course.meter != nil { // there is something to report
		return r, nil
	}
	return r, err
}

// askFor turns a Spec into parameters.
func askFor(s throughput.Spec, version string) params {
	p := params{
		Protocol: s.Protocol, Reverse: s.Direction == throughput.RX, Bidir: s.Direction == throughput.Both,
		Omit: math.Ceil(s.OmitS), Time: math.Ceil(s.Seconds), Num: s.Bytes, Blocks: s.Blocks, Streams: s.Streams, Len: s.BlockBytes,
		Bandwidth: s.RateBPS, Window: s.WindowBytes, MSS: s.MSS, NoDelay: s.NoDelay, TOS: s.TOS,
		Congest: s.Congestion, Title: s.Title, ZeroCopy: s.ZeroCopy, Version: version, Burst: s.Burst, FQRate: s.FQRateBPS,
		FlowLabel: s.FlowLabel, DontFragment: s.DontFragment, Counters64: s.Counters64, Repeating: s.RepeatingPayload,
		ServerOutput: s.ServerOutput, Extra: s.ExtraData,
	}
	if p.Version == "" {
		p.Version = "linerate"
	}
	switch {
	case s.RateBPS == throughput.NoLimit:
		p.Bandwidth = 0
	case s.RateBPS == 0 && p.Protocol == throughput.UDP:
		p.Bandwidth = defaultUDPRate
	}
	if p.Len == 0 && p.Protocol == throughput.TCP {
		p.Len = defaultTCPBlock // for UDP the control connection tells
	}
	return p
}

// attempt is one run of a client.
type attempt struct {
	client      *Client
	spec        throughput.Spec
	p           params
	progress    func(throughput.Progress)
	course      *course
	ctl         *control
	cookie      cookie
	peer, local netip.Addr
	conns       []io.Closer
}

// run is the whole test. An error after the payload has begun to flow leaves what was measured in the course.
func (a *attempt) run(ctx context.Context) error {
	server := net.JoinHostPort(a.spec.Host, strconv.Itoa(a.spec.TCPPort))
	network := "tcp"
	if a.spec.Family != 0 {
		network += strconv.Itoa(a.spec.Family)
	}
	conn, err := a.dial(ctx, network, server, nil)
	if err != nil {
		return fmt.Errorf("connect to %s: %w: is iperf3 -s running there?", server, err)
	}
	a.ctl = newControl(ctx, conn)
	a.measureBlock(conn)
	a.peer, a.local = addrOf(conn.RemoteAddr()), addrOf(conn.LocalAddr())
	defer a.close()
	defer a.ctl.interrupt(ctx)()
	defer a.course.stop()

	err = a.converse(ctx)
	if ctx.Err() != nil {
		_ = a.ctl.writeState(stateClientTerminate)
		return errors.New("cancelled")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", server, err)
	}
	return nil
}

// close ends all connections; the control connection so that the server can still read what was sent last.
func (a *attempt) close() {
	for _, c := range a.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
	_ = a.ctl.conn.Close()
}

// keepAlive notices a peer that has gone within 30 s, though nothing is to be sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// expect waits for a state; what the server says instead is an error a person can read.
func (a *attempt) expect(want state, limit time.Duration) error {
	got, err := a.ctl.readState(limit)
	if err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return fmt.Errorf("the server said nothing for %v", limit)
		}
		return fmt.Errorf("the server closed the control connection: %w", err)
	}
	if got == want {
		return nil
	}
	return a.surprise(got)
}

// surprise is what a control byte means that was not expected.
func (a *attempt) surprise(got state) error {
	switch got {
	case stateAccessDenied:
		return errors.New("the server is busy with another test: try again later")
	case stateServerTerminate:
		return errors.New("the server has ended the test")
	case stateServerError:
		e, err := a.ctl.readError(a.client.within(clientStateTime))
		if err != nil {
			return errors.New("the server reports an error")
		}
		return fmt.Errorf("the server refuses: %v", e)
	}
	return fmt.Errorf("the server sent control byte %d out of turn", got)
}

func (a *attempt) converse(ctx context.Context) error {
	a.cookie = newCookie()
	if err := a.ctl.write(a.cookie[:]); err != nil {
		return err
	}
	if err := a.expect(stateParamExchange, a.client.within(clientQueueTime)); err != nil {
		return err
	}
	if err := a.ctl.writeBlob(a.p.encode()); err != nil {
		return err
	}
	if err := a.expect(stateCreateStreams, a.client.within(clientQueueTime)); err != nil {
		return err
	}
	a.limit()
	connect := a.connect
	if a.p.Protocol == throughput.UDP {
		connect = a.connectUDP
	}
	if err := connect(ctx); err != nil {
		return err
	}
	if err := a.expect(stateTestStart, a.client.within(clientStateTime)); err != nil {
		return err
	}
	if err := a.expect(stateTestRunning, a.client.within(clientStateTime)); err != nil {
		return err
	}
	if a.p.direction() != throughput.RX {
		defer throughput.KeepOff(interfaceOf(a.local))()
	}
	a.course.start()
	if err := a.watch(ctx); err != nil {
		return err
	}
	return a.exchange(ctx)
}

// limit makes a budget of what ends the test by its size.
func (a *attempt) limit() {
	if n := a.size(); n > 0 {
		a.course.budget = throughput.NewBudget(n)
		if a.p.Omit > 0 {
			a.course.budget.Set(math.MaxInt64) // until the omitted seconds are over
		}
	}
}

// size is the payload in one direction that ends the test; 0: time does.
func (a *attempt) size() int64 {
	if a.p.Blocks > 0 {
		return a.p.Blocks * int64(a.p.Len)
	}
	return a.p.Num
}

func (a *attempt) stall() time.Duration {
	if a.client.Stall > 0 {
		return a.client.Stall
	}
	return clientStall
}

// watch lets the payload flow until time or size ends the test.
func (a *attempt) watch(ctx context.Context) error {
	c := a.course
	control := a.ctl.listen()
	defer control.close()
	tick := time.NewTicker(throughput.TickTime)
	defer tick.Stop()
	var over, soon <-chan time.Time
	if a.p.Time > 0 {
		over = time.After(seconds(a.p.Omit + a.spec.Seconds))
	} else {
		t := time.NewTicker(5 * time.Millisecond)
		defer t.Stop()
		soon = t.C
	}
	counting := a.p.Omit == 0
	for n := 1; ; n++ {
		select {
		case m := <-control.in:
			if m.err != nil {
				return errors.New("the server closed the control connection")
			}
			_, _ = a.ctl.in.Discard(1)
			return a.surprise(m.state)
		case <-ctx.Done():
			return ctx.Err()
		case now := <-c.omit:
			c.meter.Reset(now)
			counting = true
			if c.budget != nil {
				c.budget.Set(a.size())
			}
		case <-over:
			return nil
		case <-soon:
			n--
			if counting && a.enough() {
				return nil
			}
		case now := <-tick.C:
			if p := c.tick(now); n%2 == 0 {
				a.progress(p)
			}
			if idle, limit := c.meter.Idle(), a.p.patience(a.stall()); idle >= limit {
				c.ended = c.meter.Moving()
				return fmt.Errorf("nothing has moved for %v", limit)
			}
		}
	}
}

// enough says whether the size that ends the test has been moved in a direction, and acknowledged if we sent it.
func (a *attempt) enough() bool {
	c := a.course
	if c.budget.Spent() {
		if c.spent.IsZero() {
			c.spent = time.Now()
		}
		return time.Since(c.spent) > flushTime || !c.unacknowledged()
	}
	return a.p.direction() != throughput.RX && c.meter.Received() >= a.size()
}

// exchange ends the test on both sides.
func (a *attempt) exchange(ctx context.Context) error {
	c := a.course
	c.ended = time.Now()
	c.halt()
	c.take(c.ended)
	if err := a.ctl.writeState(stateTestEnd); err != nil {
		return err
	}
	if err := a.expect(stateExchangeResults, a.client.within(clientStateTime)); err != nil {
		return err
	}
	if err := a.ctl.writeBlob(c.ours().encode()); err != nil {
		return err
	}
	raw, err := a.ctl.readBlob(a.client.within(clientStateTime), maxServerResultsBytes)
	if err == nil {
		err = c.hear(raw)
	}
	if err != nil {
		return fmt.Errorf("the server sent no valid results: %w", err)
	}
	if err := a.expect(stateDisplayResults, a.client.within(clientStateTime)); err != nil {
		return err
	}
	_ = a.ctl.writeState(stateDone)
	return nil
}
