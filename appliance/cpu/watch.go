package cpu

import (
	"context"
	"math"
	"time"

	"linerate/appliance"
)

// Interval between two looks at the sensors.
const Interval = 2 * time.Second

// Watch returns the Task that publishes HealthSeen: at once, and then when something changed that a person would notice.
func Watch(root string) appliance.Task {
	return appliance.Task{Name: "cpu", Run: func(ctx context.Context, hub *appliance.Hub) error {
		sensors := Sensors{Root: root}
		tick := time.NewTicker(Interval)
		defer tick.Stop()
		var shown appliance.Health
		for first := true; ; first = false {
			if h := sensors.Read(); first || notable(shown, h) {
				shown = h
				hub.Publish(appliance.HealthSeen{At: time.Now(), Health: h})
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}}
}

// Steps that a person would notice.
const (
	noticeC       = 1.0
	noticePercent = 10.0
	noticeKHz     = 100_000
)

// notable says whether the difference is worth a new picture.
func notable(old, now appliance.Health) bool {
	if old.Governor != now.Governor || len(old.CorePercent) != len(now.CorePercent) ||
		differ(old.TemperatureC, now.TemperatureC, noticeC) || differ(old.FrequencyKHz, now.FrequencyKHz, noticeKHz) {
		return true
	}
	for i := range now.CorePercent {
		if math.Abs(now.CorePercent[i]-old.CorePercent[i]) >= noticePercent {
			return true
		}
	}
	return false
}

func differ[N int | float64](a, b *N, step float64) bool {
	if a == nil || b == nil {
		return a != b
	}
	return math.Abs(float64(*a)-float64(*b)) >= step
}
