package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"linerate/appliance/results"
)

// cutter cuts the power of a small machine that writes results and settings, boots it again, and compares.
type cutter struct {
	kernel  *Kernel
	ramdisk string
	disk    *Disk
	chance  *rand.Rand

	stored  map[uint64]int64 // results that were confirmed, or seen on the disk: bytes by seq
	last    uint64           // the newest of them
	setting int              // the last one confirmed
	found   []string         // what was lost
}

// newCutter makes the machine with a guest that was built of this source, but for the files that overlay replaces.
func newCutter(t *testing.T, overlay map[string]string) *cutter {
	t.Helper()
	needs(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cache, err := Cache()
	if err != nil {
		t.Fatal(err)
	}
	a, err := openArchive(ctx, filepath.Join(cache, "apt"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{chance: newChance(t), stored: map[uint64]int64{}}
	if c.kernel, err = findKernel(ctx, a, cache); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	guest, starter := filepath.Join(dir, "guest"), filepath.Join(dir, "start")
	args := []string{"build", "-trimpath", "-o", guest}
	if overlay != nil {
		list, err := json.Marshal(map[string]any{"Replace": overlay})
		file := filepath.Join(dir, "overlay.json")
		if err := errors.Join(err, os.WriteFile(file, list, 0o644)); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-overlay", file)
	}
	build := exec.CommandContext(ctx, "go", append(args, "./powercut")...)
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, out)
	}
	const start = "#!/bin/busybox sh\nmkdir /data\nmount -t ext4 /dev/vda /data && exec shell /bin/powercut /data\npoweroff -f\n"
	if err := os.WriteFile(starter, []byte(start), 0o755); err != nil {
		t.Fatal(err)
	}
	c.ramdisk = filepath.Join(dir, "ramdisk")
	if err := writeRamdisk(c.ramdisk, c.kernel, bootModules, map[string]string{"bin/powercut": guest, "start": starter}); err != nil {
		t.Fatal(err)
	}
	empty, image := filepath.Join(dir, "empty"), filepath.Join(dir, "disk")
	if err := errors.Join(os.Mkdir(empty, 0o755), makeImage(ctx, empty, image, 64<<20)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if c.disk, err = OpenDisk(f, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// boot boots, compares what is on the disk with what was confirmed, lets it write for a while, and takes the power away.
func (c *cutter) boot(t *testing.T) {
	t.Helper()
	m, err := start(spec{kernel: c.kernel, ramdisk: c.ramdisk, disk: c.disk, cmdline: "console=ttyAMA0 quiet panic=-1",
		lifetime: 2 * time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Kill()
	if err := m.shell.conn.SetReadDeadline(time.Now().Add(90 * time.Second)); err != nil {
		t.Fatal(err)
	}
	here := map[uint64]int64{}
	setting, ready, wrote := 0, false, 0
	for {
		line, err := m.shell.in.ReadString('\n')
		if err != nil {
			if ready && errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			t.Fatalf("the machine stopped talking (%v), console:\n%s", err, m.Console())
		}
		f := strings.Fields(line)
		switch {
		case len(f) == 3 && (f[0] == "have" || f[0] == "result"):
			seq, bytes := number(t, f[1]), number(t, f[2])
			if f[0] == "have" {
				here[uint64(seq)] = bytes
				continue
			}
			c.stored[uint64(seq)], c.last = bytes, max(c.last, uint64(seq))
			wrote++
		case len(f) == 2 && f[0] == "setting":
			setting = int(number(t, f[1]))
		case len(f) == 2 && f[0] == "set":
			c.setting = int(number(t, f[1]))
		case len(f) == 1 && f[0] == "ready":
			ready = true
			c.compare(here, setting)
			// The moment of the cut.
			after := time.Duration(c.chance.Int64N(int64(1200 * time.Millisecond)))
			if err := m.shell.conn.SetReadDeadline(time.Now().Add(after)); err != nil {
				t.Fatal(err)
			}
		default:
			c.found = append(c.found, strings.TrimSpace(line))
			return
		}
	}
	m.Kill()
	// Nothing of the cache, all of it, or each sector by chance.
	c.disk.Cut(c.chance, []float64{0, 1, c.chance.Float64(), c.chance.Float64()}[c.chance.IntN(4)])
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// compare notes what was confirmed and is not there. What was being written when the power went may be there or not.
func (c *cutter) compare(here map[uint64]int64, setting int) {
	for seq, bytes := range c.stored {
		got, ok := here[seq]
		switch {
		case !ok && seq+results.MaxResults*9/10 < c.last: // the store lets go of the oldest
			delete(c.stored, seq)
		case !ok:
			c.found = append(c.found, fmt.Sprintf("result %d was confirmed and is lost", seq))
		case got != bytes:
			c.found = append(c.found, fmt.Sprintf("result %d has %d bytes, not %d", seq, got, bytes))
		}
	}
	for seq, bytes := range here {
		c.stored[seq], c.last = bytes, max(c.last, seq)
	}
	if setting != c.setting && setting != c.setting+1 && c.setting != 0 {
		c.found = append(c.found, fmt.Sprintf("the setting is %d, confirmed was %d", setting, c.setting))
	}
	c.setting = setting
}

// TestPowerCut takes the power away again and again while results and settings are written. LINERATE_CUTS says how often.
func TestPowerCut(t *testing.T) {
	c := newCutter(t, nil)
	cuts := 20
	if s := os.Getenv("LINERATE_CUTS"); s != "" {
		cuts = int(number(t, s))
	}
	since := time.Now()
	for n := range cuts + 1 {
		c.boot(t)
		if len(c.found) > 0 {
			t.Fatalf("after %d cuts: %s", n, strings.Join(c.found[:min(len(c.found), 5)], "; "))
		}
	}
	lost, flushes := c.disk.Lost()
	t.Logf("note: %d cuts in %s, %d results, setting at %d; %d flushes, %d sectors that were not flushed are lost", cuts,
		time.Since(since).Round(time.Second), c.last, c.setting, flushes, lost)
	if c.last < uint64(cuts) || lost == 0 {
		t.Errorf("only %d results were written and %d sectors lost: this proves nothing", c.last, lost)
	}
}

// TestPowerCutFindsWhatIsNotSynced holds that the test above would find a forgotten fsync, of either file.
func TestPowerCutFindsWhatIsNotSynced(t *testing.T) {
	needs(t)
	for _, file := range []string{"appliance/results/log.go", "appliance/config/write.go"} {
		t.Run(file, func(t *testing.T) {
			path, err := filepath.Abs(filepath.Join("../..", file))
			if err != nil {
				t.Fatal(err)
			}
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			forgotten := strings.NewReplacer("s.file.Sync()", "error(nil)", "f.Sync()", "error(nil)", "d.Sync()", "error(nil)").
				Replace(string(source))
			if forgotten == string(source) {
				t.Fatalf("%s has no Sync to forget", file)
			}
			other := filepath.Join(t.TempDir(), "forgotten.go")
			if err := os.WriteFile(other, []byte(forgotten), 0o644); err != nil {
				t.Fatal(err)
			}
			c := newCutter(t, map[string]string{path: other})
			const most = 15
			for n := range most {
				c.boot(t)
				if len(c.found) > 0 {
					t.Logf("note: found after %d cuts: %s", n, c.found[0])
					return
				}
			}
			t.Errorf("%d cuts lost nothing, though %s syncs nothing", most, file)
		})
	}
}
