// Package throughput holds the vocabulary every engine shares (Spec, Direction, Interval, Result, the arithmetic of
// line rate) and the hot loops that move payload.
//
// It knows no State, no display, no config and no wire protocol, so it can be benchmarked and fuzzed alone.
// Directions are seen from the box: RX means the box received.
package throughput
