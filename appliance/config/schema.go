package config

import (
	"fmt"
	"net/netip"
	"time"

	"linerate/appliance/throughput"
)

// Names of the tables that are arrays; their keys follow the entry's name: "port.lan1.mtu".
const (
	portTable   = "port"
	targetTable = "target"
)

// schema is the whole of what a file may say, in the order in which it is shown.
var schema = []field[Config]{
	text("board.profile", checkName, func(c *Config) *string { return &c.Board.Profile }),

	list("ports.select", 1, selector, itself, func(c *Config) *[]string { return &c.Ports.Select }),
	enum("ports.bridge", func(c *Config) *Bridge { return &c.Ports.Bridge }, BridgeFree, BridgeKeep, BridgeAuto),
	mtu("ports.mtu", func(c *Config) *MTU { return &c.Ports.MTU }).
		menu(Leave, int64(1500), int64(4000), int64(8000), int64(9000), "max"),
	addresses("ports.address", func(c *Config) *[]Address { return &c.Ports.Address }).
		menu([]any{"auto"}, []any{"dhcp"}, []any{"manager"}),

	text("cpu.governor", checkGovernor, func(c *Config) *string { return &c.CPU.Governor }).
		menu("performance", "schedutil", "ondemand", Leave),
	frequency("cpu.min_freq", func(c *Config) *Frequency { return &c.CPU.MinFreq }),
	enum("cpu.irq", func(c *Config) *IRQ { return &c.CPU.IRQ }, IRQSpread, IRQLeave),

	toggle("server.enable", func(c *Config) *bool { return &c.Server.Enable }),
	text("server.listen", checkListen, func(c *Config) *string { return &c.Server.Listen }),
	enum("server.concurrency", func(c *Config) *Concurrency { return &c.Server.Concurrency },
		Parallel, Queue, Exclusive).menu("parallel", "queue", "exclusive"),
	duration("server.queue_wait", func(c *Config) *time.Duration { return &c.Server.QueueWait }),
	number("server.max_tests", 1, 256, func(c *Config) *int { return &c.Server.MaxTests }),
	duration("server.max_duration", func(c *Config) *time.Duration { return &c.Server.MaxDuration }),
	rate("server.max_rate", func(c *Config) *float64 { return &c.Server.MaxRate }),
	stall("server.stall", func(c *Config) *time.Duration { return &c.Server.Stall }),
	list("server.allow", 0, parseAllow, netip.Prefix.String,
		func(c *Config) *[]netip.Prefix { return &c.Server.Allow }),
	toggle("server.copy", func(c *Config) *bool { return &c.Server.Copy }),

	toggle("nuttcp.enable", func(c *Config) *bool { return &c.Nuttcp.Enable }),
	text("nuttcp.listen", checkListen, func(c *Config) *string { return &c.Nuttcp.Listen }),

	text("test.target", checkText, func(c *Config) *string { return &c.Test.Target }).menu(Auto),
	number("test.seconds", 1, throughput.MaxSeconds, func(c *Config) *int { return &c.Test.Seconds }).
		menu(int64(5), int64(10), int64(30), int64(60)),
	number("test.streams", 1, throughput.MaxStreams, func(c *Config) *int { return &c.Test.Streams }).
		menu(int64(1), int64(2), int64(4), int64(8)),
	list("test.directions", 1, parseDirection, itself,
		func(c *Config) *[]throughput.Direction { return &c.Test.Directions }).menu([]any{"rx", "tx"}, []any{"rx"}, []any{"tx"}, []any{"both"}),
	enum("test.protocol", func(c *Config) *throughput.Protocol { return &c.Test.Protocol },
		throughput.TCP, throughput.UDP).menu("tcp", "udp"),
	rate("test.rate", func(c *Config) *float64 { return &c.Test.Rate }),

	toggle("buttons.enable", func(c *Config) *bool { return &c.Buttons.Enable }),
	list("buttons.devices", 1, selector, itself, func(c *Config) *[]string { return &c.Buttons.Devices }),

	text("display.panel", checkName, func(c *Config) *string { return &c.Display.Panel }),
	choice("display.rotate", func(c *Config) *int { return &c.Display.Rotate }, 0, 180).menu(int64(0), int64(180)),
	duration("display.sleep_after", func(c *Config) *time.Duration { return &c.Display.SleepAfter }).
		menu("1m", "10m", "1h", "0"),

	toggle("web.enable", func(c *Config) *bool { return &c.Web.Enable }),
	text("web.listen", func(s string) error {
		if s == Auto {
			return nil
		}
		if err := checkListen(s); err != nil {
			return fmt.Errorf(`%w, or "auto"`, err)
		}
		return nil
	}, func(c *Config) *string { return &c.Web.Listen }),
	secret(text("web.pin", checkPIN, func(c *Config) *string { return &c.Web.PIN })),
}

// portSchema is what [[port]] may say.
var portSchema = []field[Port]{
	text("match", checkText, func(p *Port) *string { return &p.Match }),
	mtu("mtu", func(p *Port) *MTU { return &p.MTU }),
	addresses("address", func(p *Port) *[]Address { return &p.Address }),
	{name: "vlan", set: setVLANs, get: getVLANs},
	toggle("native", func(p *Port) *bool { return &p.Native }),
}

// vlanSchema is what an entry of vlan may say.
var vlanSchema = []field[VLAN]{
	number("id", 1, 4094, func(v *VLAN) *int { return &v.ID }),
	addresses("address", func(v *VLAN) *[]Address { return &v.Address }),
}

// targetSchema is what [[target]] may say.
var targetSchema = []field[Target]{
	text("name", checkTargetName, func(t *Target) *string { return &t.Name }),
	text("host", checkHost, func(t *Target) *string { return &t.Host }),
	enum("engine", func(t *Target) *string { return &t.Engine }, "iperf3", "nuttcp"),
	number("tcp_port", 0, 65535, func(t *Target) *int { return &t.TCPPort }),
	text("via", checkText, func(t *Target) *string { return &t.Via }),
	rate("expect", func(t *Target) *float64 { return &t.Expect }),
}
