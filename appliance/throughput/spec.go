package throughput

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// Direction of the payload, seen from the box.
type Direction string

// The three directions a test can have.
const (
	RX   Direction = "rx"   // the box receives
	TX   Direction = "tx"   // the box sends
	Both Direction = "both" // both at once, on separate streams
)

// Protocol that carries the payload.
type Protocol string

// The protocols an engine may offer.
const (
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// Role of the box in a test.
type Role string

// The two roles.
const (
	Server Role = "server"
	Client Role = "client"
)

// Spec says what a test shall do: one field for each flag of `linerate test`. The zero value of a field means "the
// default", so that an empty JSON object with a host is a complete request.
type Spec struct {
	Host             string    `json:"host,omitempty"`               // name or address; IPv6 link-local with zone
	Target           string    `json:"target,omitempty"`             // name of a configured target, in place of Host
	TCPPort          int       `json:"tcp_port,omitempty"`           // control port, 1-65535; 0: the engine's own
	Engine           string    `json:"engine,omitempty"`             // iperf3 | nuttcp; "": iperf3
	Direction        Direction `json:"direction,omitempty"`          // "": tx
	Seconds          float64   `json:"seconds,omitempty"`            // 0: 10 unless Bytes or Blocks end the test; at most 86400
	Bytes            int64     `json:"bytes,omitempty"`              // end after so many payload bytes
	Blocks           int64     `json:"blocks,omitempty"`             // end after so many blocks
	Streams          int       `json:"streams,omitempty"`            // 1-128; 0: 1
	Protocol         Protocol  `json:"protocol,omitempty"`           // "": tcp
	RateBPS          float64   `json:"rate_bps,omitempty"`           // asked for, a stream; 0: no limit (udp: 1 Mbit/s, as iperf3); -1: none for udp either
	BlockBytes       int       `json:"block_bytes,omitempty"`        // 1-1048576 (udp 16-65507); 0: the engine's own
	OmitS            float64   `json:"omit_s,omitempty"`             // 0-600: seconds at the start that do not count
	IntervalS        float64   `json:"interval_s,omitempty"`         // 0.1-60; 0: 1
	WindowBytes      int       `json:"window_bytes,omitempty"`       // SO_SNDBUF and SO_RCVBUF, at most 512 MiB
	MSS              int       `json:"mss,omitempty"`                // TCP_MAXSEG, 88-32767
	NoDelay          bool      `json:"no_delay,omitempty"`           // TCP_NODELAY
	TOS              int       `json:"tos,omitempty"`                // IP_TOS, 0-255
	Congestion       string    `json:"congestion,omitempty"`         // TCP_CONGESTION
	Title            string    `json:"title,omitempty"`              // at most 256 bytes; the other end may log it
	ZeroCopy         bool      `json:"zero_copy,omitempty"`          // send without copying where the kernel can
	Family           int       `json:"family,omitempty"`             // 4 | 6; 0: either
	Bind             string    `json:"bind,omitempty"`               // local address or interface to leave by
	Via              string    `json:"via,omitempty"`                // port (role or interface) to leave by
	ConnectTimeoutMS int       `json:"connect_timeout_ms,omitempty"` // 0: 5000
	Burst            int       `json:"burst,omitempty"`              // with a rate: blocks that go back to back, at most 1000
	FQRateBPS        float64   `json:"fq_rate_bps,omitempty"`        // a stream's pace by the kernel (SO_MAX_PACING_RATE)
	FlowLabel        int       `json:"flow_label,omitempty"`         // IPv6, 1-0xfffff
	DontFragment     bool      `json:"dont_fragment,omitempty"`      // udp over IPv4
	Counters64       bool      `json:"udp_counters_64bit,omitempty"` // for more than 2^32 datagrams
	RepeatingPayload bool      `json:"repeating_payload,omitempty"`  // digits in place of random bytes
	ServerOutput     bool      `json:"get_server_output,omitempty"`  // ask for the server's own report, see Result.ServerOutput
	ExtraData        string    `json:"extra_data,omitempty"`         // at most 256 bytes, for the server's JSON
	ExpectBPS        float64   `json:"expect_bps,omitempty"`         // the result says whether it was reached
	Label            string    `json:"label,omitempty"`              // at most 256 bytes; kept with the result
}

// NoLimit as RateBPS sends as fast as can be.
const NoLimit = -1

// Limits of a Spec; those of the protocol come from iperf3's own argument checks.
const (
	MaxStreams     = 128
	MaxSeconds     = 86400
	MaxOmitSeconds = 600
	MaxBlockBytes  = 1 << 20
	MaxUDPBytes    = 65507 // 65535 less 8 of UDP and 20 of IPv4
	MaxWindowBytes = 512 << 20
	MaxMSS         = 32767
	MinMSS         = 88 // TCP_MIN_MSS of the kernel's include/net/tcp.h
	maxText        = 256
)

// WithDefaults fills in what was left out, so that the engines need no case for it. Host, target, port and block size
// stay as they are: their defaults belong to the engine or the config.
func (s Spec) WithDefaults() Spec {
	if s.Engine == "" {
		s.Engine = "iperf3"
	}
	if s.Direction == "" {
		s.Direction = TX
	}
	if s.Protocol == "" {
		s.Protocol = TCP
	}
	if s.Streams == 0 {
		s.Streams = 1
	}
	if s.Seconds == 0 && s.Bytes == 0 && s.Blocks == 0 {
		s.Seconds = 10
	}
	if s.IntervalS == 0 {
		s.IntervalS = 1
	}
	if s.ConnectTimeoutMS == 0 {
		s.ConnectTimeoutMS = 5000
	}
	return s
}

// Check says what is wrong with a Spec whose defaults are filled in, in the words of the JSON fields.
func (s Spec) Check() error {
	inRange := func(name string, v, lo, hi float64) error {
		if math.IsNaN(v) || v < lo || v > hi {
			return fmt.Errorf("%s = %g is out of range: use %g to %g", name, v, lo, hi)
		}
		return nil
	}
	oneOf := func(name, v string, known ...string) error {
		for _, k := range known {
			if v == k {
				return nil
			}
		}
		return fmt.Errorf("%s = %q is unknown: use %s", name, v, strings.Join(known, ", "))
	}
	limit := func(name, v string) error {
		if len(v) > maxText {
			return fmt.Errorf("%s is %d bytes long: use at most %d", name, len(v), maxText)
		}
		return nil
	}
	minBlock, maxBlock := 1.0, float64(MaxBlockBytes)
	if s.Protocol == UDP {
		minBlock, maxBlock = 16, MaxUDPBytes
	}
	for _, err := range []error{
		oneOf("engine", s.Engine, "iperf3", "nuttcp"),
		oneOf("direction", string(s.Direction), "rx", "tx", "both"),
		oneOf("protocol", string(s.Protocol), "tcp", "udp"),
		inRange("tcp_port", float64(s.TCPPort), 0, 65535),
		inRange("streams", float64(s.Streams), 1, MaxStreams),
		inRange("seconds", s.Seconds, 0, MaxSeconds),
		inRange("bytes", float64(s.Bytes), 0, math.MaxInt64),
		inRange("blocks", float64(s.Blocks), 0, math.MaxInt64),
		inRange("rate_bps", s.RateBPS, NoLimit, 1e15),
		inRange("burst", float64(s.Burst), 0, 1000),
		inRange("fq_rate_bps", s.FQRateBPS, 0, 1e15),
		inRange("flow_label", float64(s.FlowLabel), 0, 0xfffff),
		inRange("omit_s", s.OmitS, 0, MaxOmitSeconds),
		inRange("interval_s", s.IntervalS, 0.1, 60),
		inRange("window_bytes", float64(s.WindowBytes), 0, MaxWindowBytes),
		inRange("tos", float64(s.TOS), 0, 255),
		inRange("connect_timeout_ms", float64(s.ConnectTimeoutMS), 1, 600_000),
		inRange("expect_bps", s.ExpectBPS, 0, 1e15),
		limit("title", s.Title), limit("label", s.Label), limit("host", s.Host), limit("congestion", s.Congestion),
		limit("extra_data", s.ExtraData),
	} {
		if err != nil {
			return err
		}
	}
	if s.BlockBytes != 0 {
		if err := inRange("block_bytes", float64(s.BlockBytes), minBlock, maxBlock); err != nil {
			return err
		}
	}
	if s.RateBPS < 0 && s.RateBPS != NoLimit {
		return fmt.Errorf("rate_bps = %g is out of range: use 0 or more, or %d for no limit", s.RateBPS, NoLimit)
	}
	if s.MSS != 0 {
		if err := inRange("mss", float64(s.MSS), MinMSS, MaxMSS); err != nil {
			return err
		}
	}
	if s.Family != 0 && s.Family != 4 && s.Family != 6 {
		return fmt.Errorf("family = %d is unknown: use 4 or 6", s.Family)
	}
	ends := 0
	for _, set := range []bool{s.Seconds > 0, s.Bytes > 0, s.Blocks > 0} {
		if set {
			ends++
		}
	}
	if ends > 1 {
		return fmt.Errorf("only one of seconds, bytes and blocks can end a test")
	}
	return nil
}

// Progress is what a running test looks like from outside: totals over its streams since the last one.
type Progress struct {
	ElapsedS    float64  // since the payload began to flow, omit included
	RXBPS       float64  // payload bits per second since the last Progress; 0 where nothing is received
	TXBPS       float64  // the same for what is sent
	Retransmits *int64   // since the start of the test
	RTTMS       *float64 // smoothed, mean over the sending streams
}

// BPS is the rate of both directions together.
func (p Progress) BPS() float64 { return p.RXBPS + p.TXBPS }

// Engine runs tests as a client. Run blocks until the test has ended on both sides and always returns: it ends soon
// after ctx does, with what was measured until then and Result.Valid false. progress is called a few times a second from
// one goroutine and must not block. An error means that there is nothing to report beyond Result.Error.
type Engine interface {
	Run(ctx context.Context, s Spec, progress func(Progress)) (Result, error)
}

// Start describes a test that an engine's server has accepted: its parameters are in and valid.
type Start struct {
	Peer      string // address alone; IPv4-mapped written as IPv4
	Local     string // address that was asked
	Direction Direction
	Protocol  Protocol
	Streams   int
	Seconds   float64 // asked for; 0: no limit
	Title     string
	Client    string // version the client announced
}

// Observer is told of the tests that a server runs. Its calls come from the server's goroutines, one test's calls in
// order, and must not block for long: Finished may store a result. The id that Started returns names the test from then
// on; an id that ends by Finished is used no more.
type Observer interface {
	Started(Start) (id string)
	Progressed(id string, p Progress)
	Finished(id string, r Result)
}

// Waiter is a client that waits in a server's queue.
type Waiter struct {
	Peer  string    // address alone; IPv4-mapped written as IPv4
	Local string    // address that was asked
	Since time.Time // it came
}

// QueueObserver is an Observer that also wants to know who waits for a port that is in use, oldest first: the whole list at
// each change.
type QueueObserver interface {
	Waiting([]Waiter)
}
