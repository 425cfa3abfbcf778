package netcfg

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// counter is a log that counts errors.
type counter struct{ errors atomic.Int32 }

func (c *counter) logger() *slog.Logger                         { return slog.New(c) }
func (c *counter) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (c *counter) WithAttrs([]slog.Attr) slog.Handler           { return c }
func (c *counter) WithGroup(string) slog.Handler                { return c }
func (c *counter) Handle(context.Context, slog.Record) error    { c.errors.Add(1); return nil }

func texts(steps []Step) (out []string) {
	for _, s := range steps {
		out = append(out, s.Text)
	}
	return out
}

func TestTruce(t *testing.T) {
	leave := Step{Kind: LeaveBridge, Port: "eth1", index: 3, bridge: "br0", group: "br0", vital: true, Text: "leave"}
	add := Step{Kind: AddAddress, Port: "eth1", index: 3, group: "br0", vital: true, Text: "add"}
	mtu := Step{Kind: SetMTU, Port: "eth2", index: 4, mtu: 9000, Text: "mtu"}
	all := []Step{leave, add, mtu}
	now := time.Unix(1000, 0)
	tr := newTruce()
	for i := range maxUndone {
		pass, why := tr.pass(all, now)
		if len(pass) != 3 || len(why) > 0 {
			t.Fatalf("round %d: %q, %v", i, texts(pass), why)
		}
		tr.did(pass[:1], nil, now)
		now = now.Add(time.Second)
	}
	// Undone for the third time: it is left alone, and so is what belongs to it, for good.
	for range 2 {
		pass, why := tr.pass(all, now)
		if !slices.Equal(texts(pass), []string{"mtu"}) || len(why) != 1 || why[0].Port != "eth1" {
			t.Errorf("after three: %q, %v", texts(pass), why)
		}
		now = now.Add(time.Hour)
	}
	// The same port plugged in again is another.
	leave.index, add.index = 8, 8
	if pass, why := tr.pass([]Step{leave, add}, now); len(pass) != 2 || len(why) > 0 {
		t.Errorf("a new index: %q, %v", texts(pass), why)
	}
	// Three times in three minutes is no fight.
	tr = newTruce()
	for range 10 {
		pass, why := tr.pass(all, now)
		if len(pass) != 3 {
			t.Fatalf("slowly: %q, %v", texts(pass), why)
		}
		tr.did(pass, nil, now)
		now = now.Add(25 * time.Second)
	}
}

// What failed is tried again after a minute, then two, four ... at most thirty, and its failure is told all the while.
func TestTruceAfterFailures(t *testing.T) {
	mtu := Step{Kind: SetMTU, Port: "eth2", index: 4, mtu: 9000, Text: "mtu"}
	now := time.Unix(1000, 0)
	tr := newTruce()
	var waits []time.Duration
	for range 7 {
		pass, _ := tr.pass([]Step{mtu}, now)
		if len(pass) != 1 {
			t.Fatal("not tried when due")
		}
		tr.did(nil, []Failure{failure(mtu, fmt.Errorf("no: %w", unix.EBUSY))}, now)
		from := now
		for len(pass) == 1 || now.Sub(from) < time.Second {
			now = now.Add(time.Second)
			var why []Failure
			if pass, why = tr.pass([]Step{mtu}, now); len(pass) == 0 && len(why) != 1 {
				t.Fatalf("nothing is said of it: %v", why)
			}
		}
		for len(pass) == 0 {
			now = now.Add(time.Second)
			pass, _ = tr.pass([]Step{mtu}, now)
		}
		waits = append(waits, now.Sub(from))
	}
	m := time.Minute
	if want := []time.Duration{m, 2 * m, 4 * m, 8 * m, 16 * m, 30 * m, 30 * m}; !slices.Equal(waits, want) {
		t.Errorf("waits %v, want %v", waits, want)
	}
	// Once it is no more wanted, it begins anew.
	tr.pass(nil, now)
	tr.did(nil, []Failure{failure(mtu, unix.EBUSY)}, now)
	if pass, _ := tr.pass([]Step{mtu}, now.Add(time.Minute)); len(pass) != 1 {
		t.Error("an old failure still counts")
	}
	// A failure that is no step holds nothing back.
	tr.did(nil, []Failure{{Text: "disk full"}}, now)
	if len(tr.failed) != 1 {
		t.Errorf("kept: %v", tr.failed)
	}
}
