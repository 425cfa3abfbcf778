package ethnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attr is one attribute, padded.
func attr(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func join(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func long(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func str(s string) []byte { return append([]byte(s), 0) }

// bits is a bitset with a mask: a name that begins with + is on.
func bits(names ...string) []byte {
	var list []byte
	for i, n := range names {
		bit := join(attr(1, long(uint32(i))...), attr(2, str(strings.TrimPrefix(n, "+"))...))
		if strings.HasPrefix(n, "+") {
			bit = join(bit, attr(3))
		}
		list = join(list, attr(1|unix.NLA_F_NESTED, bit...))
	}
	return join(attr(2, long(uint32(len(names)))...), attr(3|unix.NLA_F_NESTED, list...))
}

// unmasked is a bitset of bits that are all on.
func unmasked(names ...string) []byte { return join(attr(1), bits(names...)) }

// Replies as a multi-gig adapter, its partner and a driver that says little would give.
var rich = join(attr(1|unix.NLA_F_NESTED, attr(1, long(7)...)...), attr(2, 1),
	attr(3, bits("10baseT/Half", "+1000baseT/Full", "+Autoneg", "TP", "+2500baseT/Full")...),
	attr(4, unmasked("1000baseT/Full", "Pause")...), attr(5, long(1000)...), attr(6, 1))

func TestLinkModes(t *testing.T) {
	for _, test := range []struct {
		name string
		in   []byte
		want LinkModes
	}{
		{"a port and its partner", rich, LinkModes{
			Autoneg: true, SpeedMbps: 1000, Duplex: DuplexFull,
			Supported:  []string{"10baseT/Half", "1000baseT/Full", "Autoneg", "TP", "2500baseT/Full"},
			Advertised: []string{"1000baseT/Full", "Autoneg", "2500baseT/Full"},
			Peer:       []string{"1000baseT/Full", "Pause"},
		}},
		{"no link", join(attr(5, long(0xffffffff)...), attr(6, 0xff)), LinkModes{Duplex: DuplexUnknown}},
		{"nothing", nil, LinkModes{Duplex: DuplexUnknown}},
		{"a mode the kernel has no name for", attr(3, attr(3, attr(1, attr(1, long(120)...)...)...)...),
			LinkModes{Duplex: DuplexUnknown}},
		{"an attribute of the future", attr(200, 1, 2, 3), LinkModes{Duplex: DuplexUnknown}},
	} {
		got, err := parseLinkModes(test.in)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, %v; want %+v", test.name, got, err, test.want)
		}
	}
}

func TestModesAndSpeeds(t *testing.T) {
	in := []string{"10baseT/Half", "Autoneg", "TP", "Pause", "2500baseT/Full", "Backplane", "10000baseKR_FEC", "1000baseX/Full"}
	if got := Modes(in); !reflect.DeepEqual(got, []string{"10baseT/Half", "2500baseT/Full", "1000baseX/Full"}) {
		t.Errorf("Modes = %q", got)
	}
	if got := Modes(nil); got == nil || len(got) != 0 {
		t.Errorf("Modes(nil) = %#v; want empty and not nil", got)
	}
	for mode, want := range map[string]int{
		"10baseT/Half": 10, "2500baseT/Full": 2500, "5000baseT/Full": 5000, "10000baseT/Full": 10000,
		"800000baseCR8/Full": 800000, "TP": 0, "": 0, "2500": 0, "base": 0, "99999999999999999999baseT/Full": 0,
	} {
		if got := SpeedOf(mode); got != want {
			t.Errorf("SpeedOf(%q) = %d, want %d", mode, got, want)
		}
	}
}

func TestOtherReplies(t *testing.T) {
	check := func(name string, got any, err error, want any) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s = %+v, %v; want %+v", name, got, err, want)
		}
	}
	pause, err := parsePause(join(attr(2, 1), attr(3, 0), attr(4, 1)))
	check("pause", pause, err, Pause{Autoneg: true, TX: true})
	eee, err := parseEEE(join(attr(4, 0), attr(5, 1), attr(6, 1), attr(7, long(17)...)))
	check("eee", eee, err, EEE{Enabled: true})
	rings, err := parseRings(join(attr(2, long(4096)...), attr(5, long(1024)...), attr(6, long(256)...), attr(9, long(128)...)))
	check("rings", rings, err, Rings{RX: 256, TX: 128, RXMax: 4096, TXMax: 1024})
	coalesce, err := parseCoalesce(join(attr(2, long(50)...), attr(7, long(8)...), attr(11, 1)))
	check("coalesce", coalesce, err, Coalesce{RXUsecs: 50, TXFrames: 8, AdaptiveRX: true})
	wol, err := parseWoL(attr(2, bits("phy", "+magic")...))
	check("wol", wol, err, WoL{Supported: []string{"phy", "magic"}, Active: []string{"magic"}})
	state, err := parseLinkState(join(attr(2, 0), attr(5, 4), attr(7, long(3)...)))
	check("link state", state, err, LinkState{Reason: new(uint8(4)), Downs: new(uint32(3))})
	info, err := parseLinkInfo(join(attr(2, 3), attr(3, 7), attr(6, 1)))
	check("link info", info, err, LinkInfo{Port: 3, PHYAddress: 7, Transceiver: 1})
	features, err := parseFeatures(join(attr(2, bits("+tso", "+gro", "vlan", "+netns")...), attr(3, unmasked("tso")...),
		attr(4, unmasked("tso", "vlan")...), attr(5, bits("+netns")...)))
	check("features", features, err, map[string]Feature{
		"tso": {Active: true, Wanted: true}, "gro": {}, "vlan": {Active: true, Fixed: true}, "netns": {Fixed: true},
	})
}

