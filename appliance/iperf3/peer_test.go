package iperf3

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Debian's client against our server: every option that leaves a trace on the wire.
func TestPeerClient(t *testing.T) {
	srv := startServer(t, "", Options{})
	for _, c := range []struct {
		args    string
		streams int
		dir     string
		exact   int64 // bytes that the test must have moved
		maxBPS  float64
		refused string
	}{
		{args: "-t 1", streams: 1, dir: "rx"},
		{args: "-t 1 -R", streams: 1, dir: "tx"},
		{args: "-t 1 --bidir", streams: 1, dir: "both"},
		{args: "-t 1 -P 4", streams: 4, dir: "rx"},
		{args: "-t 1 -P 4 -R", streams: 4, dir: "tx"},
		{args: "-t 1 -P 3 --bidir", streams: 3, dir: "both"},
		{args: "-t 1 -P 128", streams: 128, dir: "rx"},
		{args: "-t 1 -P 128 -R", streams: 128, dir: "tx"},
		{args: "-6 -t 1", streams: 1, dir: "rx"},
		{args: "-6 -t 1 -R", streams: 1, dir: "tx"},
		{args: "-n 5M", streams: 1, dir: "rx", exact: 5 << 20},
		{args: "-n 5M -R", streams: 1, dir: "tx"},
		{args: "-k 100", streams: 1, dir: "rx", exact: 100 * 128 << 10},
		{args: "-k 100 -R", streams: 1, dir: "tx"},
		// The two ends omit by timers of their own: at this rate a busy machine's skew stays below what is omitted.
		{args: "-t 1 -O 1 -b 1G", streams: 1, dir: "rx"},
		{args: "-t 1 -O 1 -b 1G -R", streams: 1, dir: "tx"},
		{args: "-t 2 -b 20M", streams: 1, dir: "rx", maxBPS: 21e6},
		{args: "-t 2 -b 20M -R", streams: 1, dir: "tx", maxBPS: 21e6},
		{args: "-t 2 -b 20M/10 -R", streams: 1, dir: "tx", maxBPS: 26e6},
		{args: "-t 2 -b 20M -R -P 2", streams: 2, dir: "tx", maxBPS: 42e6},
		{args: "-t 1 --fq-rate 50M", streams: 1, dir: "rx"},
		{args: "-t 1 --fq-rate 50M -R", streams: 1, dir: "tx"},
		{args: "-t 1 -l 1M", streams: 1, dir: "rx"},
		{args: "-t 1 -l 1000 -N -R", streams: 1, dir: "tx"},
		{args: "-t 1 -w 64K", streams: 1, dir: "rx"},
		{args: "-t 1 -w 64K -R", streams: 1, dir: "tx"},
		{args: "-t 1 -w 2M --bidir", streams: 1, dir: "both"},
		{args: "-t 1 -M 1000 -R", streams: 1, dir: "tx"},
		{args: "-t 1 -S 0x10 -R", streams: 1, dir: "tx"},
		{args: "-t 1 -C reno", streams: 1, dir: "rx"},
		{args: "-t 1 -C reno -R", streams: 1, dir: "tx"},
		{args: "-t 1 -Z", streams: 1, dir: "rx"},
		{args: "-t 1 -Z -R", streams: 1, dir: "tx"},
		{args: "-t 1 --repeating-payload -R", streams: 1, dir: "tx"},
		{args: "-t 1 --sctp", refused: "unable to start listener|SCTP|sctp"},
	} {
		t.Run(strings.ReplaceAll(c.args, " ", "_"), func(t *testing.T) {
			t.Parallel()
			heavy(t)
			host := "127.0.0.1"
			if strings.Contains(c.args, "-6") {
				host = "::1"
			}
			title := "peer " + c.args
			args := append(strings.Fields(c.args), "-c", host, "-p", fmt.Sprint(srv.Port), "-T", title)
			r := iperf3(t, "", 30*time.Second, args...)
			if c.refused != "" {
				for _, text := range strings.Split(c.refused, "|") {
					if strings.Contains(r.Error, text) {
						return
					}
				}
				t.Fatalf("error %q, want one about %s", r.Error, c.refused)
			}
			if r.Error != "" {
				t.Fatalf("iperf3 reports %q", r.Error)
			}
			ev, res := srv.finished(title, 5*time.Second)
			if !res.Valid || res.Error != "" || res.Streams != c.streams || string(res.Direction) != c.dir || res.ClientVersion != "3.12" {
				t.Errorf("result %+v", res)
			}
			if res.Seconds > 0.9 && ev.Progress == 0 {
				t.Error("no progress was reported")
			}
			if res.MSS == nil || res.Bytes <= 0 || res.BPS <= 0 || len(res.Intervals) == 0 || res.CPU.PeerPercent == nil {
				t.Errorf("result lacks figures: %+v", res)
			}
			sent, received := r.End.Sent.Bytes, r.End.Received.Bytes
			if c.dir == "both" {
				sent += r.End.SentReverse.Bytes
				received += r.End.ReceivedReverse.Bytes
			}
			held := 0
			if c.dir != "rx" || strings.Contains(c.args, "-O") { // what was in flight at the end, or when the count began
				held = c.streams
			}
			if !agree(sent, received, held) || !agree(received, res.Bytes, 0) {
				t.Errorf("sent %d, received %d, our result has %d bytes", sent, received, res.Bytes)
			}
			if c.exact != 0 && (res.Bytes != c.exact || received != c.exact) {
				t.Errorf("%d bytes in our result, %d in the client's, want %d", res.Bytes, received, c.exact)
			}
			if c.maxBPS != 0 && (res.BPS > c.maxBPS || res.BPS < c.maxBPS/2) {
				t.Errorf("%.0f bit/s, want about %.0f", res.BPS, c.maxBPS)
			}
			if c.dir != "rx" && res.Retransmits == nil {
				t.Error("a sender knows its retransmits")
			}
		})
	}
}

