package display

import (
	"fmt"
	"image"
	"strings"
	"testing"
	"time"

	"periph.io/x/devices/v3/ssd1306/image1bit"

	"linerate/appliance"
	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// seen is all that can be read on the pages of the next seconds, one picture a second.
func seen(s appliance.State, size image.Point, forSeconds int) string {
	var all strings.Builder
	var last image.Image
	s.View.Asleep = false
	s.Now = s.View.Opened
	for range forSeconds {
		if p := Page(s, size); last == nil || !same(p, last) {
			all.WriteString(read(p))
			last = p
		}
		s.Now = s.Now.Add(time.Second)
	}
	return all.String()
}

func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("cannot read %q", p)
		}
	}
}

func TestAddressesCanBeRead(t *testing.T) {
	for _, size := range []image.Point{Mono, {128, 32}} {
		s := appliance.Apply(measured(), ports(noon, port("eth1", "lan1", 2500, "192.168.100.101/24"),
			port("eth2", "lan2", 2500, "169.254.123.234/16"), port("eth0", "wan", 1000, "172.116.254.200/20")))
		wants(t, seen(press(s, appliance.Back), size, 60), "192.168.100.101", "169.254.123.234", "172.116.254.200")

		s = appliance.Apply(measured(), ports(noon, port("eth1", "lan1", 2500, longIPv6+"/64"),
			port("eth2", "lan2", 2500, "2001:db85:85a3:1234:5678:8a2e:1370:7335/64")))
		text := strings.ReplaceAll(seen(press(s, appliance.Back), size, 120), ellipsis, "")
		wants(t, text, "2001:db85:85a3:", "1370:7334", "1370:7335")
	}
	// Where there is room a full IPv6 address stands still, on two lines.
	s := appliance.Apply(box(), ports(noon, port("eth1", "lan1", 2500, longIPv6+"/64"), port("eth2", "lan2", 0)))
	wants(t, seen(press(s, appliance.Back), Mono, 1), "2001:db85:85a3:1234:\n", "5678:8a2e:1370:7334\n")
}

// With more ports than lines, everything comes up: what turns inside what turns must not keep step.
func TestEveryPortComesUp(t *testing.T) {
	var list []appliance.Port
	for i := range 8 {
		address := fmt.Sprintf("192.168.100.11%d/24", i)
		list = append(list, port(fmt.Sprintf("eth%d", i), fmt.Sprintf("lan%d", i+1), 2500, address))
	}
	for _, size := range []image.Point{Mono, {128, 32}} {
		text := seen(press(appliance.Apply(measured(), ports(noon, list...)), appliance.Back), size, 240)
		for i := range 8 {
			wants(t, text, fmt.Sprintf("lan%d", i+1), fmt.Sprintf("192.168.100.11%d", i))
		}
	}
}

// The same for whatever else shares a place: n pieces of a text within m lines, or sheets of lines.
func TestTurnsWithinTurns(t *testing.T) {
	draw := map[string]func(*screen, []line){
		"stack":  func(v *screen, l []line) { v.stack(l, v.pitch+8) },
		"sheets": func(v *screen, l []line) { v.sheets(l, 8) },
	}
	for name, draw := range draw {
		for n := 2; n <= 4; n++ {
			for m := 2; m <= 4; m++ {
				lines := []line{{left: "first"}}
				for i := range m {
					text := ""
					for j := range n {
						text += fmt.Sprintf("word-%d-%d ------------ ", i, j)
					}
					lines = append(lines, line{left: strings.TrimSpace(text)})
				}
				var text strings.Builder
				s := box()
				var last image.Image
				for range 120 {
					v := newScreen(s, Mono)
					draw(v, lines)
					if p := v.picture(); last == nil || !same(p, last) {
						text.WriteString(read(p))
						last = p
					}
					s.Now = s.Now.Add(time.Second)
				}
				for i := range m {
					for j := range n {
						if word := fmt.Sprintf("word-%d-%d", i, j); !strings.Contains(text.String(), word) {
							t.Errorf("%s of %d lines of %d pieces: %s never comes up", name, m, n, word)
						}
					}
				}
			}
		}
	}
}

