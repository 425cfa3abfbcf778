//go:build !race

package iperf3

const slack = 1
