package iperf3

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"linerate/appliance/throughput"
)

// helloBytes is the length of the datagram by which a client opens a UDP stream, and of its answer.
const helloBytes = 4

// answers maps what clients say, in either byte order, to what they expect. Until 3.11 both were other numbers.
var answers = map[[helloBytes]byte][helloBytes]byte{
	{'9', '8', '7', '6'}:     {'6', '7', '8', '9'},
	{'6', '7', '8', '9'}:     {'9', '8', '7', '6'},
	{0x15, 0xcd, 0x5b, 0x07}: {0xb1, 0x68, 0xde, 0x3a}, // 123456789 and 987654321, little-endian
	{0x07, 0x5b, 0xcd, 0x15}: {0x3a, 0xde, 0x68, 0xb1},
}

// switchboard is the one UDP socket of a server: it tells the streams of all tests apart by where they come from.
type switchboard struct {
	socket *throughput.DatagramSocket
	srv    *Server

	mu     sync.Mutex
	lines  map[netip.AddrPort]*line
	asking map[netip.Addr]*opening // at most one test of an address opens its streams at a time
}

// line is one stream by its source.
type line struct {
	peer   netip.AddrPort
	flow   *datagramFlow // nil: we only send
	answer []byte
	local  netip.Addr // that was asked: the answer comes from there
}

// opening is a test whose client says hello, stream by stream.
type opening struct {
	local     netip.Addr
	flow      func(i int) *datagramFlow // for the i-th stream; nil where we only send
	lines     []*line                   // guarded by the switchboard
	want      int
	heard     chan struct{} // after each hello
	contested chan struct{} // closed when another test of the address waits
	contest   sync.Once
	over      chan struct{} // closed when the next may begin
}

// ServeUDP answers the UDP streams of the tests whose control connections come by Serve; it must run on the same port number
// for as long as Serve does. It takes the socket over (see throughput.NewDatagramSocket), and returns nil when ctx has ended, or
// the socket's error.
func (s *Server) ServeUDP(ctx context.Context, conn *net.UDPConn) error {
	socket, err := throughput.NewDatagramSocket(conn)
	if err != nil {
		return err
	}
	defer socket.Close()
	b := &switchboard{socket: socket, srv: s, lines: map[netip.AddrPort]*line{}, asking: map[netip.Addr]*opening{}}
	s.mu.Lock()
	s.boards = append(s.boards, b)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.boards = slices.DeleteFunc(s.boards, func(o *switchboard) bool { return o == b })
	}()
	return throughput.NewDatagramReceiver(socket, b.receive).Run(ctx)
}

// board is the socket by which the streams of a client come that asked this address; nil if there is none.
func (s *Server) board(local netip.Addr) *switchboard {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boards {
		at := b.socket.Local().Addr()
		if at == local || at.IsUnspecified() && (at.Is6() || local.Is4()) {
			return b
		}
	}
	return nil
}

// receive is called for all that comes.
func (b *switchboard) receive(d *throughput.Datagrams) {
	b.mu.Lock()
	l := b.lines[d.From]
	b.mu.Unlock()
	switch {
	case l == nil:
		b.hello(d)
	case d.Total == helloBytes: // the answer may have been lost: say it again
		b.reply(l)
	case l.flow != nil:
		l.flow.feed(d)
	}
}

// hello opens a stream for a client that is expected. Nobody else gets a byte.
func (b *switchboard) hello(d *throughput.Datagrams) {
	var said [helloBytes]byte
	copy(said[:], d.Data)
	answer, known := answers[said]
	b.mu.Lock()
	o := b.asking[d.From.Addr()]
	if o == nil || !known || len(o.lines) >= o.want {
		b.mu.Unlock()
		if o == nil && known {
			b.srv.logs.info(d.From.Addr(), "UDP stream without a test ignored")
		}
		return
	}
	l := &line{peer: d.From, flow: o.flow(len(o.lines)), answer: answer[:], local: o.local}
	b.lines[d.From] = l
	o.lines = append(o.lines, l)
	b.mu.Unlock()
	b.reply(l)
	select {
	case o.heard <- struct{}{}:
	default:
	}
}

