package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// memory is a store without a disk.
type memory struct {
	seq  int
	list []results.Record
}

func (m *memory) Reserve() string { m.seq++; return strconv.Itoa(m.seq) }
func (m *memory) Last(n int) []results.Record {
	if n > 0 && n < len(m.list) {
		return m.list[:n]
	}
	return m.list
}
func (m *memory) Get(id string) (results.Record, bool) {
	for _, r := range m.list {
		if r.ID == id {
			return r, true
		}
	}
	return results.Record{}, false
}

// TestMain can also be the stranger of TestStrangerMayOnlyRead.
func TestMain(m *testing.M) {
	if path := os.Getenv("LINERATE_TEST_STRANGER"); path != "" {
		c := NewClient(path)
		fmt.Println("read:", c.Get(context.Background(), "/api/v1/state", nil))
		err := c.Send(context.Background(), http.MethodPost, "/api/v1/keys/select", nil, nil)
		fmt.Println("change forbidden:", errors.Is(err, ErrForbidden))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve runs the API on a socket of its own.
func serve(t *testing.T) (*appliance.Hub, *memory, *Client, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "web") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "linerate.sock")
	hub := appliance.NewHub(appliance.New("t", "generic", "box", config.Default()))
	store := &memory{list: []results.Record{
		{Stamp: results.Stamp{ID: "8", Seq: 8}, Result: throughput.Result{Peer: "192.0.2.7", BPS: 2e9, Valid: true}},
		{Stamp: results.Stamp{ID: "7", Seq: 7}, Result: throughput.Result{Peer: "192.0.2.7", BPS: 1e9, Valid: true}},
	}}
	api := &API{Hub: hub, Store: store, Log: slog.New(slog.DiscardHandler),
		Screen: func(s appliance.State) ([]byte, error) { return []byte("picture of " + s.Page), nil }}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- api.Task(path).Run(ctx, hub) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the API ended with %v", err)
		}
	})
	client := NewClient(path)
	for wait := time.Now(); client.Get(t.Context(), "/healthz", new([]byte)) != nil; {
		if time.Since(wait) > 5*time.Second {
			t.Fatal("the API does not answer")
		}
	}
	return hub, store, client, path
}

func TestReads(t *testing.T) {
	hub, _, c, _ := serve(t)
	hub.Publish(appliance.PortsSeen{At: time.Now(), Ports: []appliance.Port{{Name: "eth1"}}})
	var state map[string]any
	if err := c.Get(t.Context(), "/api/v1/state", &state); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"version", "board", "name", "uptime_s", "clock", "ports", "running", "results", "findings", "faults",
		"health", "page", "targets", "config", "network_change"} {
		if _, ok := state[name]; !ok {
			t.Errorf("the state has no %q", name)
		}
	}
	for _, list := range []string{"ports", "findings", "targets", "results"} {
		var v []any
		if err := c.Get(t.Context(), "/api/v1/"+list, &v); err != nil || v == nil {
			t.Errorf("%s: %v, %v; want an array", list, v, err)
		}
	}
	var last []results.Record
	if err := c.Get(t.Context(), "/api/v1/results?limit=1", &last); err != nil || len(last) != 1 || last[0].ID != "8" {
		t.Errorf("limit=1: %v, %v", last, err)
	}
	var csv []byte
	if err := c.Get(t.Context(), "/api/v1/results?format=csv", &csv); err != nil || !bytes.HasPrefix(csv, []byte("id,seq,run,time,clock")) {
		t.Errorf("csv %.60s, %v", csv, err)
	}
	var picture []byte
	if err := c.Get(t.Context(), "/api/v1/screen.png", &picture); err != nil {
		t.Fatal(err)
	}
	if string(picture) != "picture of boot" {
		t.Errorf("screen: %q", picture)
	}
}

func TestErrorsAreProblems(t *testing.T) {
	_, _, c, _ := serve(t)
	for _, r := range []struct {
		method, path, body string
		status             int
		mentions           string
	}{
		{"GET", "/api/v1/results/99", "", 404, `no result "99"`},
		{"GET", "/api/v1/results?limit=x", "", 400, "no positive number"},
		{"GET", "/api/v1/results?format=xml", "", 400, "use json or csv"},
		{"GET", "/nowhere", "", 404, "there is no GET /nowhere"},
		{"DELETE", "/api/v1/tests/99", "", 404, `no test "99"`},
		{"POST", "/api/v1/keys/q", "", 404, `no key "q"`},
		{"POST", "/api/v1/tests", "{", 400, "unexpected EOF"},
		{"POST", "/api/v1/tests", `{"host":"a","hots":1}`, 400, `unknown field "hots"`},
		{"POST", "/api/v1/tests", `{"host":"a"} {}`, 400, "more than one"},
		{"POST", "/api/v1/tests", `{"host":5}`, 400, "cannot unmarshal"},
		{"POST", "/api/v1/tests", `{}`, 400, "neither host nor target"},
		{"POST", "/api/v1/tests", `{"target":"core"}`, 400, `target "core" is not known`},
		{"POST", "/api/v1/tests", `{"host":"a","streams":500}`, 400, "streams = 500"},
		{"POST", "/api/v1/tests", `{"host":"` + strings.Repeat("a", maxBody) + `"}`, 400, "too large"},
	} {
		req, _ := http.NewRequest(r.method, "http://linerate"+r.path, strings.NewReader(r.body))
		resp, err := c.http.Do(req)
		if err != nil {
			t.Errorf("%s %s: %v", r.method, r.path, err)
			continue
		}
		var p Problem
		data, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if json.Unmarshal(data, &p) != nil || resp.StatusCode != r.status || p.Status != r.status ||
			resp.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(p.Detail, r.mentions) {
			t.Errorf("%s %s: %d %s, want %d with %q", r.method, r.path, resp.StatusCode, data, r.status, r.mentions)
		}
	}
}

