package netcfg

import (
	"context"
	"slices"

	"linerate/appliance"
	"linerate/netcfg/manager"
)

// Early writes, before any network manager starts, what tells it to leave the ports out of their bridges, for those that
// have not appeared yet too. It touches no interface and asks nobody. What is there already stays, and so does all that
// is no bridge's: the keeper comes later and knows more.
func (k *Keeper) Early(ctx context.Context, w Wanted) (Report, error) {
	unlock, err := k.lock(ctx)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	seen, err := newLooker("/").look(w)
	if err != nil {
		return Report{}, err
	}
	seen.Faults = nil // a port that has not appeared is none
	if why := k.Safe(); why != "" {
		return k.standBack(seen, why)
	}
	if err := k.pastTrial(ctx, seen.boot); err != nil {
		return Report{}, err
	}
	if why := k.held(w); why != "" {
		return Report{Seen: seen, Notes: []string{why}}, nil
	}
	k.foresee(&seen, w)
	past, err := k.load()
	if err != nil {
		return Report{}, err
	}
	plan := makePlan(seen, w, past)
	plan.Steps = slices.DeleteFunc(plan.Steps, func(s Step) bool { return s.File == nil })
	r := newReport(plan)
	r.Seen, r.Notes = seen, []string{}
	if len(plan.Steps) == 0 {
		return r, nil
	}
	if err := k.save(plan.saves); err != nil {
		r.Failed = append(r.Failed, Failure{Text: err.Error(), err: err})
	}
	done, failed := k.run(plan.Steps)
	r.Done, r.Failed = append(r.Done, done...), append(r.Failed, failed...)
	return r, nil
}

// standBack takes our files away, so that the managers start as if we were not there.
func (k *Keeper) standBack(seen Seen, why string) (Report, error) {
	seen.managed = k.files(&seen)
	plan := Plan{Notes: []string{why}}
	plan.removeFiles(seen, originals{})
	r := newReport(plan)
	done, failed := k.run(plan.Steps)
	r.Seen, r.Done, r.Failed = seen, append(r.Done, done...), append(r.Failed, failed...)
	return r, nil
}

// pastTrial ends a change of an earlier boot that nobody confirmed: the restart took it back, and it is not made again.
func (k *Keeper) pastTrial(ctx context.Context, boot string) error {
	t := k.readTrial()
	if t == nil || t.Boot == boot {
		return nil
	}
	if err := k.hold(t.Hash, rolledBackNote); err != nil {
		return err
	}
	return k.endTrial(ctx)
}

// foresee takes the ports for those of the managers that will start and whose files put them into a bridge.
func (k *Keeper) foresee(s *Seen, w Wanted) {
	m := k.files(s)
	m.early = true
	for _, one := range k.managers {
		if !one.Starts() {
			continue
		}
		own, owner := one.Read(), manager.Owner{Manager: one.Name()}
		for _, p := range s.Ports {
			if _, taken := m.owners[p.Name]; taken || p.Master != "" {
				continue
			}
			if bridge := m.claim(own, m.candidate(p)); bridge != "" {
				m.owners[p.Name], m.owners[bridge] = owner, owner
			}
		}
		for _, role := range w.Board.Ports {
			there := slices.ContainsFunc(s.Ports, func(p appliance.Port) bool { return p.Role == role.Role })
			if there || !w.wantsAbsent(role) || len(placesOf(role)) == 0 {
				continue
			}
			if bridge := m.claim(own, manager.Candidate{}); bridge != "" {
				m.owners[bridge] = owner
				m.absent = append(m.absent, absent{role, one.Name(), bridge})
			}
		}
	}
	s.managed = m
}
