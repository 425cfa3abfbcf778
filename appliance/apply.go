package appliance

import (
	"slices"
	"strings"
	"time"

	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// Apply returns the State after the event. It changes nothing of the State it is given.
func Apply(s State, e Event) State {
	if at := e.When(); at.After(s.Now) {
		s.Now = at
	}
	if s.Started.IsZero() {
		s.Started, s.View.Input, s.View.Opened = s.Now, s.Now, s.Now
	}
	switch e := e.(type) {
	case PortsSeen:
		applyPorts(&s, e)
	case HealthSeen:
		s.Health = e.Health
	case FindingsSeen:
		s.Findings = orEmpty(e.Findings)
	case FaultsSeen:
		s.Faults = replaceFaults(s.Faults, e.Task, false, e.At, e.Titles)
	case TaskDown:
		title, _, _ := strings.Cut(e.Err, "\n")
		s.Faults = replaceFaults(s.Faults, e.Task, true, e.At, []string{title})
	case TaskUp:
		s.Faults = replaceFaults(s.Faults, e.Task, true, e.At, nil)
	case ConfigLoaded:
		s.setConfig(e.Config)
		s.Keys = e.Keys
		if e.Board != "" {
			s.Board = e.Board
		}
		s.ConfigState = ConfigState{Valid: true}
		if s.View.Message.Title == configTitle {
			leaveMessage(&s)
		}
	case ConfigRejected:
		s.ConfigState = ConfigState{Error: e.Err}
		say(&s, configTitle, e.Err)
	case SettingsChanged:
		s.wish(e.Key, e.Value)
	case SettingsStored:
		s.Wishes = slices.DeleteFunc(slices.Clone(s.Wishes), func(w Wish) bool { return slices.Contains(e.Keys, w.Key) })
		if e.Err != "" {
			say(&s, "Not saved", e.Err)
		}
	case ButtonPressed:
		press(&s, e.Key)
	case TestRequested:
		if s.Request == nil {
			request(&s, e.Specs, e.IDs)
		}
	case CancelRequested:
		cancel(&s, e.ID)
	case TestStarted:
		applyStarted(&s, e.Test)
	case ClientsWaiting:
		applyWaiting(&s, e)
	case TestProgressed:
		applyProgress(&s, e)
	case TestFinished:
		applyFinished(&s, e)
	case ResultsSeen:
		s.Results = []results.Record{}
		for _, r := range e.Results[:min(len(e.Results), MaxResults)] {
			r.Intervals = nil
			s.Results = append(s.Results, r)
		}
	case TestFailed:
		if s.remove(e.ID) || s.Request != nil {
			s.Request = nil
			say(&s, "Test failed", e.Err)
		}
	case TargetsSeen:
		s.setTargets(e.Found)
		s.Sought = e.At
		if s.View.Seeking {
			s.View.Seeking = false
			answer(&s, AskStart)
		}
	case Ticked:
		s.UptimeS = e.Uptime.Seconds()
		s.Clock = results.Unsynced
		if e.Synced {
			s.Clock = results.Synced
		}
		passTime(&s)
	}
	return s
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// applyPorts keeps since when a port has been as it is, which no reader of the kernel knows.
func applyPorts(s *State, e PortsSeen) {
	before := s.Ports
	s.Ports = orEmpty(slices.Clone(e.Ports))
	sortPorts(s.Ports)
	changed := len(before) != len(s.Ports)
	for i := range s.Ports {
		p := &s.Ports[i]
		p.Since = e.At
		j := slices.IndexFunc(before, func(old Port) bool { return old.Name == p.Name && old.Index == p.Index })
		if j < 0 {
			changed = true
			continue
		}
		same := before[j].Link == p.Link && (before[j].Address() == "") == (p.Address() == "")
		if same {
			p.Since = before[j].Since
		}
		changed = changed || !same
	}
	if changed {
		wake(s)
	}
}

// replaceFaults sets what is wrong with one task: what the supervisor says of it (down) or what the part says of itself.
// A fault that stays keeps its time.
func replaceFaults(faults []Fault, task string, down bool, at time.Time, titles []string) []Fault {
	out := []Fault{}
	for _, f := range faults {
		if f.Task != task || f.Down != down {
			out = append(out, f)
		}
	}
	for _, title := range titles {
		f := Fault{Task: task, Title: title, Since: at, Down: down}
		same := func(old Fault) bool { return old.Task == task && old.Title == title && old.Down == down }
		if i := slices.IndexFunc(faults, same); i >= 0 {
			f.Since = faults[i].Since
		}
		out = append(out, f)
	}
	return out
}

func request(s *State, specs []throughput.Spec, ids []string) {
	s.requests++
	s.Request = &Request{Number: s.requests, Specs: specs, IDs: ids}
}

// cancel marks the test, and the run it belongs to: the directions that have not begun do not begin.
func cancel(s *State, id string) {
	if i := s.find(id); i >= 0 {
		t := *s.Running[i]
		t.Cancelled = true
		s.Running = slices.Clone(s.Running)
		s.Running[i] = &t
		if t.Role == throughput.Server {
			return
		}
	} else if s.Request == nil || !slices.Contains(s.Request.IDs, id) {
		return
	}
	if s.Request != nil {
		r := *s.Request
		r.Cancelled = true
		s.Request = &r
	}
}

func applyStarted(s *State, t Test) {
	s.remove(t.ID)
	if p, _, ok := s.PortOf(t.Local); ok {
		t.Port = p.Name
	}
	active := len(s.Active())
	s.Running = slices.Insert(slices.Clone(s.Running), active, &t)
	wake(s)
	// Neither is a person taken away from a list, nor the display from the run that was asked for at the box.
	own := s.Request != nil && t.Role == throughput.Server && s.Page == PageTest
	if !browsing(s.Page) && !own {
		open(s, PageTest)
		s.View.Shown = t.ID
	}
}

// applyWaiting puts those who wait behind those who test.
func applyWaiting(s *State, e ClientsWaiting) {
	s.Running = slices.Clip(s.Active())
	for _, t := range e.Tests {
		t.Waiting = true
		if p, _, ok := s.PortOf(t.Local); ok {
			t.Port = p.Name
		}
		s.Running = append(s.Running, &t)
	}
}

func applyProgress(s *State, e TestProgressed) {
	i := s.find(e.ID)
	if i < 0 {
		return
	}
	t := *s.Running[i]
	p := e.Progress
	if int(p.ElapsedS) > int(t.ElapsedS) {
		points := make([]float64, 0, MaxPoints)
		points = append(points, t.Points[max(0, len(t.Points)-MaxPoints+1):]...)
		t.Points = append(points, p.BPS())
	}
	t.BPS, t.RXBPS, t.TXBPS = p.BPS(), p.RXBPS, p.TXBPS
	t.ElapsedS, t.Retransmits, t.RTTMS = p.ElapsedS, p.Retransmits, p.RTTMS
	s.Running = slices.Clone(s.Running)
	s.Running[i] = &t
}

func applyFinished(s *State, e TestFinished) {
	shown := s.Page == PageTest && (s.View.Shown == e.ID || s.View.Shown == "")
	s.remove(e.ID)
	r := e.Record
	r.Intervals = nil
	kept := s.Results[:min(len(s.Results), MaxResults-1)]
	s.Results = append([]results.Record{r}, kept...)
	if e.Last {
		s.Request = nil
	}
	// While a run is under way its other direction follows: its page stays.
	if shown && s.Request == nil {
		open(s, PageResult)
		s.View.Shown = r.ID
	}
}

// remove takes a test off the running ones and says whether it was there.
func (s *State) remove(id string) bool {
	i := s.find(id)
	if i < 0 {
		return false
	}
	s.Running = slices.Delete(slices.Clone(s.Running), i, i+1)
	return true
}