func TestStateThatIsToldOnHome(t *testing.T) {
	s := press(measured(), appliance.Back)
	wants(t, seen(s, Mono, 1), "lan1", "2.5G full", "192.168.1.10", "no link", "2.35G 99.9%", "2.27G 96.4%", "47°C")

	s.Config.Server.Listen = ":5301"
	s.NetworkChange = &appliance.NetworkChange{Change: "mtu", Until: s.Now.Add(42 * time.Second)}
	s.ConfigState = appliance.ConfigState{Error: "no"}
	s.Faults = []appliance.Fault{{Task: "netcfg", Title: "lan3: no such port"}}
	s.Findings = []appliance.Finding{{Severity: appliance.Grave, Port: "lan1", Title: "Half duplex"},
		{Severity: appliance.Warn, Title: "Only a warning"}, {Severity: appliance.Grave, Title: "Mended", Done: true}}
	s = waits(s, "192.168.1.60", "192.168.1.61")
	text := seen(s, Mono, 60)
	wants(t, text, "confirm network", "config not used", "netcfg: lan3:", "such port", "2 clients wait",
		"lan1 Half duplex")
	for _, not := range []string{"Only a warning", "Mended"} {
		if strings.Contains(text, not) {
			t.Errorf("%q needs nobody, and is an alert", not)
		}
	}
	s.NetworkChange, s.ConfigState.Valid, s.Faults, s.Findings, s.Running = nil, true, nil, nil, nil
	wants(t, seen(s, Mono, 1), ":5301")
}

// These boxes have no clock battery: an age is shown only when both times can be trusted.
func TestAge(t *testing.T) {
	for _, c := range []struct {
		stored, now string
		ago         time.Duration
		want        string
	}{
		{results.Synced, results.Synced, 3 * time.Minute, "3m"},
		{results.Unsynced, results.Synced, 3 * time.Minute, ""},
		{results.Synced, results.Unsynced, 3 * time.Minute, ""},
		{results.Synced, results.Synced, -time.Hour, ""},
	} {
		s := box()
		s.Clock = c.now
		r := record("1", "1", throughput.RX, 1e9)
		r.Clock, r.Time = c.stored, s.Now.Add(-c.ago)
		if got := newScreen(s, Mono).age(r); got != c.want {
			t.Errorf("stored %s, now %s, %v ago: %q, want %q", c.stored, c.now, c.ago, got, c.want)
		}
	}
}

func TestAddressIsAskedFor(t *testing.T) {
	s := appliance.New("0.1.0", "generic", "box", config.Default())
	s = appliance.Apply(s, ports(noon, port("eth1", "lan1", 2500), port("eth2", "lan2", 0)))
	s = appliance.Apply(s, tick(2*time.Second))
	wants(t, read(Page(s, Mono)), "2.5G, asking for", "an address 2 s", "no link", "0.1.0")
	s = appliance.Apply(s, ports(noon.Add(3*time.Second), port("eth1", "lan1", 2500, "10.0.0.5/8"),
		port("eth2", "lan2", 0)))
	wants(t, read(Page(s, Mono)), "2.5G, 10.0.0.5")
	s = appliance.Apply(s, tick(90*time.Second))
	half := port("eth1", "lan1", 1000)
	half.Duplex = appliance.DuplexHalf
	unknown := port("eth3", "lan3", 0)
	unknown.Link = appliance.LinkUp
	s = press(appliance.Apply(s, ports(s.Now, half, unknown)), appliance.Back)
	s = appliance.Apply(s, tick(95*time.Second))
	wants(t, read(Page(s, Mono)), "1G HALF", "no address yet 5 s", "link")
}

