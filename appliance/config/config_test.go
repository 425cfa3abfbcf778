package config

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"linerate/appliance/throughput"
)

var comparePrefix = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func parseOne(t *testing.T, doc string) Loaded {
	t.Helper()
	l, err := load([]source{{file: "test.toml", data: []byte(doc)}})
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return l
}

func TestReferenceIsDefault(t *testing.T) {
	l := parseOne(t, Reference)
	if diff := cmp.Diff(Default(), l.Config, comparePrefix); diff != "" {
		t.Errorf("the reference differs from the defaults (-default +reference):\n%s", diff)
	}
	for _, k := range l.Keys {
		if k.Origin == DefaultOrigin {
			t.Errorf("%s is missing in the reference", k.Key)
		}
		marked := regexp.MustCompile(`(?s)settable[^\n]*\n(#[^\n]*\n)*(queue_wait = "60s"\n)?` + leafOf(k.Key) + " = ").MatchString(Reference)
		if k.Settable && !marked {
			t.Errorf("%s is settable, which the reference does not say", k.Key)
		}
	}
}

func leafOf(key string) string {
	_, leaf := split(key)
	return leaf
}

func TestReferenceExamples(t *testing.T) {
	l := parseOne(t, regexp.MustCompile(`(?m)^#(\S)`).ReplaceAllString(Reference, "$1"))
	want := Default()
	want.Port = []Port{{
		Match: "lan1", MTU: 9000, Native: true,
		Address: []Address{{AddressStatic, netip.MustParsePrefix("192.0.2.1/24")}},
		VLAN:    []VLAN{{ID: 130, Address: []Address{{Method: AddressDHCP}}}},
	}}
	want.Targets = []Target{{Name: "core", Host: "192.0.2.10", Engine: "iperf3", TCPPort: 5201, Via: "lan1", Expect: 2.3e9}}
	if diff := cmp.Diff(want, l.Config, comparePrefix); diff != "" {
		t.Errorf("examples (-want +got):\n%s", diff)
	}
	for _, table := range []struct {
		name   string
		fields []string
	}{{portTable, names(portSchema)}, {targetTable, names(targetSchema)}} {
		for _, f := range table.fields {
			if !strings.Contains(Reference, "\n#"+f+" = ") {
				t.Errorf("%s.%s has no example in the reference", table.name, f)
			}
		}
	}
}

