package buttons

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"periph.io/x/conn/v3/driver/driverreg"
	"periph.io/x/conn/v3/gpio"
	"periph.io/x/host/v3/gpioioctl"

	"linerate/appliance"
	"linerate/appliance/board"
)

// line is a GPIO line as periph gives it.
type line interface {
	In(pull gpio.Pull, edge gpio.Edge) error
	Read() gpio.Level
	WaitForEdge(timeout time.Duration) bool
	Close()
}

// waitEdge is how long a reader waits before it looks whether the session has ended. It is positive because gpioioctl
// returns at once for -1 and never for 0 (periph/host#78), and its Halt may not be called from another goroutine.
const waitEdge = 500 * time.Millisecond

// openLine finds a line by the label of its chip and the offset on it: numbers of chips change between kernels, and most
// lines have no name.
func openLine(l board.Line) (line, error) {
	if _, err := driverreg.Init(); err != nil {
		return nil, fmt.Errorf("GPIO: %w", err)
	}
	var labels []string
	for _, label := range l.Chips {
		for _, chip := range gpioioctl.Chips {
			if chip.Label() != label {
				continue
			}
			if l.Offset >= chip.LineCount() {
				return nil, fmt.Errorf("GPIO chip %s has %d lines, no line %d", label, chip.LineCount(), l.Offset)
			}
			return chip.ByNumber(l.Offset), nil
		}
	}
	for _, chip := range gpioioctl.Chips {
		labels = append(labels, chip.Label())
	}
	if len(labels) == 0 {
		return nil, fmt.Errorf("no GPIO chip %s: there is none that may be opened", strings.Join(l.Chips, " or "))
	}
	return nil, fmt.Errorf("no GPIO chip %s among %s", strings.Join(l.Chips, " or "), strings.Join(labels, ", "))
}

var pulls = map[board.Pull]gpio.Pull{
	board.PullUp: gpio.PullUp, board.PullDown: gpio.PullDown, board.PullNone: gpio.PullNoChange,
}

// lookForLines opens the GPIO lines of the profile that are not open.
func (s *session) lookForLines(ctx context.Context) {
	if !slices.Contains(s.wanted, auto) {
		return
	}
	maps.DeleteFunc(s.faults, func(source, _ string) bool { return strings.HasPrefix(source, "GPIO") })
	failed := map[string][]string{} // a chip that is not there is one fault, not one for each key
	for _, k := range s.profile {
		if k.Line == nil {
			continue
		}
		m := meaning{appliance.Key(k.Short), appliance.Key(k.Long), k.Label}
		source := fmt.Sprintf("line %d of %s", k.Line.Offset, strings.Join(k.Line.Chips, " or "))
		if _, open := s.lines[source]; open { // since the last look, so it works
			delete(s.faults, source)
			continue
		}
		l, err := s.openLine(*k.Line)
		if err == nil {
			if err = l.In(pulls[k.Pull], gpio.BothEdges); err != nil {
				l.Close()
				err = fmt.Errorf("%s: %w", source, err)
			}
		}
		if err != nil {
			failed[err.Error()] = append(failed[err.Error()], m.name())
			continue
		}
		s.lines[source] = "no key " + m.name()
		life := s.adopt(source, map[uint16]meaning{0: m}, k.Debounce)
		s.say(source, slog.LevelInfo, fmt.Sprintf("keys: %s is %s", m.name(), source))
		pressed := gpio.Level(k.Active == board.High)
		s.readers.Go(func() {
			err := readLine(ctx, l, func(level gpio.Level, first bool) {
				s.send(ctx, news{switchID: switchID{source: source}, life: life, at: time.Now(),
					down: level == pressed, first: first})
			})
			l.Close() // before run may open it again
			if err != nil {
				s.send(ctx, news{switchID: switchID{source: source}, life: life, ended: true, err: err})
			}
		})
	}
	for text, keys := range failed {
		names := strings.Join(keys, " ")
		s.fault("GPIO: "+text, "no key "+names, fmt.Sprintf("keys %s: %s (linerate board shows the profile)", names, text))
	}
}

// errLine ends a line whose waiting does not wait: reading it on would be a busy loop.
var errLine = errors.New("the kernel no longer tells of its edges")

// readLine reports the level of a line at first and at each change until ctx ends.
func readLine(ctx context.Context, l line, report func(level gpio.Level, first bool)) error {
	level := l.Read()
	report(level, true)
	for early := 0; ctx.Err() == nil; {
		began := time.Now()
		if !l.WaitForEdge(waitEdge) && time.Since(began) < waitEdge/2 {
			if early++; early > 3 {
				return errLine
			}
		} else {
			early = 0
		}
		if now := l.Read(); now != level {
			level = now
			report(level, false)
		}
	}
	return nil
}
