package board

import (
	"fmt"
	"slices"
	"strings"
)

// Auto as a profile's name means that the board is to be detected.
const Auto = "auto"

// Detect finds out which board this is and returns its profile, composed with its HATs. root is "/" or a tree
// copied from another box. profile is the config's [board] profile: "" and "auto" detect, another name is taken as
// it is; the name of a HAT detects the board below it. hats are further HATs that the user names ([display] panel):
// they take the place of the profile's panel and of its keys on GPIO lines.
//
// The Profile is always usable. The errors, one line each, say what was left out: profile files that are wrong, names
// nobody knows, HATs that do not fit.
func Detect(root, profile string, hats ...string) (Profile, []error) {
	t := tree(root)
	lib, errs := load(t)
	f, more := t.look()
	errs = append(errs, more...)

	if d := lib[profile]; d != nil && d.hat {
		hats = append([]string{profile}, hats...)
		profile = Auto
	}
	chosen, why, err := lib.choose(f, profile)
	if err != nil {
		errs = append(errs, err)
	}
	p, more := lib.compose(chosen, hats)
	errs = append(errs, more...)
	p.Why = append(why, p.Why...)
	for _, model := range []string{f.wlanpiOf(chosen), f.model, chosen.title} {
		if p.Model == "" {
			p.Model = model
		}
	}
	return p, errs
}

// wlanpiOf is the model of /etc/wlanpi-model where it is one of the profile's.
func (f facts) wlanpiOf(d *definition) string {
	if fit(d.wlanpi, f.wlanpi) > 0 {
		return f.wlanpi
	}
	return ""
}

// choose picks the profile of a board; it looks at nothing but its arguments. The error says why a name could not
// be used.
func (lib library) choose(f facts, name string) (chosen *definition, why []string, err error) {
	because := func(d *definition, format string, args ...any) (*definition, []string, error) {
		why = append(why, "profile "+d.name+": "+fmt.Sprintf(format, args...))
		return d, append(why, d.origin()...), err
	}
	if name != "" && name != Auto {
		if d := lib[name]; d != nil {
			return because(d, "named in the config")
		}
		err = fmt.Errorf("board profile %q is unknown, so the board is detected: %suse auto, %s", clip(name),
			didYouMean(name, lib.names(false)), strings.Join(lib.names(false), ", "))
	}
	if f.wlanpi != "" {
		if d := lib.best(func(d *definition) int {
			if len(d.compatible) > 0 && len(f.compatible) > 0 && !fitsAny(d.compatible, f.compatible) {
				return 0 // the file came with a card from another board
			}
			return fit(d.wlanpi, f.wlanpi)
		}); d != nil {
			return because(d, "/etc/wlanpi-model says %q", f.wlanpi)
		}
		why = append(why, fmt.Sprintf("/etc/wlanpi-model says %q, which fits no profile of this board", f.wlanpi))
	}
	for _, s := range f.compatible {
		if d := lib.best(func(d *definition) int {
			if len(d.wlanpi) > 0 {
				return 0 // needs its model as well
			}
			return fit(d.compatible, s)
		}); d != nil {
			return because(d, "the device tree says %s", s)
		}
	}
	if len(f.compatible) > 0 {
		return because(lib[Generic], "no profile fits the device tree's %s", strings.Join(f.compatible, ", "))
	}
	return because(lib[Generic], "no /etc/wlanpi-model and no device tree")
}

// exact is the rank of a pattern without *.
const exact = 1 << 16

// fit ranks how well one of the patterns fits a text: exact, else the length of the longest fitting beginning, else
// 0.
func fit(patterns []string, s string) int {
	rank := 0
	for _, p := range patterns {
		prefix, open := strings.CutSuffix(p, "*")
		switch {
		case s == "":
		case p == s:
			rank = exact
		case open && strings.HasPrefix(s, prefix):
			rank = max(rank, len(prefix))
		}
	}
	return rank
}

func fitsAny(patterns, list []string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return fit(patterns, s) > 0 })
}
