package throughput

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is the unit of /proc/stat: USER_HZ is 100 on every architecture Go runs on.
const clockTick = 10 * time.Millisecond

// CPUTimes is a reading of the processor clocks. Each only ever grows.
type CPUTimes struct {
	At            time.Time
	User, System  time.Duration // of the box, over all cores; System with irq and softirq
	Cores         []CoreTimes   //
	ProcessUser   time.Duration // of this process, ended threads included
	ProcessSystem time.Duration //
}

// CoreTimes of one core since boot.
type CoreTimes struct {
	Busy, Total time.Duration
}

// ReadCPU reads /proc/stat and getrusage. What cannot be read stays zero.
func ReadCPU() CPUTimes {
	raw, _ := os.ReadFile("/proc/stat")
	t := parseStat(raw)
	t.At = time.Now()
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		t.ProcessUser = time.Duration(u.Utime.Nano())
		t.ProcessSystem = time.Duration(u.Stime.Nano())
	}
	return t
}

// parseStat reads the cpu lines of proc(5): user nice system idle iowait irq softirq steal ...
func parseStat(raw []byte) CPUTimes {
	var t CPUTimes
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || !strings.HasPrefix(fields[0], "cpu") {
			continue
		}
		var v [8]time.Duration
		for i := range v {
			if i+1 < len(fields) {
				n, _ := strconv.ParseInt(fields[i+1], 10, 64)
				v[i] = time.Duration(n) * clockTick
			}
		}
		user, system, idle := v[0]+v[1], v[2]+v[5]+v[6], v[3]+v[4]
		if fields[0] == "cpu" {
			t.User, t.System = user, system
			continue
		}
		t.Cores = append(t.Cores, CoreTimes{Busy: user + system + v[7], Total: user + system + v[7] + idle})
	}
	return t
}

// Since returns what was used between an earlier reading and this one.
func (t CPUTimes) Since(before CPUTimes) CPU {
	var c CPU
	if t.User+t.System > 0 {
		c.UserS = new((t.User - before.User).Seconds())
		c.SystemS = new((t.System - before.System).Seconds())
	}
	c.ProcessUserS = new((t.ProcessUser - before.ProcessUser).Seconds())
	c.ProcessSystemS = new((t.ProcessSystem - before.ProcessSystem).Seconds())
	if len(t.Cores) == len(before.Cores) { // a core may have come or gone
		busiest, seen := 0.0, false
		for i := range t.Cores {
			if total := t.Cores[i].Total - before.Cores[i].Total; total > 0 {
				seen = true
				busiest = max(busiest, 100*float64(t.Cores[i].Busy-before.Cores[i].Busy)/float64(total))
			}
		}
		if seen {
			c.BusiestCorePercent = new(min(100, busiest))
		}
	}
	return c
}

// ProcessPercent is the share of one core that this process used between an earlier reading and this one, as iperf3
// reports it: total, user, system.
func (t CPUTimes) ProcessPercent(before CPUTimes) (total, user, system float64) {
	wall := t.At.Sub(before.At).Seconds()
	if wall <= 0 {
		return 0, 0, 0
	}
	user = 100 * (t.ProcessUser - before.ProcessUser).Seconds() / wall
	system = 100 * (t.ProcessSystem - before.ProcessSystem).Seconds() / wall
	return user + system, user, system
}
