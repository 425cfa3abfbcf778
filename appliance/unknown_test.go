package appliance

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"linerate/appliance/throughput"
)

func TestUnknownIsNull(t *testing.T) {
	for _, c := range []struct {
		v    any
		null []string
		all  []string // every name of INTERFACE.md
	}{
		{&Test{Role: throughput.Server, Peer: "192.0.2.7", Waiting: true}, []string{"id", "port", "direction", "protocol", "target"},
			[]string{"id", "role", "peer", "port", "direction", "protocol", "streams", "bps", "elapsed_s", "seconds", "waiting"}},
		{Health{}, []string{"governor", "temperature_c", "frequency_khz", "busiest_core_percent"}, nil},
		{Finding{Code: "not-the-box"}, []string{"port"},
			[]string{"code", "severity", "port", "title", "detail", "remedy", "automatic", "done"}},
		{Target{Name: "core", Host: "192.0.2.10"}, []string{"via", "tcp_port", "expect_bps", "answers"}, nil},
		{ConfigState{Valid: true}, []string{"error"}, []string{"valid", "error"}},
		{Port{Name: "eth1"}, []string{"role", "driver", "master", "speed_mbps", "usb", "pcie"},
			[]string{"name", "role", "path", "driver", "firmware", "mac", "link", "speed_mbps", "duplex", "autoneg", "mtu", "mtu_min",
				"mtu_max", "master", "test", "addresses", "supported_modes", "advertised_modes", "peer_modes", "pause", "eee", "wol",
				"features", "carrier_changes", "usb", "pcie"}},
	} {
		data, err := json.Marshal(c.v)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		for _, name := range append(c.null, c.all...) {
			if _, ok := got[name]; !ok {
				t.Errorf("%T has no %q: %s", c.v, name, data)
			}
		}
		for _, name := range c.null {
			if got[name] != nil {
				t.Errorf("%T: %s = %v, want null", c.v, name, got[name])
			}
		}
	}
}

// What is known is written as it is, and read back.
func TestKnownIsReadBack(t *testing.T) {
	s := State{
		Running:     []*Test{{ID: "7", Role: throughput.Client, Peer: "192.0.2.7", Port: "eth1", Direction: throughput.RX, Protocol: throughput.TCP, Target: "core"}},
		Health:      Health{Governor: "performance"},
		Findings:    []Finding{{Code: "eee-active", Port: "lan1"}},
		Targets:     []Target{{Name: "core", Host: "192.0.2.10", Engine: "iperf3", TCPPort: 5202, Via: "lan1", ExpectBPS: 2.3e9, Source: SourceConfig}},
		ConfigState: ConfigState{Error: "bad"},
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var got State
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{s.Running, s.Health, s.Findings, s.Targets, s.ConfigState},
		[]any{got.Running, got.Health, got.Findings, got.Targets, got.ConfigState}); diff != "" {
		t.Errorf("(-written +read)\n%s", diff)
	}
}