func TestRunningTellsEverything(t *testing.T) {
	tt := client("7", longIPv6, throughput.Both)
	tt.Streams = 4
	s := run(box(), tt, 4.612e9, 7)
	s = run(s, client("8", "192.168.1.60", throughput.TX), 1e9, 2)
	s = waits(s, "192.168.1.70", "192.168.1.71", "192.168.1.72")
	s.View.Shown = "7"
	text := seen(s, Mono, 120)
	wants(t, strings.ReplaceAll(text, ellipsis, ""), "RX+TX lan1", "7/10 s", "RX 2.40G", "TX 2.21G",
		"2001:db85:85a3:1234:", "5678:8a2e:1370:7334", "retr 18", "RTT 0.48 ms", "4 streams", "1 of 2", "lan1 5.61G",
		"192.168.1.70", "192.168.1.71", "1 more wait")
	for _, word := range []string{"up", "down", "Up", "Down"} {
		if strings.Contains(text, word) {
			t.Errorf("screens say RX and TX, not %q", word)
		}
	}
}

func TestResultTellsEverything(t *testing.T) {
	rx, tx := record("1", "1", throughput.RX, 2.3502e9), record("2", "1", throughput.TX, 1.1e9)
	tx.Pass, tx.ExpectBPS, tx.Findings = new(false), new(2.3e9), []string{"eee-active", "unknown-code"}
	tx.CPU.BusiestCorePercent = new(87.0)
	s := finish(box(), rx, tx)
	s.Findings = []appliance.Finding{{Code: "eee-active", Title: "EEE is active"}}
	s.Page, s.View.Shown = appliance.PageResult, "2"
	wants(t, seen(s, Mono, 60), "Result 1/2", "FAIL", "core", "192.168.1.50", "of possible  line", "2.35G",
		"99.9% 94.0%", "1.10G", "EEE is active", "unknown-code", "expected", "2.30G", "retr 12",
		"RTT 0.52 ms", "2.5G full", "3 min ago", "87%")
	s.View.Shown = "1"
	wants(t, seen(s, Mono, 1), "Result 2/2", "1.10G", "2.35G")

	bad := record("3", "3", throughput.RX, 0)
	bad.Valid, bad.Error = false, "no answer from 192.168.1.50:5201"
	s = finish(s, bad)
	s.View.Shown = "3"
	wants(t, seen(s, Mono, 1), "FAILED", "failed", "no answer from", "192.168.1.50:5201")
	s.View.Shown = "gone"
	wants(t, seen(s, Mono, 1), "Result 1/3")
	s.Results = nil
	wants(t, seen(s, Mono, 1), "No test has run yet.")
}

func TestListShowsTheCursor(t *testing.T) {
	var list []config.Target
	for i := range 20 {
		list = append(list, config.Target{Name: fmt.Sprintf("target-%d", i), Host: fmt.Sprintf("192.168.100.%d", 100+i)})
	}
	s := press(withTargets(box(), list...), appliance.Back, appliance.Select, appliance.Down, appliance.Select)
	for i := range 20 {
		s.View.Opened = s.Now
		// Both do not fit into one line, so the chosen one shows them in turn.
		for _, size := range []image.Point{Mono, {128, 32}} {
			wants(t, strings.ReplaceAll(seen(s, size, 7), ellipsis, ""), fmt.Sprintf("target-%d", i), fmt.Sprint(100+i))
		}
		s = press(s, appliance.Down)
	}
	wants(t, seen(s, Mono, 1), "Back")
}

func TestLongMessageIsReadToItsEnd(t *testing.T) {
	s := appliance.Apply(measured(), appliance.ConfigRejected{At: noon, Err: strings.Repeat("word ", 60) + "end."})
	for _, size := range []image.Point{Mono, {128, 32}, {64, 48}} {
		wants(t, seen(s, size, 200), "end.")
	}
}

func TestAsleepIsBlack(t *testing.T) {
	s := measured()
	s.View.Asleep = true
	for _, size := range []image.Point{Mono, Colour, {240, 240}} {
		if n, first := differs(Page(s, size), newCanvas(size, false).picture()); n != 0 {
			t.Errorf("%v: %d pixels are lit, the first at %v", size, n, first)
		}
	}
}

