package cpu

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/appliance/cpu/cputest"
)

func lay(t *testing.T, b cputest.Box) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := b.Lay(root); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestRead(t *testing.T) {
	root := lay(t, cputest.NanoPiR6S())
	s := Sensors{Root: root}
	got := s.Read()
	want := appliance.Health{TemperatureC: new(47.153), Governor: "mixed", FrequencyKHz: new(2304000)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	b := cputest.NanoPiR6S()
	b.Stat = cputest.Stat([]uint64{50, 0, 100, 0, 0, 0, 0, 1}, []uint64{50, 100, 0, 0, 9, 9, 9, 3})
	if err := b.Lay(root); err != nil {
		t.Fatal(err)
	}
	got = s.Read()
	if diff := cmp.Diff([]float64{50, 0, 100, 0, 0, 0, 0, 25}, got.CorePercent); diff != "" || *got.BusiestCorePercent != 100 {
		t.Errorf("load (-want +got):\n%s", diff)
	}
	empty := Sensors{Root: t.TempDir()}
	if diff := cmp.Diff(appliance.Health{}, empty.Read()); diff != "" {
		t.Errorf("a box that says nothing (-want +got):\n%s", diff)
	}
}

func TestReadThisMachine(t *testing.T) {
	s := Sensors{}
	s.Read()
	h := s.Read()
	if len(h.CorePercent) == 0 || h.BusiestCorePercent == nil {
		t.Fatalf("%+v", h)
	}
	for _, p := range h.CorePercent {
		if p < 0 || p > 100 {
			t.Errorf("a core is %v %% busy", p)
		}
	}
}

func TestTemperature(t *testing.T) {
	for _, c := range []struct {
		name  string
		zones map[string]string
		want  string
	}{
		{"Raspberry Pi", map[string]string{"cpu-thermal": "51121"}, "51.121"},
		{"RK3568: the cores, not the GPU", map[string]string{"cpu-thermal": "45000", "gpu-thermal": "60000"}, "45"},
		{"RK3588 vendor kernel", map[string]string{"soc-thermal": "41000", "bigcore0-thermal": "43500", "littlecore-thermal": "42000"}, "43.5"},
		{"only the chip", map[string]string{"soc-thermal": "41000", "gpu-thermal": "70000"}, "41"},
		{"PC", map[string]string{"acpitz": "27800", "x86_pkg_temp": "55000", "iwlwifi_1": "61000"}, "55"},
		{"nothing near", map[string]string{"acpitz": "27800"}, "27.8"},
		{"only a battery", map[string]string{"battery": "30000"}, "unknown"},
		{"degrees", map[string]string{"cpu_thermal": "52"}, "52"},
		{"below zero", map[string]string{"cpu-thermal": "-12500"}, "-12.5"},
		{"absurd", map[string]string{"cpu-thermal": "2147483647", "soc-thermal": "40000"}, "40"},
		{"not connected", map[string]string{"cpu-thermal": "-273000"}, "unknown"},
		{"no number", map[string]string{"cpu-thermal": "warm"}, "unknown"},
		{"empty", map[string]string{"cpu-thermal": ""}, "unknown"},
	} {
		got := "unknown"
		if temp := temperature(lay(t, cputest.Box{Zones: c.zones})); temp != nil {
			got = fmt.Sprint(*temp)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTemperatureOfAChip(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"hwmon0/name": "nvme", "hwmon0/temp1_input": "70000",
		"hwmon1/name": "coretemp", "hwmon1/temp1_input": "48000", "hwmon1/temp2_input": "51000", "hwmon1/temp2_crit": "100000",
	} {
		path := filepath.Join(root, "sys/class/hwmon", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := temperature(root); got == nil || *got != 51 {
		t.Errorf("temperature %v, want 51", got)
	}
}

func TestLoad(t *testing.T) {
	for _, c := range []struct {
		name        string
		before, now string
		want        []float64
	}{
		{"all fields", "cpu0 1 1 1 10 10 1 1 1 500 500", "cpu0 2 2 2 13 13 2 2 2 600 600", []float64{50}},
		{"nothing passed", "cpu0 1 1 1 10", "cpu0 1 1 1 10", []float64{0}},
		{"iowait went back", "cpu0 10 0 0 10 5", "cpu0 25 0 0 30 0", []float64{50}},
		{"came online", "cpu0 1 0 0 1", "cpu0 2 0 0 2\ncpu1 100 0 0 0", []float64{50}},
		{"was offline and counts anew", "cpu0 1 0 0 1\ncpu1 500 0 0 500", "cpu0 2 0 0 2\ncpu1 1 0 0 600", []float64{50, 0}},
		{"many cores, in order", "cpu10 0 0 0 0\ncpu2 0 0 0 0", "cpu10 1 0 0 0\ncpu2 0 0 0 1", []float64{0, 100}},
		{"nonsense", "cpu0 a b c d\ncpu-1 1 1 1 1\ncpu99999 1 1 1 1\ncpu0", "cpu0 x 0 0 1\nxyz\n\n", []float64{0}},
	} {
		got := load(parseStat(c.before), parseStat(c.now))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestNotable(t *testing.T) {
	base := func() appliance.Health {
		return appliance.Health{TemperatureC: new(50.0), Governor: "performance", FrequencyKHz: new(1992000), CorePercent: []float64{10, 20}}
	}
	for _, c := range []struct {
		name   string
		change func(*appliance.Health)
		want   bool
	}{
		{"nothing", func(*appliance.Health) {}, false},
		{"a little of everything", func(h *appliance.Health) {
			*h = appliance.Health{TemperatureC: new(50.9), Governor: "performance", FrequencyKHz: new(1900000), CorePercent: []float64{19, 11}}
		}, false},
		{"a degree", func(h *appliance.Health) { h.TemperatureC = new(49.0) }, true},
		{"sensor gone", func(h *appliance.Health) { h.TemperatureC = nil }, true},
		{"governor", func(h *appliance.Health) { h.Governor = "mixed" }, true},
		{"clock", func(h *appliance.Health) { h.FrequencyKHz = new(1800000) }, true},
		{"a core", func(h *appliance.Health) { h.CorePercent = []float64{10, 30} }, true},
		{"a core more", func(h *appliance.Health) { h.CorePercent = []float64{10, 20, 0} }, true},
	} {
		h := base()
		c.change(&h)
		if got := notable(base(), h); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestWatch(t *testing.T) {
	root := lay(t, cputest.NanoPiR5S())
	synctest.Test(t, func(t *testing.T) {
		hub := appliance.NewHub(appliance.New("", "", "", config.Default()))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- Watch(root).Run(ctx, hub) }()
		seen := time.Time{}
		expect := func(what string, published bool, temp float64) {
			t.Helper()
			synctest.Wait()
			s := hub.State()
			if s.Health.TemperatureC == nil || math.Abs(*s.Health.TemperatureC-temp) > 1e-9 || s.Now.After(seen) != published {
				t.Errorf("%s: %v at %v", what, s.Health.TemperatureC, s.Now)
			}
			seen = s.Now
		}
		set := func(temp string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(root, "sys/class/thermal/thermal_zone0/temp"), []byte(temp), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		expect("at once", true, 46.111)
		time.Sleep(Interval)
		expect("the load is known now", true, 46.111)
		time.Sleep(10 * Interval)
		expect("nothing new", false, 46.111)
		set("46900\n")
		time.Sleep(Interval)
		expect("not worth a picture", false, 46.111)
		set("47200\n")
		time.Sleep(Interval)
		expect("slowly a degree", true, 47.2)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestSimulate(t *testing.T) {
	root := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- cputest.Simulate(ctx, root) }()
	s := Sensors{Root: root}
	deadline := time.Now().Add(20 * time.Second)
	for {
		h := s.Read()
		if h.TemperatureC != nil && len(h.CorePercent) > 0 && h.Governor == "conservative" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", h)
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// FuzzRead: whatever a tree says, what is read is within bounds, and what Apply would write is a value that the tree names.
func FuzzRead(f *testing.F) {
	f.Add("cpu0 1 2 3 4 5 6 7 8 9 10\n", "46111", "600000", "1992000", "performance schedutil")
	f.Add(cputest.Stat([]uint64{1, 2}, []uint64{3, 4}), "-1", "0", "-5", "")
	f.Add("cpu18446744073709551616 1\ncpu1 18446744073709551615 18446744073709551615 1 1", "9223372036854775807", "x", "", "a")
	root := f.TempDir()
	if err := (cputest.Box{Zones: map[string]string{"cpu-thermal": ""}, Policies: []cputest.Policy{{}}}).Lay(root); err != nil {
		f.Fatal(err)
	}
	stats := filepath.Join(root, "proc/stat")
	f.Fuzz(func(t *testing.T, stat, temp, low, high, governors string) {
		files := map[string]string{stats: stat, filepath.Join(root, "sys/class/thermal/thermal_zone0/temp"): temp}
		for file, value := range map[string]string{
			fileMin: low, fileLeast: low, fileMax: high, fileMost: high, fileCurrent: high, fileGovernors: governors,
		} {
			files[cputest.Path(root, 0, file)] = value
		}
		for path, content := range files {
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s := Sensors{Root: root}
		s.Read()
		if err := os.WriteFile(stats, []byte(strings.ReplaceAll(stat, "1", "2")), 0o644); err != nil {
			t.Fatal(err)
		}
		h := s.Read()
		for _, p := range h.CorePercent {
			if !(p >= 0 && p <= 100) {
				t.Errorf("%v %%", p)
			}
		}
		if c := h.TemperatureC; c != nil && !(*c >= -55 && *c <= 150) || h.FrequencyKHz != nil && *h.FrequencyKHz <= 0 {
			t.Errorf("%+v", h)
		}
		changes, _ := plan(Policies(root), knobs{}, config.CPU{Governor: "performance", MinFreq: config.FrequencyMax})
		for _, c := range changes {
			if n := fmt.Sprint(Policies(root)[0].Most); c.To != "performance" && c.To != n {
				t.Errorf("would write %q, want %s", c.To, n)
			}
		}
	})
}
