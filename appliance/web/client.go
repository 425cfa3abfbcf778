package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"
)

// ErrNotRunning says that no appliance answers at the socket.
var ErrNotRunning = errors.New("the appliance is not running")

// ErrForbidden says that the caller may read but not change.
var ErrForbidden = errors.New("not allowed")

// maxAnswer bounds what a command reads from the appliance.
const maxAnswer = 256 << 20

// Client talks to the appliance over its unix socket.
type Client struct {
	path string
	http *http.Client
}

// NewClient talks to the appliance whose socket is at path. It connects when it is used.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: 3 * time.Second}
		return d.DialContext(ctx, "unix", path)
	}
	return &Client{path: path, http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Get reads what path names into v: a *[]byte takes the answer as it is, all else is decoded from JSON.
func (c *Client) Get(ctx context.Context, path string, v any) error {
	return c.do(ctx, http.MethodGet, path, nil, v)
}

// Send sends body as JSON (nil: none) and reads the answer into v (nil: not wanted).
func (c *Client) Send(ctx context.Context, method, path string, body, v any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	return c.do(ctx, method, path, data, v)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, v any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	answer, err := c.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	data, err := io.ReadAll(io.LimitReader(answer, maxAnswer))
	if err != nil {
		return fmt.Errorf("answer to %s %s: %w", method, path, err)
	}
	switch v := v.(type) {
	case nil:
		return nil
	case *[]byte:
		*v = data
		return nil
	default:
		if err := json.Unmarshal(data, v); err != nil {
			return fmt.Errorf("answer to %s %s: %w", method, path, err)
		}
		return nil
	}
}

// Events calls each with every State the appliance sends, as JSON, until it returns false or ctx ends.
func (c *Client) Events(ctx context.Context, each func(state []byte) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := c.open(ctx, http.MethodGet, "/api/v1/events", nil)
	if err != nil {
		return err
	}
	defer answer.Close()
	lines := bufio.NewScanner(answer)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok && !each(data) {
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("events: %w", err)
	}
	return fmt.Errorf("events ended: %w", ErrNotRunning)
}

func (c *Client) open(ctx context.Context, method, path string, body []byte) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://linerate"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("%w: nobody answers at %s (start it with `linerate serve`)", ErrNotRunning, c.path)
		}
		return nil, fmt.Errorf("appliance at %s: %w", c.path, err)
	}
	if resp.StatusCode < 300 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	p := Problem{Status: resp.StatusCode}
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if json.Unmarshal(data, &p) != nil || p.Detail == "" {
		p.Detail = strings.TrimSpace(resp.Status)
	}
	if resp.StatusCode == http.StatusForbidden {
		return nil, fmt.Errorf("%w: %s", ErrForbidden, p.Detail)
	}
	return nil, &p
}