// Whatever the panel, a page is a picture of its size and kind.
func TestAnySize(t *testing.T) {
	sizes := []image.Point{
		{0, 0}, {-1, 5}, {1, 1}, {3, 8}, {8, 3}, {16, 64}, {64, 32}, {64, 48}, {72, 40}, {96, 16}, {128, 8},
		{132, 64}, {256, 64}, {96, 64}, {128, 96}, {128, 160}, {160, 128}, {320, 240}, {480, 320}, {1000, 30}, {30, 1000},
	}
	for _, s := range shots {
		state := s.state()
		for _, size := range sizes {
			p := Page(state, size)
			if want := image.Pt(max(0, size.X), max(0, size.Y)); p.Bounds().Size() != want {
				t.Fatalf("%s: %v is a picture of %v", s.name, size, p.Bounds())
			}
			_, mono := p.(*image1bit.VerticalLSB)
			if mono != (size.Y <= 64) {
				t.Fatalf("%s: %v is %T", s.name, size, p)
			}
		}
	}
}

// A State from nowhere, and one that points at what is gone, are pages too.
func TestOddStates(t *testing.T) {
	odd := measured()
	odd.View.Cursor, odd.View.Shown = 99, "gone"
	odd.Ports = append(odd.Ports, appliance.Port{Link: appliance.LinkUp, Addresses: []string{"nonsense"}})
	odd.Results = append(odd.Results, results.Record{})
	odd.Running = append(odd.Running, &appliance.Test{})
	odd.Faults = []appliance.Fault{{}}
	odd.View.Message = appliance.Message{Text: "\x00\n\n\t" + strings.Repeat("W", 500) + "ÄÖ漢字"}
	for _, s := range []appliance.State{{}, odd} {
		for _, page := range []appliance.Page{
			appliance.PageBoot, appliance.PageHome, appliance.PageMenu, appliance.PageTargets, appliance.PageTest,
			appliance.PageResult, appliance.PagePorts, appliance.PageFaults, appliance.PageMessage, "other",
		} {
			for _, ask := range []appliance.Ask{appliance.AskNothing, appliance.AskCancel, appliance.AskStart} {
				s.Page, s.View.Ask = page, ask
				for _, size := range []image.Point{Mono, Colour, {128, 32}} {
					if n, _ := differs(Page(s, size), newCanvas(size, false).picture()); n == 0 {
						t.Errorf("page %q at %v is blank", page, size)
					}
				}
			}
		}
	}
}

// The pictures depend on the State alone: not on the zone its times are in, not on the process's own.
func TestZoneDoesNotMatter(t *testing.T) {
	zone := time.FixedZone("far", 13*3600+45*60)
	for _, s := range shots {
		a, b := s.state(), s.state()
		for _, at := range []*time.Time{&b.Now, &b.View.Opened, &b.View.Input, &b.Started} {
			*at = at.In(zone)
		}
		for i := range b.Results {
			b.Results[i].Time = b.Results[i].Time.In(zone)
		}
		for i := range b.Ports {
			b.Ports[i].Since = b.Ports[i].Since.In(zone)
		}
		if n, _ := differs(Page(a, Mono), Page(b, Mono)); n != 0 {
			t.Errorf("%s differs in another zone", s.name)
		}
	}
}

// Page must not change the State: others hold it.
func TestPageLeavesTheStateAlone(t *testing.T) {
	for _, s := range shots {
		state := s.state()
		before := fmt.Sprintf("%+v", state)
		Page(state, Mono)
		Page(state, Colour)
		if after := fmt.Sprintf("%+v", state); after != before {
			t.Errorf("%s: the State was changed", s.name)
		}
	}
}

func BenchmarkPage(b *testing.B) {
	s := run(measured(), client("7", "192.168.1.50", throughput.RX), 2.351e9, 30)
	for _, size := range []image.Point{Mono, Colour} {
		b.Run(fmt.Sprintf("%dx%d", size.X, size.Y), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Page(s, size)
			}
		})
	}
}
