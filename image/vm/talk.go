package vm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// monitor is the emulator's own control (QMP).
type monitor struct {
	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Scanner
}

// maxLine bounds a line of the monitor's.
const maxLine = 1 << 20

func newMonitor(c net.Conn) (*monitor, error) {
	m := &monitor{conn: c, in: bufio.NewScanner(c)}
	m.in.Buffer(nil, maxLine)
	if !m.in.Scan() { // its greeting
		return nil, fmt.Errorf("the emulator's monitor says nothing: %w", errors.Join(m.in.Err(), io.ErrUnexpectedEOF))
	}
	return m, m.do("qmp_capabilities", nil)
}

// do runs one command of QEMU's QMP reference.
func (m *monitor) do(command string, arguments any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return err
	}
	if err := m.conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := m.conn.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("the emulator's monitor: %s: %w", command, err)
	}
	for m.in.Scan() {
		var answer struct {
			Return json.RawMessage               `json:"return"`
			Error  *struct{ Class, Desc string } `json:"error"`
		}
		if err := json.Unmarshal(m.in.Bytes(), &answer); err != nil {
			return fmt.Errorf("the emulator's monitor: %w", err)
		}
		switch {
		case answer.Error != nil:
			return fmt.Errorf("the emulator's monitor: %s: %s", command, answer.Error.Desc)
		case answer.Return != nil:
			return nil
		}
	}
	return fmt.Errorf("the emulator's monitor: %s: %w", command, errors.Join(m.in.Err(), io.ErrUnexpectedEOF))
}

// Press presses and lets go a key of the virtual keyboard, named as QEMU's QKeyCode has it: up, ret, f1 ...
func (m *Machine) Press(key string) error {
	type value struct {
		Type string `json:"type"`
		Data string `json:"data"`
	}
	return m.monitor.do("send-key", map[string]any{"keys": []value{{"qcode", key}}, "hold-time": 60})
}

// SetLink plugs a cable in or pulls it out, by the id of the port's device.
func (m *Machine) SetLink(id string, up bool) error {
	return m.monitor.do("set_link", map[string]any{"name": id, "up": up})
}

// shell is a root shell in the guest, behind a virtual serial port. It is the tests' hand inside of the box, and no part
// of the product.
type shell struct {
	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Reader
	lost error // what it failed of; whose answer comes next is not known any more
}

func newShell(c net.Conn) *shell { return &shell{conn: c, in: bufio.NewReader(c)} }

// maxOutput bounds what a command may print.
const maxOutput = 8 << 20

// exitError is a command that ended with another status than 0.
type exitError struct {
	status int
	output string
}

func (e exitError) Error() string { return fmt.Sprintf("status %d: %s", e.status, last(e.output)) }

// Run runs a shell command in the guest as root and returns what it prints, both streams. It waits for the guest to have
// come up; after a deadline has passed the shell is of no use any more.
func (m *Machine) Run(ctx context.Context, command string) (string, error) {
	s := m.shell
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil {
		return "", fmt.Errorf("the shell in the guest is of no use since: %w", s.lost)
	}
	out, err := s.run(ctx, command)
	if err != nil {
		err = fmt.Errorf("in the guest: %s: %w", command, err)
		if !errors.As(err, new(exitError)) {
			s.lost = err
		}
	}
	return out, err
}

func (s *shell) run(ctx context.Context, command string) (string, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Minute)
	}
	if err := s.conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	mark := rand.Text()
	// In a subshell, so that it can do no harm to the next one.
	if _, err := fmt.Fprintf(s.conn, "(\n%s\n) </dev/null 2>&1; s=$?; echo; echo %s $s\n", command, mark); err != nil {
		return "", err
	}
	var out bytes.Buffer
	for {
		line, err := s.in.ReadString('\n')
		if rest, ok := strings.CutPrefix(line, mark+" "); ok {
			status, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				return "", err
			}
			text := strings.TrimSuffix(out.String(), "\n")
			if status != 0 {
				return text, exitError{status, text}
			}
			return text, nil
		}
		out.WriteString(line)
		if err == nil && out.Len() > maxOutput {
			err = fmt.Errorf("more than %d bytes", maxOutput)
		}
		if err != nil {
			return out.String(), err
		}
	}
}
