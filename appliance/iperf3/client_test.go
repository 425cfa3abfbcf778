package iperf3

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"linerate/appliance/throughput"
)

// startPeer runs `iperf3 -s` for one test and returns its port. Its own JSON report can be had when it has ended.
func startPeer(t *testing.T, in string, args ...string) (port int, report func() string) {
	t.Helper()
	needPeer(t)
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port = ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	all := append([]string{"iperf3", "-s", "-1", "--forceflush", "-p", fmt.Sprint(port)}, args...)
	if in != "" {
		all = append([]string{"ip", "netns", "exec", in}, all...)
	}
	cmd := exec.Command(all[0], all[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for limit := time.Now().Add(10 * time.Second); !listens(cmd.Process.Pid, port); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("iperf3 -s does not listen")
		}
	}
	return port, func() string {
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Error("iperf3 -s did not end after the test")
		}
		return out.String()
	}
}

// listens reads from /proc whether somebody listens on the port in the network namespace of the process.
func listens(pid, port int) bool {
	for _, table := range []string{"tcp", "tcp6"} {
		raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		for line := range strings.Lines(string(raw)) {
			f := strings.Fields(line)
			if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "0A" { // TCP_LISTEN
				return true
			}
		}
	}
	return false
}

type clientCase struct {
	name  string
	spec  throughput.Spec
	exact int64
	max   float64 // bit/s
}

var clientCases = []clientCase{
	{name: "send", spec: throughput.Spec{Seconds: 1}},
	{name: "receive", spec: throughput.Spec{Seconds: 1, Direction: throughput.RX}},
	{name: "both", spec: throughput.Spec{Seconds: 1, Direction: throughput.Both}},
	{name: "send on 4", spec: throughput.Spec{Seconds: 1, Streams: 4}},
	{name: "receive on 4", spec: throughput.Spec{Seconds: 1, Streams: 4, Direction: throughput.RX}},
	{name: "both on 2", spec: throughput.Spec{Seconds: 1, Streams: 2, Direction: throughput.Both}},
	{name: "send on 128", spec: throughput.Spec{Seconds: 1, Streams: 128}},
	{name: "send bytes", spec: throughput.Spec{Bytes: 5<<20 + 1}, exact: 5<<20 + 1},
	{name: "receive bytes", spec: throughput.Spec{Bytes: 5 << 20, Direction: throughput.RX}},
	{name: "send blocks", spec: throughput.Spec{Blocks: 1000, BlockBytes: 5000}, exact: 5e6},
	{name: "omit", spec: throughput.Spec{Seconds: 1, OmitS: 1}},
	{name: "omit and receive", spec: throughput.Spec{Seconds: 1, OmitS: 1, Direction: throughput.RX}},
	{name: "paced", spec: throughput.Spec{Seconds: 2, RateBPS: 20e6}, max: 21e6},
	{name: "receive paced", spec: throughput.Spec{Seconds: 2, RateBPS: 20e6, Direction: throughput.RX}, max: 22e6},
	{name: "window", spec: throughput.Spec{Seconds: 1, WindowBytes: 64 << 10}},
	{name: "small segments", spec: throughput.Spec{Seconds: 1, MSS: 1000}},
	{name: "no delay", spec: throughput.Spec{Seconds: 1, NoDelay: true, BlockBytes: 100, TOS: 16}},
	{name: "reno", spec: throughput.Spec{Seconds: 1, Congestion: "reno"}},
	{name: "zero copy", spec: throughput.Spec{Seconds: 1, ZeroCopy: true}},
	{name: "IPv6", spec: throughput.Spec{Seconds: 1, Host: "::1"}},
	{name: "a name", spec: throughput.Spec{Seconds: 1, Host: "localhost", Family: 4}},
	{name: "bound", spec: throughput.Spec{Seconds: 1, Bind: "127.0.0.2"}},
	{name: "a port", spec: throughput.Spec{Seconds: 1, Via: "lo"}},
}

