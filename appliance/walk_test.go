package appliance

import (
	"fmt"
	"slices"
	"testing"

	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// place is where a person is.
func place(s State) string {
	v := s.View
	return fmt.Sprint(s.Page, v.Cursor, v.Shown, v.Ask, v.Seeking, v.Message.Title, s.Picked, len(s.Running), s.Request != nil, len(s.Wishes))
}

// walk presses the keys in every order from s on and returns every place there is, with the places one press further.
func walk(s State, keys ...Key) (places map[string]State, next map[string][]string) {
	places, next = map[string]State{place(s): s}, map[string][]string{}
	for todo := []State{s}; len(todo) > 0; todo = todo[1:] {
		from := place(todo[0])
		for _, k := range keys {
			to := press1(todo[0], k)
			if to.Wishes = nil; to.Request != nil && len(to.Running) == 0 { // a run that begins ends
				to = do(to, started("50", throughput.Client), finished("50", throughput.Client, true))
				to.Results = todo[0].Results
			}
			next[from] = append(next[from], place(to))
			if _, known := places[place(to)]; !known {
				places[place(to)] = to
				todo = append(todo, to)
			}
		}
	}
	return places, next
}

// busyBox is a State in which every page has something to show.
func busyBox() State {
	s := do(box(), ConfigLoaded{At: at(1), Config: box().Config, Keys: []config.Key{
		{Key: "test.seconds", Value: int64(10), Settable: true, Choices: []any{int64(5), int64(10)}},
	}}, Ticked{At: at(20)},
		FaultsSeen{At: at(20), Task: "display", Titles: []string{"one", "two"}},
		ResultsSeen{At: at(20), Results: []results.Record{{Stamp: results.Stamp{ID: "2"}}, {Stamp: results.Stamp{ID: "1"}}}})
	return s
}

// From wherever two keys lead, with them alone, everything is reached, and home again.
func TestNoPageTrapsAPerson(t *testing.T) {
	clients := do(busyBox(), started("7", throughput.Server), started("8", throughput.Server))
	nobody := busyBox()
	nobody.Config.Targets, nobody.Targets = nil, nil
	for name, c := range map[string]struct {
		from State
		keys []Key
	}{
		"one key":                      {busyBox(), []Key{Down, Select}},
		"one key, clients test":        {clients, []Key{Down, Select}},
		"one key, no target":           {nobody, []Key{Down, Select}},
		"one key, a message is there":  {do(busyBox(), ConfigRejected{At: at(21), Err: "bad"}), []Key{Down, Select}},
		"every key":                    {busyBox(), Keys},
		"every key, clients test":      {clients, Keys},
		"every key, a test is started": {do(busyBox(), started("7", throughput.Server)), Keys},
	} {
		places, next := walk(c.from, c.keys...)
		seen := map[Page]bool{}
		for _, s := range places {
			seen[s.Page] = true
		}
		for _, p := range []Page{PageHome, PageMenu, PageTargets, PageTest, PageResult, PagePorts, PageFaults, PageSettings} {
			nobodyToTest := p == PageTest && len(c.from.Targets)+len(c.from.Running) == 0
			if !seen[p] && !nobodyToTest {
				t.Errorf("%s: page %s is never reached", name, p)
			}
		}
		// Home is reached from every place: go backwards from it.
		back := map[string]bool{}
		for at, s := range places {
			back[at] = s.Page == PageHome
		}
		for more := true; more; {
			more = false
			for from, tos := range next {
				if !back[from] && slices.ContainsFunc(tos, func(to string) bool { return back[to] }) {
					back[from], more = true, true
				}
			}
		}
		for at, home := range back {
			if !home {
				t.Errorf("%s: from %q no key leads home", name, at)
			}
		}
	}
}

// Back leads home from anywhere, by two presses at most: one may answer a question.
func TestBackLeadsHome(t *testing.T) {
	places, _ := walk(do(busyBox(), started("7", throughput.Server)), Keys...)
	for at, s := range places {
		for range 2 {
			if s.Page != PageHome {
				s = press1(s, Back)
			}
		}
		if s.Page != PageHome {
			t.Errorf("from %q back back leads to %s", at, s.Page)
		}
	}
}
