package buttons

import (
	"time"

	"linerate/appliance"
)

// How long a key is held until it means something else.
const (
	LongPress  = 1500 * time.Millisecond // the long meaning, where the key has one
	StuckAfter = 30 * time.Second        // nobody presses so long: a fault
)

// Contact turns the edges of one key into presses. It reads no clock: time comes in with Edge and Pass, and must not go
// back. Make it with NewContact.
type Contact struct {
	short, long appliance.Key
	debounce    time.Duration

	level bool      // as last reported, bouncing or not
	since time.Time // when it became so
	down  bool      // what the level was when it was last steady for the debounce time
	at    time.Time // when the key went down
	fired bool      // this press has done what it does
	stuck bool
}

// NewContact makes the contact of a key that is in the given state now. long may be empty. A level counts once it has been
// steady for the debounce time.
func NewContact(short, long appliance.Key, debounce time.Duration, now time.Time, down bool) *Contact {
	return &Contact{short: short, long: long, debounce: debounce, level: down, since: now, down: down, at: now, fired: true}
}

// Edge takes a change of the key and returns what has been pressed by it or before it. A level that is no change is
// taken as time that passes.
func (c *Contact) Edge(at time.Time, down bool) []appliance.Key {
	presses := c.Pass(at)
	if down == c.level {
		return presses
	}
	c.level, c.since = down, at
	return append(presses, c.Pass(at)...)
}

// Pass takes the time and returns what has been pressed by it.
func (c *Contact) Pass(now time.Time) []appliance.Key {
	var presses []appliance.Key
	if c.level != c.down && now.Sub(c.since) >= c.debounce {
		c.down = c.level
		if c.down {
			c.at, c.fired = c.since, false
			if c.long == "" {
				presses, c.fired = append(presses, c.short), true
			}
		} else {
			if !c.fired {
				presses = append(presses, c.meaning(c.since.Sub(c.at)))
			}
			c.fired, c.stuck = true, false
		}
	}
	// While a release is not steady yet it is open whether the key is still held.
	if c.down && c.level {
		held := now.Sub(c.at)
		if !c.fired && held >= LongPress {
			presses, c.fired = append(presses, c.long), true
		}
		c.stuck = held >= StuckAfter
	}
	return presses
}

func (c *Contact) meaning(held time.Duration) appliance.Key {
	if held >= LongPress {
		return c.long
	}
	return c.short
}

// Next returns when Pass has something to do at the latest, unless there is an edge before.
func (c *Contact) Next() (at time.Time, ok bool) {
	switch {
	case c.level != c.down:
		return c.since.Add(c.debounce), true
	case !c.down || c.stuck:
		return time.Time{}, false
	case !c.fired:
		return c.at.Add(LongPress), true
	}
	return c.at.Add(StuckAfter), true
}

// Stuck says whether the key has been held for StuckAfter.
func (c *Contact) Stuck() bool { return c.stuck }