func (b *switchboard) reply(l *line) {
	if err := b.socket.Send(l.answer, l.peer, l.local); err != nil {
		b.srv.logs.warn(l.peer.Addr(), "cannot answer a UDP stream", "error", err)
	}
}

// claim waits until no other test of the client's address opens its streams.
func (b *switchboard) claim(ctx context.Context, peer netip.Addr, o *opening, limit time.Duration) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		b.mu.Lock()
		before := b.asking[peer]
		if before == nil {
			b.asking[peer] = o
		}
		b.mu.Unlock()
		if before == nil {
			return nil
		}
		before.contest.Do(func() { close(before.contested) })
		select {
		case <-before.over:
		case <-timeout.C:
			return &ending{code: codeStream, text: fmt.Sprintf("other tests of %v open their streams for too long", peer)}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// yield lets the next test of the address open its streams.
func (b *switchboard) yield(peer netip.Addr, o *opening) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asking[peer] == o {
		delete(b.asking, peer)
		close(o.over)
	}
}

// opened returns the lines that are open so far.
func (b *switchboard) opened(o *opening) []*line {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(o.lines)
}

// forget ends the lines of a test.
func (b *switchboard) forget(o *opening) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range o.lines {
		delete(b.lines, l.peer)
	}
}

// gatherUDP waits for the client to say hello on each of its streams.
func (t *session) gatherUDP(ctx context.Context, c *course) error {
	s, g := t.srv, t.guest
	b := s.board(g.local)
	if b == nil {
		return &ending{code: codeStream, text: "no UDP socket is open here"}
	}
	o := &opening{
		local: g.local, want: t.p.connections(), heard: make(chan struct{}, 1), contested: make(chan struct{}), over: make(chan struct{}),
		flow: func(i int) *datagramFlow {
			if t.direction(i) == throughput.RX {
				return newDatagramFlow(t.p.Counters64)
			}
			return nil
		},
	}
	if err := b.claim(ctx, g.peer, o, s.wait.streams); err != nil {
		return err
	}
	t.hangUp = func() { b.forget(o) }
	defer b.yield(g.peer, o)
	window := throughput.DatagramBuffer
	if t.p.Window > 0 {
		window = t.p.Window
	}
	b.socket.SetReceiveBuffer(window)
	if err := t.ctl.writeState(stateCreateStreams); err != nil {
		return fmt.Errorf("client gone before its streams: %w", err)
	}
	if err := t.awaitHellos(ctx, b, o); err != nil {
		return err
	}
	rate := s.options().MaxRate / float64(t.p.connections())
	for _, l := range b.opened(o) {
		if l.flow != nil {
			c.streams = append(c.streams, l.flow)
			continue
		}
		c.addSender(b.socket, l.peer, g.local, rate)
	}
	return nil
}

// awaitHellos gives the client its time, less where another test of its address waits.
func (t *session) awaitHellos(ctx context.Context, b *switchboard, o *opening) error {
	control := t.listen()
	defer control.close()
	timeout := time.NewTimer(t.srv.wait.streams)
	defer timeout.Stop()
	contested := o.contested
	last := time.Now()
	for len(b.opened(o)) < o.want {
		select {
		case <-o.heard:
			last = time.Now()
			if contested == nil {
				timeout.Reset(t.srv.wait.hello)
			}
		case <-contested:
			contested = nil
			timeout.Reset(t.srv.wait.hello - time.Since(last))
		case <-timeout.C:
			return &ending{code: codeStream, text: fmt.Sprintf("client said hello on %d of %d streams", len(b.opened(o)), o.want)}
		case m := <-control.in:
			return early(m)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
