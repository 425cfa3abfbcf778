package throughput

import "testing"

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "131072": 131072, "128K": 131072, "1.5m": 1572864, "1G": 1 << 30, "2t": 2 << 40} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "K", "-1", "0x10", "1e", "NaN", "inf", "9999999999T", "1 K", "5Q"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("%q was taken as %d", in, got)
		}
	}
}

func TestParseDSCP(t *testing.T) {
	for in, want := range map[string]int{"EF": 184, "af41": 136, "cs1": 32, "0": 0, "63": 252, "0x2e": 184} {
		if got, err := ParseDSCP(in); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "64", "-1", "af44", "gold"} {
		if got, err := ParseDSCP(in); err == nil {
			t.Errorf("%q was taken as %d", in, got)
		}
	}
}
