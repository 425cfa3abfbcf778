package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"linerate/appliance/throughput"
)

// example is a result with everything in it.
func example(n int) Record {
	return Record{Result: throughput.Result{
		Engine: "iperf3", Role: throughput.Server, Peer: "192.0.2.7", PeerName: "laptop", ClientVersion: "3.12", Target: "core",
		Label: "before", Local: "192.0.2.1", Port: "eth1", VLAN: new(130), Family: 4, Protocol: throughput.TCP,
		Direction: throughput.RX, Streams: 1, Seconds: 10.002, OmitS: 1, BlockBytes: 131072, RateBPS: new(3e9), Congestion: "cubic",
		Bytes: int64(n), BPS: 2.35e9, RXBPS: new(2.35e9), Retransmits: new(int64(3)), RTTMS: new(0.47), RTTMinMS: new(0.4),
		MSS: new(1448), MTU: new(1500), Copied: new(false), LinkMbps: new(2500), Duplex: "full", Driver: "r8169",
		Governor: "performance", Temperature: new(48.5), LineRatePercent: new(94.0), PossiblePercent: new(99.8),
		CPU: throughput.CPU{UserS: new(0.8), SystemS: new(9.3), BusiestCorePercent: new(71.0)},
		Intervals: []throughput.Interval{
			{StartS: 0, EndS: 1, BPS: 2.34e9, Retransmits: new(int64(0)), RTTMS: new(0.47)}, {StartS: 1, EndS: 2, BPS: 2.36e9},
		},
		SharedWith: []string{"11"}, PortBPS: new(2.4e9), Findings: []string{"jumbo-slower", "not-the-box"}, ExpectBPS: new(2.3e9),
		Pass: new(true), Valid: true,
	}}
}

// names are the keys of a result in the order that others rely on.
const names = `id seq run time clock boot_id uptime_s engine role peer peer_name client_version target label local port
	vlan family protocol direction streams seconds omit_s block_bytes rate_bps congestion bytes bps rx_bps tx_bps retransmits
	rtt_ms rtt_min_ms jitter_ms lost packets mss mtu copied link_mbps duplex driver governor temperature_c line_rate_percent
	possible_percent cpu intervals shared_with port_bps findings expect_bps pass valid error`

func TestKeysAndTheirOrder(t *testing.T) {
	b, err := encode(Record{Stamp: Stamp{ID: "1", Seq: 1}})
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(key))
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		switch key {
		case "vlan", "tx_bps", "governor", "error", "pass":
			if string(value) != "null" {
				t.Errorf("%s = %s, want null for unknown", key, value)
			}
		case "intervals", "shared_with", "findings":
			if string(value) != "[]" {
				t.Errorf("%s = %s, want an empty list", key, value)
			}
		}
	}
	if diff := cmp.Diff(strings.Fields(names), got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

func TestEncodeDecode(t *testing.T) {
	r := example(7)
	r.Stamp = Stamp{ID: "12", Seq: 12, Run: "11", Time: time.Date(2026, 11, 30, 14, 2, 3, 4e6, time.UTC), Clock: Synced,
		BootID: "b", UptimeS: 812.4}
	b, err := encode(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s, err := stampOf(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Stamp, s); diff != "" {
		t.Errorf("stampOf (-want +got):\n%s", diff)
	}
}

func TestEncodeKeepsWhatItCan(t *testing.T) {
	r := example(1)
	r.BPS, r.RTTMS, r.CPU.UserS = math.NaN(), new(math.Inf(1)), new(math.NaN())
	r.Peer = throughput.Text(strings.Repeat("ä", 100_000))
	r.Label = "\xff\x00\n\u2028"
	r.SharedWith = make([]string, 1000)
	for i := range 5000 {
		r.Intervals = append(r.Intervals, throughput.Interval{StartS: float64(i), EndS: float64(i + 1), BPS: math.Inf(-1)})
	}
	r.Seq, r.ID = 1, "1"
	b, err := encode(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > maxRecordBytes || bytes.ContainsAny(b, "\n\x00") {
		t.Errorf("%d bytes: %.200q", len(b), b)
	}
	got, err := decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.BPS != 0 || got.RTTMS != nil || got.CPU.UserS != nil || *got.RTTMinMS != 0.4 {
		t.Errorf("bps %v, rtt_ms %v, rtt_min_ms %v", got.BPS, got.RTTMS, got.RTTMinMS)
	}
	if n := len(got.Intervals); n > throughput.MaxIntervals || got.Intervals[n-1].EndS != 5000 {
		t.Errorf("%d intervals up to %v s", n, got.Intervals[n-1].EndS)
	}
	if n := len(got.Peer); n > maxText || n < maxText-1 {
		t.Errorf("peer has %d bytes", n)
	}
	if math.IsNaN(r.BPS) == false || len(r.Intervals) != 5002 {
		t.Error("the caller's result was changed")
	}

	// Many full texts beside many intervals: the intervals give way.
	r = example(1)
	r.Seq, r.ID = 1, "1"
	for range maxList {
		r.Findings = append(r.Findings, strings.Repeat("x", 950))
	}
	for i := range 600 {
		r.Intervals = append(r.Intervals, throughput.Interval{StartS: float64(i), EndS: float64(i + 1)})
	}
	if b, err = encode(r); err != nil || len(b) > maxRecordBytes {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