var udpCases = []clientCase{
	{name: "UDP", spec: throughput.Spec{Seconds: 1, BlockBytes: 1400}, max: 1.2e6},
	{name: "UDP receive", spec: throughput.Spec{Seconds: 1, BlockBytes: 1400, Direction: throughput.RX}, max: 1.2e6},
	{name: "UDP both", spec: throughput.Spec{Seconds: 1, Direction: throughput.Both, RateBPS: 10e6}, max: 24e6},
	{name: "UDP on 4", spec: throughput.Spec{Seconds: 1, Streams: 4, RateBPS: 10e6}, max: 44e6},
	{name: "UDP receive on 4", spec: throughput.Spec{Seconds: 1, Streams: 4, RateBPS: 10e6, Direction: throughput.RX}, max: 44e6},
	{name: "UDP at full speed", spec: throughput.Spec{Seconds: 1, RateBPS: throughput.NoLimit, BlockBytes: 1400}},
	{name: "UDP receive at full speed", spec: throughput.Spec{Seconds: 1, RateBPS: throughput.NoLimit, BlockBytes: 1400, Direction: throughput.RX}},
	{name: "UDP bytes", spec: throughput.Spec{Bytes: 1e6, BlockBytes: 1000, RateBPS: 100e6}},
	{name: "UDP omit", spec: throughput.Spec{Seconds: 1, OmitS: 1, RateBPS: 10e6}, max: 12e6},
	{name: "UDP in fragments", spec: throughput.Spec{Seconds: 1, BlockBytes: 65507, RateBPS: 20e6}, max: 24e6},
	{name: "UDP wide", spec: throughput.Spec{Seconds: 1, Counters64: true, RepeatingPayload: true, TOS: 32, RateBPS: 10e6}, max: 12e6},
	{name: "UDP over IPv6", spec: throughput.Spec{Seconds: 1, Host: "::1", RateBPS: 10e6}, max: 12e6},
}

// runClient runs our client and looks whether the result makes sense by itself.
func runClient(t *testing.T, c clientCase, port int) throughput.Result {
	t.Helper()
	if c.spec.Host == "" {
		c.spec.Host = "127.0.0.1"
	}
	c.spec.TCPPort, c.spec.Title, c.spec.Label = port, "client "+c.name, "a label"
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ticks := 0
	r, err := (&Client{}).Run(ctx, c.spec, func(p throughput.Progress) { ticks++ })
	if err != nil || !r.Valid || r.Error != "" {
		t.Fatalf("ended by %v, %q", err, r.Error)
	}
	if c.spec.Seconds > 0 && (ticks < 3 || r.Seconds < c.spec.Seconds-0.05 || r.Seconds > c.spec.Seconds+slack) {
		t.Errorf("%d times progress, %g s measured, want %g", ticks, r.Seconds, c.spec.Seconds)
	}
	if c.spec.Protocol == throughput.UDP {
		if r.Packets == nil || *r.Packets == 0 || r.JitterMS == nil || r.Lost == nil || r.BlockBytes == 0 {
			t.Errorf("result lacks figures: %+v", r)
		}
	} else if r.MSS == nil {
		t.Error("no MSS")
	}
	if r.Bytes <= 0 || r.BPS <= 0 || r.CPU.PeerPercent == nil || r.Label != "a label" || len(r.Intervals) == 0 {
		t.Errorf("result lacks figures: %+v", r)
	}
	if r.Role != throughput.Client || r.Peer == "" || r.Local == "" || (r.Family == 6) != (c.spec.Host == "::1") {
		t.Errorf("role %s, peer %s, local %s, family %d", r.Role, r.Peer, r.Local, r.Family)
	}
	if c.exact > 0 && r.Bytes != c.exact {
		t.Errorf("%d bytes at the receiver, want %d", r.Bytes, c.exact)
	}
	if c.max > 0 && (r.BPS > c.max || r.BPS < c.max/2) {
		t.Errorf("%.0f bit/s, want about %.0f", r.BPS, c.max)
	}
	return r
}

