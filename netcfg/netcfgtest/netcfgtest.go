// Package netcfgtest simulates the ports of a NanoPi R5S that behave like real ones, for `linerate demo` and for tests:
// links come up after a while, ask for an address for some seconds, go down now and then and come back; a multi-gig USB
// adapter is plugged into the wrong socket and links at 1G only.
//
// What the ports look like is a pure function of a seed and the time since the start, so the same seed shows the same
// again. The addresses are those of documentation (RFC 5737, RFC 3849).
package netcfgtest

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"linerate/appliance"
)

// jack is one simulated port: how it looks with a link, and how it behaves.
type jack struct {
	port     appliance.Port // as it looks with link and address
	plugged  time.Duration  // when it appears; 0: it is there from the start
	firstUp  span           // least and most time from there to the first link
	stays    span           // how long a link stays
	gone     span           // how long it is gone
	asks     span           // from link to address
	wobbling bool           // false: the link stays once it is there
}

// span is the least and the most time that something takes.
type span [2]time.Duration

const second = time.Second

func jacks() []jack {
	pcie := func(domain string) string {
		root := map[string]string{"0000": "3c0000000.pcie", "0001": "3c0400000.pcie"}[domain]
		return "platform/" + root + "/pci" + domain + ":00/" + domain + ":00:00.0/" + domain + ":01:00.0"
	}
	gig := []string{"10baseT/Full", "100baseT/Full", "1000baseT/Full"}
	multi := append(slices.Clone(gig), "2500baseT/Full")
	base := func(name, role, path, driver, mac string, index, mbps int, ours, peer []string,
		addresses ...string) appliance.Port {
		return appliance.Port{
			Name: name, Role: role, Path: path, Driver: driver, MAC: mac, Index: index, MTU: 1500, MTUMin: new(68),
			MTUMax: new(9194), Link: appliance.LinkUp, SpeedMbps: &mbps, Duplex: appliance.DuplexFull, Autoneg: new(true),
			Addresses: addresses, SupportedModes: ours, AdvertisedModes: ours, PeerModes: peer, WoL: []string{},
			Pause: &appliance.Pause{Autoneg: true, RX: true, TX: true}, EEE: &appliance.EEE{},
			Features: map[string]bool{"rx-gro": true, "tx-checksum-ipv4": true, "tx-tcp-segmentation": driver != "r8169"},
			Test:     len(ours) == len(multi),
		}
	}
	wan := base("eth0", "wan", "platform/fe2a0000.ethernet", "rk_gmac-dwmac", "02:00:5e:00:53:01", 2, 1000, gig, gig,
		"198.51.100.23/24", "fe80::5eff:fe00:5301/64")
	wan.Gateway = "198.51.100.1"
	lan1 := base("eth1", "lan1", pcie("0000"), "r8169", "02:00:5e:00:53:02", 3, 2500, multi, multi,
		"192.0.2.10/24", "2001:db8:2::10/64", "fe80::5eff:fe00:5302/64")
	lan2 := base("eth2", "lan2", pcie("0001"), "r8169", "02:00:5e:00:53:03", 4, 2500, multi, multi,
		"203.0.113.20/24", "fe80::5eff:fe00:5303/64")
	for _, p := range []*appliance.Port{&lan1, &lan2} {
		p.PCIe = &appliance.PCIe{GTs: 5, Width: 1, MaxGTs: 5, MaxWidth: 1}
	}
	usb := base("eth3", "", "platform/fd800000.usb/usb1/1-1/1-1:1.0", "r8152", "02:00:5e:00:53:04", 5, 1000, multi, gig,
		"192.0.2.77/24", "fe80::5eff:fe00:5304/64")
	usb.Firmware = "rtl8156b-2 v3 10/20/23"
	usb.USB = &appliance.USB{SpeedMbps: 480, Version: "2.10", Vendor: "0bda", Product: "8156", MaxPowerMA: 256}
	return []jack{
		{port: wan, firstUp: span{1 * second, 2 * second}, asks: span{2 * second, 4 * second}},
		{port: lan1, firstUp: span{2 * second, 4 * second}, asks: span{3 * second, 6 * second},
			stays: span{90 * second, 240 * second}, gone: span{3 * second, 8 * second}, wobbling: true},
		{port: lan2, firstUp: span{4 * second, 9 * second}, asks: span{3 * second, 8 * second},
			stays: span{30 * second, 90 * second}, gone: span{5 * second, 20 * second}, wobbling: true},
		{port: usb, plugged: 12 * second, firstUp: span{3 * second, 5 * second},
			asks: span{2 * second, 5 * second}},
	}
}

