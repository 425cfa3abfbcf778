// Package web serves the box's API: over the unix socket to the commands and every local user.
//
// A handler reads the State or publishes an event and never waits for another part, but for the two that stream: events,
// and a result that is being read from the disk. Every body that comes in is bounded, every answer that is an error is
// application/problem+json (RFC 9457). Serve owns its listener and closes it, and every connection, when its context ends.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// Limits of a request.
const (
	maxBody      = 64 << 10
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	eventGap     = 100 * time.Millisecond // between two States of the event stream
	maxStreams   = 32                     // of events at once: each writes the whole State at every change
)

// Store is where results are read and ids come from.
type Store interface {
	Reserve() (id string)
	Last(n int) []results.Record // newest first, without intervals; n <= 0: all
	Get(id string) (r results.Record, ok bool)
}

// API is what the handlers need; Hub and Store must be set.
type API struct {
	Hub    *appliance.Hub
	Store  Store
	Screen func(appliance.State) ([]byte, error) // the panel's picture, as PNG
	// Patch stores settings, all or none, and returns the keys of the config that is then in force; nil: there are none. A
	// nil value takes a setting away.
	Patch func(values map[string]any) ([]config.Key, error)
	Log   *slog.Logger

	streams atomic.Int32 // of events, now
}

// Task serves the API on a unix socket of mode 0666, in place of a socket that a server before left there.
func (a *API) Task(path string) appliance.Task {
	return appliance.Task{Name: "api", Run: func(ctx context.Context, hub *appliance.Hub) error {
		l, err := listenUnix(path)
		if err != nil {
			return err
		}
		return a.Serve(ctx, l)
	}}
}

func listenUnix(path string) (net.Listener, error) {
	// A socket that nobody answers at is left over from a crash; one that answers belongs to a running appliance.
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return nil, fmt.Errorf("an appliance already answers at %s: stop it first, or use another --run-dir", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("folder of the API's socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("old API socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("API socket: %w", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		l.Close()
		return nil, fmt.Errorf("API socket: %w", err)
	}
	return l, nil
}

// Serve answers on l until ctx ends.
func (a *API) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: a.Handler(), ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ConnContext: withAccess,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("API: %w", err)
	}
	return nil
}

// Handler is the API without a listener.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	read := func(pattern string, pick func(appliance.State) any) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
			writeJSON(w, http.StatusOK, pick(a.Hub.State()))
		})
	}
	change := func(pattern string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !accessOf(r).change {
				problem(w, http.StatusForbidden, "only root, the server's own user and members of group "+Group+
					" may change things: add the user to the group, or use sudo")
				return
			}
			h(w, r)
		})
	}
	read("/api/v1/state", func(s appliance.State) any { return s })
	read("/api/v1/ports", func(s appliance.State) any { return s.Ports })
	read("/api/v1/findings", func(s appliance.State) any { return s.Findings })
	read("/api/v1/settings", func(s appliance.State) any { return settable(s.Keys) })
	read("/api/v1/targets", func(s appliance.State) any { return s.Targets })
	mux.HandleFunc("GET /api/v1/results", a.results)
	mux.HandleFunc("GET /api/v1/results/{id}", a.result)
	mux.HandleFunc("GET /api/v1/screen.png", a.screen)
	mux.HandleFunc("GET /api/v1/events", a.events)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") })
	change("POST /api/v1/tests", a.startTest)
	change("DELETE /api/v1/tests/{id}", a.cancelTest)
	change("PATCH /api/v1/settings", a.patch)
	change("POST /api/v1/keys/{key}", a.pressKey)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path+" here")
	})
	return mux
}

func (a *API) results(w http.ResponseWriter, r *http.Request) {
	limit := 0
	if text := r.FormValue("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			problem(w, http.StatusBadRequest, "limit = "+strconv.Quote(text)+" is no positive number")
			return
		}
		limit = n
	}
	list := a.Store.Last(limit)
	switch format := r.FormValue("format"); format {
	case "", "json":
		writeJSON(w, http.StatusOK, list)
	case "csv":
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		if err := results.WriteCSV(w, list); err != nil {
			a.Log.Debug("csv not sent", "error", err)
		}
	default:
		problem(w, http.StatusBadRequest, "format = "+strconv.Quote(format)+" is unknown: use json or csv")
	}
}

func (a *API) result(w http.ResponseWriter, r *http.Request) {
	record, ok := a.Store.Get(r.PathValue("id"))
	if !ok {
		problem(w, http.StatusNotFound, "there is no result "+strconv.Quote(r.PathValue("id")))
		return
	}
	writeJSON(w, http.StatusOK, record)
}

// Accepted is the answer to a test that was asked for.
type Accepted struct {
	ID  string `json:"id"`
	Run string `json:"run"`
}

