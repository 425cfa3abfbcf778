package netcfg

import (
	"io"
	"net"
	"net/netip"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"linerate/netcfg/netnstest"
)

func TestCarried(t *testing.T) {
	ip := netip.MustParseAddr
	s := newScene().address("br0", "192.168.2.1/24").address("br0", "2001:db8::1/64").address("eth9", "10.0.0.1/8").
		route("0.0.0.0/0", "192.168.2.254", "br0").route("203.0.113.0/24", "192.168.2.253", "br0").
		route("203.0.113.128/25", "10.0.0.9", "eth9")
	neighbours := []neighbour{
		{ip("192.168.2.50"), "aa"}, {ip("192.168.2.254"), "bb"}, {ip("192.168.2.253"), "cc"}, {ip("2001:db8::50"), "aa"},
	}
	members := map[string]string{"aa": "eth1", "bb": "eth2", "cc": "eth3"}
	for _, test := range []struct {
		name  string
		peers []string
		want  map[string]int
	}{
		{"on the wire", []string{"192.168.2.50"}, map[string]int{"eth1": 1}},
		{"both families", []string{"192.168.2.50", "2001:db8::50"}, map[string]int{"eth1": 2}},
		{"behind the default gateway", []string{"198.51.100.7"}, map[string]int{"eth2": 1}},
		{"behind the gateway of a longer route", []string{"203.0.113.7"}, map[string]int{"eth3": 1}},
		{"nobody knows who", []string{"192.168.2.77"}, map[string]int{}},
		{"none", nil, map[string]int{}},
	} {
		tr := traffic{neighbours: neighbours, members: members}
		for _, p := range test.peers {
			tr.peers = append(tr.peers, ip(p))
		}
		if got := carried(tr, s.addresses, s.routes, "br0"); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// farHost runs f in a network namespace of its own that holds the far end of a cable, with an address.
func farHost(t *testing.T, far, cidr string, f func()) (end func()) {
	t.Helper()
	type result struct {
		ns  netns.NsHandle
		err error
	}
	made, moved, done := make(chan result), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := netns.New()
		made <- result{ns, err}
		if err != nil {
			return
		}
		<-moved
		for _, name := range []string{"lo", far} {
			if l, err := netlink.LinkByName(name); err == nil {
				_ = netlink.LinkSetUp(l)
			}
		}
		l, err := netlink.LinkByName(far)
		if err != nil {
			t.Error(err)
			return
		}
		a, _ := netlink.ParseAddr(cidr)
		if err := netlink.AddrAdd(l, a); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	r := <-made
	must(t, r.err)
	must(t, netlink.LinkSetNsFd(byName(t, far), int(r.ns)))
	close(moved)
	return func() { <-done; r.ns.Close() }
}

// dialAgain makes the far end of a longConnection open another.
const dialAgain = "dial again"

// longConnection is a connection from the far end of a cable, 192.168.2.50, to 192.168.2.1 here, open until the test ends.
// What it returns sends a text there and back within 5 s.
func longConnection(t *testing.T, far string) (send func(text string) error) {
	t.Helper()
	listener, err := net.Listen("tcp", "192.168.2.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	ask, answer := make(chan string), make(chan error)
	end := farHost(t, far, "192.168.2.50/24", func() {
		// The dial must run on this thread's namespace: a plain socket call does.
		var c net.Conn
		var err error
		for range 100 { // until the bridge forwards
			if c, err = net.DialTimeout("tcp", listener.Addr().String(), time.Second); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		answer <- err
		if err != nil {
			return
		}
		defer c.Close()
		var others []net.Conn
		defer func() {
			for _, o := range others {
				o.Close()
			}
		}()
		for line := range ask {
			if line == dialAgain {
				another, err := net.DialTimeout("tcp", listener.Addr().String(), 5*time.Second)
				if err == nil {
					others = append(others, another)
				}
				answer <- err
				continue
			}
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			_, err := io.WriteString(c, line)
			if err == nil {
				_, err = io.ReadFull(c, make([]byte, len(line)))
			}
			answer <- err
		}
	})
	t.Cleanup(func() { close(ask); end() })
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	}()
	must(t, <-answer)
	return func(text string) error { ask <- text; return <-answer }
}

// An SSH-like connection over the bridge goes on: the port that carries it gets the address, though another is named
// first, and the far end hears of the new MAC.
func TestConnectionSurvives(t *testing.T) {
	netnstest.Need(t)
	bridged(t)
	ask := longConnection(t, "far2")
	must(t, ask("over the bridge"))

	k, w := keeper(t), wants(generic, "eth1", "eth2")
	r := apply(t, k, w)
	if !r.Good() || !holds(t, "eth2", "192.168.2.1/24") {
		t.Fatalf("the address is not on the port that carries the connection: %s%v", r.Text(), r.Errors())
	}
	start := time.Now()
	if err := ask("over the port"); err != nil {
		t.Fatalf("the connection broke: %v", err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("the far end took %v to find the port", took)
	}
	if r, err := k.Restore(t.Context(), w); err != nil || !r.Good() {
		t.Fatalf("restore: %s%v, %v", r.Text(), r.Errors(), err)
	}
	if err := ask("over the bridge again"); err != nil {
		t.Errorf("the connection broke: %v", err)
	}
}
