package iperf3

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"linerate/appliance/throughput"
)

// params are what a client asks for. Numbers are checked by decodeParams; the zero value of a field means it was not sent.
type params struct {
	Protocol  throughput.Protocol
	Reverse   bool
	Bidir     bool
	Omit      float64 // s
	Time      float64 // s; 0: no limit
	Num       int64   // bytes; informative, the client ends the test
	Blocks    int64   // likewise
	Streams   int     // in each direction
	Len       int     // bytes of a block or datagram
	Bandwidth float64 // bit/s a stream; 0: no limit
	Burst     int
	FQRate    float64 // bit/s
	Window    int
	MSS       int
	NoDelay   bool
	TOS       int
	FlowLabel int
	Congest   string
	Title     string
	Extra     string
	Version   string

	ServerOutput bool
	Counters64   bool
	Repeating    bool
	ZeroCopy     bool
	DontFragment bool
	SkipRXCopy   bool
	GSO, GRO     bool
	GSOBytes     int // of one datagram within a batch
	GSOBatch     int // bytes handed to the kernel at once
}

// paramError is a refusal with the protocol's own number.
type paramError struct {
	code code
	text string
}

func (e *paramError) Error() string { return e.text }

func refuse(c code, format string, a ...any) error {
	return &paramError{code: c, text: fmt.Sprintf(format, a...)}
}

// object is a JSON object whose fields are fetched by type. Field names count to the letter; unknown ones are ignored; a
// known one of a wrong type is an error, the first of which is kept.
type object struct {
	fields map[string]json.RawMessage
	err    error
}

func parseObject(raw []byte) (*object, error) {
	o := &object{}
	if b := bytes.TrimLeft(raw, " \t\r\n"); len(b) == 0 || b[0] != '{' {
		return nil, fmt.Errorf("not a JSON object")
	}
	if err := json.Unmarshal(raw, &o.fields); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return o, nil
}

func (o *object) fail(key, want string) {
	if o.err == nil {
		o.err = fmt.Errorf("%q is not %s", key, want)
	}
}

// number reads a JSON number. Version 3.12 writes -1 as 18446744073709551615.
func (o *object) number(key string) (v float64, ok bool) {
	raw, ok := o.fields[key]
	if !ok {
		return 0, false
	}
	if err := json.Unmarshal(raw, &v); err != nil || string(raw) == "null" {
		o.fail(key, "a number")
		return 0, false
	}
	if u, err := strconv.ParseUint(string(raw), 10, 64); err == nil && u >= 1<<63 {
		v = float64(int64(u))
	}
	return v, true
}

// integer is a number cut to the range that an int64 and a float64 share.
func (o *object) integer(key string) (int64, bool) {
	v, ok := o.number(key)
	return int64(math.Max(-1<<53, math.Min(1<<53, v))), ok
}

// flag is true or false, or a number that is not 0.
func (o *object) flag(key string) bool {
	raw, ok := o.fields[key]
	if !ok {
		return false
	}
	switch string(raw) {
	case "true":
		return true
	case "false":
		return false
	}
	v, _ := o.number(key)
	return v != 0
}

