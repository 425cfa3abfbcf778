package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// call runs one command line in this process, with files in a folder of the test's own.
func call(t *testing.T, words ...string) (stdout, stderr string, status int) {
	t.Helper()
	dir := t.TempDir()
	var out, errs bytes.Buffer
	words = append(words, "--state-dir", dir, "--run-dir", dir)
	status = run(t.Context(), words, &out, &errs)
	return out.String(), errs.String(), status
}

func TestUsage(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("[server]\nlisten = \":5201\"\nconcurency = \"queue\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	unknown := filepath.Join(t.TempDir(), "unknown.toml")
	if err := os.WriteFile(unknown, []byte("[board]\nprofile = \"nanopi-r55\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line     string
		status   int
		mentions string // on stderr, in one line
	}{
		{"frobnicate", 2, `no command "frobnicate"`},
		{"test", 2, "name one HOST"},
		{"test a b", 2, "name one HOST"},
		{"test a -R --bidir", 2, "exclude one another"},
		{"test a -4 -6", 2, "exclude one another"},
		{"test a -P 500", 2, "streams = 500"},
		{"test a -b fast", 2, "want a rate"},
		{"test a -n 5 -t 5", 2, "only one of seconds, bytes and blocks"},
		{"test a --dscp gold", 2, "--dscp gold"},
		{"test a --nonsense", 2, "unknown flag"},
		{"status extra", 2, `unexpected argument "extra"`},
		{"status", 1, "not running"},
		{"press", 2, "name one key"},
		{"press select", 1, "start it with"},
		{"press enter", 2, "name one key"},
		{"config reset ports.mtuu", 2, "nearest known one is ports.mtu"},
		{"check-config " + unknown, 2, `"nanopi-r55" is unknown`},
		{"screenshot", 2, "name the file"},
		{"results -n -3", 2, "positive"},
		{"netcfg --once --plan", 2, "exclude one another"},
		{"netcfg --once --root /tmp", 2, "only --plan"},
		{"serve --root /tmp", 2, "running system alone"},
		{"ports --root /nowhere", 2, "/nowhere"},
		{"check-config " + bad, 2, `bad.toml:3`},
		{"check-config " + bad, 2, `concurrency`},
		{"demo --panel huge", 2, "WIDTHxHEIGHT"},
		{"demo --port 70000", 2, "1 to 65535"},
	} {
		_, errs, status := call(t, strings.Fields(c.line)...)
		if status != c.status || !strings.Contains(errs, c.mentions) || strings.Count(errs, "\n") != 1 {
			t.Errorf("linerate %s: status %d, want %d; stderr %q, want one line with %q", c.line, status, c.status, errs, c.mentions)
		}
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	for _, c := range commands {
		out, errs, status := call(t, c.name, "--help")
		if status != 0 || errs != "" || !strings.Contains(out, "Example: linerate "+c.name) {
			t.Errorf("%s --help: status %d, %q %q", c.name, status, out, errs)
		}
	}
	if out, _, status := call(t, "help"); status != 0 || !strings.Contains(out, "netcfg") {
		t.Errorf("help: status %d, %q", status, out)
	}
}

func TestFlagsMayStandBehindArguments(t *testing.T) {
	for _, line := range []string{"results --json -n 5", "results -n5 --json"} {
		out, errs, status := call(t, strings.Fields(line)...)
		var list []any
		if status != 0 || json.Unmarshal([]byte(out), &list) != nil || list == nil {
			t.Errorf("%s: status %d, %q %q; want an empty array", line, status, out, errs)
		}
	}
}

func TestPortsOfATree(t *testing.T) {
	out, errs, status := call(t, "ports", "--json", "--root", "../../appliance/board/testdata/trees/nanopi-r5s-swapped")
	var ports []map[string]any
	if err := json.Unmarshal([]byte(out), &ports); err != nil || status != 0 || len(ports) != 3 {
		t.Fatalf("status %d, %v: %q %q", status, err, out, errs)
	}
	for _, p := range ports {
		if test := strings.HasPrefix(p["role"].(string), "lan"); p["test"] != test || p["master"] != nil {
			t.Errorf("port %v", p)
		}
	}
}

func TestSummary(t *testing.T) {
	r := results.Record{Result: throughput.Result{
		Direction: throughput.RX, Protocol: throughput.TCP, Seconds: 10, Bytes: 2942125000, BPS: 2.3537e9, RXBPS: new(2.3537e9),
		Retransmits: new(int64(3)), RTTMS: new(0.41), Port: "eth1", LinkMbps: new(2500), MSS: new(1448), Family: 4,
		LineRatePercent: new(94.1), PossiblePercent: new(100.0), Valid: true, Findings: []string{"eee-active"},
		ExpectBPS: new(2.4e9), Pass: new(false),
		CPU: throughput.CPU{UserS: new(0.2), SystemS: new(1.8), BusiestCorePercent: new(31.0), PeerPercent: new(12.5)},
	}}
	want := strings.Repeat("- ", 37) + `
RX      0.00-10.00  sec   2.74 GBytes   2.35 Gbits/sec      3  0.41 ms  receiver
      94.1 % of the 2500 Mbit/s link of eth1, 100.0 % of what is possible with segments of 1448 bytes over IPv4
      CPU of the box: 20.0 % of one core (0.20 s user + 1.80 s system), busiest core 31 %, peer 12.5 %
      finding: eee-active (` + "`linerate doctor`" + ` says more)
FAIL: 2.35 Gbits/sec, expected 2.40 Gbits/sec
`
	if got := summary(r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What is omitted is marked and does not count, and no second at the end is lost.
func TestLinesOfAnOmittedSecondAndARest(t *testing.T) {
	var out bytes.Buffer
	l := newLines(env{out: &out}, throughput.Spec{Direction: throughput.RX, OmitS: 0.5}, false)
	for i := 1; i <= 19; i++ { // the last one is not seen
		l.progress(throughput.Progress{ElapsedS: float64(i) / 10, RXBPS: 1e9})
	}
	result := throughput.Result{Seconds: 1.5, BPS: 1e9}
	l.end(result)
	l.end(result)
	want := intervalHead + `
RX      0.00-0.50   sec   59.6 MBytes   1.00 Gbits/sec  (omitted)
RX      0.00-1.00   sec    119 MBytes   1.00 Gbits/sec
RX      1.00-1.50   sec   59.6 MBytes   1.00 Gbits/sec
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestSummaryOfATestThatMeasuredNothing(t *testing.T) {
	r := results.Record{Result: throughput.Result{Protocol: throughput.UDP, Error: "refused", LinkMbps: new(2500), LineRatePercent: new(0.0)}}
	if got := summary(r); got != "" {
		t.Errorf("%q; the error alone is to be said", got)
	}
}

func TestLines(t *testing.T) {
	var out bytes.Buffer
	l := newLines(env{out: &out}, throughput.Spec{Direction: throughput.TX}, false)
	for i := 1; i <= 20; i++ {
		l.progress(throughput.Progress{ElapsedS: float64(i) / 10, TXBPS: 1e9, Retransmits: new(int64(i / 10))})
	}
	want := intervalHead + `
TX      0.00-1.00   sec    119 MBytes   1.00 Gbits/sec      1
TX      1.00-2.00   sec    119 MBytes   1.00 Gbits/sec      1
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
