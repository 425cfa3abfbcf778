package netcfg

import (
	"context"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"linerate/appliance"
	"linerate/netcfg/netnstest"
)

// Three boots of a box whose driver makes up a MAC at each: a real server gives the same address each time, for the MAC
// is the same, and the address stays when the keeper ends.
func TestSameAddressOverBoots(t *testing.T) {
	netnstest.Need(t)
	if _, err := exec.LookPath("dnsmasq"); err != nil {
		t.Skip("not installed: dnsmasq")
	}
	dir := t.TempDir()
	k := keeper(t)
	var first string
	made := map[string]bool{}
	for boot := range 3 {
		addVeth(t, "eth1", "far1")
		i, err := net.InterfaceByName("eth1")
		must(t, err)
		made[i.HardwareAddr.String()] = true
		stop := make(chan struct{})
		end := farHost(t, "far1", "192.0.2.1/24", func() {
			cmd := exec.Command("dnsmasq", "--keep-in-foreground", "--port=0", "--conf-file=/dev/null", "--interface=far1",
				"--bind-interfaces", "--user=root", "--no-ping", "--log-facility="+dir+"/log", "--pid-file="+dir+"/pid",
				"--dhcp-leasefile="+dir+"/leases", "--dhcp-range=192.0.2.100,192.0.2.150,1h")
			if err := cmd.Start(); err != nil {
				t.Error(err)
			}
			<-stop
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		hub := appliance.NewHub(appliance.State{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Keep(always(wants(generic, "eth1"))).Run(ctx, hub) }()
		var got string
		await(t, hub, "a lease", func(s appliance.State) bool {
			p := portOf(s, "eth1")
			at := slices.IndexFunc(p.Addresses, func(a string) bool { return strings.HasPrefix(a, "192.0.2.1") })
			if at >= 0 {
				got = p.MAC + " " + p.Addresses[at]
			}
			return at >= 0
		})
		cancel()
		must(t, <-done)
		if _, address, _ := strings.Cut(got, " "); !holds(t, "eth1", address) {
			t.Errorf("boot %d: %s is gone with the keeper", boot, address)
		}
		if first == "" {
			first = got
		}
		if got != first {
			t.Errorf("boot %d: %s, at the first %s", boot, got, first)
		}
		close(stop)
		end()
		remove("eth1")
	}
	if len(made) != 3 {
		t.Errorf("the driver made up %v: this test shows nothing", made)
	}
}