// The same over UDP.
func TestPeerClientUDP(t *testing.T) {
	srv := startServer(t, "", Options{})
	for _, c := range []struct {
		args    string
		streams int
		dir     string
		rate    float64 // of one direction, bit/s; 0: as fast as can be
		lossy   bool    // the peer's socket may be too small for what comes
	}{
		{args: "-t 1 -l 1400", streams: 1, dir: "rx", rate: 1048576},
		{args: "-t 1 -l 1400 -R", streams: 1, dir: "tx", rate: 1048576},
		{args: "-t 1 -l 1400 --bidir", streams: 1, dir: "both", rate: 1048576},
		{args: "-t 2 -b 50M -l 1400", streams: 1, dir: "rx", rate: 50e6},
		{args: "-t 2 -b 50M -l 1400 -R", streams: 1, dir: "tx", rate: 50e6},
		{args: "-t 2 -b 50M/20 -l 1400 -R", streams: 1, dir: "tx", rate: 50e6, lossy: true},
		{args: "-t 1 -b 10M -P 3", streams: 3, dir: "rx", rate: 30e6},
		{args: "-t 1 -b 10M -P 2 -R", streams: 2, dir: "tx", rate: 20e6},
		{args: "-t 1 -b 10M -P 2 --bidir", streams: 2, dir: "both", rate: 20e6},
		{args: "-6 -t 1 -b 10M", streams: 1, dir: "rx", rate: 10e6},
		{args: "-6 -t 1 -b 10M -R", streams: 1, dir: "tx", rate: 10e6},
		{args: "-t 1 -b 0 -l 1400", streams: 1, dir: "rx", lossy: true},
		{args: "-t 1 -b 0 -l 1400 -R", streams: 1, dir: "tx", lossy: true},
		{args: "-t 1 -b 10M --udp-counters-64bit", streams: 1, dir: "rx", rate: 10e6},
		{args: "-t 1 -b 10M --udp-counters-64bit -R", streams: 1, dir: "tx", rate: 10e6},
		{args: "-t 1 -b 1M -l 16", streams: 1, dir: "rx", rate: 1e6},
		{args: "-t 1 -b 10M -l 65507", streams: 1, dir: "rx", rate: 10e6},
		{args: "-t 1 -b 10M -l 65507 -R", streams: 1, dir: "tx", rate: 10e6},
		{args: "-t 1 -O 1 -b 10M", streams: 1, dir: "rx", rate: 10e6},
		{args: "-t 1 -O 1 -b 10M -R", streams: 1, dir: "tx", rate: 10e6},
		{args: "-n 1M -b 1G", streams: 1, dir: "rx"},
		{args: "-n 1M -b 1G -R", streams: 1, dir: "tx"},
		{args: "-k 100 -b 1G", streams: 1, dir: "rx"},
		{args: "-t 1 --fq-rate 5M -l 1400 -R", streams: 1, dir: "tx", rate: 1048576},
		{args: "-t 1 -b 10M -w 1M --repeating-payload --dont-fragment -S 0x20", streams: 1, dir: "rx", rate: 10e6},
		{args: "-t 1 -b 10M -S 0x20 -R", streams: 1, dir: "tx", rate: 10e6},
	} {
		t.Run(strings.ReplaceAll(c.args, " ", "_"), func(t *testing.T) {
			t.Parallel()
			heavy(t)
			host := "127.0.0.1"
			if strings.Contains(c.args, "-6") {
				host = "::1"
			}
			title := "peer UDP " + c.args
			args := append(strings.Fields(c.args), "-u", "-c", host, "-p", fmt.Sprint(srv.Port), "-T", title)
			r := iperf3(t, "", 30*time.Second, args...)
			if r.Error != "" {
				t.Fatalf("iperf3 reports %q", r.Error)
			}
			_, res := srv.finished(title, 5*time.Second)
			if !res.Valid || res.Protocol != "udp" || res.Streams != c.streams || string(res.Direction) != c.dir {
				t.Errorf("result %+v", res)
			}
			if res.JitterMS == nil || res.Lost == nil || res.Packets == nil || *res.Packets == 0 || res.Bytes == 0 || res.MSS != nil {
				t.Fatalf("result lacks figures: %+v", res)
			}
			if !c.lossy && float64(*res.Lost) > 0.01*float64(*res.Packets)+20 {
				t.Errorf("%d of %d lost", *res.Lost, *res.Packets)
			}
			if *res.JitterMS < 0 || *res.JitterMS > 20*slack {
				t.Errorf("jitter %g ms", *res.JitterMS)
			}
			want := c.rate
			if c.dir == "both" {
				want *= 2
			}
			if want > 0 && (res.BPS < 0.8*want || res.BPS > 1.2*want) {
				t.Errorf("%.0f bit/s, want %.0f", res.BPS, want)
			}
			// What the client prints must be the same figures.
			var lost, packets int64
			for _, s := range r.End.Streams {
				lost += s.UDP.Lost
				packets += s.UDP.Packets
			}
			if diff := packets - *res.Packets; diff < -packets/10-20 || diff > packets/10+20 {
				t.Errorf("the client counts %d datagrams, we %d", packets, *res.Packets)
			}
			if !c.lossy && lost-*res.Lost > 50 {
				t.Errorf("the client counts %d lost, we %d", lost, *res.Lost)
			}
		})
	}
}
