package vm

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// shellOf is a Machine whose guest is a shell of this machine's.
func shellOf(t *testing.T) *Machine {
	t.Helper()
	ours, theirs := net.Pipe()
	cmd := exec.Command("sh")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ours.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &Machine{shell: newShell(ours)}
}

func TestRun(t *testing.T) {
	m := shellOf(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, c := range []struct {
		command, out string
		status       int
	}{
		{"echo a; echo b >&2", "a\nb\n", 0}, {"printf x", "x", 0}, {"false", "", 1}, {"echo no; exit 9", "no\n", 9},
		{"cd /; x=1", "", 0}, {"echo $x; cat", "\n", 0},
	} {
		out, err := m.Run(ctx, c.command)
		var status exitError
		if errors.As(err, &status); out != c.out || status.status != c.status || (err != nil) != (c.status != 0) {
			t.Errorf("%s: %q, %v", c.command, out, err)
		}
	}
	short, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	if _, err := m.Run(short, "sleep 5"); err == nil || errors.As(err, new(exitError)) {
		t.Errorf("beyond the deadline: %v", err)
	}
	if _, err := m.Run(ctx, "echo late"); err == nil || !strings.Contains(err.Error(), "of no use") {
		t.Errorf("after a command whose end was not seen: %v", err)
	}
}

func TestMonitor(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	var asked []string
	go func() {
		defer theirs.Close()
		say := func(s string) { _, _ = theirs.Write([]byte(s + "\n")) }
		say(`{"QMP": {}}`)
		for _, answers := range [][]string{
			{`{"return": {}}`}, {`{"event": "RESUME"}`, `{"return": {}}`}, {`{"error": {"class": "X", "desc": "no such key"}}`}, nil,
		} {
			buf := make([]byte, 4096)
			n, err := theirs.Read(buf)
			if err != nil {
				return
			}
			asked = append(asked, string(buf[:n]))
			for _, a := range answers {
				say(a)
			}
		}
	}()
	mon, err := newMonitor(ours)
	if err != nil {
		t.Fatal(err)
	}
	m := &Machine{monitor: mon}
	if err := m.SetLink("lan1", false); err != nil {
		t.Error(err)
	}
	if err := m.Press("nokey"); err == nil || !strings.Contains(err.Error(), "no such key") {
		t.Errorf("a key that is none: %v", err)
	}
	if err := m.Press("up"); err == nil {
		t.Error("the emulator is gone, and that is no error")
	}
	if want := `{"execute":"set_link","arguments":{"name":"lan1","up":false}}` + "\n"; asked[1] != want {
		t.Errorf("asked %q, not %q", asked[1], want)
	}
}
