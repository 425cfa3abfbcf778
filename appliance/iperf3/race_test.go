//go:build race

package iperf3

// The race detector makes the hot loops, and so everything beside them, several times slower.
const slack = 5
