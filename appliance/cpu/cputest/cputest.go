// Package cputest lays out the part of /sys and /proc that package cpu reads, as files in a folder, for tests and for the
// demo. Files take what is written to them; the kernel's rules are not played.
package cputest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Policy is one cpufreq policy. Frequencies are in kHz.
type Policy struct {
	First      int // core; the policy is named after it
	Cores      int
	Governor   string
	Governors  string // space between them
	Min, Max   int    // limits in force
	Least      int    // that the hardware can do
	Most       int
	NoList     bool // leave scaling_available_governors out, as some drivers do
	CurrentKHz int  // 0: Max
}

// Box is a processor and its sensors.
type Box struct {
	Policies []Policy
	Zones    map[string]string // type of a thermal zone -> content of its temp, in millidegrees
	Stat     string            // /proc/stat
	BootID   string
}

// NanoPiR5S has one policy for its four cores, on a governor that is slow to answer.
func NanoPiR5S() Box {
	return Box{
		Policies: []Policy{{
			Cores: 4, Governor: "conservative", Governors: "conservative ondemand userspace powersave performance schedutil",
			Min: 600000, Max: 1992000, Least: 408000, Most: 1992000, CurrentKHz: 600000,
		}},
		Zones:  map[string]string{"cpu-thermal": "46111", "gpu-thermal": "44444"},
		Stat:   Stat(make([]uint64, 4), make([]uint64, 4)),
		BootID: "r5s",
	}
}

// NanoPiR6S is big.LITTLE: four small cores and two pairs of large ones, each with a policy.
func NanoPiR6S() Box {
	all := "ondemand performance schedutil powersave"
	return Box{
		Policies: []Policy{
			{Cores: 4, Governor: "ondemand", Governors: all, Min: 408000, Max: 1800000, Least: 408000, Most: 1800000},
			{First: 4, Cores: 2, Governor: "ondemand", Governors: all, Min: 408000, Max: 2208000, Least: 408000, Most: 2304000},
			{First: 6, Cores: 2, Governor: "schedutil", Governors: all, Min: 408000, Max: 2304000, Least: 408000, Most: 2304000},
		},
		Zones: map[string]string{
			"package-thermal": "45307", "bigcore0-thermal": "47153", "littlecore-thermal": "46230", "npu-thermal": "60000",
		},
		Stat:   Stat(make([]uint64, 8), make([]uint64, 8)),
		BootID: "r6s",
	}
}

// Stat writes /proc/stat with these ticks of each core.
func Stat(busy, idle []uint64) string {
	var b strings.Builder
	b.WriteString("cpu  0 0 0 0 0 0 0 0 0 0\n")
	for i := range busy {
		fmt.Fprintf(&b, "cpu%d %d 0 0 %d 0 0 0 0 0 0\n", i, busy[i], idle[i])
	}
	b.WriteString("intr 0\nctxt 0\nbtime 0\n")
	return b.String()
}

// Path of a file of a policy below root.
func Path(root string, policy int, file string) string {
	return filepath.Join(root, "sys/devices/system/cpu/cpufreq", fmt.Sprintf("policy%d", policy), file)
}

// Lay writes the box below root.
func (b Box) Lay(root string) error {
	files := map[string]string{
		filepath.Join(root, "proc/stat"):                      b.Stat,
		filepath.Join(root, "proc/sys/kernel/random/boot_id"): b.BootID,
	}
	for _, p := range b.Policies {
		current := p.CurrentKHz
		if current == 0 {
			current = p.Max
		}
		for file, value := range map[string]any{
			"scaling_governor": p.Governor, "scaling_min_freq": p.Min, "scaling_max_freq": p.Max, "scaling_cur_freq": current,
			"cpuinfo_min_freq": p.Least, "cpuinfo_max_freq": p.Most, "affected_cpus": cores(p),
		} {
			files[Path(root, p.First, file)] = fmt.Sprint(value)
		}
		if !p.NoList {
			files[Path(root, p.First, "scaling_available_governors")] = p.Governors + " "
		}
	}
	for i, kind := range slices.Sorted(maps.Keys(b.Zones)) {
		zone := filepath.Join(root, "sys/class/thermal", fmt.Sprintf("thermal_zone%d", i))
		files[filepath.Join(zone, "type")], files[filepath.Join(zone, "temp")] = kind, b.Zones[kind]
	}
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func cores(p Policy) string {
	words := make([]string, p.Cores)
	for i := range words {
		words[i] = fmt.Sprint(p.First + i)
	}
	return strings.Join(words, " ")
}

// Simulate lays a NanoPi R5S below root and keeps its sensors moving until ctx ends: load is this machine's, and
// temperature and clock follow it.
func Simulate(ctx context.Context, root string) error {
	if err := NanoPiR5S().Lay(root); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	warmth, start := 0.0, time.Now()
	for {
		if stat, err := os.ReadFile("/proc/stat"); err == nil {
			if err := replace(filepath.Join(root, "proc/stat"), string(stat)); err != nil {
				return err
			}
		}
		load, _ := os.ReadFile("/proc/loadavg")
		var busy float64
		fmt.Sscan(string(load), &busy)
		warmth += (min(busy, 4)*6 - warmth) / 20
		temp := 44 + warmth + math.Sin(time.Since(start).Seconds()/30)
		zone := filepath.Join(root, "sys/class/thermal/thermal_zone0/temp")
		if err := replace(zone, fmt.Sprintf("%.0f\n", temp*1000)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// replace lets no reader see half a file.
func replace(path, content string) error {
	if err := os.WriteFile(path+".new", []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
