package results

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is what the store knows of time. Tests bring their own.
type Clock struct {
	Now    func() time.Time     // time of day
	Uptime func() time.Duration // since boot, time asleep included
	Synced func() bool          // Now can be trusted
	BootID string               // another at each boot; "" unknown
}

// SystemClock is the kernel's. root is where /proc and /run are found, / on a box.
func SystemClock(root string) Clock {
	id, _ := os.ReadFile(filepath.Join(root, "/proc/sys/kernel/random/boot_id"))
	return Clock{
		Now:    time.Now,
		Uptime: uptime,
		Synced: func() bool { return time.Now().After(built()) && disciplined(root) },
		BootID: strings.TrimSpace(string(id)),
	}
}

func uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// disciplined says whether something keeps the kernel's clock on time: STA_UNSYNC of include/uapi/linux/timex.h is set at
// boot and cleared by every time daemon. A sandbox may forbid even the look; then systemd-timesyncd's own mark counts.
func disciplined(root string) bool {
	var t unix.Timex // Modes 0: nothing is set
	_, err := unix.Adjtimex(&t)
	return judge(t.Status, err, root)
}

func judge(status int32, err error, root string) bool {
	if err == nil {
		return status&unix.STA_UNSYNC == 0
	}
	_, err = os.Stat(filepath.Join(root, "/run/systemd/timesync/synchronized"))
	return err == nil
}

// built is a time that no right clock is before: that of the last change to the program, else of this file.
func built() time.Time {
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if t, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil && t.After(at) {
				at = t
			}
		}
	}
	return at
}

// Stamp returns the present moment, for a result without a number.
func (c Clock) Stamp() Stamp {
	s := Stamp{Time: c.Now().UTC().Truncate(time.Millisecond), Clock: Unsynced, BootID: c.BootID,
		UptimeS: c.Uptime().Truncate(time.Millisecond).Seconds()}
	if c.Synced() {
		s.Clock = Synced
	}
	if !writable(s.Time) {
		s.Time, s.Clock = time.Unix(0, 0).UTC(), Unsynced
	}
	return s
}

// writable says whether RFC 3339 can write the time. What it cannot is no time of day.
func writable(t time.Time) bool { return t.Year() >= 0 && t.Year() <= 9999 }

// Age returns how long ago the result was stored. ok is false where that cannot be known: it needs the same boot, or the
// time of day trusted then and now.
func (c Clock) Age(s Stamp) (age time.Duration, ok bool) {
	if s.BootID != "" && s.BootID == c.BootID {
		return max(0, c.Uptime()-seconds(s.UptimeS)), true
	}
	if s.Clock != Synced || !c.Synced() {
		return 0, false
	}
	return max(0, c.Now().Sub(s.Time)), true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// moment says what time it was at an uptime of a boot.
type moment struct {
	BootID  string    `json:"boot_id"`
	Time    time.Time `json:"time"`
	UptimeS float64   `json:"uptime_s"`
}

// moments by boot.
type moments map[string]moment

// learn takes the latest of each boot: the longer a clock was kept on time, the better.
func (m moments) learn(k moment) {
	good := k.BootID != "" && k.UptimeS >= 0 && k.UptimeS <= maxUptimeS
	if good && (m[k.BootID].Time.IsZero() || k.UptimeS >= m[k.BootID].UptimeS) {
		m[k.BootID] = k
	}
}

// correct gives a result that was stored before the clock was set the time that it really was.
func (m moments) correct(s *Stamp) {
	k, ok := m[s.BootID]
	if s.Clock == Synced || !ok {
		return
	}
	at := k.Time.Add(seconds(s.UptimeS - k.UptimeS)).Truncate(time.Millisecond)
	if writable(at) {
		s.Time, s.Clock = at, Synced
	}
}

// with adds the present moment, where the clock can be trusted.
func (m moments) with(c Clock) moments {
	if now := c.Stamp(); now.Clock == Synced && m[now.BootID].Time.IsZero() {
		out := moments{}
		for _, k := range m {
			out.learn(k)
		}
		out.learn(moment{now.BootID, now.Time, now.UptimeS})
		return out
	}
	return m
}
