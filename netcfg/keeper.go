package netcfg

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"time"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/netcfg/manager"
)

// Keeper changes the ports. It needs CAP_NET_ADMIN (and CAP_NET_RAW to tell neighbours of an address that moved).
type Keeper struct {
	dir    string
	runDir string
	log    *slog.Logger
	do     func(Step) error // on the running system

	managers []manager.Manager

	mu    sync.Mutex
	past  *originals // where the folder cannot be written to: lost at the end of the process, better than never known
	done  []Done
	owned map[string]map[int]manager.Owner // by manager, when it last answered

	timer    rollbackStarter
	bootRoot string // of /boot, for tests
	answers  []Answer
	others   map[string][]string // see Tell
	said     *Status             // the last one
}

// rollbackStarter starts and stops the unit that takes a change back.
type rollbackStarter interface {
	Restart(ctx context.Context, unit string) error
	Stop(ctx context.Context, unit string) error
}

// NewKeeper keeps what was found before the first change in dir, which is made when it is needed, and says in runDir
// what it did. A nil log discards.
func NewKeeper(dir, runDir string, log *slog.Logger) *Keeper {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	managers := manager.Managers()
	return &Keeper{dir: dir, runDir: runDir, log: log, do: doer{log: log.Warn, managers: managers}.do, managers: managers,
		owned: map[string]map[int]manager.Owner{}, timer: &manager.Systemd{}, bootRoot: "/"}
}

// Report is what became of a plan.
type Report struct {
	Done   []Step    `json:"done"`
	Failed []Failure `json:"failed"`
	Undone []Step    `json:"undone"` // done, and needed again right after: somebody else wants it otherwise
	Notes  []string  `json:"notes"`

	Warnings []string `json:"warnings,omitempty"` // of Restore: what a person must know
	Faults   []string `json:"not_applicable"`     // what is asked for and does not exist here
	Seen     Seen     `json:"-"`                  // afterwards

	leases []appliance.Port
}

func newReport(p Plan) Report {
	return Report{leases: p.leases, Warnings: p.warnings, Notes: p.Notes, Faults: p.Faults, Done: []Step{}, Failed: []Failure{}, Undone: []Step{}}
}

// Good says whether all holds that can.
func (r Report) Good() bool { return len(r.Failed) == 0 && len(r.Undone) == 0 }

// Text is the report for a person, a line each.
func (r Report) Text() string {
	var b strings.Builder
	for _, s := range r.Done {
		fmt.Fprintln(&b, s.Text)
	}
	if len(r.Done) == 0 && r.Good() {
		fmt.Fprintln(&b, "nothing to change")
	}
	for _, n := range r.Notes {
		fmt.Fprintln(&b, "note:", n)
	}
	return b.String()
}

// Errors lists what went wrong, a line each: failures, then what was undone, then what does not exist.
func (r Report) Errors() []string {
	var out []string
	for _, f := range r.Failed {
		out = append(out, f.Text)
	}
	for _, s := range r.Undone {
		out = append(out, s.undone())
	}
	return append(out, r.Faults...)
}

// undone says of a step that it was of no use.
func (s Step) undone() string {
	return fmt.Sprintf("%s: was undone at once%s: tell it that the port is not its own", s.Text, by(suspects()))
}

// Plan says what Apply would do, and changes nothing. With a root other than "/" it judges that tree, as far as its
// sysfs tells.
func (k *Keeper) Plan(root string, w Wanted) (Plan, error) {
	seen, err := Look(root, w)
	if err != nil {
		return Plan{}, err
	}
	var past originals
	if seen.live {
		seen.observe()
		k.ask(context.Background(), &seen)
		if past, err = k.load(); err != nil {
			seen.Faults = append(seen.Faults, err.Error())
		}
	}
	return makePlan(seen, w, past), nil
}

