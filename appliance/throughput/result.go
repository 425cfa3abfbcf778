package throughput

import "encoding/json"

// Text is a string whose absence is said: "" is written as null.
type Text string

// MarshalJSON writes null for the empty text.
func (t Text) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(t))
}

// CPU is the processor time a test took. Seconds are summed over all cores.
type CPU struct {
	UserS              *float64 `json:"user_s"`               // the box as a whole, /proc/stat over the run
	SystemS            *float64 `json:"system_s"`             // the same: system, irq and softirq
	ProcessUserS       *float64 `json:"process_user_s"`       // this process, getrusage
	ProcessSystemS     *float64 `json:"process_system_s"`     //
	BusiestCorePercent *float64 `json:"busiest_core_percent"` // 0-100, of the run as a whole
	PeerPercent        *float64 `json:"peer_percent"`         // as the other end reported it
}

// Interval is one line of a test's course. Times are since the payload began to flow, omitted seconds excluded.
type Interval struct {
	StartS      float64  `json:"start_s"`
	EndS        float64  `json:"end_s"`
	BPS         float64  `json:"bps"` // both directions together
	Retransmits *int64   `json:"retransmits"`
	RTTMS       *float64 `json:"rtt_ms"`
}

// MaxIntervals a result keeps; a longer test has its neighbours merged.
const MaxIntervals = 600

// Result of one test. The fields stand in the order in which results are written; a nil pointer or an empty Text is
// unknown. What an engine cannot know (link, driver, percent ...) is filled in by whoever reports the result.
type Result struct {
	Engine        Text      `json:"engine"` // iperf3 | nuttcp | http
	Role          Role      `json:"role"`
	Peer          Text      `json:"peer"` // the address alone; IPv4-mapped written as IPv4
	PeerName      Text      `json:"peer_name"`
	ClientVersion Text      `json:"client_version"`
	Target        Text      `json:"target"`
	Label         Text      `json:"label"`
	Local         Text      `json:"local"` // address
	Port          Text      `json:"port"`  // interface
	VLAN          *int      `json:"vlan"`
	Family        int       `json:"family"` // 4 | 6; an IPv4-mapped peer counts as 4
	Protocol      Protocol  `json:"protocol"`
	Direction     Direction `json:"direction"`
	Streams       int       `json:"streams"`
	Seconds       float64   `json:"seconds"` // measured, omit excluded
	OmitS         float64   `json:"omit_s"`
	BlockBytes    int       `json:"block_bytes"`
	RateBPS       *float64  `json:"rate_bps"` // asked for; null: no limit
	Congestion    Text      `json:"congestion"`

	Bytes       int64    `json:"bytes"`  // payload at the receiver, omit excluded; both: the sum
	BPS         float64  `json:"bps"`    // the same as bits per second
	RXBPS       *float64 `json:"rx_bps"` // null where the test had no such direction
	TXBPS       *float64 `json:"tx_bps"`
	Retransmits *int64   `json:"retransmits"`
	RTTMS       *float64 `json:"rtt_ms"`     // smoothed, mean over the run
	RTTMinMS    *float64 `json:"rtt_min_ms"` // lowest the kernel saw
	JitterMS    *float64 `json:"jitter_ms"`  // RFC 1889
	Lost        *int64   `json:"lost"`
	Packets     *int64   `json:"packets"`

	MSS         *int     `json:"mss"`    // tcpi_snd_mss where the box sends, else the largest segment received
	MTU         *int     `json:"mtu"`    // of the port
	Copied      *bool    `json:"copied"` // whether received payload was copied to user space
	LinkMbps    *int     `json:"link_mbps"`
	Duplex      Text     `json:"duplex"` // full | half
	Driver      Text     `json:"driver"`
	Governor    Text     `json:"governor"`
	Temperature *float64 `json:"temperature_c"`

	LineRatePercent *float64   `json:"line_rate_percent"`
	PossiblePercent *float64   `json:"possible_percent"`
	CPU             CPU        `json:"cpu"`
	Intervals       []Interval `json:"intervals"`
	SharedWith      []string   `json:"shared_with"` // ids of tests that ran on the port at the same time
	PortBPS         *float64   `json:"port_bps"`    // the port's total meanwhile
	Findings        []string   `json:"findings"`    // codes
	ExpectBPS       *float64   `json:"expect_bps"`
	Pass            *bool      `json:"pass"`
	Valid           bool       `json:"valid"`
	Error           Text       `json:"error"`

	// Timestamps says whether TCP carried its timestamp option, 12 bytes a segment that the percentages allow for.
	Timestamps bool `json:"-"`
	// ServerOutput is the server's own report, text or JSON, where the Spec asked for it.
	ServerOutput string `json:"-"`
}

// MergeIntervals returns at most limit intervals that cover the same time, merging neighbours pairwise until they fit.
// Rates and round-trip times are weighted by time, retransmits are added.
func MergeIntervals(in []Interval, limit int) []Interval {
	for len(in) > limit && len(in) > 1 {
		out := make([]Interval, 0, (len(in)+1)/2)
		for i := 0; i < len(in); i += 2 {
			if i+1 == len(in) {
				out = append(out, in[i])
				break
			}
			out = append(out, merge(in[i], in[i+1]))
		}
		in = out
	}
	return in
}

func merge(a, b Interval) Interval {
	ta, tb := a.EndS-a.StartS, b.EndS-b.StartS
	m := Interval{StartS: a.StartS, EndS: b.EndS}
	if ta+tb > 0 {
		m.BPS = (a.BPS*ta + b.BPS*tb) / (ta + tb)
	}
	switch {
	case a.Retransmits == nil:
		m.Retransmits = b.Retransmits
	case b.Retransmits == nil:
		m.Retransmits = a.Retransmits
	default:
		m.Retransmits = new(*a.Retransmits + *b.Retransmits)
	}
	switch {
	case a.RTTMS == nil:
		m.RTTMS = b.RTTMS
	case b.RTTMS == nil || ta+tb == 0:
		m.RTTMS = a.RTTMS
	default:
		m.RTTMS = new((*a.RTTMS*ta + *b.RTTMS*tb) / (ta + tb))
	}
	return m
}