func TestStartAndCancel(t *testing.T) {
	hub, _, c, _ := serve(t)
	spec := throughput.Spec{Host: "192.0.2.10", Direction: throughput.RX}
	var accepted Accepted
	if err := c.Send(t.Context(), http.MethodPost, "/api/v1/tests", spec, &accepted); err != nil || accepted.ID != "1" {
		t.Fatalf("%+v, %v", accepted, err)
	}
	if r := hub.State().Request; r == nil || r.Specs[0].Host != "192.0.2.10" || r.IDs[0] != "1" {
		t.Fatalf("request %+v", r)
	}
	if err := c.Send(t.Context(), http.MethodPost, "/api/v1/tests", spec, nil); err == nil || !strings.Contains(err.Error(), "still running") {
		t.Errorf("a second test: %v, want a conflict", err)
	}
	if err := c.Send(t.Context(), http.MethodDelete, "/api/v1/tests/1", nil, nil); err != nil || !hub.State().Request.Cancelled {
		t.Errorf("cancel: %v", err)
	}
}

// What was found when the menu was open may be gone when the test begins: the request carries its address.
func TestStartToAFoundTarget(t *testing.T) {
	hub, _, c, _ := serve(t)
	hub.Publish(appliance.TargetsSeen{Found: []appliance.Target{{Name: "laptop", Host: "192.0.2.7", Source: appliance.SourcePeer}}})
	if err := c.Send(t.Context(), http.MethodPost, "/api/v1/tests", throughput.Spec{Target: "laptop"}, nil); err != nil {
		t.Fatal(err)
	}
	if r := hub.State().Request; r.Specs[0].Host != "192.0.2.7" || r.Specs[0].Target != "laptop" {
		t.Errorf("request %+v", r)
	}
}

func TestExclusiveBoxIsBusy(t *testing.T) {
	hub, _, c, _ := serve(t)
	cfg := config.Default()
	cfg.Server.Concurrency = config.Exclusive
	hub.Publish(appliance.ConfigLoaded{At: time.Now(), Config: cfg})
	hub.Publish(appliance.TestStarted{At: time.Now(), Test: appliance.Test{ID: "5", Peer: "192.0.2.7", Role: throughput.Server}})
	err := c.Send(t.Context(), http.MethodPost, "/api/v1/tests", throughput.Spec{Host: "192.0.2.10"}, nil)
	if err == nil || !strings.Contains(err.Error(), "192.0.2.7 is testing") {
		t.Errorf("%v, want busy", err)
	}
}

func TestEvents(t *testing.T) {
	hub, _, c, _ := serve(t)
	n := 0
	err := c.Events(t.Context(), func(data []byte) bool {
		var s struct{ Page appliance.Page }
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		n++
		if n == 1 {
			hub.Publish(appliance.ButtonPressed{At: time.Now(), Key: appliance.Select})
			hub.Publish(appliance.ButtonPressed{At: time.Now(), Key: appliance.Select})
		}
		return s.Page != appliance.PageMenu
	})
	if err != nil || n < 2 {
		t.Errorf("%d events, %v", n, err)
	}
}

// Listeners are bounded, and one that goes makes room.
func TestEventsAreBounded(t *testing.T) {
	_, _, c, _ := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listening, ended := make(chan bool, maxStreams), make(chan bool, maxStreams)
	for range maxStreams {
		go func() {
			first := true
			_ = c.Events(ctx, func([]byte) bool {
				if first {
					listening <- true
				}
				first = false
				return true
			})
			ended <- true
		}()
	}
	for range maxStreams {
		<-listening
	}
	none := func([]byte) bool { return false }
	if err := c.Events(ctx, none); err == nil || !strings.Contains(err.Error(), "listen already") {
		t.Errorf("one more: %v, want a refusal", err)
	}
	cancel()
	for range maxStreams {
		<-ended
	}
	for end := time.Now().Add(5 * time.Second); c.Events(t.Context(), none) != nil; {
		if time.Now().After(end) {
			t.Fatal("there is no room after all others went")
		}
		time.Sleep(time.Millisecond) // between two tries: the server sees the others go
	}
}

func TestNobodyThere(t *testing.T) {
	err := NewClient(filepath.Join(t.TempDir(), "no.sock")).Get(t.Context(), "/api/v1/state", nil)
	if !errors.Is(err, ErrNotRunning) {
		t.Errorf("%v, want ErrNotRunning", err)
	}
}

func TestLeftOverSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "linerate.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	syscall.Close(fd) // a crash: the file stays, nobody listens
	l, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := listenUnix(path); err == nil || !strings.Contains(err.Error(), "already answers") {
		t.Errorf("second appliance on one socket: %v", err)
	}
}

func TestStrangerMayOnlyRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	_, _, _, path := serve(t)
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(filepath.Dir(path), "stranger") // where the other user may run it
	if err := os.WriteFile(copied, exe, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied)
	cmd.Env = append(os.Environ(), "LINERATE_TEST_STRANGER="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "read: <nil>") || !strings.Contains(string(out), "change forbidden: true") {
		t.Errorf("%v: %s", err, out)
	}
}
