package throughput

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseSize reads an amount in bytes as iperf3's flags take it: a number, and K, M, G or T for 2^10 to 2^40, in either
// case.
func ParseSize(s string) (int64, error) {
	number, factor := s, 1.0
	if s != "" {
		if i := strings.IndexByte("kmgt", s[len(s)-1]|0x20); i >= 0 {
			number = s[:len(s)-1]
			for range i + 1 {
				factor *= 1024
			}
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || strings.ContainsAny(number, "xXpP_+-nN") || !(v*factor < 1<<62) {
		return 0, errors.New(`want a number of bytes, as "131072", "128K" or "1G"`)
	}
	return int64(v * factor), nil
}

// dscp are the code points that have names (RFC 2474, 2597, 3246, 5865, 8622).
var dscp = map[string]int{
	"cs0": 0, "cs1": 8, "cs2": 16, "cs3": 24, "cs4": 32, "cs5": 40, "cs6": 48, "cs7": 56,
	"af11": 10, "af12": 12, "af13": 14, "af21": 18, "af22": 20, "af23": 22,
	"af31": 26, "af32": 28, "af33": 30, "af41": 34, "af42": 36, "af43": 38,
	"ef": 46, "voice-admit": 44, "lephb": 1,
}

// ParseDSCP reads a code point, 0-63 or by name, and returns the type of service byte that carries it.
func ParseDSCP(s string) (tos int, err error) {
	point, named := dscp[strings.ToLower(s)]
	if !named {
		n, err := strconv.ParseUint(s, 0, 6)
		if err != nil {
			return 0, fmt.Errorf(`want 0 to 63, or a name as "ef", "af41", "cs1"`)
		}
		point = int(n)
	}
	return point << 2, nil
}
