package iperf3

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"linerate/appliance/throughput"
)

func TestLedger(t *testing.T) {
	for _, c := range []struct {
		name             string
		numbers          []int64
		lost, late, high int64
	}{
		{"in order", []int64{1, 2, 3, 4}, 0, 0, 4},
		{"a gap", []int64{1, 2, 5}, 2, 0, 5},
		{"the first is missing", []int64{3}, 2, 0, 3},
		{"a late one was not lost", []int64{1, 3, 2, 4}, 0, 1, 4},
		{"two late ones", []int64{1, 4, 3, 2}, 0, 2, 4},
		{"twice the same", []int64{1, 2, 2, 3}, 0, 1, 3},
		{"beyond 32 bits", []int64{1 << 33, 1<<33 + 1}, 1<<33 - 1, 0, 1<<33 + 1},
	} {
		var l ledger
		for _, n := range c.numbers {
			l.count(header{number: n}, 100, 0, true)
		}
		if l.lost != c.lost || l.outOfOrder != c.late || l.highest != c.high || l.bytes != int64(100*len(c.numbers)) {
			t.Errorf("%s: lost %d, out of order %d, highest %d", c.name, l.lost, l.outOfOrder, l.highest)
		}
	}
}

// RFC 1889, A.8: J += (|D| - J) / 16.
func TestJitter(t *testing.T) {
	var l ledger
	want, before := 0.0, time.Duration(0)
	for i, transit := range []time.Duration{10, 12, 9, 9, 30, 10} {
		transit *= time.Millisecond
		sent := time.Duration(i) * 20 * time.Millisecond
		l.count(header{sent: sent, number: int64(i + 1)}, 100, sent+transit, true)
		if i > 0 {
			want += (math.Abs(float64(transit-before)) - want) / 16
		}
		before = transit
	}
	if math.Abs(l.jitter-want) > 1 {
		t.Errorf("jitter %g ns, want %g", l.jitter, want)
	}
	// Clocks that differ by years make no jitter.
	l = ledger{}
	for i := range int64(10) {
		l.count(header{sent: time.Duration(i) * time.Millisecond, number: i + 1}, 1, time.Duration(i)*time.Millisecond+3e17, true)
	}
	if l.jitter != 0 {
		t.Errorf("jitter %g ns between clocks that run alike", l.jitter)
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	now := time.Unix(1_800_000_000, 123456789)
	for _, wide := range []bool{false, true} {
		b := make([]byte, 16)
		number := int64(4_000_000_000)
		if wide {
			number *= 1000
		}
		putHeader(wide)(b, number, now)
		h, ok := parseHeader(b, wide)
		if !ok || h.number != number || h.sent != time.Duration(now.UnixMicro())*time.Microsecond {
			t.Errorf("wide %v: %+v, %v", wide, h, ok)
		}
		if _, ok := parseHeader(b[:headerBytes-1], false); ok {
			t.Error("a short datagram is taken")
		}
		if _, ok := parseHeader(make([]byte, 100), wide); ok {
			t.Error("number 0 is taken")
		}
	}
}

func TestFeedBundle(t *testing.T) {
	f := newDatagramFlow(false)
	bundle := make([]byte, 0, 5*100)
	for n := range int64(5) {
		b := make([]byte, 100)
		putHeader(false)(b, n+1, time.Unix(1, 0))
		bundle = append(bundle, b...)
	}
	bundle = bundle[:460] // the last is shorter
	f.feed(&throughput.Datagrams{Data: bundle, Size: 100, Total: len(bundle), At: time.Second})
	// Of a single large one only the head is there.
	b := make([]byte, 64)
	putHeader(false)(b, 6, time.Unix(1, 0))
	f.feed(&throughput.Datagrams{Data: b, Size: 1400, Total: 1400, At: time.Second})
	if c := f.Counters(); c.Bytes != 460+1400 || c.Packets != 6 || c.Lost != 0 || c.Jitter != 0 {
		t.Errorf("%+v", c)
	}
	f.Stop()
	f.feed(&throughput.Datagrams{Data: b, Size: 1400, Total: 1400})
	if c := f.Counters(); c.Bytes != 1860 {
		t.Error("datagrams after the end are counted")
	}
}

func FuzzDatagrams(f *testing.F) {
	good := make([]byte, 64)
	putHeader(true)(good, 7, time.Unix(1_800_000_000, 0))
	f.Add(good, 16, true)
	f.Add([]byte("9876"), 4, false)
	f.Fuzz(func(t *testing.T, data []byte, size int, wide bool) {
		s := NewServer(Options{})
		peer := netip.MustParseAddrPort("192.0.2.2:5000")
		flow := newDatagramFlow(wide)
		b := &switchboard{srv: s, lines: map[netip.AddrPort]*line{peer: {peer: peer, flow: flow}}, asking: map[netip.Addr]*opening{}}
		if size < 1 || size > len(data) {
			size = max(1, len(data))
		}
		d := throughput.Datagrams{From: peer, Data: data, Size: size, Total: len(data)}
		if len(data) != helloBytes { // that would be answered
			b.receive(&d)
		}
		d.From = netip.MustParseAddrPort("192.0.2.3:5000") // nobody's
		b.receive(&d)
		if c := flow.Counters(); c.Bytes < 0 || c.Bytes > int64(len(data)) || c.Lost < 0 || c.Packets < 0 || c.OutOfOrder < 0 {
			t.Errorf("% x became %+v", data, c)
		}
		if len(b.lines) != 1 {
			t.Error("a stream nobody asked for was opened")
		}
	})
}

// udpParams asks for so many streams of small datagrams.
func udpParams(streams int, more string) string {
	return fmt.Sprintf(`{"udp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":%d,"len":1000,"bandwidth":1000000,"pacing_timer":1000,"client_version":"3.12"%s}`,
		streams, more)
}

// say sends a datagram and returns the answer, "" if none comes within the time.
func say(t *testing.T, c net.Conn, what string, wait time.Duration) string {
	t.Helper()
	if _, err := c.Write([]byte(what)); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	b := make([]byte, 2000)
	n, err := c.Read(b)
	if err != nil {
		return ""
	}
	return string(b[:n])
}

func dialUDP(t *testing.T, from, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestHello(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "", Options{})
	var keep []net.Conn
	defer func() {
		for _, c := range keep {
			c.Close()
		}
	}()
	stranger := dialUDP(t, "127.0.0.3", srv.addr())
	mine := dialUDP(t, "127.0.0.1", srv.addr())
	if got := say(t, mine, "9876", 200*time.Millisecond); got != "" {
		t.Errorf("a hello without a test is answered %q", got)
	}
	r := dialRough(t, &keep, srv.addr()).params(udpParams(2, `,"reverse":true`))
	r.expect(10)
	if got := say(t, stranger, "9876", 200*time.Millisecond); got != "" {
		t.Errorf("a hello from another address is answered %q", got)
	}
	if got := say(t, mine, "GET / HTTP/1.0\r\n\r\n", 200*time.Millisecond); got != "" {
		t.Errorf("what is no hello is answered %q", got)
	}
	for range 3 { // the answer may have been lost
		if got := say(t, mine, "9876", 2*time.Second); got != "6789" {
			t.Fatalf("hello is answered %q, want 6789", got)
		}
	}
	// A client before 3.12 says 123456789 and gets 987654321, in its own byte order.
	second := dialUDP(t, "127.0.0.1", srv.addr())
	if got := say(t, second, "\x15\xcd\x5b\x07", 2*time.Second); got != "\xb1\x68\xde\x3a" {
		t.Errorf("the old hello is answered % x", got)
	}
	r.expect(1, 2)
	third := dialUDP(t, "127.0.0.1", srv.addr())
	if got := say(t, third, "9876", 200*time.Millisecond); got != "" {
		t.Errorf("one stream too many is answered %q", got)
	}
	// Both streams carry payload now, the strangers' sockets none.
	for i, c := range []net.Conn{mine, second} {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		b := make([]byte, 2000)
		if n, err := c.Read(b); err != nil || n != 1000 {
			t.Errorf("stream %d: %d bytes, %v", i, n, err)
		}
	}
	for _, c := range []net.Conn{stranger, third} {
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := c.Read(make([]byte, 2000)); err == nil {
			t.Errorf("somebody who is not tested gets %d bytes", n)
		}
	}
}

// Clients behind one address open their streams one after the other; one that never says hello holds up the others for at most
// 3 s, and no processor.
func TestSilentUDPClient(t *testing.T) {
	needPeer(t)
	t.Parallel()
	srv := startServer(t, "", Options{})
	var keep []net.Conn
	defer func() {
		for _, c := range keep {
			c.Close()
		}
	}()
	before := srv.usage().CPU
	dialRough(t, &keep, srv.addr()).params(udpParams(1, "")).expect(10)
	start := time.Now()
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() {
			r := iperf3(t, "", 30*time.Second, "-c", "127.0.0.1", "-p", fmt.Sprint(srv.Port), "-u", "-n", "100K", "-l", "1000", "-T", fmt.Sprint("after", i))
			if r.Error != "" {
				t.Errorf("client %d: %q", i, r.Error)
			}
			_, res := srv.finished(fmt.Sprint("after", i), 5*time.Second)
			if !res.Valid || res.Bytes < 90000 {
				t.Errorf("client %d: valid %v, %d bytes", i, res.Valid, res.Bytes)
			}
		})
	}
	all.Wait()
	if took := time.Since(start); took > (3+2)*slack*time.Second {
		t.Errorf("two clients of the same address were served after %v, want little more than 3 s", took)
	}
	if used := srv.usage().CPU - before; used > 0.5*slack {
		t.Errorf("%.2f s of processor for %v of waiting", used, time.Since(start))
	}
}

