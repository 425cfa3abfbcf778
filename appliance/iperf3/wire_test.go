package iperf3

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"linerate/appliance/throughput"
)

// Parameters as real clients sent them.
var recordedParams = map[string]string{
	"3.12":           `{"tcp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":131072,"pacing_timer":1000,"client_version":"3.12"}`,
	"3.12 all":       `{"tcp":true,"omit":1,"time":0,"num":5242880,"blockcount":0,"MSS":1000,"nodelay":true,"parallel":2,"bidirectional":true,"window":65536,"len":1000,"bandwidth":20000000,"fqrate":50000000,"pacing_timer":1000,"burst":10,"TOS":16,"title":"a title","congestion":"reno","get_server_output":1,"repeating_payload":1,"zerocopy":1,"client_version":"3.12"}`,
	"3.12 UDP":       `{"udp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"len":1448,"bandwidth":1048576,"pacing_timer":1000,"client_version":"3.12"}`,
	"3.21 UDP":       `{"udp":true,"omit":0,"time":5,"num":0,"blockcount":0,"parallel":1,"len":1448,"bandwidth":1048576,"pacing_timer":1000,"udp_counters_64bit":1,"gso":0,"gso_dg_size":0,"gso_bf_size":65507,"gro":0,"gro_bf_size":65507,"client_version":"3.21+"}`,
	"3.0":            `{"tcp":true,"omit":0,"time":10,"parallel":1,"len":131072}`,
	"3.1.3 UDP":      `{"udp":true,"omit":0,"time":10,"parallel":1,"bandwidth":1048576}`,
	"large as float": `{"tcp":true,"omit":0,"time":10,"num":1e+12,"blockcount":0,"parallel":1,"len":131072,"bandwidth":1e+11,"client_version":"3.6"}`,
}

func TestDecodeRecordedParams(t *testing.T) {
	tcp, udp := throughput.TCP, throughput.UDP
	for name, want := range map[string]params{
		"3.12": {Protocol: tcp, Time: 1, Streams: 1, Len: 131072, Version: "3.12"},
		"3.12 all": {Protocol: tcp, Bidir: true, Omit: 1, Num: 5 << 20, Streams: 2, Len: 1000, Bandwidth: 20e6, Burst: 10, FQRate: 50e6,
			Window: 65536, MSS: 1000, NoDelay: true, TOS: 16, Congest: "reno", Title: "a title", Version: "3.12", ServerOutput: true,
			Repeating: true, ZeroCopy: true},
		"3.12 UDP": {Protocol: udp, Time: 1, Streams: 1, Len: 1448, Bandwidth: 1048576, Version: "3.12"},
		"3.21 UDP": {Protocol: udp, Time: 5, Streams: 1, Len: 1448, Bandwidth: 1048576, Version: "3.21+", Counters64: true, GSOBatch: 65507},
		"3.0":      {Protocol: tcp, Time: 10, Streams: 1, Len: 131072},
		// 3.1.3 sends no len with its default of 8 KiB.
		"3.1.3 UDP":      {Protocol: udp, Time: 10, Streams: 1, Len: 8192, Bandwidth: 1048576},
		"large as float": {Protocol: tcp, Time: 10, Num: 1e12, Streams: 1, Len: 131072, Bandwidth: 1e11, Version: "3.6"},
	} {
		got, err := decodeParams([]byte(recordedParams[name]))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, want)
		}
	}
}

func TestParamsRoundTrip(t *testing.T) {
	for name, raw := range recordedParams {
		p, err := decodeParams([]byte(raw))
		if err != nil {
			t.Fatal(name, err)
		}
		p.GSO, p.GRO, p.GSOBytes, p.GSOBatch = false, false, 0, 0 // not ours to send
		again, err := decodeParams(p.encode())
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("%s: %+v became %+v, %v", name, p, again, err)
		}
	}
}

func TestKeysCountToTheLetter(t *testing.T) {
	p, err := decodeParams([]byte(`{"tcp":true,"mss":1000,"tos":4,"Parallel":9,"nonsense":{"a":[1]}}`))
	if err != nil || p.MSS != 0 || p.TOS != 0 || p.Streams != 1 {
		t.Errorf("%+v, %v: keys of another case are other keys", p, err)
	}
}

// Results as real clients sent them.
var recordedResults = map[string]string{
	"3.12 sender": `{"cpu_util_total":1.5,"cpu_util_user":0.5,"cpu_util_system":1,"sender_has_retransmits":1,"congestion_used":"cubic","streams":[{"id":1,"bytes":5242880,"retransmits":3,"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":1.000123}]}`,
	"3.12 receiver": `{"cpu_util_total":1.5,"cpu_util_user":0.5,"cpu_util_system":1,"sender_has_retransmits":18446744073709551615,` +
		`"streams":[{"id":1,"bytes":100,"retransmits":18446744073709551615,"jitter":0.00012,"errors":2,"packets":80,"start_time":0,"end_time":1},` +
		`{"id":3,"bytes":200,"retransmits":18446744073709551615,"jitter":0,"errors":0,"packets":81,"start_time":0,"end_time":1}]}`,
	"3.14": `{"cpu_util_total":1,"cpu_util_user":0,"cpu_util_system":1,"sender_has_retransmits":-1,"streams":[{"id":1,"bytes":100,"retransmits":-1,"jitter":0.5,"errors":2,"omitted_errors":1,"packets":80,"omitted_packets":7,"start_time":0,"end_time":1}]}`,
}

