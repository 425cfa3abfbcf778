package web

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"linerate/appliance"
	"linerate/appliance/config"
)

// FuzzBody sends bodies as the commands and a stranger send them. Whatever comes, the answer is one of the API's own and a
// request that was taken is a complete one.
func FuzzBody(f *testing.F) {
	f.Add("POST", "/api/v1/tests", `{"host":"192.0.2.10","direction":"rx","streams":4,"interval_s":1,"connect_timeout_ms":5000}`)
	f.Add("POST", "/api/v1/tests", `{"target":"core","seconds":10}`)
	f.Add("PATCH", "/api/v1/settings", `{"ports.mtu":9000,"test.directions":["rx"],"cpu.governor":null}`)
	f.Add("POST", "/api/v1/keys/select", "")
	f.Add("DELETE", "/api/v1/tests/17", "")
	f.Add("GET", "/api/v1/results?limit=5&format=csv", "")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		hub := appliance.NewHub(appliance.New("t", "generic", "box", config.Default()))
		api := &API{Hub: hub, Store: &memory{}, Log: slog.New(slog.DiscardHandler),
			Screen: func(appliance.State) ([]byte, error) { return []byte("picture"), nil },
			Patch:  func(map[string]any) ([]config.Key, error) { return nil, nil },
		}
		if !strings.HasPrefix(path, "/") || strings.Contains(path, "events") {
			return // events is a stream without an end
		}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), accessKey{}, access{local: true, change: true}))
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, "http://linerate"+path, strings.NewReader(body))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		api.Handler().ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s %s %q: %d %s", method, path, body, w.Code, w.Body)
		}
		if w.Code >= 400 && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: error of type %q", method, path, w.Header().Get("Content-Type"))
		}
		if request := hub.State().Request; request != nil {
			for _, s := range request.Specs {
				if err := s.WithDefaults().Check(); err != nil || s.Host == "" && s.Target == "" {
					t.Errorf("%s was taken: %+v, %v", body, s, err)
				}
			}
		}
	})
}