// A relay that drops every tenth datagram and swaps some: what the receiver counts must be what the relay did.
func TestLossAndOrder(t *testing.T) {
	needPeer(t)
	for _, c := range []struct {
		args string
		from bool // the server receives
	}{{"-u -b 8M -l 1000 -t 3", true}, {"-u -b 8M -l 1000 -t 3 -R", false}, {"-u -b 8M -l 1000 -t 3 --udp-counters-64bit", true}} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			srv := startServer(t, "", Options{OutputJSON: true})
			rel := startRelay(t, srv.Port)
			title := "relayed " + c.args
			r := iperf3(t, "", 30*time.Second, append(strings.Fields(c.args), "-c", "127.0.0.1", "-p", fmt.Sprint(rel.port), "-T", title, "--get-server-output")...)
			if r.Error != "" {
				t.Fatal(r.Error)
			}
			_, res := srv.finished(title, 5*time.Second)
			dropped, swapped := rel.counts()
			if swapped == 0 || dropped == 0 {
				t.Fatalf("the relay dropped %d and swapped %d", dropped, swapped)
			}
			if diff := *res.Lost - dropped; diff < -2 || diff > 2 { // the last ones have no successor
				t.Errorf("lost %d, the relay dropped %d", *res.Lost, dropped)
			}
			if share := float64(*res.Lost) / float64(*res.Packets); share < 0.08 || share > 0.12 {
				t.Errorf("%.1f %% lost of %d, want 10 %%", 100*share, *res.Packets)
			}
			if *res.JitterMS <= 0 || *res.JitterMS > 10*slack {
				t.Errorf("jitter %g ms", *res.JitterMS)
			}
			late := int64(0)
			if c.from {
				late = outOfOrder(t, r.ServerJSON)
			} else {
				late = r.End.Streams[0].UDP.OutOfOrder
			}
			if diff := late - swapped; diff < -2 || diff > 2 {
				t.Errorf("%d out of order, the relay swapped %d", late, swapped)
			}
			// The client counts what was sent, a receiver up to the last that it saw.
			if r.End.Sum.Lost != float64(*res.Lost) || math.Abs(r.End.Sum.Packets-float64(*res.Packets)) > 2 {
				t.Errorf("the client prints %g of %g lost, our result has %d of %d", r.End.Sum.Lost, r.End.Sum.Packets, *res.Lost, *res.Packets)
			}
		})
	}
}

