package netcfg

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// holdFor is how long it is watched that nobody undoes what was done: networkd puts a port back within a second.
const holdFor = 5 * time.Second

// verify watches whether what was told to a manager holds, and adds to the report what does not. Without a manager the
// kernel has done it, and there is nothing to wait for.
func (k *Keeper) verify(ctx context.Context, w Wanted, r *Report) error {
	if !slices.ContainsFunc(r.Done, func(s Step) bool { return s.manager != "" }) {
		return nil
	}
	eyes := newLooker("/")
	return k.each(ctx, holdFor, func() (bool, error) {
		seen, err := eyes.look(w)
		if err != nil {
			return false, err
		}
		seen.observe()
		k.ask(ctx, &seen)
		past, err := k.load()
		if err != nil {
			return false, err
		}
		r.Seen = seen
		for _, s := range makePlan(seen, w, past).Steps {
			if slices.ContainsFunc(r.Done, s.same) && !slices.ContainsFunc(r.Undone, s.same) {
				r.Undone = append(r.Undone, s)
			}
		}
		return len(r.Undone) > 0, nil
	})
}

// awaitBridges waits until the managers have put the ports back that were kept, and says which they have not.
func (k *Keeper) awaitBridges(ctx context.Context, eyes *looker, w Wanted, past originals, before Seen) []Failure {
	var out []Failure
	err := k.each(ctx, holdFor, func() (bool, error) {
		out = nil
		seen, err := eyes.look(past.names(w))
		if err != nil {
			return false, err
		}
		for _, kept := range past.Ports {
			port, ok := find(seen, kept)
			owner, owned := before.managed.owners[port.Name]
			if !ok || !owned || kept.Bridge == "" || port.Master == kept.Bridge {
				continue
			}
			out = append(out, Failure{Port: port.Name, Text: fmt.Sprintf("%s: %s has not put it back into %s within %v: "+
				"see `systemctl status %[2]s`", port.Name, owner.Manager, kept.Bridge, holdFor)})
		}
		return len(out) == 0, nil
	})
	if err != nil {
		out = append(out, Failure{Text: err.Error(), err: err})
	}
	return out
}

// each calls look at the start, after each change that the kernel reports, and at the end of the time; it ends before
// when look says that there is no more to see.
func (k *Keeper) each(ctx context.Context, long time.Duration, look func() (end bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	changes, ended, err := subscribe(ctx, k.log, receiveBuffer)
	if err != nil {
		return err
	}
	for {
		if end, err := look(); end || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			_, err := look()
			return err
		case err := <-ended:
			return err
		case <-changes:
			select {
			case <-ctx.Done():
			case <-time.After(Settle):
			}
		}
	}
}
