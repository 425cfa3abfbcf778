package appliance

import (
	"encoding/json"

	"linerate/appliance/throughput"
)

// Each type here writes null for what is unknown, or what there is none of. The fields are texts all the same, so that
// those who read them in Go need no case for it; reading the JSON back gives the empty text again.

// MarshalJSON writes null for what is not known of a test: of one that waits, that is all but its peer.
func (t Test) MarshalJSON() ([]byte, error) {
	type plain Test // without this method
	return json.Marshal(struct {
		ID throughput.Text `json:"id"`
		plain
		Port      throughput.Text `json:"port"`
		Direction throughput.Text `json:"direction"`
		Protocol  throughput.Text `json:"protocol"`
		Target    throughput.Text `json:"target"`
	}{
		throughput.Text(t.ID), plain(t), throughput.Text(t.Port), throughput.Text(t.Direction), throughput.Text(t.Protocol),
		throughput.Text(t.Target),
	})
}

// MarshalJSON writes null where there is no cpufreq.
func (h Health) MarshalJSON() ([]byte, error) {
	type plain Health
	return json.Marshal(struct {
		plain
		Governor throughput.Text `json:"governor"`
	}{plain(h), throughput.Text(h.Governor)})
}

// MarshalJSON writes null for a finding of the box as a whole.
func (f Finding) MarshalJSON() ([]byte, error) {
	type plain Finding
	return json.Marshal(struct {
		plain
		Port throughput.Text `json:"port"`
	}{plain(f), throughput.Text(f.Port)})
}

// MarshalJSON writes null for what the config does not say.
func (t Target) MarshalJSON() ([]byte, error) {
	type plain Target
	var port *int
	if t.TCPPort != 0 {
		port = &t.TCPPort
	}
	var expect *float64
	if t.ExpectBPS != 0 {
		expect = &t.ExpectBPS
	}
	return json.Marshal(struct {
		plain
		TCPPort   *int            `json:"tcp_port"`
		Via       throughput.Text `json:"via"`
		ExpectBPS *float64        `json:"expect_bps"`
	}{plain(t), port, throughput.Text(t.Via), expect})
}

// MarshalJSON writes null where nothing is wrong.
func (c ConfigState) MarshalJSON() ([]byte, error) {
	type plain ConfigState
	return json.Marshal(struct {
		plain
		Error throughput.Text `json:"error"`
	}{plain(c), throughput.Text(c.Error)})
}
