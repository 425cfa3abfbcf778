package iperf3

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"linerate/appliance/throughput"
)

// rough is a client that knows the protocol and does with it what it likes.
type rough struct {
	t    *testing.T
	addr string
	net.Conn
	cookie cookie
}

// dialRough connects; the connection stays open until keep closes it, which is when everything else of the test is over.
func dialRough(t *testing.T, keep *[]net.Conn, addr string) *rough {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	*keep = append(*keep, c)
	return &rough{t: t, addr: addr, Conn: c, cookie: newCookie()}
}

func (r *rough) send(b []byte) {
	r.t.Helper()
	if _, err := r.Write(b); err != nil {
		r.t.Errorf("send: %v", err)
	}
}

// expect reads exactly these bytes.
func (r *rough) expect(want ...byte) {
	r.t.Helper()
	_ = r.SetReadDeadline(time.Now().Add(5 * time.Second))
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || !slices.Equal(got, want) {
		r.t.Errorf("the server answers % x (%v), want % x", got[:n], err, want)
	}
}

// expectError reads SERVER_ERROR with a code.
func (r *rough) expectError(c code) {
	r.t.Helper()
	r.expect(append(binary.BigEndian.AppendUint32([]byte{0xfe}, uint32(c)), 0, 0, 0, 0)...)
}