func (a *API) startTest(w http.ResponseWriter, r *http.Request) {
	var spec throughput.Spec
	if !readJSON(w, r, &spec) {
		return
	}
	state := a.Hub.State()
	if spec.Host == "" && spec.Target == "" {
		problem(w, http.StatusBadRequest, "neither host nor target is given: say whom to test to")
		return
	}
	if spec.Target != "" {
		t, known := state.FindTarget(spec.Target)
		if !known {
			problem(w, http.StatusBadRequest, fmt.Sprintf("target %q is not known: GET /api/v1/targets lists them", spec.Target))
			return
		}
		spec.Host = t.Host // a target that was found may be gone when the test begins
	}
	if err := spec.WithDefaults().Check(); err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	if len(state.Running) > 0 && state.Config.Server.Concurrency == config.Exclusive {
		problem(w, http.StatusConflict, "the box is busy and exclusive: "+state.Running[0].Peer+" is testing")
		return
	}
	id := a.Store.Reserve()
	state = a.Hub.Publish(appliance.TestRequested{At: time.Now(), Specs: []throughput.Spec{spec}, IDs: []string{id}})
	if state.Request == nil || !slices.Contains(state.Request.IDs, id) {
		problem(w, http.StatusConflict, "a test started on this box is still running: wait for its end, or cancel it")
		return
	}
	writeJSON(w, http.StatusAccepted, Accepted{ID: id, Run: id})
}

func (a *API) cancelTest(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	state := a.Hub.State()
	running := slices.ContainsFunc(state.Running, func(t *appliance.Test) bool { return t.ID == id })
	if !running && (state.Request == nil || !slices.Contains(state.Request.IDs, id)) {
		problem(w, http.StatusNotFound, "no test "+strconv.Quote(id)+" is running")
		return
	}
	a.Hub.Publish(appliance.CancelRequested{At: time.Now(), ID: id})
	w.WriteHeader(http.StatusNoContent)
}

// settable are the keys that PATCH takes.
func settable(keys []config.Key) []config.Key {
	list := []config.Key{}
	for _, k := range keys {
		if k.Settable {
			list = append(list, k)
		}
	}
	return list
}

func (a *API) patch(w http.ResponseWriter, r *http.Request) {
	var values map[string]any
	if !readJSON(w, r, &values) {
		return
	}
	if a.Patch == nil {
		problem(w, http.StatusConflict, "this appliance keeps no settings")
		return
	}
	keys, err := a.Patch(values)
	var refused *config.SettingError
	switch {
	case errors.As(err, &refused):
		problem(w, http.StatusBadRequest, err.Error())
	case err != nil:
		problem(w, http.StatusInternalServerError, err.Error())
	default:
		writeJSON(w, http.StatusOK, settable(keys))
	}
}

func (a *API) pressKey(w http.ResponseWriter, r *http.Request) {
	key := appliance.Key(r.PathValue("key"))
	if !slices.Contains(appliance.Keys, key) {
		problem(w, http.StatusNotFound, fmt.Sprintf("there is no key %q: use one of %v", key, appliance.Keys))
		return
	}
	state := a.Hub.Publish(appliance.ButtonPressed{At: time.Now(), Key: key})
	writeJSON(w, http.StatusOK, map[string]appliance.Page{"page": state.Page})
}

func (a *API) screen(w http.ResponseWriter, r *http.Request) {
	picture, err := a.Screen(a.Hub.State())
	if err != nil {
		problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "image/png")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(picture) // a client that has gone is no matter
}

// events sends one State per change, as server-sent events, for as long as the client listens.
func (a *API) events(w http.ResponseWriter, r *http.Request) {
	defer a.streams.Add(-1)
	if a.streams.Add(1) > maxStreams {
		problem(w, http.StatusServiceUnavailable, fmt.Sprintf("%d listen already: end one of them", maxStreams))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	for state := range a.Hub.Watch(r.Context()) {
		data, err := json.Marshal(state)
		if err != nil {
			a.Log.Error("state not written as JSON", "error", err)
			return
		}
		// A reader that takes nothing for this long is gone; the stream as a whole has no end.
		if out.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "event: state\ndata: %s\n\n", data); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
		case <-time.After(eventGap):
		}
	}
}

// readJSON decodes a body strictly and answers itself where it cannot.
func readJSON(w http.ResponseWriter, r *http.Request, v any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	if err == nil {
		if _, more := dec.Token(); more != io.EOF {
			err = errors.New("there is more than one JSON value")
		}
	}
	if err != nil {
		problem(w, http.StatusBadRequest, "the body is not what is expected here: "+err.Error())
		return false
	}
	return true
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // a client that has gone is no matter
}

// Problem is an error as the API writes it (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// Error returns the detail, which says what to do.
func (p *Problem) Error() string { return p.Detail }

func problem(w http.ResponseWriter, status int, detail string) {
	data, _ := json.Marshal(Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail})
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}
