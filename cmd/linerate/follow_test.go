package main

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
	"linerate/appliance/web"
)

// `linerate test` ends, whatever becomes of the test that it follows.
func TestFollowAlwaysEnds(t *testing.T) {
	for want, after := range map[string]func(hub *appliance.Hub, id string, stop func()){
		"the appliance gave up test 1": func(hub *appliance.Hub, id string, _ func()) {
			hub.Publish(appliance.TestFailed{At: time.Now(), ID: id, Err: "internal fault"})
		},
		"the appliance stopped during test 1": func(_ *appliance.Hub, _ string, stop func()) { stop() },
	} {
		t.Run(want, func(t *testing.T) {
			dir := t.TempDir()
			store, err := results.Open(dir, results.SystemClock("/"), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			hub := appliance.NewHub(appliance.New("t", "generic", "box", config.Default()))
			api := web.API{Hub: hub, Store: store, Log: slog.New(slog.DiscardHandler)}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go api.Task(filepath.Join(dir, "linerate.sock")).Run(ctx, hub)
			go func() {
				for s := range hub.Watch(ctx) {
					if s.Request != nil && len(s.Running) == 0 {
						id := s.Request.IDs[0]
						hub.Publish(appliance.TestStarted{At: time.Now(), Test: appliance.Test{ID: id, Role: throughput.Client}})
						hub.Publish(appliance.TestProgressed{At: time.Now(), ID: id, Progress: throughput.Progress{ElapsedS: 1, TXBPS: 1e9}})
						break
					}
				}
			}()
			var out, errs bytes.Buffer
			seen := writerFunc(func(p []byte) (int, error) { // the command has seen the test run
				defer after(hub, "1", stop)
				return out.Write(p)
			})
			for end := time.Now().Add(5 * time.Second); ; {
				if web.NewClient(filepath.Join(dir, "linerate.sock")).Get(ctx, "/healthz", new([]byte)) == nil {
					break
				}
				if time.Now().After(end) {
					t.Fatal("the API does not answer")
				}
			}
			status := run(t.Context(), []string{"test", "192.0.2.10", "--run-dir", dir, "--state-dir", dir}, seen, &errs)
			if status != 1 || !strings.Contains(errs.String(), want) || strings.Count(errs.String(), "\n") != 1 {
				t.Errorf("status %d, stderr %q, want 1 and one line with %q", status, errs.String(), want)
			}
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