func TestMalformedIsAnError(t *testing.T) {
	many := make([]byte, 0, 4*(maxAttributes+1))
	for range maxAttributes + 1 {
		many = append(many, attr(9)...)
	}
	for name, in := range map[string][]byte{
		"shorter than a header":  {1, 2},
		"length below a header":  {3, 0, 1, 0},
		"length beyond the end":  {200, 0, 1, 0},
		"speed of two bytes":     attr(5, 1, 2),
		"duplex of no byte":      attr(6),
		"bitset cut short":       attr(3, 9, 0, 3, 0),
		"bit cut short":          attr(3, attr(3, attr(1, 8, 0)...)...),
		"control byte in a name": attr(3, bits("10base\x1b[2J")...),
		"name without end":       attr(3, bits(strings.Repeat("x", maxName+1))...),
		"too many attributes":    many,
		"too many in a bitset":   attr(3, attr(3, many...)...),
	} {
		if _, err := parseLinkModes(in); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v; want errMalformed", name, err)
		}
	}
}

// FuzzReply: whatever arrives, the parsers end with a value or an error, and a value stays within its bounds.
func FuzzReply(f *testing.F) {
	f.Add(cmdLinkModes.number, rich)
	f.Fuzz(func(t *testing.T, cmd uint8, b []byte) {
		var names []string
		switch cmd {
		case cmdLinkInfo.number:
			_, _ = parseLinkInfo(b)
		case cmdLinkModes.number:
			m, _ := parseLinkModes(b)
			if m.SpeedMbps < 0 || m.SpeedMbps > maxSpeedMbps {
				t.Errorf("speed %d", m.SpeedMbps)
			}
			names = append(append(m.Supported, m.Advertised...), m.Peer...)
		case cmdLinkState.number:
			_, _ = parseLinkState(b)
		case cmdWoL.number:
			w, _ := parseWoL(b)
			names = append(w.Supported, w.Active...)
		case cmdFeatures.number:
			m, _ := parseFeatures(b)
			for n := range m {
				names = append(names, n)
			}
		case cmdRings.number:
			_, _ = parseRings(b)
		case cmdCoalesce.number:
			_, _ = parseCoalesce(b)
		case cmdPause.number:
			_, _ = parsePause(b)
		case cmdEEE.number:
			_, _ = parseEEE(b)
		}
		if len(names) > 3*maxBits {
			t.Errorf("%d names", len(names))
		}
		for _, n := range names {
			if n == "" || len(n) > maxName || strings.ContainsFunc(n, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("name %q", n)
			}
			_ = SpeedOf(n)
		}
	})
}

// seed writes one committed input of FuzzReply.
func seed(t *testing.T, name string, cmd uint8, b []byte) {
	t.Helper()
	text := fmt.Sprintf("go test fuzz v1\nbyte('\\x%02x')\n[]byte(%q)\n", cmd, b)
	path := filepath.Join("testdata", "fuzz", "FuzzReply", fmt.Sprintf("%s-%d", name, cmd))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// ethtoolValue is the old ioctl for one value.
func ethtoolValue(fd int, name string, cmd, value uint32) error {
	arg := [2]uint32{cmd, value}
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:], name)
	req.data = unsafe.Pointer(&arg)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return errno
	}
	return nil
}

// dropCapabilities leaves the calling thread without any; it is never unlocked.
func dropCapabilities() error {
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}