func TestDecodeRecordedResults(t *testing.T) {
	r, err := decodeResults([]byte(recordedResults["3.12 sender"]), 1)
	want := results{CPUTotal: 1.5, CPUUser: 0.5, CPUSystem: 1, Retransmits: 1, Congestion: "cubic",
		Streams: []streamResult{{ID: 1, Bytes: 5 << 20, Retransmits: 3, End: 1.000123}}}
	if err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, %v\nwant %+v", r, err, want)
	}
	r, err = decodeResults([]byte(recordedResults["3.12 receiver"]), 2)
	if err != nil || r.Retransmits != -1 || r.Streams[0].Retransmits != -1 || r.byID(3).Packets != 81 || r.byID(2) != nil {
		t.Errorf("-1 as 3.12 writes it: %+v, %v", r, err)
	}
	r, err = decodeResults([]byte(recordedResults["3.14"]), 2)
	if err != nil || r.Streams[0].OmittedPackets != 7 || r.Streams[0].OmittedErrors != 1 {
		t.Errorf("omitted packets: %+v, %v", r, err)
	}
	for name, raw := range recordedResults {
		r, err := decodeResults([]byte(raw), 2)
		if err != nil {
			t.Fatal(name, err)
		}
		for i := range r.Streams {
			r.Streams[i].TellsOmitted = true // we always do
		}
		again, err := decodeResults(r.encode(), 2)
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("%s: %+v became %+v, %v", name, r, again, err)
		}
	}
}

func TestDecodeResultsRefuses(t *testing.T) {
	good := recordedResults["3.12 sender"]
	for name, raw := range map[string]string{
		"no JSON": "{", "an array": "[]", "null": "null", "nothing": "",
		"no cpu":          strings.Replace(good, `"cpu_util_total":1.5,`, "", 1),
		"no retransmits":  strings.Replace(good, `"sender_has_retransmits":1,`, "", 1),
		"no id":           strings.Replace(good, `"id":1,`, "", 1),
		"bytes as text":   strings.Replace(good, `"bytes":5242880`, `"bytes":"5242880"`, 1),
		"bytes below 0":   strings.Replace(good, `"bytes":5242880`, `"bytes":-7`, 1),
		"streams as text": strings.Replace(good, `"streams":[`, `"streams":"`, 1) + `"`,
		"stream of null":  strings.Replace(good, `"streams":[`, `"streams":[null,`, 1),
		"too many":        strings.Replace(good, `"streams":[`, `"streams":[{},{},`, 1),
	} {
		if r, err := decodeResults([]byte(raw), 2); err == nil {
			t.Errorf("%s: taken as %+v", name, r)
		}
	}
}

func TestStreamIDs(t *testing.T) {
	for i, want := range []int{1, 3, 4, 5, 6} {
		if got := streamID(i); got != want {
			t.Errorf("stream %d has id %d, want %d", i, got, want)
		}
	}
}

func TestCookie(t *testing.T) {
	a, b := newCookie(), newCookie()
	if a == b || !a.valid() || a[36] != 0 {
		t.Errorf("cookies %q, %q", a, b)
	}
	for _, c := range a[:36] {
		if !strings.ContainsRune(cookieLetters, rune(c)) {
			t.Errorf("letter %q", c)
		}
	}
	var old, web cookie
	copy(old[:], "Darwins-MBP.1467012345.123456.2f8a1c")
	copy(web[:], "GET / HTTP/1.1\r\nHost: 192.0.2.1:5201\r\n\r\n")
	if !old.valid() || web.valid() {
		t.Error("a cookie of 3.0 is one, an HTTP request is none")
	}
}

func TestReadBlobChecksTheLengthFirst(t *testing.T) {
	for _, head := range [][]byte{{0xff, 0xff, 0xff, 0xff}, {0x7f, 0xff, 0xff, 0xff}, {0, 0, 0x20, 1}, {0, 0, 0, 0}} {
		if _, err := readBlob(bytes.NewReader(head), maxParamsBytes); !errors.Is(err, errTooLong) {
			t.Errorf("% x: %v", head, err)
		}
	}
	if b, err := readBlob(bytes.NewReader([]byte{0, 0, 0, 2, '{', '}', 14}), 2); err != nil || string(b) != "{}" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := readBlob(bytes.NewReader([]byte{0, 0, 0, 2, '{'}), 2); err == nil {
		t.Error("fewer bytes than announced are taken")
	}
}

func FuzzParams(f *testing.F) {
	for _, raw := range recordedParams {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := decodeParams(raw)
		if err != nil {
			return
		}
		if p.Streams < 1 || p.Streams > throughput.MaxStreams || p.Len < 1 || p.Len > throughput.MaxBlockBytes || p.Time < 0 || p.Bandwidth < 0 {
			t.Errorf("%s is taken as %+v", raw, p)
		}
		again, err := decodeParams(p.encode())
		if err != nil {
			t.Errorf("%s became %s: %v", raw, p.encode(), err)
		}
		if again.Streams != p.Streams || again.Len != p.Len || again.Protocol != p.Protocol {
			t.Errorf("%+v became %+v", p, again)
		}
	})
}

func FuzzResults(f *testing.F) {
	for _, raw := range recordedResults {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := decodeResults(raw, 4)
		if err != nil {
			return
		}
		if len(r.Streams) > 4 {
			t.Errorf("%d streams", len(r.Streams))
		}
		if !json.Valid(r.encode()) {
			t.Errorf("%s became %s", raw, r.encode())
		}
	})
}