// relay passes on control connections as they are and datagrams with a flaw.
type relay struct {
	port   int
	server string
	udp    *net.UDPConn

	mu               sync.Mutex
	out              map[netip.AddrPort]*net.UDPConn
	dropped, swapped int64
}

func startRelay(t *testing.T, server int) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{port: ln.Addr().(*net.TCPAddr).Port, server: fmt.Sprintf("127.0.0.1:%d", server), out: map[netip.AddrPort]*net.UDPConn{}}
	if r.udp, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: r.port}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ln.Close()
		r.udp.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, c := range r.out {
			c.Close()
		}
	})
	go func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer a.Close()
				b, err := net.Dial("tcp", r.server)
				if err != nil {
					return
				}
				defer b.Close()
				go func() { _, _ = io.Copy(b, a); _ = b.(*net.TCPConn).CloseWrite() }()
				_, _ = io.Copy(a, b)
			}()
		}
	}()
	go r.forward()
	return r
}

// forward passes on what clients send, and opens a socket for each.
func (r *relay) forward() {
	b := make([]byte, 1<<16)
	flaws := map[netip.AddrPort]*flaw{}
	for {
		n, from, err := r.udp.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		r.mu.Lock()
		c := r.out[from]
		if c == nil {
			addr, _ := net.ResolveUDPAddr("udp4", r.server)
			if c, err = net.DialUDP("udp4", nil, addr); err != nil {
				r.mu.Unlock()
				return
			}
			r.out[from] = c
			flaws[from] = &flaw{relay: r}
			go r.backward(c, from)
		}
		r.mu.Unlock()
		flaws[from].pass(b[:n], func(b []byte) { _, _ = c.Write(b) })
	}
}

func (r *relay) backward(c *net.UDPConn, to netip.AddrPort) {
	b := make([]byte, 1<<16)
	f := &flaw{relay: r}
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		f.pass(b[:n], func(b []byte) { _, _ = r.udp.WriteToUDPAddrPort(b, to) })
	}
}

func (r *relay) counts() (dropped, swapped int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped, r.swapped
}

