package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestErrors(t *testing.T) {
	for _, c := range []struct{ name, doc, want string }{
		{"unknown key", "[ports]\nmtuu = 9000", `f:2: unknown key ports.mtuu: the nearest known one is ports.mtu`},
		{"letters swapped", "[ports]\n\nslect = []", `f:3: unknown key ports.slect: the nearest known one is ports.select`},
		{"key of another table", "[server]\nrotate = 0", `f:2: unknown key server.rotate: the nearest known one is display.rotate`},
		{"key without its table", "mtu = 9000", `f:1: unknown key mtu: the nearest known one is ports.mtu`},
		{"unknown table", "[display]\n[serverr]\nlisten = \":1\"", `f:2: unknown key serverr: the nearest known one is server`},
		{"dotted key", "server.listn = \":1\"", `f:1: unknown key server.listn: the nearest known one is server.listen`},
		{"inline table", "test = { seconds = 5, strems = 2 }", `f:1: unknown key test.strems: the nearest known one is test.streams`},
		{"quoted key", "[ports]\n\"m t u\" = 1", `f:2: unknown key ports."m t u": the nearest known one is ports.mtu`},
		{"port key", "[[port]]\nmatch = \"a\"\n[[port]]\nmatch = \"b\"\nmatsch = 1",
			`f:5: unknown key port.matsch: the nearest known one is port.match`},
		{"target key", "[[target]]\nname = \"a\"\nhost = \"b\"\nport = 5201",
			`f:4: unknown key target.port: the nearest known one is target.tcp_port`},
		{"vlan key", "[[port]]\nmatch = \"a\"\nvlan = [\n{ id = 1, addres = [] }]",
			`f:3: port.a.vlan = [{ addres = [], id = 1 }]: unknown key "addres" in vlan: the nearest known one is address`},
		{"settings table", "[covered]", `f:1: unknown key covered: the nearest known one is board`},

		{"text for a number", "[test]\nseconds = \"10\"", `f:2: test.seconds = "10": want a whole number from 1 to 86400`},
		{"fraction", "[test]\nseconds = 1.5", `f:2: test.seconds = 1.5: want a whole number from 1 to 86400`},
		{"beyond", "[test]\nstreams = 129", `f:2: test.streams = 129: want a whole number from 1 to 128`},
		{"number for a text", "[board]\nprofile = 1", `f:2: board.profile = 1: want a name, as "auto" or "nanopi-r5s"`},
		{"text for a switch", "[web]\nenable = \"yes\"", `f:2: web.enable = "yes": want true or false`},
		{"word", "[ports]\nbridge = \"fre\"", `f:2: ports.bridge = "fre": want "free", "keep" or "auto"`},
		{"mtu", "[ports]\nmtu = 67", `f:2: ports.mtu = 67: want a number of bytes from 68 to 65535, "max" or "leave"`},
		{"mtu in quotes", "[ports]\nmtu = \"9000\"", `f:2: ports.mtu = "9000": want a number of bytes from 68 to 65535, "max" or "leave"`},
		{"degrees", "[display]\nrotate = 90", `f:2: display.rotate = 90: want 0 or 180`},
		{"bare duration", "[server]\nqueue_wait = 60", `f:2: server.queue_wait = 60: want a duration in quotes, as "60s", "10m" or "0"`},
		{"duration without unit", "[server]\nqueue_wait = \"60\"", `f:2: server.queue_wait = "60": want a duration up to a week, as "60s", "10m" or "0"`},
		{"stall", "[server]\nstall = \"10ms\"", `f:2: server.stall = "10ms": want "auto" or a duration from 1 s on, as "10s"`},
		{"bare rate", "[test]\nrate = 100", `f:2: test.rate = 100: want a rate in quotes, as "2.3G", "300M" or "0"`},
		{"rate", "[test]\nrate = \"fast\"", `f:2: test.rate = "fast": want a rate in bit/s, as "2.3G", "300M" or "0"`},
		{"listen", "[server]\nlisten = 5201", `f:2: server.listen = 5201: want an address to listen on, as ":5201", "192.0.2.1:5201" or "[2001:db8::1]:5201"`},
		{"port of a listen", "[server]\nlisten = \":70000\"", `f:2: server.listen = ":70000": want an address to listen on, as ":5201", "192.0.2.1:5201" or "[2001:db8::1]:5201"`},
		{"allow", "[server]\nallow = [\"192.0.2.0/33\"]", `f:2: server.allow = ["192.0.2.0/33"]: entry "192.0.2.0/33": want a network, as "192.0.2.0/24" or "2001:db8::/32", or an address`},
		{"text for a list", "[server]\nallow = \"any\"", `f:2: server.allow = "any": want a list in brackets; of each entry: want a network, as "192.0.2.0/24" or "2001:db8::/32", or an address`},
		{"no prefix length", "[ports]\naddress = [\"192.0.2.1\"]", `f:2: ports.address = ["192.0.2.1"]: entry "192.0.2.1": want "auto", "dhcp", "manager" or an address with its prefix length, as "192.0.2.1/24"`},
		{"network for a host", "[ports]\naddress = [\"192.0.2.0/24\"]", `f:2: ports.address = ["192.0.2.0/24"]: entry "192.0.2.0/24": is the network itself: want a host's address in it, as "192.0.2.1"`},
		{"broadcast", "[ports]\naddress = [\"192.0.2.255/24\"]", `f:2: ports.address = ["192.0.2.255/24"]: entry "192.0.2.255/24": is the broadcast address: want a host's address, as "192.0.2.254"`},
		{"auto and more", "[ports]\naddress = [\"auto\", \"dhcp\"]", `f:2: ports.address = ["auto", "dhcp"]: "auto" stands alone or not at all`},
		{"empty list", "[ports]\nselect = []", `f:2: ports.select = []: want a list of 1 to 256 entries`},
		{"twice in a list", "[test]\ndirections = [\"rx\", \"rx\"]", `f:2: test.directions = ["rx", "rx"]: entry "rx" stands twice`},
		{"direction", "[test]\ndirections = [\"down\"]", `f:2: test.directions = ["down"]: entry "down": want "rx", "tx" or "both"`},
		{"governor", "[cpu]\ngovernor = \"\"", `f:2: cpu.governor = "": want a governor, as "performance", or "leave"`},
		{"a PIN is never quoted", "[web]\npin = 123456", `f:2: web.pin: want "auto", "off" or 4 to 8 digits in quotes`},
		{"date", "[test]\nseconds = 2026-11-30", `f:2: test.seconds = 2026-11-30: want a whole number from 1 to 86400`},
		{"value for a table", "ports = 3", `f:1: ports: want a table, as [ports]`},
		{"table in double brackets", "[[ports]]\nmtu = 1500", `f:1: ports: want a table, as [ports]`},
		{"port in single brackets", "[port]\nmatch = \"lan1\"", `f:1: port: want [[port]], in double brackets, with a match for each`},
		{"port without match", "[[port]]\nmtu = 1500", `f:1: [[port]] has no match: want one, in quotes`},
		{"match twice", "[[port]]\nmatch = \"a\"\n[[port]]\nmatch = \"a\"", `f:4: [[port]] match = "a" stands on line 2 already: put both into one`},
		{"target called auto", "[[target]]\nname = \"auto\"", `f:2: target.auto.name = "auto": want another name: "auto" means any target`},
		{"vlan without id", "[[port]]\nmatch = \"a\"\nvlan = [{ address = [\"dhcp\"] }]", `f:3: port.a.vlan = [{ address = ["dhcp"] }]: entry 1 has no id`},
		{"vlan twice", "[[port]]\nmatch = \"a\"\nvlan = [{ id = 5 }, { id = 5 }]", `f:3: port.a.vlan = [{ id = 5 }, { id = 5 }]: id 5 stands twice`},
		{"vlan id", "[[port]]\nmatch = \"a\"\nvlan = [{ id = 4095 }]", `f:3: port.a.vlan = [{ id = 4095 }]: entry 1, id = 4095: want a whole number from 1 to 4094`},
		{"escape sequence in a name", "[[target]]\nname = \"\\u001b[2J\"\nhost = \"h\"", `f:2: target.` + "\x1b[2J" + `.name = "\u001b[2J": want a text in quotes, 1 to 256 bytes, in one line`},
		{"long value", "[test]\ntarget = \"" + strings.Repeat("x", 300) + "\"", `f:2: test.target = "` + strings.Repeat("x", 59) + `...: want a text in quotes, 1 to 256 bytes, in one line`},

		{"no value", "[ports]\nmtu =", `f:2: expected value, not end of input`},
		{"key twice", "[ports]\nmtu = 1\nmtu = 2", `f:3: key mtu is already defined`},
		{"UTF-16", "\xff\xfe[\x00p\x00", `f:1: is saved as UTF-16: save it as UTF-8`},
		{"zeroed", strings.Repeat("\x00", 100), `f:1: invalid character at start of key: U+0000`},

		{"target without host", "[[target]]\nname = \"a\"", `f:2: [[target]] "a" has no host: want its name or address`},
		{"unknown target", "[test]\ntarget = \"croe\"\n[[target]]\nname = \"core\"\nhost = \"h\"\n[[target]]\nname = \"edge\"\nhost = \"h\"",
			`f:2: test.target = "croe" names no [[target]]: the nearest is "core"`},
		{"address twice", "[[port]]\nmatch = \"a\"\naddress = [\"192.0.2.1/24\"]\n[[port]]\nmatch = \"b\"\nvlan = [{ id = 2, address = [\"192.0.2.1/25\"] }]",
			`f:6: port.b.vlan has the address 192.0.2.1/25 of port.a.address`},
		{"listen twice", "[nuttcp]\nlisten = \"127.0.0.1:5201\"", `f:2: server.listen = ":5201" and nuttcp.listen = "127.0.0.1:5201" want the same port`},

		{"several", "[ports]\nmtu = 1\n[test]\nsecs = 2\n[[port]]\n", `f:2: ports.mtu = 1: want a number of bytes from 68 to 65535, "max" or "leave" (and 2 more)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := load([]source{{file: "f", data: []byte(c.doc)}})
			if err == nil {
				t.Fatal("want an error")
			}
			if !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("error\n got %s\nwant %s", err, c.want)
			}
			if l.Config.Server.Listen != ":5201" || l.Config.Ports.MTU != MTULeave {
				t.Error("what remains is not the default")
			}
		})
	}
}

func TestOrderOfErrors(t *testing.T) {
	_, err := load([]source{{file: "f", data: []byte("[web]\na = 1\n[board]\nb = 1\n[cpu]\nc = 1\n[[port]]\nd = 1\n")}})
	var lines []int
	for _, e := range err.(Errors) {
		lines = append(lines, e.Line)
	}
	if !slices.Equal(lines, []int{2, 4, 6, 7}) {
		t.Errorf("lines %v, want 2 4 6 7", lines)
	}
}

func TestAsWindowsSavesIt(t *testing.T) {
	l := parseOne(t, "\xef\xbb\xbf[ports]\r\nmtu = 9000\r\n")
	if l.Config.Ports.MTU != 9000 {
		t.Errorf("mtu = %v, want 9000", l.Config.Ports.MTU)
	}
	_, err := load([]source{{file: "f", data: []byte("\xef\xbb\xbf[ports]\r\nmtuu = 9000\r\n")}})
	if err == nil || !strings.HasPrefix(err.Error(), "f:2:") {
		t.Errorf("error %v, want line 2", err)
	}
}

func TestNearest(t *testing.T) {
	for key, want := range map[string]string{
		"ports.mtu_": "ports.mtu", "PORTS.MTU": "ports.mtu", "cpu.governer": "cpu.governor", "mtus": "ports.mtu",
		"network.mtu": "ports.mtu", "display.sleep": "display.sleep_after", "server.max_test": "server.max_tests",
		"targets": "target", "iperf3.listen": "server.listen",
	} {
		if got := nearest(key, knownKeys()); got != want {
			t.Errorf("nearest(%q) = %q, want %q", key, got, want)
		}
	}
	if d := distance("select", "slecet"); d != 2 {
		t.Errorf("distance = %d, want 2", d)
	}
	if d := distance("mtu", "mut"); d != 1 {
		t.Errorf("a swap costs %d, want 1", d)
	}
}

// TestOnlyBoundedRegularFiles offers everything that could hang or fill the reader.
func TestOnlyBoundedRegularFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.WriteFile(file("good"), []byte("x"), 0o644))
	check(os.WriteFile(file("full"), make([]byte, MaxFileSize), 0o644))
	check(os.WriteFile(file("over"), make([]byte, MaxFileSize+1), 0o644))
	check(os.WriteFile(file("huge"), nil, 0o644))
	check(os.Truncate(file("huge"), 1<<30))
	check(os.Symlink("good", file("link")))
	check(os.Symlink("self", file("self")))
	check(os.Mkdir(file("folder"), 0o755))
	check(syscall.Mkfifo(file("pipe"), 0o644))
	for _, c := range []struct {
		name   string
		follow bool
		want   string
	}{
		{"good", false, ""},
		{"full", false, ""},
		{"link", true, ""},
		{"over", true, "is 65537 bytes long: want at most 65536"},
		{"huge", true, "is 1073741824 bytes long: want at most 65536"},
		{"link", false, "is a link: want a regular file"},
		{"self", true, "cannot be read: too many levels of symbolic links"},
		{"folder", true, "is no regular file"},
		{"pipe", true, "is no regular file"},
		{"/dev/zero", true, "is no regular file"},
	} {
		path := c.name
		if !filepath.IsAbs(path) {
			path = file(path)
		}
		_, err := readFile(path, c.follow)
		if got := errorText(err); got != c.want {
			t.Errorf("readFile(%s, follow %v): %q, want %q", c.name, c.follow, got, c.want)
		}
	}
	// The kernel's files claim to be empty.
	if _, err := readFile("/proc/self/maps", true); err != nil {
		t.Errorf("/proc/self/maps: %v", err)
	}
	if _, err := CheckFile(file("none")); errorText(err) != file("none")+": does not exist" {
		t.Errorf("CheckFile of nothing: %v", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// FuzzParse: whatever the bytes, there is an error or a config that can be written and read again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(Reference), false)
	f.Add([]byte("[[port]]\nmatch = 'a'\nvlan = [{id = 1}]\n[[target]]\nname = 'x'\nhost = 'y'\n"), false)
	f.Add([]byte("[ports]\nmtu = 9000\n[covered]\n'ports.mtu' = 'leave'\n"), true)
	f.Add([]byte("port = [{match = 'a', mtu = 1}]\ntest.target = 'b'"), false)
	f.Add([]byte("[port.x]\n[[port.x.y]]\n[[ports]]\n[[ports.z]]"), false)
	f.Fuzz(func(t *testing.T, data []byte, settings bool) {
		l, err := load([]source{{file: "f", data: data, settings: settings}})
		if err != nil {
			for _, e := range err.(Errors) {
				if e.Line > 1+strings.Count(string(data), "\n") || strings.ContainsRune(e.Error(), '\n') {
					t.Errorf("error %q of %q", e, data)
				}
			}
			return
		}
		if settings {
			return
		}
		again, err := load([]source{{file: "f", data: []byte(dump(l.Config))}})
		if err != nil {
			t.Fatalf("%q becomes\n%s\nwhich fails: %v", data, dump(l.Config), err)
		}
		if dump(again.Config) != dump(l.Config) {
			t.Errorf("%q becomes\n%s\nthen\n%s", data, dump(l.Config), dump(again.Config))
		}
	})
}
