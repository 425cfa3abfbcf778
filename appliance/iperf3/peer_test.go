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
		{args: "-t 1 -O 1", streams: 1, dir: "rx"},
		{args: "-t 1 -O 1 -R", streams: 1, dir: "tx"},
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
