package display

import (
	"fmt"
	"strings"
	"time"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// noon is the time of all pictures. Its zone must not matter.
var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// box is an R5S on the bench: lan1 with a link and an address, lan2 without a link, wan in the office network.
func box() appliance.State {
	s := appliance.New("0.1.0", "nanopi-r5s", "nanopi-r5s", config.Default())
	s = appliance.Apply(s, appliance.Ticked{At: noon.Add(-time.Hour), Uptime: time.Hour, Synced: true})
	s = appliance.Apply(s, ports(noon.Add(-4*time.Second), port("eth1", "lan1", 2500, "192.168.1.10/24"),
		port("eth2", "lan2", 0), port("eth0", "wan", 1000, "10.0.0.5/24")))
	s = appliance.Apply(s, appliance.HealthSeen{At: noon, Health: appliance.Health{TemperatureC: new(47.2)}})
	s = appliance.Apply(s, tick(0))
	return s
}

func tick(after time.Duration) appliance.Event {
	return appliance.Ticked{At: noon.Add(after), Uptime: 2*time.Hour + after, Synced: true}
}

func port(name, role string, mbps int, addresses ...string) appliance.Port {
	p := appliance.Port{
		Name: name, Role: role, Driver: "r8169", MAC: "5e:8a:2c:00:10:0" + name[len(name)-1:], MTU: 1500,
		Link: appliance.LinkDown, Duplex: appliance.DuplexUnknown, Addresses: addresses,
		Test: strings.HasPrefix(role, "lan"), Index: len(name) + int(name[len(name)-1]),
	}
	if mbps > 0 {
		p.Link, p.SpeedMbps, p.Duplex = appliance.LinkUp, new(mbps), appliance.DuplexFull
	}
	return p
}

func ports(at time.Time, list ...appliance.Port) appliance.Event {
	return appliance.PortsSeen{At: at, Ports: list}
}

func press(s appliance.State, keys ...appliance.Key) appliance.State {
	for _, k := range keys {
		s = appliance.Apply(s, appliance.ButtonPressed{At: s.Now, Key: k})
	}
	return s
}

func record(id, run string, d throughput.Direction, bps float64) results.Record {
	possible, line := 100*bps/2.3537e9, 100*bps/2.5e9
	r := results.Record{
		Stamp: results.Stamp{ID: id, Run: run, Time: noon.Add(-3 * time.Minute), Clock: results.Synced},
		Result: throughput.Result{
			Engine: "iperf3", Role: throughput.Client, Peer: "192.168.1.50", Target: "core", Port: "eth1", Family: 4,
			Protocol: throughput.TCP, Direction: d, Streams: 1, Seconds: 10, BPS: bps, MTU: new(1500), LinkMbps: new(2500),
			Duplex: "full", RTTMS: new(0.52), PossiblePercent: &possible, LineRatePercent: &line, Valid: true,
		},
	}
	switch d {
	case throughput.RX:
		r.RXBPS = &bps
	case throughput.TX:
		r.TXBPS, r.Retransmits = &bps, new(int64(12))
	default:
		r.RXBPS, r.TXBPS, r.Retransmits = new(bps*0.52), new(bps*0.48), new(int64(7))
		possible, line = possible*0.48, line*0.48
	}
	return r
}

func finish(s appliance.State, list ...results.Record) appliance.State {
	for _, r := range list {
		s = appliance.Apply(s, appliance.TestFinished{At: s.Now, ID: r.ID, Record: r, Last: true})
	}
	return s
}

// measured is the box after a run in both directions.
func measured() appliance.State {
	return finish(box(), record("1", "1", throughput.RX, 2.3502e9), record("2", "1", throughput.TX, 2.2689e9))
}

func client(id, peer string, d throughput.Direction) appliance.Test {
	return appliance.Test{
		ID: id, Role: throughput.Server, Peer: peer, Local: "192.168.1.10", Direction: d, Protocol: throughput.TCP,
		Streams: 1, Seconds: 10,
	}
}

// run starts a test and lets it go on for so many seconds at about bps.
func run(s appliance.State, t appliance.Test, bps float64, n int) appliance.State {
	s = appliance.Apply(s, appliance.TestStarted{At: s.Now, Test: t})
	for i := range n {
		now := bps * (1 - 0.4/float64(i*i+1)) * (1 - 0.04*float64(i*7%5))
		if i == n-1 {
			now = bps
		}
		p := throughput.Progress{ElapsedS: float64(i + 1), Retransmits: new(int64(3 * i)), RTTMS: new(0.48)}
		switch t.Direction {
		case throughput.RX:
			p.RXBPS, p.Retransmits = now, nil
		case throughput.TX:
			p.TXBPS = now
		default:
			p.RXBPS, p.TXBPS = now*0.52, now*0.48
		}
		s = appliance.Apply(s, appliance.TestProgressed{At: s.Now, ID: t.ID, Progress: p})
	}
	return s
}

func withTargets(s appliance.State, list ...config.Target) appliance.State {
	cfg := s.Config
	cfg.Targets = list
	return appliance.Apply(s, appliance.ConfigLoaded{At: s.Now, Config: cfg})
}

var core = config.Target{Name: "core", Host: "192.0.2.10", Engine: "iperf3", Expect: 2.3e9}

// longIPv6 has all 39 characters that an address can have.
const longIPv6 = "2001:db85:85a3:1234:5678:8a2e:1370:7334"

var taken = appliance.TaskDown{At: noon, Task: "iperf3", Err: "port 5201 is taken by pid 812 (iperf3)"}

// waits lets clients wait for their turn.
func waits(s appliance.State, peers ...string) appliance.State {
	e := appliance.ClientsWaiting{At: noon}
	for _, peer := range peers {
		e.Tests = append(e.Tests, client("wait-"+peer, peer, throughput.TX))
	}
	return appliance.Apply(s, e)
}

// shot is a State worth a picture.
type shot struct {
	name  string
	state func() appliance.State
	label string // on the contact sheet; "" leaves it out
}

var shots = []shot{
	{"boot", func() appliance.State {
		s := appliance.New("0.1.0", "nanopi-r5s", "nanopi-r5s", config.Default())
		s = appliance.Apply(s, ports(noon.Add(-4*time.Second), port("eth1", "lan1", 2500), port("eth2", "lan2", 0),
			port("eth0", "wan", 1000, "192.168.100.101/24")))
		return appliance.Apply(s, tick(0))
	}, "Boot"},
	{"boot-no-ports", func() appliance.State {
		s := appliance.New("0.1.0", "generic", "linerate", config.Default())
		return appliance.Apply(s, tick(0))
	}, ""},
	{"boot-ready", func() appliance.State {
		s := box()
		s.Page = appliance.PageBoot
		return s
	}, ""},
	{"home-first", func() appliance.State { return press(box(), appliance.Back) }, "Home, no test yet"},
	{"home", func() appliance.State { return press(measured(), appliance.Back) }, "Home"},
	{"home-no-link", func() appliance.State {
		s := appliance.Apply(box(), ports(noon, port("eth1", "lan1", 0), port("eth2", "lan2", 0), port("eth0", "wan", 0)))
		return press(s, appliance.Back)
	}, ""},
	{"home-long-ipv4", func() appliance.State {
		s := appliance.Apply(measured(), ports(noon, port("eth1", "lan1", 2500, "192.168.100.101/24"),
			port("eth2", "lan2", 2500, "169.254.123.234/16"), port("eth0", "wan", 1000, "172.116.254.200/20")))
		return press(s, appliance.Back)
	}, ""},
	{"home-long-ipv6", func() appliance.State {
		s := appliance.Apply(measured(), ports(noon, port("eth1", "lan1", 2500, longIPv6+"/64"), port("eth2", "lan2", 0),
			port("eth0", "wan", 0)))
		return press(s, appliance.Back)
	}, ""},
	{"home-long-ipv6-turned", func() appliance.State {
		s := appliance.Apply(measured(), ports(noon, port("eth1", "lan1", 2500, longIPv6+"/64"), port("eth2", "lan2", 0),
			port("eth0", "wan", 1000, longIPv6+"/64")))
		return appliance.Apply(press(s, appliance.Back), tick(3*time.Second))
	}, ""},
	{"home-half-duplex", func() appliance.State {
		half := port("eth1", "lan1", 2500)
		half.Duplex = appliance.DuplexHalf
		s := appliance.Apply(box(), ports(noon.Add(-time.Second), half, port("eth2", "lan2", 0)))
		s = appliance.Apply(s, appliance.FindingsSeen{At: noon, Findings: []appliance.Finding{
			{Code: "half-duplex", Severity: appliance.Grave, Port: "lan1", Title: "Half duplex"},
		}})
		return press(appliance.Apply(s, tick(8*time.Second)), appliance.Back)
	}, ""},
	{"home-fault", func() appliance.State {
		return press(appliance.Apply(measured(), taken), appliance.Back)
	}, "Home, with a fault"},
	{"home-config-error", func() appliance.State {
		s := appliance.Apply(measured(), appliance.ConfigRejected{At: noon, Err: "linerate.toml:3: unknown key"})
		return press(s, appliance.Back)
	}, ""},
	{"home-running", func() appliance.State {
		return press(run(measured(), client("7", "192.168.1.50", throughput.RX), 2.351e9, 4), appliance.Back)
	}, ""},
	{"home-waiting", func() appliance.State {
		s := run(measured(), client("7", "192.168.1.50", throughput.Both), 4.1e9, 4)
		return press(waits(s, "192.168.1.60"), appliance.Back)
	}, ""},
	{"home-eight-ports", func() appliance.State {
		var list []appliance.Port
		for i := range 8 {
			address := fmt.Sprintf("192.168.%d.110/24", i+1)
			list = append(list, port(fmt.Sprintf("eth%d", i), fmt.Sprintf("lan%d", i+1), 2500, address))
		}
		return press(appliance.Apply(measured(), ports(noon, list...)), appliance.Back)
	}, ""},
	{"menu", func() appliance.State {
		return press(withTargets(measured(), core), appliance.Back, appliance.Select)
	}, "Menu"},
	{"menu-end", func() appliance.State {
		s := appliance.Apply(withTargets(measured(), core), taken)
		return press(s, appliance.Back, appliance.Select, appliance.Up)
	}, ""},
	{"settings", func() appliance.State {
		none, err := config.Load(config.Paths{Root: "/nonexistent"})
		if err != nil {
			panic(err)
		}
		s := appliance.Apply(measured(), appliance.ConfigLoaded{At: noon, Config: none.Config, Keys: none.Keys})
		return press(s, appliance.Back, appliance.Select, appliance.Up, appliance.Up, appliance.Select, appliance.Down, appliance.Down)
	}, ""},
	{"targets", func() appliance.State {
		s := withTargets(measured(), core, config.Target{Name: "192.168.100.101", Host: "192.168.100.101"},
			config.Target{Name: "access-point-3rd-floor", Host: "198.51.100.200"}, config.Target{Name: "core6", Host: longIPv6},
			config.Target{Name: "gate", Host: "gate.example.net"}, config.Target{Name: "lab", Host: "10.1.1.1"})
		return press(s, appliance.Back, appliance.Select, appliance.Down, appliance.Select, appliance.Down, appliance.Down)
	}, "Targets"},
	{"targets-none", func() appliance.State {
		return press(box(), appliance.Back, appliance.Select, appliance.Down, appliance.Select)
	}, ""},
	{"test-ready", func() appliance.State { return press(withTargets(box(), core), appliance.K1) }, "Ready"},
	{"test-no-target", func() appliance.State { return press(box(), appliance.K1) }, ""},
	{"test-connecting", func() appliance.State {
		return press(withTargets(box(), core), appliance.K1, appliance.K1)
	}, ""},
	{"test-seeking", func() appliance.State {
		gw := port("eth1", "lan1", 2500, "192.168.1.10/24")
		gw.Gateway = "192.168.1.1"
		s := appliance.Apply(box(), ports(noon, gw))
		s = appliance.Apply(s, tick(2*time.Second))
		return press(s, appliance.K1, appliance.K1)
	}, ""},
	{"running-rx", func() appliance.State {
		return run(box(), client("7", "192.168.1.50", throughput.RX), 2.351e9, 4)
	}, "Running, RX"},
	{"running-tx", func() appliance.State {
		t := client("7", "192.168.1.50", throughput.TX)
		t.Streams, t.Target, t.Seconds = 4, "core", 0
		return run(box(), t, 941.2e6, 40)
	}, ""},
	{"running-both", func() appliance.State {
		return run(box(), client("7", "192.168.1.50", throughput.Both), 4.612e9, 7)
	}, "Running, RX+TX"},
	{"running-ipv6", func() appliance.State {
		t := client("7", longIPv6, throughput.RX)
		return run(box(), t, 64.2e3, 4)
	}, ""},
	{"running-several", func() appliance.State {
		s := run(box(), client("7", "192.168.1.50", throughput.RX), 1.21e9, 4)
		s = run(s, client("8", "192.168.1.60", throughput.TX), 2.1e9, 3)
		return waits(s, "192.168.1.70", "192.168.1.71", "192.168.1.72")
	}, ""},
	{"running-waits", func() appliance.State {
		s := run(box(), client("7", "192.168.1.50", throughput.RX), 2.351e9, 4)
		return waits(s, "192.168.1.60")
	}, ""},
	{"running-ask", func() appliance.State {
		return press(run(box(), client("7", "192.168.1.50", throughput.RX), 2.351e9, 4), appliance.Select)
	}, "Cancel?"},
	{"running-ask-start", func() appliance.State {
		s := run(withTargets(box(), core), client("7", "192.168.1.50", throughput.RX), 2.351e9, 4)
		s.View.Ask = appliance.AskStart
		return s
	}, ""},
	{"running-ending", func() appliance.State {
		s := run(box(), client("7", "192.168.1.50", throughput.TX), 2.351e9, 4)
		return press(s, appliance.Select, appliance.Select)
	}, ""},
	{"result", func() appliance.State {
		s := measured()
		s.Page = appliance.PageResult
		return s
	}, "Result"},
	{"result-pass", func() appliance.State {
		rx, tx := record("1", "1", throughput.RX, 2.3537e9), record("2", "1", throughput.TX, 2.3488e9)
		rx.Pass, rx.ExpectBPS, tx.Pass, tx.ExpectBPS = new(true), new(2.3e9), new(true), new(2.3e9)
		s := finish(box(), rx, tx)
		s.Page = appliance.PageResult
		return s
	}, "Result, expected"},
	{"result-fail", func() appliance.State {
		r := record("3", "3", throughput.RX, 941.2e6)
		r.Pass, r.ExpectBPS, r.Findings = new(false), new(2.3e9), []string{"path-rate-step"}
		s := finish(measured(), r)
		s.Findings = []appliance.Finding{{Code: "path-rate-step", Severity: appliance.Warn, Title: "A 1G hop on the path"}}
		s.Page = appliance.PageResult
		return s
	}, "Result, too low"},
	{"result-both", func() appliance.State {
		s := finish(box(), record("4", "4", throughput.Both, 4.612e9))
		s.Page = appliance.PageResult
		return s
	}, ""},
	{"result-server-ipv6", func() appliance.State {
		r := record("5", "5", throughput.TX, 2.32e9)
		r.Role, r.Target, r.Peer, r.SharedWith, r.PortBPS = throughput.Server, "", longIPv6, []string{"6"}, new(2.34e9)
		s := finish(box(), r)
		s.Page = appliance.PageResult
		return s
	}, ""},
	{"result-invalid", func() appliance.State {
		r := record("6", "6", throughput.RX, 1.11e9)
		r.Valid, r.Error = false, "link of lan1 changed to 1G during the test"
		s := finish(box(), r)
		s.Page = appliance.PageResult
		return s
	}, ""},
	{"result-error", func() appliance.State {
		r := record("7", "7", throughput.TX, 0)
		r.Valid, r.Error = false, "no answer from 192.168.1.50:5201 in 5 s"
		r.PossiblePercent, r.LineRatePercent, r.RTTMS, r.Retransmits = nil, nil, nil, nil
		s := finish(box(), r)
		s.Page = appliance.PageResult
		return s
	}, ""},
	{"result-udp", func() appliance.State {
		r := record("8", "8", throughput.RX, 998.4e6)
		r.Protocol, r.RTTMS = throughput.UDP, nil
		r.Lost, r.Packets, r.JitterMS = new(int64(812)), new(int64(861204)), new(0.013)
		s := finish(box(), r)
		s.Page = appliance.PageResult
		return s
	}, ""},
	{"ports", func() appliance.State {
		s := press(measured(), appliance.Back)
		s.Page = appliance.PagePorts
		return s
	}, "A port"},
	{"ports-usb-ipv6", func() appliance.State {
		p := port("enx1", "", 2500, "192.168.100.101/24", longIPv6+"/64", "fe80::5c8a:2cff:fe00:1001/64")
		p.Name, p.Test, p.Driver, p.Duplex = "enx5c8a2c001001", true, "cdc_ncm", appliance.DuplexHalf
		p.USB = &appliance.USB{SpeedMbps: 480}
		s := appliance.Apply(box(), ports(noon, p))
		s = appliance.Apply(s, appliance.FindingsSeen{At: noon, Findings: []appliance.Finding{
			{Code: "usb-bus-slow", Severity: appliance.Grave, Port: p.Name, Title: "USB 2: 480 Mbit/s"},
		}})
		s.Page = appliance.PagePorts
		return s
	}, ""},
	{"ports-bridge", func() appliance.State {
		p := port("eth1", "lan1", 1000)
		p.Master, p.Bridge = "br0", true
		s := appliance.Apply(box(), ports(noon, p))
		s.Page = appliance.PagePorts
		return s
	}, ""},
	{"ports-none", func() appliance.State {
		s := appliance.Apply(box(), ports(noon))
		s.Page = appliance.PagePorts
		return s
	}, ""},
	{"faults", func() appliance.State {
		s := appliance.Apply(measured(), appliance.TaskDown{At: noon.Add(-12 * time.Minute), Task: "iperf3",
			Err: "listen :5201: taken by pid 812 (iperf3): stop it or set server.listen"})
		s = appliance.Apply(s, appliance.FaultsSeen{At: noon, Task: "netcfg", Titles: []string{"lan3: no such port"}})
		s.Page = appliance.PageFaults
		return s
	}, "A fault"},
	{"faults-none", func() appliance.State {
		s := box()
		s.Page = appliance.PageFaults
		return s
	}, ""},
	{"message", func() appliance.State {
		return press(box(), appliance.Back, appliance.Select, appliance.Select)
	}, "What to do"},
	{"message-long", func() appliance.State {
		return appliance.Apply(measured(), appliance.ConfigRejected{At: noon, Err: "/boot/firmware/linerate.toml:12: " +
			"unknown key \"goverment\" in [cpu]: the nearest known key is \"governor\". The last good config stays in " +
			"force until it is mended. Check it with linerate check-config."})
	}, ""},
	{"asleep", func() appliance.State {
		s := press(measured(), appliance.Back)
		return appliance.Apply(s, tick(11*time.Minute))
	}, ""},
}