// moment is one change of a jack: what it is like from there on.
type moment struct {
	at           time.Duration
	link, answer bool // answer: it has its addresses
	changes      int  // of the carrier so far
}

// moments gives the jack's changes in their order, without end for one that wobbles.
func (j jack) moments(seed uint64) func(yield func(moment) bool) {
	return func(yield func(moment) bool) {
		random := rand.New(rand.NewPCG(seed, uint64(j.port.Index)))
		between := func(r span) time.Duration {
			// Whole tenths of a second: a person reads the times, and a test compares them.
			return r[0] + time.Duration(random.Int64N(int64((r[1]-r[0])/(second/10))+1))*(second/10)
		}
		m := moment{at: j.plugged}
		if !yield(m) {
			return
		}
		m.at += between(j.firstUp)
		for {
			m.link, m.answer, m.changes = true, false, m.changes+1
			if !yield(m) {
				return
			}
			m.at, m.answer = m.at+between(j.asks), true
			if !yield(m) || !j.wobbling {
				return
			}
			m.at += between(j.stays)
			m.link, m.answer, m.changes = false, false, m.changes+1
			if !yield(m) {
				return
			}
			m.at += between(j.gone)
		}
	}
}

// Ports is what the box shows so long after the start, and when that changes next; 0 is never.
func Ports(seed uint64, after time.Duration) (ports []appliance.Port, next time.Duration) {
	for _, j := range jacks() {
		var now *moment
		for m := range j.moments(seed) {
			if m.at > after {
				if next == 0 || m.at < next {
					next = m.at
				}
				break
			}
			now = &m
		}
		if now != nil {
			ports = append(ports, j.look(*now))
		}
	}
	return ports, next
}

// look is the port as the kernel would show it.
func (j jack) look(m moment) appliance.Port {
	p := j.port
	p.CarrierChanges = m.changes
	if !m.link {
		p.Link, p.SpeedMbps, p.Duplex = appliance.LinkDown, nil, appliance.DuplexUnknown
		p.Addresses, p.PeerModes, p.Gateway = []string{}, []string{}, ""
	} else if !m.answer {
		p.Gateway = ""
		p.Addresses = slices.DeleteFunc(slices.Clone(p.Addresses), func(a string) bool {
			return !netip.MustParsePrefix(a).Addr().IsLinkLocalUnicast()
		})
	}
	return p
}

// Simulate returns the Task that publishes PortsSeen whenever a simulated port changes. The time of the simulation is
// that of now since the Task first ran, so a restart goes on where it was.
func Simulate(seed uint64, now func() time.Time) appliance.Task {
	var start time.Time
	return appliance.Task{Name: "ports", Run: func(ctx context.Context, hub *appliance.Hub) error {
		if start.IsZero() {
			start = now()
		}
		for {
			at := now()
			ports, next := Ports(seed, at.Sub(start))
			hub.Publish(appliance.PortsSeen{At: at, Ports: ports})
			var wait <-chan time.Time
			if next > 0 {
				wait = time.After(start.Add(next).Sub(at))
			}
			select {
			case <-ctx.Done():
				return nil
			case <-wait:
			}
		}
	}}
}
