package cpu

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"linerate/appliance"
)

// Sensors read the health of the box. The zero Root is the running system. Not for several goroutines at once: load is the
// difference to the last Read.
type Sensors struct {
	Root string
	last map[int]times
}

// Read looks at everything. The first one knows no load.
func (s *Sensors) Read() appliance.Health {
	h := appliance.Health{TemperatureC: temperature(s.Root)}
	for i, p := range Policies(s.Root) {
		switch {
		case i == 0:
			h.Governor = p.Governor
		case h.Governor != p.Governor:
			h.Governor = "mixed"
		}
		if p.Current > 0 && (h.FrequencyKHz == nil || p.Current > *h.FrequencyKHz) {
			h.FrequencyKHz = new(p.Current)
		}
	}
	stat, _ := readFile(filepath.Join(s.Root, "/proc/stat"), 1<<20)
	now := parseStat(stat)
	h.CorePercent = load(s.last, now)
	if len(h.CorePercent) > 0 {
		h.BusiestCorePercent = new(slices.Max(h.CorePercent))
	}
	s.last = now
	return h
}

// times of a core since boot, in ticks.
type times struct {
	busy, idle uint64
}

// maxCores is more than any box has; it bounds what a strange /proc/stat can cost.
const maxCores = 1024

// parseStat reads the lines of single cores (proc_stat(5)). Time waiting for a disk is idle; guest time is in user
// already.
func parseStat(stat string) map[int]times {
	cores := map[int]times{}
	for line := range strings.Lines(stat) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[0], "cpu") {
			continue
		}
		core, err := strconv.Atoi(fields[0][len("cpu"):])
		if err != nil || core < 0 || core >= maxCores {
			continue
		}
		var t times
		for i, f := range fields[1:min(len(fields), 9)] {
			n, err := strconv.ParseUint(f, 10, 64)
			if err != nil {
				continue
			}
			if i == 3 || i == 4 {
				t.idle += n
			} else {
				t.busy += n
			}
		}
		cores[core] = t
	}
	return cores
}

// load returns the busy share of each core that is in both, in per cent, by number of the core. A core whose counters went
// backwards has just come online: it counts as idle.
func load(before, now map[int]times) []float64 {
	var out []float64
	for core := range maxCores {
		b, was := before[core]
		n, is := now[core]
		if !was || !is {
			continue
		}
		busy, idle := forward(b.busy, n.busy), forward(b.idle, n.idle)
		percent := 0.0
		if busy > 0 {
			percent = 100 * busy / (busy + idle)
		}
		out = append(out, percent)
	}
	return out
}

func forward(before, now uint64) float64 {
	if now < before {
		return 0
	}
	return float64(now - before)
}

// temperature returns the hottest of the sensors that are nearest to the cores, nil where there is none.
func temperature(root string) *float64 {
	var best *float64
	rank := -1
	look := func(path string, r int) {
		n, ok := number(path)
		if !ok || r < rank {
			return
		}
		c := float64(n) / 1000
		if n > -200 && n < 200 {
			c = float64(n) // old drivers of Allwinner give degrees
		}
		if c < -55 || c > 150 || n == 0 {
			return // what an unconnected sensor says
		}
		if r > rank || best == nil || c > *best {
			best, rank = new(c), r
		}
	}
	for _, zone := range entries(filepath.Join(root, "/sys/class/thermal"), "thermal_zone") {
		kind, _ := attribute(filepath.Join(zone, "type"))
		look(filepath.Join(zone, "temp"), zoneRank(kind))
	}
	for _, chip := range entries(filepath.Join(root, "/sys/class/hwmon"), "hwmon") {
		name, _ := attribute(filepath.Join(chip, "name"))
		if slices.Contains([]string{"coretemp", "k10temp", "zenpower", "cpu_thermal"}, name) {
			for _, input := range entries(chip, "temp") {
				if strings.HasSuffix(input, "_input") {
					look(input, rankCPU)
				}
			}
		}
	}
	return best
}

// How near a sensor is to the cores.
const (
	rankOther = iota
	rankSoC
	rankCPU
)

// zoneRank judges a thermal zone by its type: cpu-thermal (RK3568, Raspberry Pi), bigcore0-thermal and package-thermal
// (RK3588), x86_pkg_temp; soc-thermal; anything but what is a part of its own.
func zoneRank(kind string) int {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(kind), w) })
	}
	switch {
	case has("cpu", "core", "pkg", "package"):
		return rankCPU
	case has("soc"):
		return rankSoC
	case has("battery", "charger", "wifi", "wlan", "nvme", "modem"):
		return -2 // below every rank: never taken
	}
	return rankOther
}
