package buttons

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"linerate/appliance"
	"linerate/appliance/config"
)

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// The Task follows [buttons] of the config, says what it does once, and ends with its context.
func TestTask(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "dev/input")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	// Something that is no input device: opened, asked, said, left.
	if err := os.WriteFile(filepath.Join(folder, "event0"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	hub := appliance.NewHub(appliance.New("test", "test", "test", cfg))
	var log logBuffer
	task := Task(Options{Root: root, Log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- task.Run(ctx, hub) }()
	b := &box{t: t}
	faults := func() (titles []string) {
		for _, f := range hub.State().Faults {
			if f.Task == task.Name {
				titles = append(titles, f.Title)
			}
		}
		return titles
	}
	b.until("no keys are said", func() bool { return log.count("no keys:") == 1 })
	b.until("what cannot be read is a fault", func() bool { return strings.Join(faults(), ",") == "cannot read event0" })

	cfg.Display.Rotate = 180 // not ours: nothing is opened anew
	hub.Publish(appliance.ConfigLoaded{Config: cfg})
	cfg.Buttons.Enable = false
	hub.Publish(appliance.ConfigLoaded{Config: cfg})
	b.until("off", func() bool { return log.count("keys are off") == 1 })
	if got := faults(); len(got) > 0 {
		t.Errorf("faults %q though the keys are off", got)
	}
	if n := log.count("no keys:"); n != 1 {
		t.Errorf("looked for keys %d times", n)
	}
	cfg.Buttons.Enable = true
	cfg.Buttons.Devices = []string{"Pad"}
	hub.Publish(appliance.ConfigLoaded{Config: cfg})
	b.until("a named device is missing", func() bool { return strings.Contains(strings.Join(faults(), ","), "no keys Pad") })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
