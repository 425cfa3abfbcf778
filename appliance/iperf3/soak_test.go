package iperf3

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSoak runs tests of mixed kinds, eight at a time, and kills a tenth of the clients at a random moment. In the end the server
// has the memory and the goroutines it had after the first hundred, and everybody who was left alive was served.
// LINERATE_SOAK says how many; `make soak` takes 2000.
func TestSoak(t *testing.T) {
	needPeer(t)
	var tests int
	if _, _ = fmt.Sscan(os.Getenv("LINERATE_SOAK"), &tests); tests <= 0 {
		t.Skip("runs long: set LINERATE_SOAK to the number of tests")
	}
	srv := startServer(t, "", Options{Stall: 10 * time.Second, MaxTests: 64})
	kinds := []string{
		"-n 2M", "-n 2M -R", "-t 1 --bidir", "-n 5M -P 4", "-n 5M -P 4 -R", "-k 20", "-n 200K -u -b 100M -l 1400", "-n 200K -u -b 100M -l 1400 -R",
		"-t 1 -u -b 5M --bidir -l 1400", "-t 1 -b 10M", "-n 1M --get-server-output", "-n 1M -M 1000 -C reno", "-n 3M -w 64K", "-n 3M -Z -R", "-6 -n 2M",
	}
	random := rand.New(rand.NewPCG(1, 2))
	var killed, served atomic.Int64
	batch := func(n int) {
		slots := make(chan struct{}, 8)
		var all sync.WaitGroup
		for range n {
			args, kill := kinds[random.IntN(len(kinds))], time.Duration(-1)
			if random.IntN(10) == 0 {
				kill = time.Duration(random.Int64N(int64(300 * time.Millisecond)))
			}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				if kill >= 0 {
					killed.Add(1)
					killClient(srv.Port, args, kill)
					return
				}
				host := "127.0.0.1"
				if strings.HasPrefix(args, "-6") {
					host = "::1"
				}
				r := iperf3(t, "", 60*time.Second, append(strings.Fields(args), "-c", host, "-p", fmt.Sprint(srv.Port))...)
				if r.Error != "" {
					t.Errorf("%s: %q", args, r.Error)
					return
				}
				served.Add(1)
			})
		}
		all.Wait()
	}
	batch(100)
	settle := func() usage {
		var u usage
		for limit := time.Now().Add(20 * time.Second); ; time.Sleep(500 * time.Millisecond) {
			if u = srv.usage(); u.Running == 0 || time.Now().After(limit) {
				return u
			}
		}
	}
	before := settle()
	start := time.Now()
	batch(tests)
	after := settle()
	t.Logf("%d served, %d killed in %v; before %+v, after %+v", served.Load(), killed.Load(), time.Since(start).Round(time.Second), before, after)
	if after.Goroutines > before.Goroutines || after.Sockets > before.Sockets {
		t.Errorf("the server has %+v, before it had %+v", after, before)
	}
	if after.HeapBytes > before.HeapBytes+before.HeapBytes/10+256<<10 {
		t.Errorf("%d bytes of heap, before %d", after.HeapBytes, before.HeapBytes)
	}
	if after.ResidentBytes > before.ResidentBytes+before.ResidentBytes/10 {
		t.Errorf("%d bytes resident, before %d", after.ResidentBytes, before.ResidentBytes)
	}
}

// killClient runs a client and kills it, if it has not ended by then.
func killClient(port int, args string, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), after)
	defer cancel()
	_ = exec.CommandContext(ctx, "iperf3", append(strings.Fields(args), "-c", "127.0.0.1", "-p", fmt.Sprint(port))...).Run()
}

// What the recipes do to the real server, one after the other, each to a fresh one: with LINERATE_LONG=1. It fails for none: it
// tells.
func TestRecipesAgainstPeer(t *testing.T) {
	needPeer(t)
	if !full {
		t.Skip("only for comparison: set LINERATE_LONG=1")
	}
	failed := []string{}
	for _, r := range recipes {
		if strings.HasPrefix(r.name, "500 silent") {
			continue
		}
		why := peerFails(t, r.name)
		t.Logf("%-55s %s", r.name, why)
		if why != "served" {
			failed = append(failed, r.name)
		}
	}
	raw, _ := json.Marshal(failed)
	t.Logf("the peer fails %d of %d: %s", len(failed), len(recipes), raw)
}

// peerFails runs one recipe in a process of its own, since it may report what differs from our server, against `iperf3 -s`, and
// says what becomes of another client within 2 s.
func peerFails(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "TestRecipeAlone")
	cmd.Env = append(os.Environ(), "LINERATE_TEST_RECIPE="+name)
	out, _ := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if _, verdict, ok := strings.Cut(line, "verdict: "); ok {
			return strings.TrimSpace(verdict)
		}
	}
	return "no verdict"
}

func TestRecipeAlone(t *testing.T) {
	name := os.Getenv("LINERATE_TEST_RECIPE")
	if name == "" {
		t.Skip("part of TestRecipesAgainstPeer")
	}
	port, _ := startPeer(t, "", "-i", "0")
	for _, r := range recipes {
		if r.name != name {
			continue
		}
		t.Run("recipe", func(t *testing.T) { r.do(t, fmt.Sprintf("127.0.0.1:%d", port), new([]net.Conn)) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "iperf3", "-c", "127.0.0.1", "-p", fmt.Sprint(port), "-n", "100K").CombinedOutput()
	verdict := "served"
	switch {
	case ctx.Err() != nil:
		verdict = "hangs"
	case err != nil:
		first := strings.TrimSpace(string(out))
		verdict = first[strings.LastIndex(first, "\n")+1:]
	}
	fmt.Println("verdict:", verdict)
}
