package iperf3

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"linerate/appliance/throughput"
)

var namespaces atomic.Int32

// cable is two network namespaces joined by a veth: box 192.0.2.1 and 2001:db8::1, peer 192.0.2.2 and 2001:db8::2. The test
// touches nothing else.
type cable struct {
	t         *testing.T
	box, peer string
}

func newCable(t *testing.T) *cable {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to make network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs iproute2")
	}
	n := namespaces.Add(1)
	c := &cable{t: t, box: fmt.Sprintf("linerate-%d-%d-box", os.Getpid(), n), peer: fmt.Sprintf("linerate-%d-%d-peer", os.Getpid(), n)}
	for _, ns := range []string{c.box, c.peer} {
		if out, err := exec.Command("ip", "netns", "add", ns).CombinedOutput(); err != nil {
			t.Skipf("cannot make a network namespace: %s", out)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
	}
	c.run("ip -n " + c.box + " link add eth0 type veth peer name eth0 netns " + c.peer)
	for i, ns := range []string{c.box, c.peer} {
		c.run("ip -n " + ns + " link set lo up")
		c.run(fmt.Sprintf("ip -n %s addr add 192.0.2.%d/24 dev eth0", ns, i+1))
		c.run(fmt.Sprintf("ip -n %s addr add 2001:db8::%d/64 dev eth0 nodad", ns, i+1))
		c.run("ip -n " + ns + " link set eth0 up")
	}
	return c
}

func (c *cable) run(command string) {
	c.t.Helper()
	args := strings.Fields(command)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		c.t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// A client that goes without a FIN: its end of the cable goes down, then it is killed.
func TestVanishedClient(t *testing.T) {
	needPeer(t)
	for _, args := range []string{"-t 60", "-t 60 -R", "-t 60 --bidir", "-t 0 -P 3", "-u -b 10M -t 60", "-u -b 10M -t 60 -R"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			c := newCable(t)
			srv := startServer(t, c.box, Options{Stall: 10 * time.Second, Concurrency: Exclusive})
			all := append([]string{"netns", "exec", c.peer, "iperf3", "-c", "192.0.2.1", "-p", fmt.Sprint(srv.Port), "-T", "vanishing"}, strings.Fields(args)...)
			cmd := exec.Command("ip", all...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			id := srv.started("vanishing", 5*time.Second).ID
			srv.await("an interval of the test", 5*time.Second, func(e processEvent) bool { return e.Kind == "progressed" && e.ID == id })
			c.run("ip -n " + c.peer + " link set eth0 down")
			gone := time.Now()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_, r := srv.finished("vanishing", 15*time.Second)
			want, most := "no progress with 192.0.2.2 for 10s", 9.0
			if args == "-u -b 10M -t 60 -R" { // nobody acknowledges a datagram: the control connection tells
				want, most = "client has gone", 14
			}
			if r.Valid || !strings.Contains(string(r.Error), want) {
				t.Errorf("valid %v, error %q", r.Valid, r.Error)
			}
			if r.Bytes == 0 || r.Seconds > most {
				t.Errorf("%d bytes in %g s: want those until it vanished, not the wait", r.Bytes, r.Seconds)
			}
			t.Logf("%s: noticed after %v: %s", args, time.Since(gone).Round(time.Millisecond), r.Error)
			// The slot of an exclusive server is free again.
			c.run("ip -n " + c.peer + " link set eth0 up")
			again := iperf3(t, c.peer, 10*time.Second, "-c", "192.0.2.1", "-p", fmt.Sprint(srv.Port), "-n", "1M")
			if again.Error != "" || time.Since(gone) > 15*time.Second {
				t.Errorf("after %v another client gets %q", time.Since(gone), again.Error)
			}
		})
	}
}

// Rates at the receiver as the kernel sees them, over a path with the overhead of real frames.
func TestResultOverACable(t *testing.T) {
	c := newCable(t)
	srv := startServer(t, c.box, Options{})
	for _, host := range []string{"192.0.2.1", "2001:db8::1"} {
		r := iperf3(t, c.peer, 20*time.Second, "-c", host, "-p", fmt.Sprint(srv.Port), "-t", "1", "-T", "cable "+host)
		if r.Error != "" {
			t.Fatal(r.Error)
		}
		_, got := srv.finished("cable "+host, 5*time.Second)
		want, family, peer := 1448, 4, "192.0.2.2"
		if host != "192.0.2.1" {
			want, family, peer = 1428, 6, "2001:db8::2"
		}
		if got.MSS == nil || *got.MSS != want || got.Family != family || string(got.Peer) != peer || string(got.Local) != host {
			t.Errorf("%s: MSS %v, family %d, peer %s, local %s", host, *got.MSS, got.Family, got.Peer, got.Local)
		}
		if got.Direction != throughput.RX || got.Copied == nil || *got.Copied {
			t.Errorf("%s: direction %s, copied %v", host, got.Direction, got.Copied)
		}
	}
}