// flaw of one direction of a stream: every tenth is dropped, of every 25 one is passed on behind its successor.
type flaw struct {
	relay *relay
	n     int
	held  []byte
}

func (f *flaw) pass(b []byte, on func([]byte)) {
	if len(b) == helloBytes {
		on(b)
		return
	}
	f.n++
	switch {
	case f.n%10 == 0:
		f.relay.mu.Lock()
		f.relay.dropped++
		f.relay.mu.Unlock()
	case f.n%25 == 3:
		f.held = append([]byte(nil), b...)
	default:
		on(b)
		if f.held != nil {
			on(f.held)
			f.held = nil
			f.relay.mu.Lock()
			f.relay.swapped++
			f.relay.mu.Unlock()
		}
	}
}

// What clients before 3.12 send, as their sources have it: other cookies, fewer keys, the old hello, 8 KiB datagrams.
func TestOldClients(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version, params, results string
		udp                      bool
	}{
		{version: "3.0", params: `{"tcp":true,"omit":0,"time":1,"parallel":1,"len":131072}`,
			results: `{"cpu_util_total":1.5,"cpu_util_user":0.5,"cpu_util_system":1,"sender_has_retransmits":1,"streams":[{"id":1,"bytes":%d,"retransmits":0,"jitter":0,"errors":0,"packets":0}]}`},
		{version: "3.1.3", params: `{"udp":true,"omit":0,"time":1,"parallel":1,"bandwidth":1048576,"client_version":"3.1.3"}`, udp: true,
			results: `{"cpu_util_total":1.5,"cpu_util_user":0.5,"cpu_util_system":1,"sender_has_retransmits":-1,"streams":[{"id":1,"bytes":%d,"retransmits":-1,"jitter":0,"errors":0,"packets":20}]}`},
		{version: "3.6", params: `{"udp":true,"omit":0,"time":1,"parallel":1,"len":8192,"bandwidth":1048576,"pacing_timer":1000,"client_version":"3.6"}`, udp: true,
			results: `{"cpu_util_total":1.5,"cpu_util_user":0.5,"cpu_util_system":1,"sender_has_retransmits":-1,"streams":[{"id":1,"bytes":%d,"retransmits":-1,"jitter":0,"errors":0,"packets":20,"start_time":0,"end_time":1}]}`},
		{version: "3.9", params: `{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":131072,"pacing_timer":1000,"client_version":"3.9"}`,
			results: `{"cpu_util_total":1.5,"cpu_util_user":0.5,"cpu_util_system":1,"sender_has_retransmits":1,"congestion_used":"cubic","streams":[{"id":1,"bytes":%d,"retransmits":0,"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":1}]}`},
	} {
		t.Run(c.version, func(t *testing.T) {
			t.Parallel()
			srv := startServer(t, "", Options{})
			var keep []net.Conn
			defer func() {
				for _, c := range keep {
					c.Close()
				}
			}()
			r := dialRough(t, &keep, srv.addr())
			copy(r.cookie[:], "Windows-PC.1467012345.123456.2f8a1c1")
			r.params(c.params)
			const blocks, block = 20, 8192
			payload := make([]byte, block)
			var stream net.Conn
			if c.udp {
				r.expect(10)
				stream = dialUDP(t, "127.0.0.1", srv.addr())
				if got := say(t, stream, "\x15\xcd\x5b\x07", 2*time.Second); got != "\xb1\x68\xde\x3a" {
					t.Fatalf("the old hello is answered % x", got)
				}
			} else {
				stream = r.streams(&keep, 1)[0]
			}
			r.expect(1, 2)
			for n := range blocks {
				binary.BigEndian.PutUint32(payload, uint32(time.Now().Unix()))
				binary.BigEndian.PutUint32(payload[8:], uint32(n+1))
				if _, err := stream.Write(payload); err != nil {
					t.Fatal(err)
				}
			}
			r.send([]byte{byte(stateTestEnd)})
			r.expect(13)
			r.blob(fmt.Sprintf(c.results, blocks*block))
			var head [4]byte
			if _, err := io.ReadFull(r, head[:]); err != nil {
				t.Fatal(err)
			}
			body := make([]byte, binary.BigEndian.Uint32(head[:]))
			if _, err := io.ReadFull(r, body); err != nil {
				t.Fatal(err)
			}
			r.expect(14)
			r.send([]byte{byte(stateDone)})
			ours, err := decodeResults(body, 1)
			if err != nil || ours.Streams[0].Bytes != blocks*block {
				t.Errorf("%v, our results: %s", err, body)
			}
			_, res := srv.finished("", 5*time.Second)
			if !res.Valid || res.Bytes != blocks*block || c.udp && (*res.Packets != blocks || *res.Lost != 0 || res.BlockBytes != block) {
				t.Errorf("result %+v", res)
			}
		})
	}
}
