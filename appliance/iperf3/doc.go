// Package iperf3 speaks the protocol of iperf3 3.x, as server and as client, over the hot loops of package throughput.
//
// The server never blocks one client for another: each connection has a goroutine and each state a deadline, the listener
// is the caller's and is never closed, every test starts from fresh state and has one way out. Nothing is read from the
// network without a limit on its length. Serve ends, with every goroutine it started, when its context ends.
//
// The client is a throughput.Engine: Run always returns, soon after its context has ended at the latest.
package iperf3

// DefaultPort is where iperf3 listens.
const DefaultPort = 5201