func TestClientAgainstPeer(t *testing.T) {
	needPeer(t)
	for _, c := range clientCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			heavy(t)
			port, output := startPeer(t, "", "-J")
			r := runClient(t, c, port)
			var peer report
			if err := json.Unmarshal([]byte(output()), &peer); err != nil || peer.Error != "" {
				t.Fatalf("the peer reports %v %q", err, peer.Error)
			}
			// A server knows what it received and what it sent.
			rx, tx := peer.End.Received.Bytes, peer.End.Sent.Bytes
			if c.spec.Direction == throughput.Both {
				rx, tx = peer.End.Received.Bytes, peer.End.SentReverse.Bytes
			}
			streams := max(1, c.spec.Streams)
			switch c.spec.Direction {
			case throughput.RX:
				if !agree(tx, r.Bytes, streams) {
					t.Errorf("the peer sent %d bytes, we received %d", tx, r.Bytes)
				}
			case throughput.Both:
				if !agree(rx+tx, r.Bytes, streams) {
					t.Errorf("the peer received %d and sent %d bytes, our result has %d", rx, tx, r.Bytes)
				}
			default:
				if rx != r.Bytes {
					t.Errorf("the peer received %d bytes, our result has %d", rx, r.Bytes)
				}
			}
		})
	}
}

func TestClientAgainstServer(t *testing.T) {
	srv := startServer(t, "", Options{})
	for _, c := range clientCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			heavy(t)
			r := runClient(t, c, srv.Port)
			_, s := srv.finished("client "+c.name, 5*time.Second)
			if !s.Valid || s.Direction != mirrored(r.Direction) || s.Streams != r.Streams || s.Peer != r.Local {
				t.Errorf("the server's result: %+v", s)
			}
			held := 0
			if r.Direction != throughput.TX || c.spec.OmitS > 0 {
				held = r.Streams
			}
			if !agree(r.Bytes, s.Bytes, held) {
				t.Errorf("the server counts %d bytes, the client %d", s.Bytes, r.Bytes)
			}
			if c.spec.OmitS > 0 && s.OmitS != c.spec.OmitS {
				t.Errorf("the server omitted %g s, want %g", s.OmitS, c.spec.OmitS)
			}
			if r.Direction == throughput.TX && (r.RTTMS == nil || r.Retransmits == nil || s.Retransmits == nil) {
				t.Errorf("a sender knows round-trip time and retransmits, and tells them: %+v, %+v", r, s)
			}
		})
	}
}

func TestClientUDPAgainstPeer(t *testing.T) {
	needPeer(t)
	for _, c := range udpCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			heavy(t)
			c.spec.Protocol = throughput.UDP
			port, output := startPeer(t, "", "-J")
			r := runClient(t, c, port)
			var peer report
			if err := json.Unmarshal([]byte(output()), &peer); err != nil || peer.Error != "" {
				t.Fatalf("the peer reports %v %q", err, peer.Error)
			}
			if c.spec.RateBPS != throughput.NoLimit && *r.Lost > *r.Packets/2 { // how much the peer's small socket loses on a busy machine is not ours to say
				t.Errorf("%d of %d lost", *r.Lost, *r.Packets)
			}
		})
	}
}

func TestClientUDPAgainstServer(t *testing.T) {
	srv := startServer(t, "", Options{})
	for _, c := range udpCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			heavy(t)
			c.spec.Protocol = throughput.UDP
			r := runClient(t, c, srv.Port)
			_, s := srv.finished("client "+c.name, 5*time.Second)
			if !s.Valid || s.Direction != mirrored(r.Direction) || s.Streams != r.Streams || s.BlockBytes != r.BlockBytes {
				t.Errorf("the server's result: %+v", s)
			}
			if *r.Packets != *s.Packets || *r.Lost != *s.Lost || r.Bytes != s.Bytes {
				t.Errorf("client: %d bytes, %d datagrams, %d lost; server: %d, %d, %d", r.Bytes, *r.Packets, *r.Lost, s.Bytes, *s.Packets, *s.Lost)
			}
			if full := c.spec.RateBPS == throughput.NoLimit; !full && *r.Lost > *r.Packets/100+20 {
				t.Errorf("%d of %d lost", *r.Lost, *r.Packets)
			}
		})
	}
}

