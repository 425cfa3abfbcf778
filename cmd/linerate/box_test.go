package main

import (
	"bytes"
	"encoding/json"
	"image/color"
	"image/png"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"linerate/appliance"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
	"linerate/appliance/web"
)

const boxConfig = `
[ports]
select = ["eth1", "eth2"]
mtu = 1400

[server]
stall = "10s"

[test]
seconds = 2

[[target]]
name = "peer"
host = "192.0.2.2"
expect = "1M"
`

// TestBox goes the whole way: a bridged box is freed, serves a real client, starts a test of its own at the press of a key,
// and shows it.
func TestBox(t *testing.T) {
	r := newRig(t)
	r.write("etc/linerate.toml", boxConfig)

	if _, errs, status := r.linerate("netcfg", "--once"); status != 0 {
		t.Fatalf("netcfg --once: status %d, %s", status, errs)
	}
	for _, port := range []string{"eth1", "eth2"} {
		link := r.in(r.box, "ip", "-o", "link", "show", port)
		if strings.Contains(link, "master") || !strings.Contains(link, "mtu 1400") || !strings.Contains(link, "UP") {
			t.Errorf("%s", link)
		}
	}
	if out := r.in(r.box, "ip", "-o", "address", "show", "dev", "eth1"); !strings.Contains(out, "192.0.2.1/24") {
		t.Errorf("the bridge's address did not move: %s", out)
	}
	if out := r.in(r.box, "ip", "route", "show", "203.0.113.0/24"); !strings.Contains(out, "dev eth1") {
		t.Errorf("the route did not move: %s", out)
	}
	before := r.in(r.box, "ip", "-d", "address") + r.in(r.box, "ip", "route")
	if out, errs, status := r.linerate("netcfg", "--once"); status != 0 {
		t.Errorf("the second --once: status %d, %s%s", status, out, errs)
	}
	if after := r.in(r.box, "ip", "-d", "address") + r.in(r.box, "ip", "route"); after != before {
		t.Errorf("the second --once changed something:\n%s\n%s", before, after)
	}

	r.serve()
	rep := r.iperf3("-c", "192.0.2.1", "-t", "2")
	if rep.Error != "" || rep.End.Received.Bytes == 0 {
		t.Fatalf("iperf3: %+v", rep)
	}
	served := r.results()
	if len(served) != 1 {
		t.Fatalf("%d results, want 1", len(served))
	}
	first := served[0]
	if first.Role != throughput.Server || first.Direction != throughput.RX || first.Port != "eth1" || first.LinkMbps == nil ||
		*first.LinkMbps != 10000 || first.LineRatePercent == nil || first.PossiblePercent == nil || !first.Valid || first.Peer != "192.0.2.2" {
		t.Errorf("result %+v", first)
	}
	if float64(first.Bytes) < 0.98*rep.End.Received.Bytes || float64(first.Bytes) > 1.02*rep.End.Sent.Bytes {
		t.Errorf("%d bytes here, %.0f sent and %.0f received as iperf3 says", first.Bytes, rep.End.Sent.Bytes, rep.End.Received.Bytes)
	}

	peer := r.iperf3Server()
	defer peer()
	r.home()
	for range 2 {
		if _, errs, status := r.linerate("press", "select"); status != 0 {
			t.Fatalf("press: %s", errs)
		}
	}
	r.until("both directions are stored", func() bool { return len(r.results()) == 3 })
	run := r.results()[:2]
	tx, rx := run[0], run[1]
	if tx.Direction != throughput.TX || rx.Direction != throughput.RX || tx.Run != rx.Run || tx.Target != "peer" ||
		tx.Pass == nil || !*tx.Pass || tx.Role != throughput.Client || tx.Port != "eth1" {
		t.Errorf("run %+v\n%+v", tx, rx)
	}
	r.until("the result is shown", func() bool { return r.state().Page == appliance.PageResult })
	r.home()
	if _, errs, status := r.linerate("screenshot", r.file("screen.png")); status != 0 {
		t.Fatalf("screenshot: %s", errs)
	}
	compareScreen(t, r.file("screen.png"), "testdata/home.png")
}

// TestTwoClientsAtOnce shows that nobody is told to wait.
func TestTwoClientsAtOnce(t *testing.T) {
	r := newRig(t)
	r.write("etc/linerate.toml", boxConfig)
	r.linerate("netcfg", "--once")
	r.serve()
	both := make(chan report3, 2)
	for range 2 {
		go func() { both <- r.iperf3("-c", "192.0.2.1", "-t", "3") }()
	}
	for range 2 {
		if rep := <-both; rep.Error != "" || rep.End.Received.Bytes == 0 {
			t.Errorf("%+v", rep)
		}
	}
	list := r.results()
	if len(list) != 2 || len(list[0].SharedWith) != 1 || list[0].PortBPS == nil || *list[0].PortBPS < list[0].BPS {
		t.Errorf("results %+v", list)
	}
}

