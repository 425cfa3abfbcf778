package throughput

import (
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	before := parseStat([]byte("cpu  100 20 30 1000 5 1 2 3 0 0\ncpu0 50 10 15 500 2 1 1 2 0 0\ncpu1 50 10 15 500 3 0 1 1 0 0\nintr 1 2 3\n"))
	after := parseStat([]byte("cpu  150 20 60 1100 5 11 22 3 0 0\ncpu0 100 10 45 510 2 11 11 2 0 0\ncpu1 50 10 15 590 3 0 11 1 0 0\nintr 9\n"))
	after.ProcessUser, after.ProcessSystem = 300*time.Millisecond, 500*time.Millisecond
	c := after.Since(before)
	if *c.UserS != 0.5 || *c.SystemS != 0.6 {
		t.Errorf("user %g s, system %g s: want 0.5 and 0.3 + 0.1 + 0.2", *c.UserS, *c.SystemS)
	}
	if *c.ProcessUserS != 0.3 || *c.ProcessSystemS != 0.5 {
		t.Errorf("process user %g s, system %g s", *c.ProcessUserS, *c.ProcessSystemS)
	}
	// Core 0: 50 + 30 + 10 + 10 busy of 110.
	if got := *c.BusiestCorePercent; got < 90.8 || got > 91 {
		t.Errorf("busiest core %g %%, want 100/110", got)
	}
}

func TestParseStatWithoutSense(t *testing.T) {
	for _, raw := range []string{"", "cpu", "cpu a b c d e f g h", "cpu 1 2 3", "rubbish\n\n\x00"} {
		parseStat([]byte(raw)) // must not panic
	}
	a, b := parseStat([]byte("cpu0 1 1 1 1 1 1 1 1\n")), parseStat(nil)
	if c := a.Since(b); c.BusiestCorePercent != nil || c.UserS != nil {
		t.Error("a core that came meanwhile has no percent")
	}
}

func TestReadCPUCountsThisProcess(t *testing.T) {
	before := ReadCPU()
	for x, end := 0, time.Now().Add(60*time.Millisecond); time.Now().Before(end); {
		x++
	}
	after := ReadCPU()
	if total, user, _ := after.ProcessPercent(before); total <= 0 || user <= 0 || total > 6400 {
		t.Errorf("a busy loop used %g %% of a core, %g %% user", total, user)
	}
	if after.User+after.System == 0 || len(after.Cores) == 0 {
		t.Error("no figures from /proc/stat")
	}
}
