package iperf3

import (
	"log/slog"
	"net"
	"net/netip"
	"time"

	"linerate/appliance/throughput"
)

// Concurrency says what happens when a client comes while another is tested on the same port.
type Concurrency string

// The three ways.
const (
	Parallel  Concurrency = "parallel"  // both run
	Queue     Concurrency = "queue"     // the second waits its turn
	Exclusive Concurrency = "exclusive" // the second is told that the server is busy
)

// Options of a Server. The zero value serves everybody in parallel.
type Options struct {
	Concurrency Concurrency   // "": Parallel
	QueueWait   time.Duration // how long a client waits in Queue before it is told busy; 0: 60 s
	MaxTests    int           // at once on one port; 0: 16
	MaxDuration time.Duration // 0: no limit
	MaxRate     float64       // bit/s, per test; 0: no limit
	Stall       time.Duration // nothing moves although bytes are due; 0: 10 s when exclusive or somebody waits, else 60 s
	Allow       []netip.Prefix
	Copy        bool // copy received payload to user space, as iperf3 does
	// OutputJSON answers --get-server-output with the JSON of `iperf3 -s -J` in place of text. A client prints either.
	OutputJSON bool
	// PortOf names the port that holds a local address; tests are counted by it. Nil: the interface that has the address.
	PortOf   func(local netip.Addr) string `json:"-"`
	Observer throughput.Observer           `json:"-"` // may also be a throughput.QueueObserver; nil: nobody looks
	Log      *slog.Logger                  `json:"-"` // nil: discard
}

func (o Options) withDefaults() Options {
	if o.Concurrency == "" {
		o.Concurrency = Parallel
	}
	if o.QueueWait <= 0 {
		o.QueueWait = 60 * time.Second
	}
	if o.MaxTests <= 0 {
		o.MaxTests = 16
	}
	if o.PortOf == nil {
		o.PortOf = interfaceOf
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) allowed(peer netip.Addr) bool {
	if len(o.Allow) == 0 {
		return true
	}
	for _, p := range o.Allow {
		if p.Contains(peer.WithZone("")) {
			return true
		}
	}
	return false
}

// interfaceOf names the interface that has the address; the address itself where none has.
func interfaceOf(local netip.Addr) string {
	if local.Zone() != "" {
		return local.Zone()
	}
	if local.IsLoopback() {
		return "lo"
	}
	all, _ := net.Interfaces()
	for _, i := range all {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == local {
				return i.Name
			}
		}
	}
	return local.String()
}

type nobody struct{}

func (nobody) Started(throughput.Start) string        { return "" }
func (nobody) Progressed(string, throughput.Progress) {}
func (nobody) Finished(string, throughput.Result)     {}

// patience is how long the server waits in each state.
type patience struct {
	cookie, params, streams, results time.Duration
	hello                            time.Duration // of a UDP stream, while another test of the address waits
	late                             time.Duration // in a queue, parameters that are not in by then wait behind the others
	linger                           time.Duration // for the peer to read the last bytes and close
	grace                            time.Duration // beyond the asked-for time, for a client that does not end its test
	quiet, drain                     time.Duration // after the end: no byte for so long, and in all
}

func defaultPatience() patience {
	return patience{
		cookie: 5 * time.Second, params: 5 * time.Second, streams: 10 * time.Second, results: 5 * time.Second,
		late: 2 * time.Second, hello: 3 * time.Second, linger: 2 * time.Second, grace: 30 * time.Second,
		quiet: 300 * time.Millisecond, drain: time.Second,
	}
}