// TestVanishedClient shows that a client that goes without a word frees its place and is stored with the reason.
func TestVanishedClient(t *testing.T) {
	r := newRig(t)
	r.write("etc/linerate.toml", boxConfig)
	r.linerate("netcfg", "--once")
	r.serve()
	client := exec.Command("ip", "netns", "exec", r.peer, "iperf3", "-c", "192.0.2.1", "-t", "60")
	client.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	r.until("the test runs", func() bool { s := r.state(); return len(s.Running) == 1 && s.Running[0].BPS > 0 })
	r.in(r.peer, "ip", "link", "set", "eth1", "down")
	_ = client.Process.Kill()
	_ = client.Wait()
	gone := time.Now()
	r.until("the place is free", func() bool { return len(r.state().Running) == 0 })
	if took := time.Since(gone); took > 15*time.Second {
		t.Errorf("the place was free after %v, want 15 s", took)
	}
	list := r.results()
	if len(list) != 1 || list[0].Valid || list[0].Error == "" || list[0].Bytes == 0 {
		t.Errorf("stored %+v", list)
	}
}

// results are the stored ones, newest first.
func (r *rig) results() []results.Record {
	r.t.Helper()
	out, errs, status := r.linerate("results", "--json")
	var list []results.Record
	if err := json.Unmarshal([]byte(out), &list); err != nil || status != 0 {
		r.t.Fatalf("results: %v %s", err, errs)
	}
	return list
}

func (r *rig) home() {
	r.t.Helper()
	r.until("the home page is shown", func() bool {
		if r.state().Page == appliance.PageHome {
			return true
		}
		r.linerate("press", "back")
		return false
	})
}

// iperf3Server runs a real iperf3 server at the peer until the func is called.
func (r *rig) iperf3Server() (stop func()) {
	r.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", r.peer, "iperf3", "-s")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.until("iperf3 -s listens", func() bool {
		return strings.Contains(r.in(r.peer, "ss", "-ltn"), ":5201")
	})
	return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
}

