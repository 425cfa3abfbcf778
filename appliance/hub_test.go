package appliance

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"linerate/appliance/config"
)

func newHub() *Hub { return NewHub(New("test", "generic", "box", config.Default())) }

func TestWatchGivesTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		hub := newHub()
		watch := hub.Watch(ctx)
		if first := <-watch; first.Version != "test" {
			t.Fatal("the present State did not come at once")
		}
		for i := range 100 { // nobody reads: Publish must not wait
			hub.Publish(Ticked{At: time.Now(), Uptime: time.Duration(i) * time.Second})
		}
		if got := (<-watch).UptimeS; got != 99 {
			t.Errorf("uptime %g, want the newest, 99", got)
		}
		cancel()
		synctest.Wait()
		if _, open := <-watch; open {
			t.Error("the channel is open though its context has ended")
		}
		hub.Publish(Ticked{At: time.Now()}) // must not panic on the closed channel
	})
}

func TestPublishReturnsItsState(t *testing.T) {
	hub := newHub()
	if s := hub.Publish(Ticked{At: time.Now(), Uptime: time.Minute}); s.UptimeS != 60 || hub.State().UptimeS != 60 {
		t.Errorf("uptime %g, want 60", s.UptimeS)
	}
}

func TestSupervisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		hub := newHub()
		begin := time.Now()
		var starts []time.Duration
		var lines strings.Builder
		absent := Task{Name: "panel", Run: func(ctx context.Context, hub *Hub) error {
			starts = append(starts, time.Since(begin))
			if time.Since(begin) < 70*time.Second {
				return errors.New("no panel at i2c-1")
			}
			<-ctx.Done()
			return nil
		}}
		crashes := Task{Name: "crash", Run: func(context.Context, *Hub) error { panic("broken") }}
		quits := Task{Name: "quit", Run: func(context.Context, *Hub) error { return nil }}
		done := make(chan struct{})
		go func() {
			Run(ctx, hub, slog.New(slog.NewTextHandler(&lines, nil)), absent, crashes, quits)
			close(done)
		}()

		time.Sleep(75 * time.Second)
		synctest.Wait()
		titles := map[string]string{}
		for _, f := range hub.State().Faults {
			titles[f.Task] = f.Title
		}
		if titles["panel"] != "no panel at i2c-1" || titles["crash"] != "panic: broken" || titles["quit"] != "ended by itself" {
			t.Errorf("faults %v", titles)
		}
		time.Sleep(45 * time.Second) // started again at 91 s, settled at 101 s
		synctest.Wait()
		if slices.ContainsFunc(hub.State().Faults, func(f Fault) bool { return f.Task == "panel" }) {
			t.Error("the fault is still there though the task runs again")
		}
		cancel()
		<-done
		// 1, 2, 4, 8, 16, 30 seconds between the starts.
		want := []time.Duration{0, 1, 3, 7, 15, 31, 61}
		for i := range want {
			want[i] *= time.Second
		}
		if !slices.Equal(starts[:min(len(starts), len(want))], want) {
			t.Errorf("started at %v, want %v", starts, want)
		}
		if n := strings.Count(lines.String(), "no panel"); n != 1 {
			t.Errorf("the absent panel was logged %d times, want once", n)
		}
	})
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		hub := newHub()
		var course []string
		fail := make(chan error)
		task := Follow("panel", func(s State) string { return s.Config.Display.Panel }, func(panel string) func(context.Context, *Hub) error {
			return func(ctx context.Context, hub *Hub) error {
				course = append(course, "begin "+panel)
				defer func() { course = append(course, "end "+panel) }()
				select {
				case <-ctx.Done():
					return nil
				case err := <-fail:
					return err
				}
			}
		})
		done := make(chan error, 1)
		go func() { done <- task.Run(ctx, hub) }()
		load := func(panel string) {
			cfg := config.Default()
			cfg.Display.Panel = panel
			hub.Publish(ConfigLoaded{At: time.Now(), Config: cfg})
			synctest.Wait()
		}
		synctest.Wait()
		load("none")
		load("none")
		load("terminal")
		if want := []string{"begin auto", "end auto", "begin none", "end none", "begin terminal"}; !slices.Equal(course, want) {
			t.Errorf("course %v, want %v", course, want)
		}
		fail <- errors.New("gone")
		if err := <-done; err == nil || err.Error() != "gone" {
			t.Errorf("ended with %v, want the inner error", err)
		}
		go func() { done <- task.Run(ctx, hub) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ended with %v after its context", err)
		}
	})
}