func TestWholeSchema(t *testing.T) {
	l := parseOne(t, `
		[board]
		profile = "nanopi-r5s"
		[ports]
		select = ["lan1", "eth5", "/devices/pci0000:00/0000:01:00.0"]
		bridge = "keep"
		mtu = "max"
		address = ["dhcp", "192.0.2.7/24", "2001:db8::7/64"]
		[[port]]
		match = "lan1"
		native = false
		vlan = [{ id = 1 }, { id = 4094, address = ["198.51.100.1/31"] }]
		[[port]]
		match = "lan2"
		mtu = "leave"
		address = ["manager"]
		[cpu]
		governor = "schedutil"
		min_freq = 1416000
		irq = "leave"
		[server]
		enable = false
		listen = "[2001:db8::1]:5202"
		concurrency = "queue"
		queue_wait = "1m30s"
		max_tests = 4
		max_duration = "1h"
		max_rate = "2.5G"
		stall = "10s"
		allow = ["192.0.2.9/24", "2001:db8::/32", "203.0.113.5"]
		copy = true
		[nuttcp]
		enable = false
		listen = "127.0.0.1:5000"
		[test]
		target = "b"
		seconds = 86400
		streams = 128
		directions = ["both"]
		protocol = "udp"
		rate = "300m"
		[[target]]
		name = "a"
		host = "fe80::1%eth1"
		[[target]]
		name = "b"
		host = "server.example"
		engine = "nuttcp"
		expect = "941.5M"
		[buttons]
		enable = false
		devices = ["/dev/input/event0"]
		[display]
		panel = "none"
		rotate = 180
		sleep_after = "0"
		[web]
		enable = false
		listen = ":8443"
		pin = "0042"
	`)
	dhcp := Address{Method: AddressDHCP}
	static := func(s string) Address { return Address{AddressStatic, netip.MustParsePrefix(s)} }
	shared := []Address{dhcp, static("192.0.2.7/24"), static("2001:db8::7/64")}
	want := Config{
		Board: Board{Profile: "nanopi-r5s"},
		Ports: Ports{
			Select: []string{"lan1", "eth5", "/devices/pci0000:00/0000:01:00.0"}, Bridge: BridgeKeep, MTU: MTUMax, Address: shared,
		},
		Port: []Port{
			{Match: "lan1", MTU: MTUMax, Address: shared, VLAN: []VLAN{
				{ID: 1, Address: []Address{{Method: AddressAuto}}}, {ID: 4094, Address: []Address{static("198.51.100.1/31")}},
			}},
			{Match: "lan2", MTU: MTULeave, Address: []Address{{Method: AddressManager}}, Native: true},
		},
		CPU: CPU{Governor: "schedutil", MinFreq: 1416000, IRQ: IRQLeave},
		Server: Server{
			Listen: "[2001:db8::1]:5202", Concurrency: Queue, QueueWait: 90 * time.Second, MaxTests: 4, MaxDuration: time.Hour,
			MaxRate: 2.5e9, Stall: 10 * time.Second, Copy: true, Allow: []netip.Prefix{
				netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("203.0.113.5/32"),
			},
		},
		Nuttcp: Nuttcp{Listen: "127.0.0.1:5000"},
		Test: Test{
			Target: "b", Seconds: 86400, Streams: 128, Directions: []throughput.Direction{throughput.Both},
			Protocol: throughput.UDP, Rate: 300e6,
		},
		Targets: []Target{
			{Name: "a", Host: "fe80::1%eth1", Engine: "iperf3"},
			{Name: "b", Host: "server.example", Engine: "nuttcp", Expect: 941.5e6},
		},
		Buttons: Buttons{Devices: []string{"/dev/input/event0"}},
		Display: Display{Panel: PanelNone, Rotate: 180},
		Web:     Web{Listen: ":8443", PIN: "0042"},
	}
	if diff := cmp.Diff(want, l.Config, comparePrefix); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	again := parseOne(t, dump(l.Config))
	if diff := cmp.Diff(want, again.Config, comparePrefix); diff != "" {
		t.Errorf("written and read again (-want +got):\n%s", diff)
	}
}

// dump writes a config as a file that says all of it.
func dump(c Config) string {
	var b strings.Builder
	for _, f := range schema {
		b.WriteString(f.name + " = " + format(f.get(c)) + "\n")
	}
	for _, p := range c.Port {
		b.WriteString("[[port]]\n")
		dumpFields(&b, portSchema, p)
	}
	for _, t := range c.Targets {
		b.WriteString("[[target]]\n")
		dumpFields(&b, targetSchema, t)
	}
	return b.String()
}

func dumpFields[T any](b *strings.Builder, fields []field[T], t T) {
	for _, f := range fields {
		if v := f.get(t); v != nil {
			b.WriteString(f.name + " = " + format(v) + "\n")
		}
	}
}

func TestAllows(t *testing.T) {
	s := Server{Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("fe80::/10")}}
	for addr, want := range map[string]bool{
		"192.0.2.200": true, "::ffff:192.0.2.200": true, "192.0.3.1": false, "fe80::1%eth1": true, "2001:db8::1": false,
	} {
		if got := s.Allows(netip.MustParseAddr(addr)); got != want {
			t.Errorf("Allows(%s) = %v, want %v", addr, got, want)
		}
	}
	if !Default().Server.Allows(netip.MustParseAddr("203.0.113.1")) {
		t.Error("an empty list must let everybody in")
	}
}

func TestRates(t *testing.T) {
	for s, want := range map[string]float64{
		"0": 0, "2.3G": 2.3e9, "300M": 300e6, "300m": 300e6, "10k": 10e3, "1T": 1e12, "941500000": 941.5e6, ".5G": 5e8,
	} {
		got, err := ParseRate(s)
		if err != nil || got != want {
			t.Errorf("ParseRate(%q) = %v, %v; want %v", s, got, err, want)
		}
		if again, err := ParseRate(FormatRate(want)); err != nil || again != want {
			t.Errorf("ParseRate(FormatRate(%v)) = %v, %v", want, again, err)
		}
	}
	for _, s := range []string{"", "G", "-1G", "1e300G", "2.3 G", "2.3Gbit", "nan", "inf", "0x10", "+1", "1_000"} {
		if got, err := ParseRate(s); err == nil {
			t.Errorf("ParseRate(%q) = %v, want an error", s, got)
		}
	}
}