// compareScreen compares a screenshot with the golden picture but for the lines whose numbers differ from run to run: the
// rates, percentages and ages of the last run.
func compareScreen(t *testing.T, got, golden string) {
	t.Helper()
	data, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	b, err := png.Decode(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	if a.Bounds() != b.Bounds() {
		t.Fatalf("the screen is %v, want %v", a.Bounds(), b.Bounds())
	}
	wrong := 0
	for y := range a.Bounds().Dy() {
		for x := range a.Bounds().Dx() {
			if numbers := y >= 45 && x >= 18; numbers {
				continue
			}
			if color.RGBAModel.Convert(a.At(x, y)) != color.RGBAModel.Convert(b.At(x, y)) {
				wrong++
			}
		}
	}
	if wrong > 0 {
		_ = os.MkdirAll("../../bin/golden", 0o755)
		_ = os.WriteFile("../../bin/golden/home.png", data, 0o644)
		t.Errorf("%d pixels differ from %s outside the numbers: see bin/golden/home.png", wrong, golden)
	}
}

// TestSettingReachesTheKeeper changes a setting on the side without privilege and sees the other side act on it, and the
// port come back into a bridge be freed again.
func TestSettingReachesTheKeeper(t *testing.T) {
	r := newRig(t)
	r.write("etc/linerate.toml", boxConfig)
	r.keep()
	mtu := func(want string) func() bool {
		return func() bool { return strings.Contains(r.in(r.box, "ip", "-o", "link", "show", "eth1"), "mtu "+want+" ") }
	}
	r.until("the keeper has freed the port", func() bool {
		return mtu("1400")() && !strings.Contains(r.in(r.box, "ip", "-o", "link", "show", "eth1"), "master")
	})
	r.serve()
	client := web.NewClient(r.file("run/linerate.sock"))
	if err := client.Send(t.Context(), http.MethodPatch, "/api/v1/settings", map[string]any{"ports.mtu": 1300}, nil); err != nil {
		t.Fatal(err)
	}
	r.until("the port has the new MTU", mtu("1300"))
	if err := client.Send(t.Context(), http.MethodPatch, "/api/v1/settings", map[string]any{"server.listen": ":1"}, nil); err == nil {
		t.Error("a key that is no setting was taken")
	}
	if _, errs, status := r.linerate("config", "reset", "ports.mtu"); status != 0 {
		t.Errorf("config reset: %s", errs)
	}
	r.until("the port has the config's MTU", mtu("1400"))

	r.in(r.box, "ip", "link", "add", "br0", "type", "bridge") // the empty one is gone
	r.in(r.box, "ip", "link", "set", "br0", "up")
	r.in(r.box, "ip", "link", "set", "eth2", "master", "br0")
	r.until("the port leaves the bridge again", func() bool {
		return !strings.Contains(r.in(r.box, "ip", "-o", "link", "show", "eth2"), "master")
	})
}

// TestKeeperWaitsForAGoodConfig leaves the ports alone on the word of half a config.
func TestKeeperWaitsForAGoodConfig(t *testing.T) {
	r := newRig(t)
	r.write("etc/linerate.toml", boxConfig+"\n[sever]\n")
	r.keep()
	r.until("the keeper says so", func() bool {
		text, _ := os.ReadFile(r.file("keep.log"))
		return strings.Contains(string(text), "config not used")
	})
	if out := r.in(r.box, "ip", "-o", "link", "show", "eth1"); !strings.Contains(out, "master br0") {
		t.Errorf("the port was freed: %s", out)
	}
	r.write("etc/linerate.toml", boxConfig)
	r.until("the port is freed", func() bool {
		return !strings.Contains(r.in(r.box, "ip", "-o", "link", "show", "eth1"), "master")
	})
}

// TestBadConfigIsShownWhileTheBoxServes keeps the last good config.
func TestBadConfigIsShownWhileTheBoxServes(t *testing.T) {
	r := newRig(t)
	r.write("etc/linerate.toml", boxConfig)
	r.linerate("netcfg", "--once")
	r.serve()
	r.home()
	r.write("etc/linerate.toml", boxConfig+"\n[sever]\n")
	r.until("the error is on the display", func() bool {
		s := r.state()
		return !s.ConfigState.Valid && strings.Contains(s.ConfigState.Error, "sever") && s.Page == appliance.PageMessage
	})
	if rep := r.iperf3("-c", "192.0.2.1", "-t", "1"); rep.Error != "" {
		t.Errorf("the server does not serve: %s", rep.Error)
	}
	if s := r.state(); len(s.Targets) != 1 {
		t.Errorf("targets %v; want the last good config in force", s.Targets)
	}
	r.write("etc/linerate.toml", boxConfig)
	r.until("the error is gone", func() bool { return r.state().ConfigState.Valid })
}

// A board that the config names is in force without a restart, and one that there is none of is said.
func TestBoardIsNamedWhileTheBoxServes(t *testing.T) {
	r := newRig(t)
	r.write("etc/linerate.toml", "[display]\npanel = \"none\"\n")
	r.serve()
	r.write("etc/linerate.toml", "[board]\nprofile = \"nanopi-r5s\"\n[display]\npanel = \"none\"\n")
	r.until("the board is the one named", func() bool { return r.state().Board == "nanopi-r5s" })
	r.write("etc/linerate.toml", "[board]\nprofile = \"nanopi-r55\"\n[display]\npanel = \"none\"\n")
	r.until("the wrong name is a fault", func() bool {
		s := r.state()
		return s.Board == "generic" && slices.ContainsFunc(s.Faults, func(f appliance.Fault) bool {
			return f.Task == "board" && strings.Contains(f.Title, "nanopi-r55")
		})
	})
	display := func() bool {
		return slices.ContainsFunc(r.state().Faults, func(f appliance.Fault) bool { return f.Task == "display" })
	}
	r.write("etc/linerate.toml", "[display]\npanel = \"nosuch\"\n")
	r.until("the panel that there is none of is a fault", display)
	r.write("etc/linerate.toml", "[display]\npanel = \"none\"\n")
	mended := time.Now()
	r.until("the mended name is no fault", func() bool { return !display() })
	if took := time.Since(mended); took > 8*time.Second {
		t.Errorf("the fault stayed for %s: a config is in force at once", took)
	}
}

// TestPortTaken says who has the server's port, and takes it as soon as it is free.
func TestPortTaken(t *testing.T) {
	r := newRig(t)
	r.write("etc/linerate.toml", boxConfig)
	r.linerate("netcfg", "--once")
	other := exec.Command("ip", "netns", "exec", r.box, "iperf3", "-s")
	other.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	r.until("the other server listens", func() bool { return strings.Contains(r.in(r.box, "ss", "-ltn"), ":5201") })
	r.serve()
	r.until("the fault names the other server", func() bool {
		for _, f := range r.state().Faults {
			if f.Task == "iperf3" && strings.Contains(f.Title, "5201") {
				return true
			}
		}
		return false
	})
	_ = other.Process.Kill()
	_ = other.Wait()
	r.until("the port is ours", func() bool { return strings.Contains(r.in(r.box, "ss", "-ltnp"), `"linerate"`) })
	if rep := r.iperf3("-c", "192.0.2.1", "-t", "1"); rep.Error != "" {
		t.Errorf("the server does not serve: %s", rep.Error)
	}
}

// keep starts the keeper in the box with the two capabilities its unit has.
func (r *rig) keep() {
	r.t.Helper()
	words := append([]string{"netns", "exec", r.box, "setpriv", "--bounding-set=-all,+net_admin,+net_raw", "--inh-caps=-all",
		"--no-new-privs", program, "netcfg"}, r.folders()...)
	cmd := exec.Command("ip", words...)
	log, err := os.Create(r.file("keep.log"))
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			r.t.Errorf("the keeper ended with %v", err)
		}
		log.Close()
		if r.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			r.t.Logf("log of the keeper:\n%s", text)
		}
	})
}
