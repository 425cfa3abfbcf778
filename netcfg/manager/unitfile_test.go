package manager

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParseUnit(t *testing.T) {
	got := parseUnit("# a comment\n; another\n[Match]\nName=eth1 \\\n# within\n eth2\n junk\n\n[Network]\nBridge = br0\n[Route]\n[]\n")
	want := []setting{
		{"Match", "", ""}, {"Match", "Name", "eth1  eth2"}, {"Network", "", ""}, {"Network", "Bridge", "br0"},
		{"Route", "", ""},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	settings := parseUnit("[Match]\nName=a b\nName=\nName=c\nName=d e\n")
	if got := words(settings, "Match", "Name"); !reflect.DeepEqual(got, []string{"c", "d", "e"}) {
		t.Errorf("list: %q", got)
	}
}

func FuzzParseUnit(f *testing.F) {
	f.Add("[Match]\nName=eth1\n[Network]\nBridge=br0\nAddress=192.168.2.1/24\n[Route]\nGateway=192.168.2.254\n")
	f.Add("[Match]\nName=!eth* \\\n lo\n[Network]\nGateway=fe80::1\n[Route]\nMetric=99999999999\nDestination=::/0\n")
	f.Fuzz(func(t *testing.T, text string) {
		files := networkdFiles{{"a.network", parseUnit(text)}}
		if len(files[0].settings) > maxSettings {
			t.Errorf("%d settings", len(files[0].settings))
		}
		files.BridgeOf(Candidate{Name: "eth1", IDPath: "pci-0000:01:00.0", Driver: "r8169", MAC: "02:00:00:00:00:01"})
		files.BridgeOf(Candidate{})
		addresses, routes := files.Static("br0")
		if len(addresses) > maxKept || len(routes) > maxKept {
			t.Errorf("%d addresses, %d routes", len(addresses), len(routes))
		}
		for _, r := range routes {
			if !r.Destination.IsValid() || len(r.Hops) != 1 {
				t.Errorf("a route that is none: %+v", r)
			}
		}
	})
}

// The first file by name counts; a stronger folder's hides one of the same name, /dev/null hides it altogether, and
// drop-ins add to it.
func TestUnitFiles(t *testing.T) {
	etc, run, usr := t.TempDir(), t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		etc + "/20-b.network": "[Match]\nName=etc\n", usr + "/20-b.network": "[Match]\nName=usr\n",
		run + "/10-a.network": "[Match]\nName=run\n", usr + "/30-c.network": "[Match]\nName=usr\n",
		usr + "/40-d.network": "[Match]\nName=usr\n", etc + "/40-d.network": "",
		usr + "/20-b.network.d/x.conf": "[Network]\nBridge=br0\n", etc + "/readme": "[Match]\nName=no\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/null", run+"/30-c.network"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range unitFiles([]string{etc, run, usr}, ".network") {
		got = append(got, fmt.Sprint(u.name, words(u.settings, "Match", "Name"), value(u.settings, "Network", "Bridge")))
	}
	if want := "10-a.network[run] 20-b.network[etc]br0"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestBridgeOf(t *testing.T) {
	eth1 := Candidate{Name: "eth1", IDPath: "platform-3c0000000.pcie-pci-0000:01:00.0", Driver: "r8169", MAC: "02:00:00:00:00:01"}
	for name, test := range map[string]struct {
		files []string // in the order of their names
		port  Candidate
		want  string
	}{
		"by name":               {[]string{"Name=eth1 eth2|br0"}, eth1, "br0"},
		"by pattern":            {[]string{"Name=e*|br0"}, eth1, "br0"},
		"not by name":           {[]string{"Name=!eth1 wlan0|br0"}, eth1, ""},
		"any but another":       {[]string{"Name=!eth7|br0"}, eth1, "br0"},
		"by place":              {[]string{"Path=*pci-0000:*|br0"}, eth1, "br0"},
		"another place":         {[]string{"Path=*pci-0001:*|br0"}, eth1, ""},
		"by driver and MAC":     {[]string{"Driver=r8*\nMACAddress=02:00:00:00:00:01|br0"}, eth1, "br0"},
		"both must fit":         {[]string{"Name=eth1\nDriver=igc|br0"}, eth1, ""},
		"Wi-Fi alone":           {[]string{"Type=wlan|br0"}, eth1, ""},
		"the first counts":      {[]string{"Name=eth1|", "Name=eth*|br0"}, eth1, ""},
		"without [Match]":       {[]string{"|br0"}, eth1, ""},
		"not there, some do":    {[]string{"Name=wan|", "Name=eth1|br7"}, Candidate{}, "br7"},
		"not there, none does":  {[]string{"Name=eth1|"}, Candidate{}, ""},
		"not there, Wi-Fi does": {[]string{"Type=wlan|br0"}, Candidate{}, ""},
	} {
		var files networkdFiles
		for i, f := range test.files {
			match, bridge, _ := strings.Cut(f, "|")
			text := "[Match]\n" + match + "\n[Network]\nDHCP=no\n"
			if bridge != "" {
				text += "Bridge=" + bridge + "\n"
			}
			files = append(files, unitFile{fmt.Sprint(i), parseUnit(text)})
		}
		if got := files.BridgeOf(test.port); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