func (o *object) text(key string) string {
	raw, ok := o.fields[key]
	if !ok {
		return ""
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil || string(raw) == "null" {
		o.fail(key, "a string")
	}
	return s
}

const (
	defaultTCPBlock = throughput.DefaultBlock
	defaultUDPRate  = 1 << 20 // bit/s a stream
	defaultUDPBlock = 8 << 10 // of versions that send no len
	minUDPBlock     = 16      // the header with 64-bit counters
	maxBurst        = 1000
	maxText         = 1 << 10
)

// decodeParams reads and checks a client's parameters. Its errors are *paramError.
func decodeParams(raw []byte) (params, error) {
	o, err := parseObject(raw)
	if err != nil {
		return params{}, refuse(codeParams, "parameters: %v", err)
	}
	var p params
	protocols := 0
	for key, protocol := range map[string]throughput.Protocol{"tcp": throughput.TCP, "udp": throughput.UDP, "sctp": "sctp"} {
		if o.flag(key) {
			p.Protocol = protocol
			protocols++
		}
	}
	p.Reverse, p.Bidir = o.flag("reverse"), o.flag("bidirectional")
	p.NoDelay, p.Counters64 = o.flag("nodelay"), o.flag("udp_counters_64bit")
	p.ServerOutput, p.Repeating = o.flag("get_server_output"), o.flag("repeating_payload")
	p.ZeroCopy, p.DontFragment = o.flag("zerocopy"), o.flag("dont_fragment")
	p.SkipRXCopy, p.GSO, p.GRO = o.flag("skip_rx_copy"), o.flag("gso"), o.flag("gro")
	p.Congest, p.Title, p.Extra = o.text("congestion"), o.text("title"), o.text("extra_data")
	p.Version = o.text("client_version")
	_ = o.text("authtoken") // a server without authentication does not look at it
	p.Num, _ = o.integer("num")
	p.Blocks, _ = o.integer("blockcount")
	p.Omit, _ = o.number("omit")
	p.Time, _ = o.number("time")
	p.Bandwidth, _ = o.number("bandwidth")
	p.FQRate, _ = o.number("fqrate")

	streams, ok := o.integer("parallel")
	if !ok {
		streams = 1
	}
	block, ok := o.integer("len")
	switch {
	case ok:
	case p.Protocol == throughput.UDP:
		block = defaultUDPBlock
	default:
		block = defaultTCPBlock
	}
	burst, _ := o.integer("burst")
	window, _ := o.integer("window")
	mss, _ := o.integer("MSS")
	tos, _ := o.integer("TOS")
	label, _ := o.integer("flowlabel")
	gsoBytes, _ := o.integer("gso_dg_size")
	gsoBatch, _ := o.integer("gso_bf_size")
	for _, key := range []string{"pacing_timer", "server_affinity", "gro_bf_size"} { // taken by type alone
		o.number(key)
	}
	if o.err != nil {
		return params{}, refuse(codeParams, "parameters: %v", o.err)
	}

	within := func(v, lo, hi int64) bool { return v >= lo && v <= hi }
	switch {
	case protocols != 1:
		return p, refuse(codeParams, "parameters name %d protocols", protocols)
	case p.Protocol == "sctp":
		return p, refuse(codeNoSCTP, "SCTP is not supported")
	case !(p.Time >= 0 && p.Time <= throughput.MaxSeconds):
		return p, refuse(codeDuration, "time = %g is out of range", p.Time)
	case !(p.Omit >= 0 && p.Omit <= throughput.MaxOmitSeconds):
		return p, refuse(codeOmit, "omit = %g is out of range", p.Omit)
	case !within(streams, 1, throughput.MaxStreams):
		return p, refuse(codeStreams, "parallel = %d is out of range", streams)
	case p.Protocol == throughput.TCP && !within(block, 1, throughput.MaxBlockBytes):
		return p, refuse(codeBlock, "len = %d is out of range", block)
	case p.Protocol == throughput.UDP && !within(block, minUDPBlock, throughput.MaxUDPBytes):
		return p, refuse(codeUDPBlock, "len = %d is out of range", block)
	case !within(window, 0, throughput.MaxWindowBytes):
		return p, refuse(codeWindow, "window = %d is out of range", window)
	case mss != 0 && !within(mss, throughput.MinMSS, throughput.MaxMSS):
		return p, refuse(codeMSS, "MSS = %d is out of range", mss)
	case !within(tos, 0, 255):
		return p, refuse(codeTOS, "TOS = %d is out of range", tos)
	case !(p.Bandwidth >= 0 && p.Bandwidth <= 1e15), !(p.FQRate >= 0 && p.FQRate <= 1e15):
		return p, refuse(codeParams, "bandwidth = %g, fqrate = %g: out of range", p.Bandwidth, p.FQRate)
	case !within(burst, 0, maxBurst), !within(label, 0, 0xfffff), p.Num < 0, p.Blocks < 0:
		return p, refuse(codeParams, "burst = %d, flowlabel = %d, num = %d, blockcount = %d: out of range",
			burst, label, p.Num, p.Blocks)
	case !within(gsoBytes, 0, throughput.MaxUDPBytes), !within(gsoBatch, 0, 1<<20):
		return p, refuse(codeParams, "gso_dg_size = %d, gso_bf_size = %d: out of range", gsoBytes, gsoBatch)
	case len(p.Congest) > 64 || len(p.Title) > maxText || len(p.Version) > 64:
		return p, refuse(codeParams, "parameters hold a text that is too long")
	}
	p.Streams, p.Len, p.Burst = int(streams), int(block), int(burst)
	p.Window, p.MSS, p.TOS, p.FlowLabel = int(window), int(mss), int(tos), int(label)
	p.GSOBytes, p.GSOBatch = int(gsoBytes), int(gsoBatch)
	return p, nil
}

// encode writes what our client asks for, in the form of version 3.12.
func (p params) encode() []byte {
	m := map[string]any{
		string(p.Protocol): true, "omit": p.Omit, "time": p.Time, "num": p.Num, "blockcount": p.Blocks,
		"parallel": p.Streams, "len": p.Len, "pacing_timer": 1000, "client_version": p.Version,
	}
	set := func(on bool, key string, v any) {
		if on {
			m[key] = v
		}
	}
	set(p.Reverse, "reverse", true)
	set(p.Bidir, "bidirectional", true)
	set(p.Bandwidth > 0, "bandwidth", int64(p.Bandwidth))
	set(p.Burst > 0, "burst", p.Burst)
	set(p.FQRate > 0, "fqrate", int64(p.FQRate))
	set(p.Window > 0, "window", p.Window)
	set(p.MSS > 0, "MSS", p.MSS)
	set(p.NoDelay, "nodelay", true)
	set(p.TOS > 0, "TOS", p.TOS)
	set(p.FlowLabel > 0, "flowlabel", p.FlowLabel)
	set(p.Congest != "", "congestion", p.Congest)
	set(p.Title != "", "title", p.Title)
	set(p.Extra != "", "extra_data", p.Extra)
	set(p.ServerOutput, "get_server_output", 1)
	set(p.Counters64, "udp_counters_64bit", 1)
	set(p.Repeating, "repeating_payload", 1)
	set(p.ZeroCopy, "zerocopy", 1)
	set(p.DontFragment, "dont_fragment", 1)
	b, _ := json.Marshal(m) // numbers and strings: cannot fail
	return b
}

// direction of the test as the server sees it.
func (p params) direction() throughput.Direction {
	switch {
	case p.Bidir:
		return throughput.Both
	case p.Reverse:
		return throughput.TX
	}
	return throughput.RX
}

// connections is how many streams there are in all.
func (p params) connections() int {
	if p.Bidir {
		return 2 * p.Streams
	}
	return p.Streams
}
