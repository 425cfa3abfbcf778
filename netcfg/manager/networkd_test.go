package manager

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestNetworkdWords(t *testing.T) {
	prefix, ip := netip.MustParsePrefix, netip.MustParseAddr
	for name, test := range map[string]struct {
		o    Override
		want string
	}{
		"a freed port": {
			Override{Key: "lan1", Name: "eth1", Paths: []string{"platform-3c0000000.pcie-*", "*pci-0000:*"}, DHCP: true,
				MTU: 9000, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}},
			`[Match]
Path=platform-3c0000000.pcie-* *pci-0000:*

[Link]
MACAddress=02:00:00:00:00:01
MTUBytes=9000
RequiredForOnline=no

[Network]
DHCP=yes
LinkLocalAddressing=yes
IPv6AcceptRA=yes

[DHCPv4]
ClientIdentifier=mac
`},
		"addresses and routes": {
			Override{Key: "eth1", Name: "eth1", Addresses: []netip.Prefix{prefix("192.0.2.1/24"), prefix("2001:db8::1/64")},
				Routes: []Route{
					{Destination: prefix("0.0.0.0/0"), Hops: []Hop{{Interface: "eth1", Gateway: ip("192.0.2.254")}},
						Table: unix.RT_TABLE_MAIN, Metric: 50},
					{Destination: prefix("203.0.113.0/24"), Table: 7, Source: ip("192.0.2.1"), MTU: 1400,
						Hops: []Hop{{Interface: "eth1", Gateway: ip("198.51.100.1"), Flags: unix.RTNH_F_ONLINK}}},
					{Destination: prefix("198.51.100.0/24"), Hops: []Hop{{Interface: "eth1"}, {Interface: "eth9"}}},
				}},
			`[Match]
Name=eth1

[Link]
RequiredForOnline=no

[Network]
DHCP=no
LinkLocalAddressing=ipv6
IPv6AcceptRA=yes
Address=192.0.2.1/24
Address=2001:db8::1/64

[Route]
Destination=0.0.0.0/0
Gateway=192.0.2.254
Metric=50

[Route]
Destination=203.0.113.0/24
Gateway=198.51.100.1
GatewayOnLink=yes
PreferredSource=192.0.2.1
Table=7
MTUBytes=1400
`},
		"an emptied bridge": {
			Override{Key: "br0", Name: "br0", Empty: true, DHCP: true},
			`[Match]
Name=br0

[Link]
RequiredForOnline=no

[Network]
LinkLocalAddressing=no
IPv6AcceptRA=no
`},
	} {
		files := (&Networkd{}).Files(test.o, false)
		if len(files) != 1 || files[0].Path != "/etc/systemd/network/01-linerate-"+test.o.Key+".network" {
			t.Fatalf("%s: files %+v", name, files)
		}
		comment, rest, _ := strings.Cut(files[0].Content, "\n")
		if !strings.HasPrefix(comment, "# Made by linerate") || rest != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, rest, test.want)
		}
		tentative := (&Networkd{}).Files(test.o, true)[0]
		if filepath.Dir(tentative.Path) != "/run/systemd/network" || filepath.Base(tentative.Path) >= filepath.Base(files[0].Path) {
			t.Errorf("%s: the tentative file %s does not go before %s", name, tentative.Path, files[0].Path)
		}
	}
}

// Without D-Bus nobody owns anything, and that is no error; somebody who listens there and says nothing is one, soon.
func TestNoBusAndSilentBus(t *testing.T) {
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+t.TempDir()+"/none")
	n := &Networkd{bus: bus{limit: 200 * time.Millisecond}}
	if owners, err := n.Owners(t.Context(), map[int]string{1: "lo"}); err != nil || len(owners) > 0 {
		t.Errorf("without a bus: %v, %v", owners, err)
	}
	if err := n.Load(t.Context(), []int{1}); err != nil {
		t.Errorf("without a bus: %v", err)
	}
	socket := filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+socket)
	start := time.Now()
	if _, err := n.Owners(t.Context(), map[int]string{1: "lo"}); err == nil {
		t.Error("a bus that says nothing is no error")
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("gave up after %v", took)
	}
}

func TestReadSmall(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 2*maxOwnBytes)), 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err := readSmall(file); err != nil || len(b) != maxOwnBytes {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{link, fifo, dir, filepath.Join(dir, "none")} {
		if b, err := readSmall(name); err == nil {
			t.Errorf("%s was read: %q", name, b)
		}
	}
}

func FuzzValueOf(f *testing.F) {
	f.Add("# private\nADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/10-br0.network\n", "NETWORK_FILE=")
	f.Add("E:ID_PATH=pci-0000:01:00.0", "E:ID_PATH=")
	f.Fuzz(func(t *testing.T, text, key string) {
		if v := valueOf(text, key); strings.Contains(v, "\n") || !strings.Contains(text, v) {
			t.Errorf("%q of %q is %q", key, text, v)
		}
	})
}
