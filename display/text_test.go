package display

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestRate(t *testing.T) {
	for _, c := range []struct {
		bps  float64
		want string
	}{
		{0, "0"}, {-5, "0"}, {3, "3"}, {999, "999"}, {999.6, "1.00K"}, {1500, "1.50K"}, {64.2e3, "64.2K"}, {999.4e3, "999K"},
		{941.2e6, "941M"}, {98.74e6, "98.7M"}, {99.96e6, "100M"}, {9.994e6, "9.99M"}, {9.996e6, "10.0M"}, {999.6e6, "1.00G"},
		{2.3537e9, "2.35G"}, {9.42e9, "9.42G"}, {94.1e9, "94.1G"}, {400e9, "400G"}, {1.6e12, "1.60T"}, {5e15, "5000T"},
	} {
		if got := rate(c.bps); got != c.want {
			t.Errorf("rate(%g) = %q, want %q", c.bps, got, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{percent(nil), ""}, {percent(new(0.0)), "0.0%"}, {percent(new(99.84)), "99.8%"}, {percent(new(99.96)), "100%"},
		{percent(new(104.0)), "104%"},
		{span(-time.Second), "0 s"}, {span(59900 * time.Millisecond), "59 s"}, {span(time.Minute), "1 min"},
		{span(59 * time.Minute), "59 min"}, {span(47 * time.Hour), "47 h"}, {span(48 * time.Hour), "2 d"},
		{ago(4 * time.Second), "4s"}, {ago(3 * time.Minute), "3m"}, {ago(50 * time.Hour), "2d"},
		{milliseconds(0.013), "0.01 ms"}, {milliseconds(9.996), "10.0 ms"}, {milliseconds(12.34), "12.3 ms"},
		{milliseconds(140), "140 ms"},
		{thousands(9999), "9999"}, {thousands(10000), "10.0k"}, {thousands(1_204_000), "1.20M"},
		{many(1, "stream"), "1 stream"}, {many(4, "stream"), "4 streams"}, {seconds(9.99), "9"},
		{longest(5, "123456", "12345", "1"), "12345"}, {longest(1, "123", "12"), "12"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"192.168.1.10", 12, "192.168.1.10"}, {"192.168.1.10", 11, "192.168.1.…"}, {"a b", 3, "a b"}, {"ab cd", 4, "ab…"},
		{"ab", 1, "…"}, {"ab", 0, ""}, {"ab", -3, ""}, {"äöüß", 4, "äöüß"},
	} {
		if got := cut(c.text, c.n); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.text, c.n, got, c.want)
		}
	}
}

func TestPieces(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want []string
	}{
		{"short", 21, []string{"short"}},
		{longIPv6, 21, []string{"2001:db85:85a3:1234:…", "…5678:8a2e:1370:7334"}},
		{"port 5201 is taken by pid 812", 12, []string{"port 5201…", "…is taken…", "…by pid 812"}},
		{"abcdefghij", 4, []string{"abc…", "…de…", "…fg…", "…hij"}},
		{"abcdef", 3, []string{"ab…"}}, // no room to go on
	} {
		if got := pieces(c.text, c.n); !slices.Equal(got, c.want) {
			t.Errorf("pieces(%q, %d) = %q, want %q", c.text, c.n, got, c.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want []string
	}{
		{"Run iperf3 -s on a laptop. I am 10.0.0.5", 21, []string{"Run iperf3 -s on a", "laptop. I am 10.0.0.5"}},
		{longIPv6, 21, []string{"2001:db85:85a3:1234:", "5678:8a2e:1370:7334"}},
		{"one\n\ntwo", 21, []string{"one", "", "two"}},
		{"abcdefgh", 3, []string{"abc", "def", "gh"}},
		{"", 5, []string{""}}, {"abc", 0, nil},
	} {
		if got := wrap(c.text, c.n); !slices.Equal(got, c.want) {
			t.Errorf("wrap(%q, %d) = %q, want %q", c.text, c.n, got, c.want)
		}
	}
}

// Texts come from strangers: whatever they send fits its place, and nothing of it is lost.
func FuzzText(f *testing.F) {
	bare := func(s string) string {
		return strings.Map(func(r rune) rune {
			if strings.ContainsRune(" \n"+ellipsis, r) || r > 0x7f || r < 0x20 {
				return -1
			}
			return r
		}, s)
	}
	f.Fuzz(func(t *testing.T, text string, n int) {
		if n > 200 || len(text) > 4096 {
			return
		}
		for _, list := range [][]string{pieces(text, n), wrap(text, n)} {
			for _, p := range list {
				if utf8.RuneCountInString(p) > max(0, n) {
					t.Errorf("%q is longer than %d", p, n)
				}
			}
			if n >= 4 && bare(strings.Join(list, "")) != bare(text) {
				t.Errorf("%q became %q", text, list)
			}
		}
		if c := cut(text, n); utf8.RuneCountInString(c) > max(0, n) {
			t.Errorf("cut to %q, longer than %d", c, n)
		}
	})
}
