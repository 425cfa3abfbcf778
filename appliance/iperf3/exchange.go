package iperf3

import (
	"encoding/json"
	"fmt"

	"linerate/appliance/throughput"
)

// results are what the two ends tell each other after a test.
type results struct {
	CPUTotal, CPUUser, CPUSystem float64 // % of a core
	Retransmits                  int     // whether the sender counts them: 1, 0, or -1 for who is no sender
	Congestion                   string
	Streams                      []streamResult
	OutputText                   string
	OutputJSON                   json.RawMessage
}

// streamResult of one stream. A sender counts what it sent, a receiver what came; omitted seconds do not count.
type streamResult struct {
	ID             int
	Bytes          int64
	Retransmits    int64 // -1: unknown
	Jitter         float64
	Errors         int64 // lost
	OmittedErrors  int64
	Packets        int64
	OmittedPackets int64
	TellsOmitted   bool    // both are there: versions from 3.14
	End            float64 // s
}

// streamID of the i-th stream: 1, 3, 4, 5 ...
func streamID(i int) int {
	if i == 0 {
		return 1
	}
	return i + 2
}

// decodeResults reads the peer's results, of which at most limit streams make sense.
func decodeResults(raw []byte, limit int) (results, error) {
	o, err := parseObject(raw)
	if err != nil {
		return results{}, fmt.Errorf("results: %w", err)
	}
	var r results
	need := func(o *object, key string) float64 {
		v, ok := o.number(key)
		if !ok {
			o.fail(key, "there")
		}
		return v
	}
	r.CPUTotal, r.CPUUser, r.CPUSystem = need(o, "cpu_util_total"), need(o, "cpu_util_user"), need(o, "cpu_util_system")
	r.Retransmits = int(max(-1, min(1, need(o, "sender_has_retransmits"))))
	r.Congestion = o.text("congestion_used")
	r.OutputText = o.text("server_output_text")
	r.OutputJSON = o.fields["server_output_json"]
	if o.err != nil {
		return results{}, fmt.Errorf("results: %w", o.err)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(o.fields["streams"], &list); err != nil {
		return results{}, fmt.Errorf("results: streams: %w", err)
	}
	if len(list) > limit {
		return results{}, fmt.Errorf("results: %d streams of at most %d", len(list), limit)
	}
	for i, raw := range list {
		o, err := parseObject(raw)
		if err != nil {
			return results{}, fmt.Errorf("results: stream %d: %w", i, err)
		}
		var s streamResult
		count := func(key string, must bool) int64 {
			v, ok := o.integer(key)
			if !ok && must {
				o.fail(key, "there")
			}
			return v
		}
		s.ID, s.Bytes, s.Retransmits = int(count("id", true)), count("bytes", true), count("retransmits", true)
		s.Errors, s.Packets = count("errors", true), count("packets", true)
		s.OmittedErrors, s.OmittedPackets = count("omitted_errors", false), count("omitted_packets", false)
		_, s.TellsOmitted = o.fields["omitted_packets"]
		s.Jitter = need(o, "jitter")
		s.End, _ = o.number("end_time")
		if o.err == nil && s.Bytes < 0 {
			o.fail("bytes", "a size")
		}
		if o.err != nil {
			return results{}, fmt.Errorf("results: stream %d: %w", i, o.err)
		}
		r.Streams = append(r.Streams, s)
	}
	return r, nil
}

func (r results) encode() []byte {
	list := make([]map[string]any, len(r.Streams))
	for i, s := range r.Streams {
		list[i] = map[string]any{
			"id": s.ID, "bytes": s.Bytes, "retransmits": s.Retransmits, "jitter": s.Jitter, "errors": s.Errors,
			"omitted_errors": s.OmittedErrors, "packets": s.Packets, "omitted_packets": s.OmittedPackets,
			"start_time": 0, "end_time": s.End,
		}
	}
	m := map[string]any{
		"cpu_util_total": r.CPUTotal, "cpu_util_user": r.CPUUser, "cpu_util_system": r.CPUSystem,
		"sender_has_retransmits": r.Retransmits, "streams": list,
	}
	if r.Congestion != "" {
		m["congestion_used"] = r.Congestion
	}
	if r.OutputText != "" {
		m["server_output_text"] = r.OutputText
	}
	if len(r.OutputJSON) > 0 {
		m["server_output_json"] = r.OutputJSON
	}
	b, _ := json.Marshal(m) // numbers and strings: cannot fail
	return b
}

// byID finds a peer's stream, nil if it does not report it.
func (r results) byID(id int) *streamResult {
	for i := range r.Streams {
		if r.Streams[i].ID == id {
			return &r.Streams[i]
		}
	}
	return nil
}

// inFlight is what the sockets of a stream may hold: the usual limits of tcp_wmem and tcp_rmem together.
const inFlight = 64 << 20

// received sums what the peer received on the given streams, by index, and how long it took. A peer that claims more than
// was sent is not believed, but for what was in flight when the omitted seconds were over.
func (r results) received(index []int, flows []throughput.Counters) (bytes int64, seconds float64, ok bool) {
	for _, i := range index {
		s := r.byID(streamID(i))
		if s == nil || s.Bytes > flows[i].Moved+flows[i].Moved/10+inFlight {
			return 0, 0, false
		}
		bytes += s.Bytes
		seconds = max(seconds, s.End)
	}
	return bytes, seconds, len(index) > 0
}
