package iperf3

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"linerate/appliance/throughput"
)

// full says that the long forms run: LINERATE_LONG=1, as `make suite-full` sets it.
var full = os.Getenv("LINERATE_LONG") != ""

// suite is the peer's own test_commands.sh: its options, and what our client would be asked for the same. In the short form
// every test lasts a second.
var suite = []struct {
	args string
	spec throughput.Spec
	skip func() string // why it cannot run here
	fail string        // the client itself refuses, or our server does
	mine string        // why our client has no such command
}{
	{args: "-V -t 5 -T test1", spec: throughput.Spec{Seconds: 5, Title: "test1"}},
	{args: "-u -V -t 5", spec: throughput.Spec{Seconds: 5, Protocol: throughput.UDP}},
	{args: "-i .3 -O 2 -t 5", spec: throughput.Spec{Seconds: 5, OmitS: 2, IntervalS: 0.3}},
	{args: "-i 1 -J -t 5", spec: throughput.Spec{Seconds: 5, IntervalS: 1}},
	{args: "-4 -t 5", spec: throughput.Spec{Seconds: 5, Family: 4}},
	{args: "-4 -u -t 5", spec: throughput.Spec{Seconds: 5, Family: 4, Protocol: throughput.UDP}},
	{args: "-6 -t 5", spec: throughput.Spec{Seconds: 5, Family: 6}},
	{args: "-6 -u -t 5", spec: throughput.Spec{Seconds: 5, Family: 6, Protocol: throughput.UDP}},
	{args: "-V -t 5 --fq-rate 5m", spec: throughput.Spec{Seconds: 5, FQRateBPS: 5e6}},
	{args: "-u -V -t 5 --fq-rate 5m", spec: throughput.Spec{Seconds: 5, FQRateBPS: 5e6, Protocol: throughput.UDP}},
	{args: "--sctp -V -t 5", fail: "SCTP", mine: "no SCTP"},
	{args: "-P 3 -t 5", spec: throughput.Spec{Seconds: 5, Streams: 3}},
	{args: "-u -P 3 -t 5", spec: throughput.Spec{Seconds: 5, Streams: 3, Protocol: throughput.UDP}},
	{args: "-P 2 -t 5 -R", spec: throughput.Spec{Seconds: 5, Streams: 2, Direction: throughput.RX}},
	{args: "-u -P 2 -t 5 -R", spec: throughput.Spec{Seconds: 5, Streams: 2, Direction: throughput.RX, Protocol: throughput.UDP}},
	{args: "-P 2 -t 5 --bidir", spec: throughput.Spec{Seconds: 5, Streams: 2, Direction: throughput.Both}},
	{args: "-u -P 2 -t 5 --bidir", spec: throughput.Spec{Seconds: 5, Streams: 2, Direction: throughput.Both, Protocol: throughput.UDP}},
	{args: "-Z -t 5", spec: throughput.Spec{Seconds: 5, ZeroCopy: true}},
	{args: "-Z -t 5 -R", spec: throughput.Spec{Seconds: 5, ZeroCopy: true, Direction: throughput.RX}},
	{args: "-t 5 -w 8M", spec: throughput.Spec{Seconds: 5, WindowBytes: 8 << 20}, skip: smallBuffers},
	{args: "-n 5M", spec: throughput.Spec{Bytes: 5 << 20}},
	{args: "-n 5M -u -b1G", spec: throughput.Spec{Bytes: 5 << 20, RateBPS: 1e9, Protocol: throughput.UDP}},
	{args: "-n 5M -R", spec: throughput.Spec{Bytes: 5 << 20, Direction: throughput.RX}},
	{args: "-n 5M -u -b1G -R", spec: throughput.Spec{Bytes: 5 << 20, RateBPS: 1e9, Direction: throughput.RX, Protocol: throughput.UDP}},
	{args: "-n 5M -t 5", fail: "only one test end condition", mine: "only one end is allowed: Spec.Check says so"},
	{args: "-k 1K", spec: throughput.Spec{Blocks: 1024}},
	{args: "-k 1K -u -b1G", spec: throughput.Spec{Blocks: 1024, RateBPS: 1e9, Protocol: throughput.UDP}},
	{args: "-k 1K -R", spec: throughput.Spec{Blocks: 1024, Direction: throughput.RX}},
	{args: "-k 1K -u -b1G -R", spec: throughput.Spec{Blocks: 1024, RateBPS: 1e9, Direction: throughput.RX, Protocol: throughput.UDP}},
	{args: "-A 2/2", skip: fewCores, mine: "no affinity option"},
	{args: "-A 2/2 -u -b1G", skip: fewCores, mine: "no affinity option"},
	{args: "-u -b1G/100", spec: throughput.Spec{RateBPS: 1e9, Burst: 100, Protocol: throughput.UDP}},
	{args: "-C reno -V", spec: throughput.Spec{Congestion: "reno"}, skip: noReno},
	{args: "-M 1000 -V", spec: throughput.Spec{MSS: 1000}},
}