// Apply makes the ports as they are wanted, once. It goes on after failures, which the Report holds; an error means
// that nothing could even be looked at.
func (k *Keeper) Apply(ctx context.Context, w Wanted) (Report, error) {
	unlock, err := k.lock(ctx)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	if err := os.Remove(filepath.Join(k.dir, heldFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("could not forget that everything was put back as found", "error", err)
	}
	k.writeBoots(boots{Boot: bootID(), Ended: true}) // whoever asks for this leaves the safe mode
	r, err := k.apply(ctx, newLooker("/"), w, false, func(steps []Step) []Step { return steps })
	if err == nil {
		err = k.verify(ctx, w, &r)
		k.report(r, false)
	}
	return r, err
}

// apply looks, plans, does what pass lets through, and looks again. After the boot a change that could cut off somebody
// is made on trial. The caller holds the lock.
func (k *Keeper) apply(ctx context.Context, eyes *looker, w Wanted, boot bool, pass func([]Step) []Step) (Report, error) {
	seen, err := eyes.look(w)
	if err != nil {
		return Report{}, err
	}
	seen.observe()
	k.ask(ctx, &seen)
	past, err := k.load()
	keep := err == nil // a file that cannot be used is not written over: it may hold what a person can still read
	plan := makePlan(seen, w, past)
	r := newReport(plan)
	r.Seen = seen
	if err != nil {
		r.Failed = append(r.Failed, Failure{Text: err.Error(), err: err})
	}
	steps := pass(plan.Steps)
	if len(steps) == 0 {
		return r, nil
	}
	if !boot && !seen.managed.trial && !k.trusted(w) {
		if peers := atRisk(seen, steps, connections()); len(peers) > 0 {
			_, note, err := k.beginTrial(ctx, w, peers, seen.boot)
			if err != nil {
				r.Failed = append(r.Failed, Failure{Text: err.Error(), err: err})
				return r, nil
			}
			seen.managed.trial = true
			plan = makePlan(seen, w, past)
			r.Notes = append(plan.Notes, fmt.Sprintf("a connection of %v could be cut off: `linerate confirm` from a new one "+
				"keeps the change, else everything is put back as found in %v", peers[0].Peer.Addr(), ConfirmWithin))
			if note != "" {
				r.Notes = append(r.Notes, note)
			}
			steps = pass(plan.Steps)
		}
	}
	if keep {
		if err := k.save(plan.saves); err != nil {
			r.Failed = append(r.Failed, Failure{Text: err.Error(), err: err})
		}
	}
	done, failed := k.run(steps)
	r.Done, r.Failed = append(r.Done, done...), append(r.Failed, failed...)
	if r.Seen, err = eyes.look(w); err != nil {
		return r, err
	}
	k.ask(ctx, &r.Seen)
	again := makePlan(r.Seen, w, plan.saves)
	r.leases = again.leases
	for _, n := range again.Notes {
		if !slices.Contains(r.Notes, n) {
			r.Notes = append(r.Notes, n)
		}
	}
	for _, s := range again.Steps {
		if slices.ContainsFunc(done, s.same) {
			r.Undone = append(r.Undone, s)
		}
	}
	return r, nil
}

// Restore puts everything back as it was before the first change, and leaves a mark that a running keeper minds: it
// keeps its hands off until the config differs or Apply is called. What could not be put back is in the Report, and is
// tried again by the next call.
func (k *Keeper) Restore(ctx context.Context, w Wanted) (Report, error) {
	unlock, err := k.lock(ctx)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	r, err := k.restore(ctx, w, w.hash(), heldNote)
	if err != nil {
		return r, err
	}
	return r, k.endTrial(ctx)
}

// restore puts everything back and leaves the mark for the config with this hash. The caller holds the lock.
func (k *Keeper) restore(ctx context.Context, w Wanted, hash, why string) (Report, error) {
	past, err := k.load()
	if err != nil {
		return Report{}, err
	}
	// The mark comes first: a keeper that runs would undo each step.
	if err := k.hold(hash, why); err != nil {
		return Report{}, fmt.Errorf("mark that everything is put back: %w; nothing was changed", err)
	}
	eyes := newLooker("/")
	seen, err := eyes.look(past.names(w))
	if err != nil {
		return Report{}, err
	}
	seen.Faults = nil
	k.ask(ctx, &seen)
	plan := restorePlan(seen, past)
	r := newReport(plan)
	done, failed := k.run(plan.Steps)
	r.Done, r.Failed = append(r.Done, done...), append(r.Failed, failed...)
	r.Failed = append(r.Failed, k.awaitBridges(ctx, eyes, w, past, seen)...)
	if r.Seen, err = eyes.look(w); err != nil {
		return r, err
	}
	k.ask(ctx, &r.Seen)
	if len(r.Failed) == 0 && len(r.Faults) == 0 {
		if err := os.Remove(filepath.Join(k.dir, originalsFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.Faults = append(r.Faults, fmt.Sprintf("forget what was found: %v: remove it by hand", err))
		}
		k.mu.Lock()
		k.past = nil
		k.mu.Unlock()
	}
	k.report(r, true)
	return r, nil
}

// names adds the ports that were kept to those that are wanted, so that one without a device is looked at though the
// config names it no more.
func (o originals) names(w Wanted) Wanted {
	w.Ports.Select = slices.Clone(w.Ports.Select)
	for _, p := range o.Ports {
		w.Ports.Select = append(w.Ports.Select, p.Name)
	}
	return w
}

func (k *Keeper) run(steps []Step) (done []Step, failed []Failure) {
	done, failed = run(steps, k.do)
	now := time.Now()
	for _, s := range done {
		k.log.Info(s.Text)
	}
	for _, f := range failed {
		k.log.Error(f.Text)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range done {
		k.done = append(k.done, Done{now, s})
	}
	k.done = k.done[max(0, len(k.done)-maxDone):]
	return done, failed
}

// report writes netcfg.json where it differs from what is there.
func (k *Keeper) report(r Report, held bool) {
	k.mu.Lock()
	s := Status{
		Time: time.Now(), Manager: r.Seen.managerNames(), Held: held, Ports: r.Seen.Ports, Done: slices.Clone(k.done),
		Failed: r.Failed, NotApplicable: r.Faults, Notes: r.Notes, Answers: slices.Clone(k.answers), Safe: k.Safe(),
	}
	k.mu.Unlock()
	if t := k.readTrial(); t != nil {
		s.Change = &Change{Until: t.Until, Text: "a change of the network waits to be confirmed"}
	}
	for _, step := range r.Undone {
		s.Failed = append(s.Failed, Failure{Step: step, Port: step.Port, Text: step.undone()})
	}
	k.write(func() Status { return s })
}

// Tell adds what another part of the same process could not do to netcfg.json, a line each; none takes it away again. It
// stays over all that the Keeper writes.
func (k *Keeper) Tell(part string, lines []string) {
	k.mu.Lock()
	if k.others == nil {
		k.others = map[string][]string{}
	}
	if slices.Equal(k.others[part], lines) {
		k.mu.Unlock()
		return
	}
	k.others[part] = slices.Clone(lines)
	k.mu.Unlock()
	k.write(func() Status {
		if k.said == nil {
			return Status{Time: time.Now(), Manager: manager.None{}.Name()}
		}
		return *k.said
	})
}

// write replaces netcfg.json where it differs from what is there. make is called with the keeper's mutex held.
func (k *Keeper) write(content func() Status) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := content()
	s.Other = nil
	for _, part := range slices.Sorted(maps.Keys(k.others)) {
		s.Other = append(s.Other, k.others[part]...)
	}
	k.said = &s
	if old, err := ReadStatus(k.runDir); err == nil && sameStatus(old, s) {
		return
	}
	err := os.MkdirAll(k.runDir, 0o755)
	if err == nil {
		err = writeStatus(k.runDir, s)
	}
	if err != nil {
		k.log.Warn("could not write what was done", "error", err)
	}
}

// load reads the originals, else those that could not be written.
func (k *Keeper) load() (originals, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.past != nil {
		return *k.past, nil
	}
	var o originals
	err := o.load(k.dir)
	return o, err
}

func (k *Keeper) save(o originals) error {
	err := os.MkdirAll(k.dir, 0o755)
	if err == nil {
		err = o.save(k.dir)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.past = nil
	if err != nil {
		k.past = &o
		return fmt.Errorf("keep what was found before the first change: %w: make room in %s, or --restore cannot put it "+
			"back after a restart", err, k.dir)
	}
	return nil
}

const (
	heldFile    = "held"
	lockFile    = "lock"
	lockTimeout = 30 * time.Second
)

// lock keeps two processes from changing the ports at once. Where there can be no lock file there is no lock.
func (k *Keeper) lock(ctx context.Context) (unlock func(), err error) {
	nothing := func() {}
	if err := os.MkdirAll(k.dir, 0o755); err != nil {
		return nothing, nil
	}
	f, err := os.OpenFile(filepath.Join(k.dir, lockFile), os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nothing, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nothing, nil
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("another linerate netcfg is changing the ports (it holds %s): try again when it "+
				"is done", f.Name())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// hold marks that everything was put back under the config with this hash, and why.
func (k *Keeper) hold(hash, why string) error {
	if err := os.MkdirAll(k.dir, 0o755); err != nil {
		return err
	}
	return writeFile(filepath.Join(k.dir, heldFile), []byte(hash+"\n"+why+"\n"), 0o644, true)
}

// held says why everything is left alone: it was put back under this config. "" where it was not, or the config differs.
func (k *Keeper) held(w Wanted) (why string) {
	b, err := readRegular(filepath.Join(k.dir, heldFile), 4096)
	if err != nil {
		return ""
	}
	hash, why, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	if hash != w.hash() {
		return ""
	}
	return cmp.Or(why, heldNote)
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// hash tells one config of the ports from another.
func (w Wanted) hash() string {
	b, err := json.Marshal(struct {
		Board string
		Ports any
		Port  any
	}{w.Board.Name, w.Ports, w.Port})
	if err != nil {
		return "" // nothing in it can fail
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
