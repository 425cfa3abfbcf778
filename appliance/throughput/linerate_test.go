package throughput

import (
	"math"
	"testing"
)

func TestGoodput(t *testing.T) {
	for _, c := range []struct {
		name string
		path Path
		want float64 // Mbit/s
	}{
		{"1500 IPv4", Path{LinkMbps: 2500, Family: 4, Payload: 1448, Timestamps: true}, 2353.7},
		{"1500 IPv4 VLAN", Path{LinkMbps: 2500, Family: 4, Payload: 1448, Timestamps: true, VLAN: true}, 2347.6},
		{"1500 IPv6", Path{LinkMbps: 2500, Family: 6, Payload: 1428, Timestamps: true}, 2321.2},
		{"9000 IPv4", Path{LinkMbps: 10000, Family: 4, Payload: 8948, Timestamps: true}, 9900.4},
		{"9000 IPv6 VLAN", Path{LinkMbps: 5000, Family: 6, Payload: 8928, Timestamps: true, VLAN: true}, 4937.0},
		{"no timestamps", Path{LinkMbps: 1000, Family: 4, Payload: 1460}, 949.3},
		{"UDP 1472", Path{LinkMbps: 2500, Family: 4, Payload: 1472, UDP: true, MTU: 1500}, 2392.7},
		// Two fragments: 1480 + 528 bytes behind 20 of IP each, so 2 * 58 bytes beside 2008.
		{"UDP 2000 in fragments", Path{LinkMbps: 1000, Family: 4, Payload: 2000, UDP: true, MTU: 1500}, 1000 * 2000.0 / 2124},
		{"unknown link", Path{Family: 4, Payload: 1448}, 0},
		{"unknown segment", Path{LinkMbps: 1000, Family: 4}, 0},
	} {
		if got := c.path.Goodput() / 1e6; math.Abs(got-c.want) > 0.06 {
			t.Errorf("%s: goodput %.2f Mbit/s, want %.2f", c.name, got, c.want)
		}
	}
}

func TestSetPercent(t *testing.T) {
	r := Result{Family: 4, Protocol: TCP, Direction: RX, LinkMbps: new(2500), MSS: new(1448), Timestamps: true}
	r.SetPercent(2.35e9, 0)
	if got := *r.LineRatePercent; math.Abs(got-94.0) > 0.01 {
		t.Errorf("line rate %.2f %%, want 94.0", got)
	}
	if got := *r.PossiblePercent; math.Abs(got-99.84) > 0.01 {
		t.Errorf("possible %.2f %%, want 99.84", got)
	}

	r = Result{Family: 4, Protocol: TCP, Direction: Both, LinkMbps: new(2500), MSS: new(1448), Timestamps: true}
	r.SetPercent(2e9, 1e9)
	if got := *r.LineRatePercent; got != 40 {
		t.Errorf("both: line rate %.2f %%, want that of the weaker direction, 40", got)
	}

	r = Result{Family: 6, Protocol: TCP, Direction: TX, LinkMbps: new(2500), MSS: new(8928), Timestamps: true}
	r.SetPercent(0, 2.5e9)
	if got := *r.PossiblePercent; got != 100 {
		t.Errorf("possible %.2f %%, want the cap of 100", got)
	}

	r = Result{Family: 4, Protocol: TCP, Direction: RX, MSS: new(1448), LineRatePercent: new(5.0)}
	r.SetPercent(2.5e9, 0)
	if r.LineRatePercent != nil || r.PossiblePercent != nil {
		t.Error("percent without a link speed: want null")
	}
}

func TestMergeIntervals(t *testing.T) {
	var in []Interval
	for i := range 1301 {
		in = append(in, Interval{StartS: float64(i), EndS: float64(i + 1), BPS: float64(i % 2), Retransmits: new(int64(1)), RTTMS: new(2.0)})
	}
	out := MergeIntervals(in, MaxIntervals)
	if len(out) > MaxIntervals {
		t.Fatalf("%d intervals, want at most %d", len(out), MaxIntervals)
	}
	end, sum := 0.0, int64(0)
	for _, iv := range out {
		if iv.StartS != end {
			t.Fatalf("gap at %g", end)
		}
		end = iv.EndS
		sum += *iv.Retransmits
		if *iv.RTTMS != 2 {
			t.Fatalf("round-trip time %g, want 2", *iv.RTTMS)
		}
	}
	if end != 1301 || sum != 1301 {
		t.Errorf("covers %g s with %d retransmits, want 1301 and 1301", end, sum)
	}
	if len(in) != 1301 {
		t.Error("the input was changed")
	}
}
