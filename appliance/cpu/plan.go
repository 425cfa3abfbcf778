package cpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"linerate/appliance/config"
)

// Change is one value to write.
type Change struct {
	Policy  string `json:"policy"` // policy0
	File    string `json:"file"`   // scaling_governor, scaling_min_freq or scaling_max_freq
	From    string `json:"from"`
	To      string `json:"to"`
	restore bool   // To is what was there before we came
}

// String returns one line.
func (c Change) String() string {
	return fmt.Sprintf("%s: %s %s -> %s", c.Policy, c.File, c.From, c.To)
}

// knob is a value that we changed.
type knob struct {
	Original string   `json:"original"` // before our first change in this boot
	Ours     []string `json:"ours"`     // that we wrote since, or were about to
}

// knobs by policy and file.
type knobs map[string]map[string]knob

func (k knobs) get(policy, file string) (knob, bool) {
	x, ok := k[policy][file]
	return x, ok
}

func (k knobs) set(policy, file string, x knob) {
	if k[policy] == nil {
		k[policy] = map[string]knob{}
	}
	k[policy][file] = x
}

func (k knobs) drop(policy, file string) {
	delete(k[policy], file)
	if len(k[policy]) == 0 {
		delete(k, policy)
	}
}

// plan says what to write so that all is as wanted, and what cannot be had here. What the config leaves alone goes back to
// what it was before us, unless somebody else has changed it since.
func plan(policies []Policy, had knobs, want config.CPU) (changes []Change, notes []string) {
	changes, notes = []Change{}, []string{}
	for _, p := range policies {
		note := func(format string, args ...any) { notes = append(notes, p.Name+": "+fmt.Sprintf(format, args...)) }
		target := map[string]string{}
		for _, file := range []string{fileGovernor, fileMin, fileMax} {
			if k, ours := had.get(p.Name, file); ours && slices.Contains(k.Ours, p.value(file)) {
				target[file] = k.Original
			}
		}
		switch {
		case want.Governor == config.Leave:
		case p.Governors != nil && !slices.Contains(p.Governors, want.Governor):
			note("has no governor %s: there are %s", want.Governor, strings.Join(p.Governors, ", "))
		default:
			target[fileGovernor] = want.Governor
		}
		if least, ok := minimum(p, want.MinFreq, note); ok {
			target[fileMin] = khz(least)
			if least > p.Max || want.MinFreq == config.FrequencyMax {
				target[fileMax] = khz(least)
			} else if n, _ := strconv.Atoi(target[fileMax]); n > 0 && n < least {
				delete(target, fileMax) // the limit from before us is below what is wanted now
			}
		}
		changes = append(changes, order(p, target)...)
	}
	for i, c := range changes {
		k, ours := had.get(c.Policy, c.File)
		changes[i].restore = ours && k.Original == c.To
	}
	return changes, notes
}

// minimum returns the least clock wanted of a policy, within what it can do.
func minimum(p Policy, want config.Frequency, note func(string, ...any)) (least int, ok bool) {
	switch {
	case want == config.FrequencyLeave:
		return 0, false
	case p.Most == 0 || p.Min == 0 || p.Max == 0:
		note("its clock limits are unknown")
		return 0, false
	case want == config.FrequencyMax:
		return p.Most, true
	case int(want) > p.Most:
		note("min_freq %d kHz is more than it can do: %d kHz", want, p.Most)
		return p.Most, true
	case int(want) < p.Least:
		note("min_freq %d kHz is less than it can do: %d kHz", want, p.Least)
		return p.Least, true
	}
	return int(want), true
}

// restorePlan says what to write so that all is as it was found.
func restorePlan(policies []Policy, had knobs) []Change {
	var changes []Change
	for _, p := range policies {
		target := map[string]string{}
		for file, k := range had[p.Name] {
			target[file] = k.Original
		}
		changes = append(changes, order(p, target)...)
	}
	for i := range changes {
		changes[i].restore = true
	}
	return changes
}

// order lists what differs so that the lower limit never passes the upper: a higher maximum comes first, a lower one
// last.
func order(p Policy, target map[string]string) []Change {
	files := []string{fileMax, fileGovernor, fileMin}
	if n, err := strconv.Atoi(target[fileMax]); err == nil && n < p.Max {
		files = []string{fileGovernor, fileMin, fileMax}
	}
	var changes []Change
	for _, file := range files {
		if to, from := target[file], p.value(file); to != "" && from != "" && to != from {
			changes = append(changes, Change{Policy: p.Name, File: file, From: from, To: to})
		}
	}
	return changes
}