func TestClientFailsClearly(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	busy := answering(t, []byte{0xff})
	refusing := answering(t, []byte{0xfe, 0, 0, 0, 27, 0, 0, 0, 0})
	http := answering(t, []byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	closed := answering(t, nil)
	for _, c := range []struct {
		name string
		spec throughput.Spec
		want string
		stop time.Duration
	}{
		{"nobody there", throughput.Spec{Host: "127.0.0.1", TCPPort: 1}, "connect to 127.0.0.1:1", 0},
		{"no host", throughput.Spec{}, "host is missing", 0},
		{"no such name", throughput.Spec{Host: "no-such-host.invalid"}, "no-such-host.invalid", 0},
		{"out of range", throughput.Spec{Host: "127.0.0.1", Streams: 129}, "streams = 129 is out of range", 0},
		{"busy", throughput.Spec{Host: "127.0.0.1", TCPPort: busy}, "busy with another test", 0},
		{"refused", throughput.Spec{Host: "127.0.0.1", TCPPort: refusing}, "total rate is above the server's limit", 0},
		{"a web server", throughput.Spec{Host: "127.0.0.1", TCPPort: http}, "control byte 72 out of turn", 0},
		{"closes", throughput.Spec{Host: "127.0.0.1", TCPPort: closed}, "closed the control connection", 0},
		{"silent", throughput.Spec{Host: "127.0.0.1", TCPPort: silent.Addr().(*net.TCPAddr).Port}, "cancelled", 300 * time.Millisecond},
		{"no such port", throughput.Spec{Host: "127.0.0.1", Via: "nosuch0"}, "leave by nosuch0", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if c.stop > 0 {
				time.AfterFunc(c.stop, cancel)
			}
			start := time.Now()
			r, err := (&Client{}).Run(ctx, c.spec, nil)
			if r.Valid || !strings.Contains(string(r.Error), c.want) {
				t.Errorf("error %q (%v), want one with %q", r.Error, err, c.want)
			}
			if took := time.Since(start); took > slack*5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// answering accepts connections and sends the bytes to the first; it reads what comes until the peer closes, unless there is
// nothing to say.
func answering(t *testing.T, answer []byte) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if n == 0 && answer == nil {
					return
				}
				if n == 0 {
					_, _ = c.Write(answer)
				}
				b := make([]byte, 4096)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().(*net.TCPAddr).Port
}

func TestClientCancelled(t *testing.T) {
	srv := startServer(t, "", Options{})
	for _, dir := range []throughput.Direction{throughput.RX, throughput.TX, throughput.Both} {
		t.Run(string(dir), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			n := 0
			r, err := (&Client{}).Run(ctx, throughput.Spec{
				Host: "127.0.0.1", TCPPort: srv.Port, Seconds: 60, Direction: dir, Title: "cancelled " + string(dir),
			}, func(throughput.Progress) {
				if n++; n == 3 {
					cancel()
				}
			})
			if err != nil || r.Valid || r.Error != "cancelled" || r.Bytes == 0 || r.Seconds < 0.3 || r.Seconds > 10 {
				t.Errorf("ended by %v, result %+v", err, r)
			}
			_, s := srv.finished("cancelled "+string(dir), slack*3*time.Second)
			if s.Valid || s.Error != "ended by the client" || s.Bytes == 0 {
				t.Errorf("the server's result: %+v", s)
			}
		})
	}
}

// A server that takes the test and then neither sends nor answers.
func TestClientStalls(t *testing.T) {
	t.Parallel()
	port := answering(t, []byte{9, 10, 1, 2})
	start := time.Now()
	r, err := (&Client{Stall: time.Second}).Run(context.Background(), throughput.Spec{
		Host: "127.0.0.1", TCPPort: port, Seconds: 60, Direction: throughput.RX,
	}, nil)
	if err != nil || r.Valid || !strings.Contains(string(r.Error), "nothing has moved for 1s") || time.Since(start) > slack*4*time.Second {
		t.Errorf("after %v: %v, %q", time.Since(start), err, r.Error)
	}
}
