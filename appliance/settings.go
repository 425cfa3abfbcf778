package appliance

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"linerate/appliance/config"
)

// settingLabels are the settings that the settings page offers, as it calls them, in its order.
var settingLabels = []struct{ key, label string }{
	{"test.seconds", "Seconds"},
	{"test.streams", "Streams"},
	{"test.directions", "Direction"},
	{"test.protocol", "Protocol"},
	{"ports.mtu", "MTU"},
	{"cpu.governor", "Governor"},
	{"server.concurrency", "Clients"},
	{"display.rotate", "Rotate"},
	{"display.sleep_after", "Sleep"},
}

// settingItems are the lines of the settings page: select goes on to the next choice.
func (s State) settingItems() []Item {
	var items []Item
	for _, l := range settingLabels {
		i := slices.IndexFunc(s.Keys, func(k config.Key) bool { return k.Key == l.key })
		if i < 0 || len(s.Keys[i].Choices) == 0 {
			continue
		}
		key := s.Keys[i]
		value := key.Value
		if j := slices.IndexFunc(s.Wishes, func(w Wish) bool { return w.Key == l.key }); j >= 0 {
			value = s.Wishes[j].Value
		}
		items = append(items, Item{l.label, settingText(value), func(s *State) {
			s.wish(l.key, next(key.Choices, value))
		}})
	}
	items = append(items, Item{"Reset settings", "", func(s *State) {
		for _, k := range s.Keys {
			if k.Settable {
				s.wish(k.Key, nil)
			}
		}
	}})
	return append(items, Item{"Back", "", goHome})
}

// wish remembers what somebody chose until it is stored; a nil value takes the setting away.
func (s *State) wish(key string, value any) {
	wishes := slices.DeleteFunc(slices.Clone(s.Wishes), func(w Wish) bool { return w.Key == key })
	s.Wishes = append(wishes, Wish{Key: key, Value: value})
}

// next is the choice after the present one; the first where the present one is none of them.
func next(choices []any, value any) any {
	i := slices.IndexFunc(choices, func(c any) bool { return reflect.DeepEqual(c, value) })
	return choices[(i+1)%len(choices)]
}

func settingText(value any) string {
	switch v := value.(type) {
	case nil:
		return "..."
	case []any:
		words := make([]string, len(v))
		for i, w := range v {
			words[i] = strings.ToUpper(fmt.Sprint(w))
		}
		return strings.Join(words, ",")
	}
	return fmt.Sprint(value)
}
