package netcfg

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rtattr is one attribute, padded.
func rtattr(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func u32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func concat(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// ifinfo is an ifinfomsg with attributes.
func ifinfo(arphrd uint16, index int32, flags uint32, attributes ...[]byte) []byte {
	b := binary.NativeEndian.AppendUint16([]byte{0, 0}, arphrd)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = concat(b, u32(flags), u32(0))
	return concat(b, concat(attributes...))
}

// A VLAN interface as RTM_NEWLINK has it (uapi/linux/if_link.h); the build machines' kernel has no 802.1Q to ask.
var vlanMessage = ifinfo(unix.ARPHRD_ETHER, 9, unix.IFF_UP|unix.IFF_LOWER_UP,
	rtattr(unix.IFLA_IFNAME, []byte("eth1.130\x00")...),
	rtattr(unix.IFLA_LINK, u32(4)...),
	rtattr(unix.IFLA_ADDRESS, 2, 0, 0, 0, 0, 7),
	rtattr(unix.IFLA_LINKINFO|unix.NLA_F_NESTED, concat(
		rtattr(nl.IFLA_INFO_KIND, []byte("vlan\x00")...),
		rtattr(nl.IFLA_INFO_DATA|unix.NLA_F_NESTED, concat(
			rtattr(nl.IFLA_VLAN_ID, binary.NativeEndian.AppendUint16(nil, 130)...),
			rtattr(nl.IFLA_VLAN_PROTOCOL, 0x81, 0x00))...))...))

func TestParseLink(t *testing.T) {
	for _, test := range []struct {
		name string
		in   []byte
		want link
	}{
		{"a VLAN", vlanMessage, link{name: "eth1.130", index: 9, kind: "vlan", mac: "02:00:00:00:00:07", ether: true,
			up: true, carrier: true, parent: 4, vlan: 130}},
		{"a port in a bridge", ifinfo(unix.ARPHRD_ETHER, 4, unix.IFF_UP, rtattr(unix.IFLA_IFNAME, []byte("eth1\x00")...),
			rtattr(unix.IFLA_MTU, u32(9000)...), rtattr(unix.IFLA_MIN_MTU, u32(68)...), rtattr(unix.IFLA_MAX_MTU, u32(9194)...),
			rtattr(unix.IFLA_MASTER, u32(7)...), rtattr(unix.IFLA_CARRIER_CHANGES, u32(3)...)),
			link{name: "eth1", index: 4, ether: true, up: true, mtu: 9000, mtuMin: new(68), mtuMax: new(9194), master: 7,
				changes: 3}},
		{"no limit", ifinfo(unix.ARPHRD_LOOPBACK, 1, 0, rtattr(unix.IFLA_MAX_MTU, u32(0)...)), link{index: 1}},
		{"a name that is none", ifinfo(unix.ARPHRD_ETHER, 2, 0, rtattr(unix.IFLA_IFNAME, []byte("0123456789abcdef")...)),
			link{index: 2, ether: true}},
		{"cut short", ifinfo(unix.ARPHRD_ETHER, 2, 0, rtattr(unix.IFLA_MTU, 1, 2)), link{index: 2, ether: true}},
	} {
		got, err := parseLink(test.in)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, %v; want %+v", test.name, got, err, test.want)
		}
	}
	for name, in := range map[string][]byte{
		"nothing": nil, "half a header": make([]byte, 15), "a length beyond the end": append(ifinfo(1, 1, 0), 200, 0, 3, 0),
	} {
		if _, err := parseLink(in); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzParseLink: whatever the message, names are such as interfaces may have.
func FuzzParseLink(f *testing.F) {
	f.Add(vlanMessage)
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseLink(b)
		if len(l.name) >= unix.IFNAMSIZ || len(l.kind) >= unix.IFNAMSIZ || err == nil && l.mtuMax != nil && *l.mtuMax <= 0 {
			t.Errorf("%+v, %v", l, err)
		}
		_ = matters(unix.RTM_NEWLINK, b)
		_ = matters(unix.RTM_NEWROUTE, b)
	})
}

// With LINERATE_RECORD set, what this kernel says of a bridge and a veth, and what a keeper writes, become seeds of the
// fuzz tests.
func TestRecordCorpus(t *testing.T) {
	if os.Getenv("LINERATE_RECORD") == "" {
		t.Skip("LINERATE_RECORD is not set")
	}
	bridged(t)
	seed := func(target, name string, b []byte) {
		path := filepath.Join("testdata", "fuzz", target, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, fmt.Appendf(nil, "go test fuzz v1\n[]byte(%q)\n", b), 0o644))
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	must(t, err)
	for i, b := range messages {
		seed("FuzzParseLink", fmt.Sprintf("link-%d", i), b)
	}
	k := keeper(t)
	apply(t, k, wants(generic, "eth1", "eth2", "lan9"))
	for target, file := range map[string]string{
		"FuzzOriginals": filepath.Join(k.dir, originalsFile), "FuzzStatus": filepath.Join(k.runDir, StatusFile),
	} {
		b, err := os.ReadFile(file)
		must(t, err)
		seed(target, filepath.Base(file), b)
	}
}

func TestMatters(t *testing.T) {
	for _, test := range []struct {
		name    string
		kind    uint16
		payload []byte
		want    bool
	}{
		{"a link", unix.RTM_NEWLINK, ifinfo(1, 1, 0), true},
		{"a link is gone", unix.RTM_DELLINK, ifinfo(1, 1, 0), true},
		{"a port leaves a bridge", unix.RTM_DELLINK, append([]byte{unix.AF_BRIDGE}, ifinfo(1, 1, 0)[1:]...), false},
		{"an address", unix.RTM_NEWADDR, []byte{unix.AF_INET, 24, 0, 0}, true},
		{"a default route", unix.RTM_DELROUTE, []byte{unix.AF_INET, 0, 0, 0}, true},
		{"another route", unix.RTM_NEWROUTE, []byte{unix.AF_INET, 24, 0, 0}, false},
		{"a neighbour", unix.RTM_NEWNEIGH, []byte{unix.AF_INET, 0, 0, 0}, false},
		{"nothing", unix.RTM_NEWLINK, nil, false},
	} {
		if got := matters(test.kind, test.payload); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
