package throughput

import "time"

// Flow is one stream of payload in one direction, as the Meter sees it: a TCP connection or a UDP pair of addresses.
// Its methods may be called while the flow runs; Counters and Adapt only from one goroutine, the sampler's.
type Flow interface {
	Direction() Direction // RX or TX
	Counters() Counters   // since the flow began
	Adapt(bps float64, flows int)
}

// Counters of a Flow since it began. What a protocol does not have stays zero.
type Counters struct {
	Bytes int64 // payload the kernel received, or the peer acknowledged (TCP); datagrams handed over (UDP)
	Moved int64 // payload that went between the hot loop and the kernel
	Due   bool  // sending only: there is something that the peer has not taken yet

	// TCP, from TCP_INFO.
	Retransmits int64 // segments
	RTT         time.Duration
	MinRTT      time.Duration
	Window      int64         // congestion window, bytes
	LastData    time.Duration // receiving: how long ago the last payload arrived, 1 ms steps

	// UDP, counted by the receiver (by the sender: Packets alone).
	Packets    int64 // highest sequence number seen; sending: datagrams sent
	Lost       int64 // gaps less late arrivals
	OutOfOrder int64
	Jitter     time.Duration // RFC 1889
}
