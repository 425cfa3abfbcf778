package buttons

import (
	"slices"
	"testing"
	"time"

	"linerate/appliance"
)

// step is an edge, or (edge 0) a look at the clock, some milliseconds after the key was first seen.
type step struct {
	ms   int
	edge int // 1: down, -1: up
	want []appliance.Key
}

func TestContact(t *testing.T) {
	const (
		short, long = appliance.Down, appliance.Select
		debounce    = 10 * time.Millisecond
	)
	keys := func(k ...appliance.Key) []appliance.Key { return k }
	tests := []struct {
		name  string
		long  appliance.Key
		down  bool // at first
		steps []step
		stuck bool // in the end
	}{
		{"one meaning: fires on the press, once steady", "", false, []step{
			{100, 1, nil}, {109, 0, nil}, {110, 0, keys(short)}, {300, -1, nil}, {310, 0, nil}, {5000, 0, nil},
		}, false},
		{"bouncing contact is one press", "", false, []step{
			{100, 1, nil}, {102, -1, nil}, {104, 1, nil}, {107, -1, nil}, {109, 1, nil}, {119, 0, keys(short)},
			{200, -1, nil}, {203, 1, nil}, {205, -1, nil}, {215, 0, nil}, {300, 0, nil},
		}, false},
		{"a spike shorter than the debounce time is none", "", false, []step{
			{100, 1, nil}, {109, -1, nil}, {200, 0, nil},
		}, false},
		{"late look: the release finds the press made in between", "", false, []step{
			{100, 1, nil}, {400, -1, keys(short)}, {600, 1, nil}, {700, -1, keys(short)},
		}, false},
		{"two meanings: short fires on the release", long, false, []step{
			{100, 1, nil}, {110, 0, nil}, {1000, 0, nil}, {1599, -1, nil}, {1609, 0, keys(short)}, {9000, 0, nil},
		}, false},
		{"two meanings: long fires while held, the release does nothing", long, false, []step{
			{100, 1, nil}, {1599, 0, nil}, {1600, 0, keys(long)}, {4000, 0, nil}, {4001, -1, nil}, {4011, 0, nil},
		}, false},
		{"let go just before the threshold, seen after it: short", long, false, []step{
			{100, 1, nil}, {110, 0, nil}, {1595, -1, nil}, {1700, 0, keys(short)},
		}, false},
		{"a release that bounces back over the threshold: long", long, false, []step{
			{100, 1, nil}, {110, 0, nil}, {1595, -1, nil}, {1601, 1, keys(long)}, {2000, -1, nil}, {2010, 0, nil},
		}, false},
		{"never looked at while held: long on the release", long, false, []step{
			{100, 1, nil}, {2000, -1, keys(long)}, {2010, 0, nil},
		}, false},
		{"two presses after one another", long, false, []step{
			{100, 1, nil}, {200, -1, nil}, {300, 1, keys(short)}, {400, -1, nil}, {410, 0, keys(short)},
		}, false},
		{"down when first seen is no press", long, true, []step{
			{1600, 0, nil}, {2000, -1, nil}, {2010, 0, nil}, {3000, 1, nil}, {3100, -1, nil}, {3110, 0, keys(short)},
		}, false},
		{"held on and on: stuck, and no second press", long, false, []step{
			{0, 1, nil}, {1500, 0, keys(long)}, {29_999, 0, nil}, {30_000, 0, nil}, {600_000, 0, nil},
		}, true},
		{"one meaning, stuck", "", false, []step{{0, 1, nil}, {10, 0, keys(short)}, {30_000, 0, nil}}, true},
		{"down when first seen, stuck", "", true, []step{{30_000, 0, nil}}, true},
		{"stuck and free again: works", "", true, []step{
			{30_000, 0, nil}, {31_000, -1, nil}, {31_010, 0, nil}, {32_000, 1, nil}, {32_010, 0, keys(short)},
		}, false},
		{"the same level twice is no edge", "", false, []step{
			{100, -1, nil}, {200, 1, nil}, {205, 1, nil}, {210, 0, keys(short)}, {215, 1, nil},
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			c := NewContact(short, tt.long, debounce, start, tt.down)
			for _, s := range tt.steps {
				at := start.Add(time.Duration(s.ms) * time.Millisecond)
				var got []appliance.Key
				if s.edge == 0 {
					got = c.Pass(at)
				} else {
					got = c.Edge(at, s.edge > 0)
				}
				if !slices.Equal(got, s.want) {
					t.Fatalf("at %d ms: pressed %v, want %v", s.ms, got, s.want)
				}
			}
			if c.Stuck() != tt.stuck {
				t.Errorf("stuck is %v, want %v", c.Stuck(), tt.stuck)
			}
		})
	}
}

// Whoever sleeps until Next and then calls Pass must see the same presses as one who looks every millisecond.
func TestContactNext(t *testing.T) {
	start := time.Unix(1000, 0)
	edges := []int{50, 52, 55, 400, 404, 600, 2600, 2603, 2604, 3000, 34_000, 34_500, 34_600}
	run := func(look func(c *Contact, from, to time.Time) []appliance.Key) []appliance.Key {
		c := NewContact(appliance.Down, appliance.Select, 5*time.Millisecond, start, false)
		var got []appliance.Key
		now, down := start, false
		for _, ms := range edges {
			at := start.Add(time.Duration(ms) * time.Millisecond)
			got = append(got, look(c, now, at)...)
			down = !down
			got = append(got, c.Edge(at, down)...)
			now = at
		}
		return append(got, look(c, now, now.Add(time.Minute))...)
	}
	often := run(func(c *Contact, from, to time.Time) (got []appliance.Key) {
		for at := from; at.Before(to); at = at.Add(time.Millisecond) {
			got = append(got, c.Pass(at)...)
		}
		return got
	})
	seldom := run(func(c *Contact, from, to time.Time) (got []appliance.Key) {
		for range 10 {
			at, ok := c.Next()
			if !ok || !at.Before(to) {
				return got
			}
			got = append(got, c.Pass(at)...)
		}
		t.Fatal("Next does not come to rest")
		return nil
	})
	want := []appliance.Key{appliance.Down, appliance.Down, appliance.Down, appliance.Select}
	if !slices.Equal(often, want) || !slices.Equal(seldom, want) {
		t.Errorf("looked every millisecond: %v, woken by Next: %v, want %v", often, seldom, want)
	}
}
