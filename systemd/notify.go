package systemd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"linerate/appliance"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

const (
	taskName   = "systemd"
	readyCheck = 100 * time.Millisecond // how often ready is asked until it says yes
)

// Notify returns the Task that tells the service manager how the box is: READY=1 once ready says so (nil: at once) and the
// Hub has answered, STATUS= with Status whenever that changes, STOPPING=1 at the end. Without a service manager it does
// nothing. ready must come to say yes on a box that can do less than it should, or systemd gives it up.
//
// WATCHDOG=1 follows a round trip: the Task publishes a FaultsSeen of its own, without a fault, and waits until a watcher of
// the Hub is shown a State of that time or later. So a Hub, an Apply or a watcher's channel that hangs ends the pings, while
// one that is slow only delays them. The Task itself never waits for the Hub.
func (m *Manager) Notify(ready func(appliance.State) bool) appliance.Task {
	return appliance.Task{Name: taskName, Run: func(ctx context.Context, hub *appliance.Hub) error {
		if !m.Present() {
			<-ctx.Done()
			return nil
		}
		n := notifier{m: m, ready: ready, said: map[string]bool{}}
		return n.run(ctx, hub)
	}}
}

// notifier is one run of the Task.
type notifier struct {
	m        *Manager
	ready    func(appliance.State) bool
	isReady  bool
	asked    time.Time // when the round trip under way began; zero: none is
	answered bool      // there has been one
	last     appliance.State
	status   string
	said     map[string]bool // troubles that were logged
}

func (n *notifier) run(ctx context.Context, hub *appliance.Hub) error {
	states := make(chan appliance.State)
	go func() { // a Hub that hangs holds this goroutine, not the Task
		for s := range hub.Watch(ctx) {
			select {
			case states <- s:
			case <-ctx.Done():
				return
			}
		}
	}()
	every := n.m.watchdog / 4
	if every <= 0 {
		every = time.Hour
	}
	round, check := time.NewTicker(every), time.NewTicker(readyCheck)
	defer round.Stop()
	defer check.Stop()
	n.ask(hub)
	for {
		select {
		case <-ctx.Done():
			n.send(daemon.SdNotifyStopping)
			return nil
		case <-round.C:
			n.ask(hub)
		case <-check.C:
		case s := <-states:
			n.last = s
			if !n.asked.IsZero() && !s.Now.Before(n.asked) {
				n.asked, n.answered = time.Time{}, true
				if n.m.watchdog > 0 {
					n.send(daemon.SdNotifyWatchdog)
				}
			}
			if status := Status(s); status != n.status {
				n.status = status
				n.send("STATUS=" + status)
			}
		}
		if !n.isReady && n.answered && (n.ready == nil || n.ready(n.last)) {
			n.isReady = true
			n.send(daemon.SdNotifyReady)
		}
		if n.isReady {
			check.Stop()
		}
	}
}

// ask begins a round trip, unless one is under way.
func (n *notifier) ask(hub *appliance.Hub) {
	if !n.asked.IsZero() {
		return
	}
	at := time.Now()
	n.asked = at
	go hub.Publish(appliance.FaultsSeen{At: at, Task: taskName})
}

func (n *notifier) send(message string) {
	if err := n.m.send(-1, message); err != nil && !n.said[err.Error()] {
		n.said[err.Error()] = true
		n.m.log.Warn("systemd does not hear us", "error", err)
	}
}

// Status is one line on what the box does and did last, for systemctl status.
func Status(s appliance.State) string {
	var parts []string
	if active := s.Active(); len(active) == 1 {
		t := active[0]
		parts = append(parts, fmt.Sprintf("testing %s with %s", direction(t.Direction), t.Peer))
	} else if len(active) > 1 {
		parts = append(parts, fmt.Sprintf("%d tests running", len(active)))
	}
	if len(s.Results) > 0 {
		parts = append(parts, "last: "+outcome(s.Results[0]))
	}
	if len(parts) == 0 {
		parts = append(parts, "no test yet")
	}
	if n := len(s.Faults); n == 1 {
		parts = append(parts, fmt.Sprintf("fault: %s: %s", s.Faults[0].Task, s.Faults[0].Title))
	} else if n > 1 {
		parts = append(parts, fmt.Sprintf("%d faults, the first: %s: %s", n, s.Faults[0].Task, s.Faults[0].Title))
	}
	// One line of printable text, of which much comes from strangers: their addresses, names and errors.
	line := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.Join(parts, "; "), ""))
	if len(line) > maxStatus {
		line = strings.ToValidUTF8(line[:maxStatus], "")
	}
	return line
}

const maxStatus = 240

func outcome(r results.Record) string {
	peer := string(r.Peer)
	if r.Target != "" {
		peer = string(r.Target)
	}
	if !r.Valid {
		why := string(r.Error)
		if why == "" {
			why = "not valid"
		}
		return fmt.Sprintf("%s with %s: %s", direction(r.Direction), peer, why)
	}
	text := fmt.Sprintf("%s %s with %s", direction(r.Direction), rate(r.BPS), peer)
	if r.PossiblePercent != nil {
		text += fmt.Sprintf(" (%.0f %% of the possible)", *r.PossiblePercent)
	}
	return text
}

// direction as screens say it.
func direction(d throughput.Direction) string {
	if d == throughput.Both {
		return "RX+TX"
	}
	return strings.ToUpper(string(d))
}

func rate(bps float64) string {
	if bps >= 1e9 {
		return fmt.Sprintf("%.2f Gbit/s", bps/1e9)
	}
	return fmt.Sprintf("%.1f Mbit/s", bps/1e6)
}
