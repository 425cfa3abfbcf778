package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// MTU is a wish for a port's MTU: a number of bytes, MTULeave or MTUMax.
type MTU int

// The wishes that are no number.
const (
	MTULeave MTU = 0  // as the system set it
	MTUMax   MTU = -1 // the most the driver allows
)

// Bounds of an MTU in a config. 68 is the least of IPv4 (RFC 791), 65535 the most the kernel's ETH_MAX_MTU allows; the
// driver's own limits are narrower and known only on the box.
const (
	minMTU = 68
	maxMTU = 65535
)

// String returns the MTU as it stands in a file.
func (m MTU) String() string { return word(int(m), "max") }

// Frequency is a wish for the least clock of a processor: kHz, FrequencyLeave or FrequencyMax.
type Frequency int

// The wishes that are no number.
const (
	FrequencyLeave Frequency = 0  // as the system set it
	FrequencyMax   Frequency = -1 // what the processor can do at most
)

// String returns the frequency as it stands in a file.
func (f Frequency) String() string { return word(int(f), "max") }

func word(n int, most string) string {
	switch n {
	case 0:
		return Leave
	case -1:
		return most
	}
	return strconv.Itoa(n)
}

// Method says how a port comes by an address.
type Method string

// How a port may come by an address.
const (
	AddressAuto    Method = "auto"    // what the bridge had, DHCP, link-local
	AddressDHCP    Method = "dhcp"    //
	AddressManager Method = "manager" // as the network manager has it
	AddressStatic  Method = "static"  // Prefix
)

// Address is one entry of a list of addresses.
type Address struct {
	Method Method
	Prefix netip.Prefix // address and prefix length; only where Method is AddressStatic
}

// String returns the address as it stands in a file.
func (a Address) String() string {
	if a.Method == AddressStatic {
		return a.Prefix.String()
	}
	return string(a.Method)
}

var errAddress = errors.New(`want "auto", "dhcp", "manager" or an address with its prefix length, as "192.0.2.1/24"`)

func parseAddress(s string) (Address, error) {
	switch m := Method(s); m {
	case AddressAuto, AddressDHCP, AddressManager:
		return Address{Method: m}, nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return Address{}, errAddress
	}
	ip := p.Addr()
	switch {
	case ip.Is4In6():
		return Address{}, fmt.Errorf("want the IPv4 address itself, as %q", ip.Unmap())
	case ip.IsUnspecified(), ip.IsMulticast(), ip.IsLoopback(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return Address{}, errors.New("want the address of a host")
	case p.Bits() == 0:
		return Address{}, errors.New("want a prefix length above 0")
	case ip.Is4() && p.Bits() < 31 && ip == p.Masked().Addr():
		return Address{}, fmt.Errorf("is the network itself: want a host's address in it, as %q", ip.Next())
	case ip.Is4() && p.Bits() < 31 && !p.Contains(ip.Next()):
		return Address{}, fmt.Errorf("is the broadcast address: want a host's address, as %q", ip.Prev())
	}
	return Address{Method: AddressStatic, Prefix: p}, nil
}

// parseAllow reads a CIDR or a single address.
func parseAllow(s string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, errors.New(`want a network, as "192.0.2.0/24" or "2001:db8::/32", or an address`)
	}
	return p.Masked(), nil
}

// maxRate is far beyond any link; it keeps arithmetic on rates exact enough.
const maxRate = 1e15

// ParseRate reads a rate in bits per second: a number, and K, M, G or T for 10^3 to 10^12, in either case. "0" is no
// limit.
func ParseRate(s string) (bps float64, err error) {
	number, factor := s, 1.0
	if s != "" {
		if i := strings.IndexByte("kmgt", s[len(s)-1]|0x20); i >= 0 {
			number = s[:len(s)-1]
			for range i + 1 {
				factor *= 1000
			}
		}
	}
	bps, err = strconv.ParseFloat(number, 64)
	if err != nil || strings.ContainsAny(number, "xXpP_+-nN") || !(bps*factor <= maxRate) {
		return 0, errors.New(`want a rate in bit/s, as "2.3G", "300M" or "0"`)
	}
	return bps * factor, nil
}

// FormatRate writes a rate as ParseRate reads it.
func FormatRate(bps float64) string {
	unit := ""
	for _, next := range []string{"K", "M", "G", "T"} {
		if bps < 1000 {
			break
		}
		bps, unit = bps/1000, next
	}
	return strconv.FormatFloat(bps, 'g', 12, 64) + unit
}

// maxDuration of any duration in a config: a week.
const maxDuration = 7 * 24 * time.Hour

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxDuration {
		return 0, errors.New(`want a duration up to a week, as "60s", "10m" or "0"`)
	}
	return d, nil
}

// formatDuration writes a duration without the zeros of its smaller units.
func formatDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func checkListen(s string) error {
	host, port, err := net.SplitHostPort(s)
	want := errors.New(`want an address to listen on, as ":5201", "192.0.2.1:5201" or "[2001:db8::1]:5201"`)
	if err != nil {
		return want
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return want
	}
	if host == "" {
		return nil
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return want
	}
	return nil
}
