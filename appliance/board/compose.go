package board

import (
	"fmt"
	"slices"
	"strings"
)

// compose lays a board's own HATs and then the user's over it. A HAT that is unknown or does not fit is left out
// and said.
func (lib library) compose(d *definition, named []string) (Profile, []error) {
	p := Profile{Name: d.name, Panel: d.panel.clone(), Keys: slices.Clone(d.keys), LEDs: slices.Clone(d.leds),
		Ports: slices.Clone(d.ports)}
	from := "the profile " + d.name
	var errs []error
	add := func(where, name string) {
		hat := lib[name]
		if hat == nil || !hat.hat {
			errs = append(errs, fmt.Errorf("%s: no HAT is called %q: %suse %s", where, clip(name),
				didYouMean(name, lib.names(true)), strings.Join(lib.names(true), ", ")))
			return
		}
		if slices.Contains(p.HATs, name) {
			return // the board carries it anyway
		}
		q := p
		if hat.panel != nil {
			if p.Panel != nil {
				errs = append(errs, fmt.Errorf("%s: %s brings a second panel beside that of %s: name one of them",
					where, name, from))
				return
			}
			q.Panel = hat.panel.clone()
		}
		q.Keys = append(slices.Clip(p.Keys), hat.keys...)
		if clash, _ := sharedPin(q.Panel, q.Keys); clash != "" {
			errs = append(errs, fmt.Errorf("%s: %s does not fit: %s", where, name, clash))
			return
		}
		q.LEDs = append(slices.Clip(p.LEDs), hat.leds...)
		q.HATs = append(slices.Clip(p.HATs), name)
		if hat.panel != nil {
			from = name
		}
		p = q
		p.Why = append(append(p.Why, "HAT "+name+": "+where), hat.origin()...)
	}
	for _, name := range d.hats {
		add(fmt.Sprintf("%s:%d", d.source, d.hatsLine), name)
	}
	if lib.replaces(named, p.HATs, func(h *definition) bool { return h.panel != nil }) {
		p.Panel = nil
	}
	if lib.replaces(named, p.HATs, func(h *definition) bool { return onLines(h.keys) }) {
		p.Keys = slices.DeleteFunc(slices.Clone(p.Keys), func(k Key) bool { return k.Line != nil })
	}
	for _, name := range named {
		add("named in the config", name)
	}
	p.Why = append(p.Why, panelWhy(p.Panel, from))
	return p, errs
}

// replaces says whether one of the named HATs that the board does not carry anyway brings something.
func (lib library) replaces(named, carried []string, brings func(*definition) bool) bool {
	return slices.ContainsFunc(named, func(name string) bool {
		h := lib[name]
		return h != nil && h.hat && !slices.Contains(carried, name) && brings(h)
	})
}

func onLines(keys []Key) bool {
	return slices.ContainsFunc(keys, func(k Key) bool { return k.Line != nil })
}

func panelWhy(p *Panel, from string) string {
	if p == nil {
		return "panel: none named"
	}
	s := fmt.Sprintf("panel: %s %dx%d on %s, from %s", p.Controller, p.Width, p.Height, p.Bus, from)
	if p.Optional {
		s += ", if it answers"
	}
	return s
}
