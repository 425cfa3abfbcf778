package cpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"linerate/appliance/config"
)

// originalsFile in the folder of originals.
const originalsFile = "cpu.json"

// Control sets governor and clock limits.
type Control struct {
	root string
	dir  string
	log  *slog.Logger

	mu   sync.Mutex
	said map[string]bool
}

// NewControl returns a Control of the system below root that keeps its originals in dir, which Apply makes where it is
// missing. A nil log is none.
func NewControl(root, dir string, log *slog.Logger) *Control {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Control{root: root, dir: dir, log: log, said: map[string]bool{}}
}

// Outcome is what was done, or would be, and what does not apply here. Notes are no errors: they stay as long as config
// and hardware do.
type Outcome struct {
	Changes []Change `json:"changes"`
	Notes   []string `json:"notes"`
}

// noCpufreq is the note of a box whose clock is fixed, or kept by firmware or a hypervisor.
const noCpufreq = "no cpufreq: governor and clock are not the kernel's to set here"

// Plan says what Apply would do, and changes nothing.
func (c *Control) Plan(want config.CPU) (Outcome, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	had, err := c.load()
	if err != nil {
		return Outcome{}, err
	}
	return c.plan(had.Policies, want), nil
}

func (c *Control) plan(had knobs, want config.CPU) Outcome {
	policies := Policies(c.root)
	if len(policies) == 0 {
		return Outcome{Changes: []Change{}, Notes: []string{noCpufreq}}
	}
	changes, notes := plan(policies, had, want)
	return Outcome{changes, notes}
}

// Apply makes every policy as wanted. It goes on where one value cannot be set; the error then names each of them. Where
// the originals cannot be kept, nothing is changed.
func (c *Control) Apply(want config.CPU) (Outcome, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	had, err := c.load()
	if err != nil {
		return Outcome{}, err
	}
	out := c.plan(had.Policies, want)
	c.say(out.Notes)
	for _, ch := range out.Changes {
		k, ours := had.Policies.get(ch.Policy, ch.File)
		if !ours {
			k.Original = ch.From
		}
		if !ch.restore && !slices.Contains(k.Ours, ch.To) {
			k.Ours = append(k.Ours, ch.To)
		}
		had.Policies.set(ch.Policy, ch.File, k)
	}
	if len(out.Changes) > 0 {
		if err := c.save(had); err != nil {
			return Outcome{Notes: out.Notes}, fmt.Errorf("cpu left as it is, since what it was cannot be kept: %w", err)
		}
	}
	out.Changes, err = c.do(out.Changes, had)
	return out, err
}

// Restore puts everything back as it was before our first change in this boot.
func (c *Control) Restore() (Outcome, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	had, err := c.load()
	if err != nil {
		return Outcome{}, err
	}
	changes, err := c.do(restorePlan(Policies(c.root), had.Policies), had)
	if err != nil {
		return Outcome{changes, []string{}}, err
	}
	if err := os.Remove(c.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Outcome{changes, []string{}}, fmt.Errorf("forget the originals: %w", err)
	}
	return Outcome{changes, []string{}}, nil
}

// do writes the changes and forgets the originals that are in force again. It returns those that were made.
func (c *Control) do(changes []Change, had originals) (done []Change, err error) {
	done = []Change{}
	fail := func(next error) {
		if err != nil {
			next = fmt.Errorf("%w; %w", err, next) // one line, however many
		}
		err = next
	}
	forgot := false
	for _, ch := range changes {
		if err := write(filepath.Join(policyDir(c.root), ch.Policy, ch.File), ch.To); err != nil {
			fail(err)
			continue
		}
		done = append(done, ch)
		c.log.Info("cpu set", "policy", ch.Policy, "file", ch.File, "from", ch.From, "to", ch.To)
		if ch.restore {
			had.Policies.drop(ch.Policy, ch.File)
			forgot = true
		}
	}
	if forgot {
		if err := c.save(had); err != nil {
			fail(fmt.Errorf("forget the originals: %w", err))
		}
	}
	return done, err
}

// say logs each note once.
func (c *Control) say(notes []string) {
	for _, n := range notes {
		if !c.said[n] {
			c.log.Info("cpu: not applicable here", "note", n)
		}
	}
	maps.DeleteFunc(c.said, func(n string, _ bool) bool { return !slices.Contains(notes, n) })
	for _, n := range notes {
		c.said[n] = true
	}
}

// originals is the file that outlives us.
type originals struct {
	BootID   string `json:"boot_id"` // sysfs begins anew at each boot
	Policies knobs  `json:"policies"`
}

func (c *Control) file() string { return filepath.Join(c.dir, originalsFile) }

func (c *Control) bootID() string {
	id, _ := attribute(filepath.Join(c.root, "/proc/sys/kernel/random/boot_id"))
	return id
}

// load returns the originals of this boot; empty where nothing was changed yet.
func (c *Control) load() (originals, error) {
	none := originals{BootID: c.bootID(), Policies: knobs{}}
	text, err := readFile(c.file(), 256<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return originals{}, fmt.Errorf("read the originals: %w", err)
	}
	var o originals
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&o); err != nil {
		return originals{}, fmt.Errorf("%s, which says how the cpu was before, cannot be read: "+
			"remove it to keep the cpu as it is now: %w", c.file(), err)
	}
	if o.BootID != none.BootID || o.Policies == nil {
		return none, nil
	}
	return o, nil
}

func (c *Control) save(o originals) error {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return err
	}
	return config.WriteFile(c.file(), append(b, '\n'), 0o644)
}