func (r *rough) blob(body string) {
	r.t.Helper()
	r.send(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
}

// params goes as far as the server's answer to the parameters.
func (r *rough) params(body string) *rough {
	r.t.Helper()
	r.send(r.cookie[:])
	r.expect(9)
	r.blob(body)
	return r
}

// streams opens n data connections.
func (r *rough) streams(keep *[]net.Conn, n int) (all []net.Conn) {
	r.t.Helper()
	r.expect(10)
	for range n {
		c := dialRough(r.t, keep, r.addr)
		c.send(r.cookie[:])
		all = append(all, c.Conn)
	}
	return all
}

const goodParams = `{"tcp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":1,"len":131072,"pacing_timer":1000,"client_version":"3.12"}`

// probe runs a tiny test as somebody else would; it must go through within a second.
func probe(t *testing.T, addr string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	_, _ = fmt.Sscan(port, &n)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	start := time.Now()
	r, err := (&Client{}).Run(ctx, throughput.Spec{Host: host, TCPPort: n, Bytes: 100000, Title: "probe"}, nil)
	if took := time.Since(start); err != nil || !r.Valid || r.Bytes != 100000 || took > probeTime {
		t.Errorf("another client after %v: %v, %q, %d bytes", took, err, r.Error, r.Bytes)
	}
}

// probeTime is what another client may have to wait; the race detector and a loaded machine get more.
const probeTime = slack * time.Second

// recipes are what made real servers hang, spin or die. Each holds its connections open.
var recipes = []struct {
	name string
	do   func(t *testing.T, addr string, keep *[]net.Conn)
}{
	{"silent", func(t *testing.T, addr string, keep *[]net.Conn) { dialRough(t, keep, addr) }},
	{"ten bytes", func(t *testing.T, addr string, keep *[]net.Conn) { dialRough(t, keep, addr).send([]byte("0123456789")) }},
	{"HTTP", func(t *testing.T, addr string, keep *[]net.Conn) {
		dialRough(t, keep, addr).send([]byte("GET / HTTP/1.1\r\nHost: box\r\nUser-Agent: curl\r\nAccept: */*\r\n\r\n"))
	}},
	{"cookie, then silence", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr)
		r.send(r.cookie[:])
		r.expect(9)
	}},
	{"bad JSON", refusedBy(codeParams, `{"tcp":true,`)},
	{"an array", refusedBy(codeParams, `[1,2]`)},
	{"an empty object", refusedBy(codeParams, `{}`)},
	{"no protocol", refusedBy(codeParams, `{"time":1,"parallel":1,"len":1000}`)},
	{"two protocols", refusedBy(codeParams, `{"tcp":true,"udp":true,"time":1,"parallel":1,"len":1000}`)},
	{"no streams", refusedBy(codeStreams, `{"tcp":true,"parallel":0,"len":1000}`)},
	{"streams below zero", refusedBy(codeStreams, `{"tcp":true,"parallel":-5,"len":1000}`)},
	{"100000 streams", refusedBy(codeStreams, `{"tcp":true,"parallel":100000,"len":1000}`)},
	{"blocks of nothing", refusedBy(codeBlock, `{"tcp":true,"parallel":1,"len":0}`)},
	{"blocks of 1 GiB", refusedBy(codeBlock, `{"tcp":true,"parallel":1,"len":1073741824}`)},
	{"time below zero", refusedBy(codeDuration, `{"tcp":true,"parallel":1,"time":-1}`)},
	{"omit of a day", refusedBy(codeOmit, `{"tcp":true,"parallel":1,"time":1,"omit":86400}`)},
	{"window of 1 TiB", refusedBy(codeWindow, `{"tcp":true,"parallel":1,"window":1099511627776}`)},
	{"MSS of 1", refusedBy(codeMSS, `{"tcp":true,"parallel":1,"MSS":1}`)},
	{"TOS of 256", refusedBy(codeTOS, `{"tcp":true,"parallel":1,"TOS":256}`)},
	{"SCTP", refusedBy(codeNoSCTP, `{"sctp":true,"parallel":1}`)},
	{"wrong type: congestion (CVE-2024-53580)", refusedBy(codeParams, `{"tcp":true,"congestion":5}`)},
	{"wrong type: parallel", refusedBy(codeParams, `{"tcp":true,"parallel":"four"}`)},
	{"wrong type: tcp", refusedBy(codeParams, `{"tcp":"yes"}`)},
	{"wrong type: title", refusedBy(codeParams, `{"tcp":true,"title":["x"]}`)},
	{"wrong type: null", refusedBy(codeParams, `{"tcp":true,"time":null}`)},
	{"a bad escape (CVE-2016-4303)", refusedBy(codeParams, `{"tcp":true,"title":"\u12"}`)},
	{"deeply nested", refusedBy(codeParams, strings.Repeat(`{"a":`, 1500))},
	{"a token that is none (CVE-2025-54350)", startedAnyway(`{"tcp":true,"parallel":1,"time":1,"authtoken":"%%%"}`)},
	{"a long token (CVE-2025-54349)", startedAnyway(`{"tcp":true,"parallel":1,"time":1,"authtoken":"` + strings.Repeat("A", 4000) + `"}`)},
	{"skip_rx_copy with small blocks (CVE-2025-54351)", startedAnyway(`{"tcp":true,"parallel":1,"time":1,"len":1,"skip_rx_copy":1}`)},
	{"parameters of 4 GiB (CVE-2023-38403)", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr)
		r.send(r.cookie[:])
		r.expect(9)
		r.send([]byte{0xff, 0xff, 0xff, 0xff})
		r.expectError(codeParams)
	}},
	{"parameters of 9 KiB", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr)
		r.send(r.cookie[:])
		r.expect(9)
		r.send([]byte{0, 0, 0x24, 0})
		r.expectError(codeParams)
	}},
	{"fewer bytes than announced (CVE-2023-7250)", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr)
		r.send(r.cookie[:])
		r.expect(9)
		r.send([]byte("\x00\x00\x00\xff{"))
	}},
	{"never opens its stream", func(t *testing.T, addr string, keep *[]net.Conn) {
		dialRough(t, keep, addr).params(goodParams).expect(10)
	}},
	{"opens half of its streams", func(t *testing.T, addr string, keep *[]net.Conn) {
		dialRough(t, keep, addr).params(`{"tcp":true,"parallel":4}`).streams(keep, 2)
	}},
	{"a stream with another cookie", func(t *testing.T, addr string, keep *[]net.Conn) {
		dialRough(t, keep, addr).params(goodParams).expect(10)
		s := dialRough(t, keep, addr)
		s.send(s.cookie[:])
	}},
	{"a stream without a cookie", func(t *testing.T, addr string, keep *[]net.Conn) {
		dialRough(t, keep, addr).params(goodParams).expect(10)
		dialRough(t, keep, addr)
	}},
	{"more streams than agreed", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr).params(goodParams)
		r.streams(keep, 1)
		r.expect(1, 2)
		s := dialRough(t, keep, addr)
		s.send(r.cookie[:])
		s.expect(0xff)
	}},
	{"two clients with one cookie", func(t *testing.T, addr string, keep *[]net.Conn) {
		a := dialRough(t, keep, addr)
		a.send(a.cookie[:])
		a.expect(9)
		b := dialRough(t, keep, addr)
		b.send(a.cookie[:])
		b.expect(0xff)
	}},
	{"sends nothing", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr).params(`{"tcp":true,"parallel":1,"time":0}`)
		r.streams(keep, 1)
		r.expect(1, 2)
	}},
	{"stops sending", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr).params(`{"tcp":true,"parallel":1,"time":0}`)
		s := r.streams(keep, 1)
		r.expect(1, 2)
		_, _ = s[0].Write(make([]byte, 1<<20))
	}},
	{"does not read", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr).params(`{"tcp":true,"parallel":1,"time":0,"reverse":true}`)
		r.streams(keep, 1)
		r.expect(1, 2)
	}},
	{"neither sends nor reads", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr).params(`{"tcp":true,"parallel":2,"time":0,"bidirectional":true}`)
		r.streams(keep, 4)
		r.expect(1, 2)
	}},
	{"terminates", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr).params(goodParams)
		r.streams(keep, 1)
		r.expect(1, 2)
		r.send([]byte{byte(stateClientTerminate)})
	}},
	{"an unknown control byte", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr).params(goodParams)
		r.streams(keep, 1)
		r.expect(1, 2)
		r.send([]byte{99})
		r.expectError(codeMessage)
	}},
	{"ends before it begins", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr).params(goodParams)
		r.expect(10)
		r.send([]byte{byte(stateTestEnd)})
		r.expectError(codeMessage)
	}},
	{"no results", func(t *testing.T, addr string, keep *[]net.Conn) { toResults(t, addr, keep) }},
	{"results of 2 GiB", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := toResults(t, addr, keep)
		r.send([]byte{0x7f, 0xff, 0xff, 0xff})
		r.expectError(codeResults)
	}},
	{"results of a wrong type", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := toResults(t, addr, keep)
		r.blob(`{"cpu_util_total":"x","cpu_util_user":0,"cpu_util_system":0,"sender_has_retransmits":1,"streams":[]}`)
		r.expectError(codeResults)
	}},
	{"results without streams", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := toResults(t, addr, keep)
		r.blob(`{"cpu_util_total":1,"cpu_util_user":0,"cpu_util_system":0,"sender_has_retransmits":1}`)
		r.expectError(codeResults)
	}},
	{"no IPERF_DONE", func(t *testing.T, addr string, keep *[]net.Conn) {
		r := toResults(t, addr, keep)
		r.blob(`{"cpu_util_total":1,"cpu_util_user":0,"cpu_util_system":0,"sender_has_retransmits":18446744073709551615,"streams":[{"id":1,"bytes":0,"retransmits":18446744073709551615,"jitter":0,"errors":0,"packets":0}]}`)
		var head [4]byte
		_ = r.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadFull(r, head[:]); err != nil {
			t.Fatal(err)
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(r, body); err != nil {
			t.Fatal(err)
		}
		if _, err := decodeResults(body, 1); err != nil {
			t.Errorf("our results: %v: %s", err, body)
		}
		r.expect(14)
	}},
	{"UDP without a hello", func(t *testing.T, addr string, keep *[]net.Conn) {
		dialRough(t, keep, addr).params(udpParams(1, "")).expect(10)
	}},
	{"UDP with half of its hellos", func(t *testing.T, addr string, keep *[]net.Conn) {
		dialRough(t, keep, addr).params(udpParams(2, "")) // its turn comes when the others of its address have had theirs
		_, _ = dialUDP(t, "127.0.0.1", addr).Write([]byte("9876"))
	}},
	{"UDP from nowhere", func(t *testing.T, addr string, keep *[]net.Conn) {
		c := dialUDP(t, "127.0.0.1", addr)
		for i := range 1000 {
			_, _ = c.Write([]byte(strings.Repeat("9876", i%300)))
		}
	}},
	{"closes at once, 500 times", func(t *testing.T, addr string, _ *[]net.Conn) {
		for range 500 {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
	}},
	{"500 silent ones and 200 with a cookie", func(t *testing.T, addr string, keep *[]net.Conn) {
		for i := range 700 {
			r := dialRough(t, keep, addr)
			if i >= 500 {
				r.send(r.cookie[:])
			}
		}
	}},
}

func refusedBy(want code, body string) func(*testing.T, string, *[]net.Conn) {
	return func(t *testing.T, addr string, keep *[]net.Conn) {
		dialRough(t, keep, addr).params(body).expectError(want)
	}
}

// startedAnyway takes a test whose odd key must do no harm, and leaves it.
func startedAnyway(body string) func(*testing.T, string, *[]net.Conn) {
	return func(t *testing.T, addr string, keep *[]net.Conn) {
		r := dialRough(t, keep, addr).params(body)
		s := r.streams(keep, 1)
		r.expect(1, 2)
		_, _ = s[0].Write(make([]byte, 5000))
	}
}

// toResults leads a test to where the server waits for the client's results.
func toResults(t *testing.T, addr string, keep *[]net.Conn) *rough {
	r := dialRough(t, keep, addr).params(goodParams)
	r.streams(keep, 1)
	r.expect(1, 2)
	r.send([]byte{byte(stateTestEnd)})
	r.expect(13)
	return r
}

// Every recipe at once, against one server: another client is served within a second after each, and 15 s later nothing is left
// though the difficult clients still hold their connections open.
func TestRecipes(t *testing.T) {
	srv := startServer(t, "", Options{Stall: 10 * time.Second, MaxTests: 100})
	probe(t, srv.addr()) // what is made once is made now
	before := srv.usage()
	kept := make([][]net.Conn, len(recipes))
	t.Cleanup(func() {
		for _, k := range kept {
			for _, c := range k {
				c.Close()
			}
		}
	})
	t.Run("all", func(t *testing.T) {
		for i, r := range recipes {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				r.do(t, srv.addr(), &kept[i])
				probe(t, srv.addr())
			})
		}
	})
	nothingLeft(t, srv, before, 15*time.Second)
	probe(t, srv.addr())
}

// nothingLeft waits until the server has as few goroutines and sockets as before.
func nothingLeft(t *testing.T, srv *process, before usage, limit time.Duration) {
	t.Helper()
	var now usage
	for start := time.Now(); time.Since(start) < limit; time.Sleep(200 * time.Millisecond) {
		now = srv.usage()
		if now.Goroutines <= before.Goroutines && now.Sockets <= before.Sockets && now.HeapBytes <= before.HeapBytes+2<<20 {
			return
		}
	}
	t.Errorf("after %v the server still has %+v, before it had %+v", limit, now, before)
}
