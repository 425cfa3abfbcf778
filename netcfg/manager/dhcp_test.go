package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a wire whose servers answer as the test says, after answerIn.
type scripted struct {
	mu      sync.Mutex
	start   time.Time
	log     []string
	offer   error // of ask; nil: the lease
	again   error // of reask, renew and rebind
	address netip.Prefix
}

const answerIn = 10 * time.Millisecond

func newScripted() *scripted {
	return &scripted{start: time.Now(), address: netip.MustParsePrefix("192.0.2.7/24")}
}

func (s *scripted) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Since(s.start).Round(time.Second)
	s.log = append(s.log, fmt.Sprintf("%v ", at)+fmt.Sprintf(format, args...))
}

func (s *scripted) say(offer, again error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offer, s.again = offer, again
}

var errSilence = errors.New("no answer")

func (s *scripted) answer(ctx context.Context, what string, err error) (lease, error) {
	s.note("%s", what)
	if errors.Is(err, errSilence) {
		<-ctx.Done()
		return lease{}, ctx.Err()
	}
	time.Sleep(answerIn)
	s.mu.Lock()
	defer s.mu.Unlock()
	return lease{address: s.address, at: time.Now(), t1: 1000 * time.Second, t2: 1750 * time.Second,
		valid: 2000 * time.Second}, err
}

func (s *scripted) ask(ctx context.Context) (lease, error) {
	s.mu.Lock()
	err := s.offer
	s.mu.Unlock()
	return s.answer(ctx, "ask", err)
}

func (s *scripted) more(ctx context.Context, what string) (lease, error) {
	s.mu.Lock()
	err := s.again
	s.mu.Unlock()
	return s.answer(ctx, what, err)
}

func (s *scripted) reask(ctx context.Context, _ lease) (lease, error)  { return s.more(ctx, "reask") }
func (s *scripted) renew(ctx context.Context, _ lease) (lease, error)  { return s.more(ctx, "renew") }
func (s *scripted) rebind(ctx context.Context, _ lease) (lease, error) { return s.more(ctx, "rebind") }
func (s *scripted) release(lease)                                      { s.note("release") }
func (s *scripted) set(l lease) error                                  { s.note("set %v", l.address); return nil }
func (s *scripted) unset(l lease)                                      { s.note("unset %v", l.address) }
func (s *scripted) refresh(netip.Prefix)                               {}
func (s *scripted) unsetLinkLocal(netip.Prefix)                        { s.note("no link-local") }
func (s *scripted) linkLocal(context.Context) (netip.Prefix, error) {
	s.note("link-local")
	return netip.MustParsePrefix("169.254.7.7/16"), nil
}

// The lease loop against the clock: each line is when, and what is done.
func TestLeaseLoop(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		play func(d *DHCP, w *scripted)
		want string
	}{
		"lease and renewal": {func(d *DHCP, w *scripted) {
			time.Sleep(2100 * s)
		}, "0s ask, 0s set 192.0.2.7/24, 16m40s renew, 16m40s set 192.0.2.7/24, 33m20s renew, 33m20s set 192.0.2.7/24"},
		"no link, no word": {func(d *DHCP, w *scripted) {
			d.Carrier(false)
			time.Sleep(1000 * s)
		}, ""},
		"server gone": {func(d *DHCP, w *scripted) {
			time.Sleep(s)
			w.say(errSilence, errSilence)
			time.Sleep(2015 * s)
		}, "0s ask, 0s set 192.0.2.7/24, 16m40s renew, 22m57s renew, 26m6s renew, 27m40s renew, 28m44s renew, " +
			"29m10s rebind, 31m17s rebind, 32m21s rebind, 33m20s unset 192.0.2.7/24, 33m20s ask, 33m26s ask, 33m30s link-local, 33m30s ask"},
		"nobody": {func(d *DHCP, w *scripted) {
			w.say(errSilence, errSilence)
			time.Sleep(20 * s)
			w.say(nil, nil)
			time.Sleep(20 * s)
		}, "0s ask, 6s ask, 10s link-local, 10s ask, 22s ask, 22s set 192.0.2.7/24, 22s no link-local"},
		"link away for a while": {func(d *DHCP, w *scripted) {
			time.Sleep(10 * s)
			d.Carrier(false)
			time.Sleep(10 * s)
			d.Carrier(true)
			time.Sleep(10 * s)
		}, "0s ask, 0s set 192.0.2.7/24, 20s reask, 20s set 192.0.2.7/24"},
		"another network": {func(d *DHCP, w *scripted) {
			time.Sleep(10 * s)
			d.Carrier(false)
			w.say(nil, errRefused)
			w.address = netip.MustParsePrefix("198.51.100.9/24")
			d.Carrier(true)
			time.Sleep(10 * s)
		}, "0s ask, 0s set 192.0.2.7/24, 10s reask, 10s unset 192.0.2.7/24, 10s ask, 10s set 198.51.100.9/24"},
		"link back, server not": {func(d *DHCP, w *scripted) {
			time.Sleep(10 * s)
			w.say(errSilence, errSilence)
			d.Carrier(false)
			time.Sleep(s)
			d.Carrier(true)
			time.Sleep(100 * s)
		}, "0s ask, 0s set 192.0.2.7/24, 11s reask"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newScripted()
			if name == "nobody" {
				w.say(errSilence, errSilence)
			}
			d := startDHCP("eth1", name != "no link, no word", slog.New(slog.DiscardHandler), w)
			test.play(d, w)
			synctest.Wait()
			w.mu.Lock()
			got := strings.Join(w.log, ", ")
			held := strings.Count(got, " set ") > strings.Count(got, " unset ")
			w.mu.Unlock()
			if got != test.want {
				t.Errorf("%s:\n%s\nwant\n%s", name, got, test.want)
			}
			d.Stop()
			if tail := strings.Join(w.log[len(w.log)-min(2, len(w.log)):], " "); held && !strings.Contains(tail, "release") {
				t.Errorf("%s: nothing is released at the end: %s", name, tail)
			}
		})
	}
}