func smallBuffers() string {
	for _, limit := range []string{"rmem_max", "wmem_max"} {
		if n := readNumber("/proc/sys/net/core/" + limit); 2*n < 8<<20 {
			return fmt.Sprintf("net.core.%s is %d, too little for 8 MiB: the client itself refuses", limit, n)
		}
	}
	return ""
}

func fewCores() string {
	if n := runtime.NumCPU(); n < 3 {
		return fmt.Sprintf("core 2 is asked for and there are %d", n)
	}
	return ""
}

func noReno() string {
	raw, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
	if !strings.Contains(string(raw), "reno") {
		return "reno is not allowed here"
	}
	return ""
}

func readNumber(path string) (n int) {
	raw, _ := os.ReadFile(path)
	_, _ = fmt.Sscan(string(raw), &n)
	return n
}

// shorten makes a second of every time.
func shorten(args string) string {
	if full {
		return args
	}
	args = strings.NewReplacer("-t 5", "-t 1", "-O 2", "-O 1").Replace(args)
	if !strings.Contains(args, "-t ") && !strings.Contains(args, "-n ") && !strings.Contains(args, "-k ") {
		args += " -t 1"
	}
	return args
}

// The peer's suite with its own client against our server.
func TestSuite(t *testing.T) {
	needPeer(t)
	c := newCable(t)
	srv := startServer(t, c.box, Options{})
	for i, s := range suite {
		t.Run(fmt.Sprintf("%02d %s", i+1, s.args), func(t *testing.T) {
			t.Parallel()
			if s.skip != nil {
				if why := s.skip(); why != "" {
					t.Skip(why)
				}
			}
			heavy(t)
			host := "192.0.2.1"
			if strings.HasPrefix(s.args, "-6") {
				host = "2001:db8::1"
			}
			title := fmt.Sprint("suite ", i+1)
			r := iperf3(t, c.peer, 40*time.Second, append(strings.Fields(shorten(s.args)), "-c", host, "-p", fmt.Sprint(srv.Port), "-T", title)...)
			if s.fail != "" {
				if !strings.Contains(r.Error, s.fail) {
					t.Errorf("error %q, want one about %s", r.Error, s.fail)
				}
				return
			}
			if r.Error != "" {
				t.Fatalf("iperf3 reports %q", r.Error)
			}
			_, res := srv.finished(title, 5*time.Second)
			if !res.Valid || res.Bytes <= 0 || len(res.Intervals) == 0 {
				t.Errorf("result %+v", res)
			}
			received := r.End.Received.Bytes + r.End.ReceivedReverse.Bytes
			if strings.Contains(s.args, "-u") {
				received = 0
				for _, x := range r.End.Streams {
					received += x.UDP.Bytes
				}
			}
			held := 0
			if res.Direction != throughput.RX || strings.Contains(s.args, "-O") {
				held = res.Streams
			}
			if !agree(received, res.Bytes, max(1, held)) {
				t.Errorf("the client's report has %d bytes, our result %d", received, res.Bytes)
			}
		})
	}
}

// The same with our client against `iperf3 -s`.
func TestSuiteMirrored(t *testing.T) {
	needPeer(t)
	for i, s := range suite {
		t.Run(fmt.Sprintf("%02d %s", i+1, s.args), func(t *testing.T) {
			t.Parallel()
			if s.mine != "" {
				t.Skip(s.mine)
			}
			if s.skip != nil {
				if why := s.skip(); why != "" {
					t.Skip(why)
				}
			}
			heavy(t)
			port, output := startPeer(t, "", "-J")
			c := clientCase{name: s.args, spec: s.spec}
			if c.spec.Family == 6 {
				c.spec.Host = "::1"
			}
			if c.spec.Bytes == 0 && c.spec.Blocks == 0 && c.spec.Seconds == 0 {
				c.spec.Seconds = 10
			}
			if !full {
				c.spec.Seconds, c.spec.OmitS = min(1, c.spec.Seconds), min(1, c.spec.OmitS)
			}
			r := runClient(t, c, port)
			var peer report
			if err := json.Unmarshal([]byte(output()), &peer); err != nil || peer.Error != "" {
				t.Fatalf("the peer reports %v %q", err, peer.Error)
			}
			if c.spec.Protocol != throughput.UDP {
				sent, received := peer.End.Sent.Bytes+peer.End.SentReverse.Bytes, peer.End.Received.Bytes+peer.End.ReceivedReverse.Bytes
				if theirs := max(sent, received); c.spec.Direction != throughput.Both && !agree(theirs, r.Bytes, r.Streams) {
					t.Errorf("the peer counts %d bytes, we %d", theirs, r.Bytes)
				}
			}
		})
	}
}
