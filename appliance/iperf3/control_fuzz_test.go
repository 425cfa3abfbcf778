package iperf3

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"linerate/appliance/throughput"
)

// impatient is a server for fuzzing: it gives up soon.
var impatient = sync.OnceValue(func() *served {
	s := &served{seen: &recorder{finished: map[string]throughput.Result{}}}
	s.Server = NewServer(Options{Stall: 300 * time.Millisecond, MaxTests: 1000, Observer: s.seen})
	s.wait = patience{
		cookie: 200 * time.Millisecond, params: 200 * time.Millisecond, streams: 200 * time.Millisecond, results: 200 * time.Millisecond,
		late: 50 * time.Millisecond, hello: 50 * time.Millisecond, linger: 50 * time.Millisecond, grace: 200 * time.Millisecond,
		quiet: 10 * time.Millisecond, drain: 50 * time.Millisecond,
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	s.addrs = []string{ln.Addr().String()}
	go func() { _ = s.Serve(context.Background(), ln) }()
	return s
})

// FuzzServerControl plays a byte stream as a client's control connection, in the portions in which a client would send it, and
// opens the streams that it asks for.
func FuzzServerControl(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: box\r\nAccept: */*\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := impatient()
		c, err := net.Dial("tcp", s.addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		start := time.Now()
		next := func(n int) []byte {
			n = min(n, len(data))
			part := data[:n]
			data = data[n:]
			_, _ = c.Write(part)
			return part
		}
		answer := func(want ...byte) bool {
			got := make([]byte, len(want))
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			_, err := io.ReadFull(c, got)
			return err == nil && bytes.Equal(got, want)
		}
		cookie := next(cookieBytes)
		if len(cookie) == cookieBytes && answer(9) && len(data) >= 4 {
			n := int(min(uint32(len(data)-4), binary.BigEndian.Uint32(data)))
			body := next(4 + n)[4:]
			p, err := decodeParams(body)
			if err == nil && p.Protocol == throughput.TCP && p.connections() <= 4 && answer(10) {
				for range p.connections() {
					d, err := net.Dial("tcp", s.addrs[0])
					if err != nil {
						t.Fatal(err)
					}
					defer d.Close()
					_, _ = d.Write(append(bytes.Clone(cookie), "payload"...))
				}
				answer(1, 2)
			}
		}
		next(len(data))
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("the server does not let go: %v after %v", err, time.Since(start))
		}
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			s.mu.Lock()
			slots, sessions := len(s.lobby.running), len(s.byCookie)
			s.mu.Unlock()
			if slots == 0 && sessions == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d slots and %d sessions are left", slots, sessions)
			}
		}
	})
}

// FuzzClientControl plays a byte stream as a server's control connection.
func FuzzClientControl(f *testing.F) {
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, reverse bool) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go fakeServer(ln, data)
		spec := throughput.Spec{Host: "127.0.0.1", TCPPort: ln.Addr().(*net.TCPAddr).Port, Bytes: 10}
		if reverse {
			spec.Direction = throughput.RX
		}
		start := time.Now()
		r, err := (&Client{hurry: 200 * time.Millisecond, Stall: 200 * time.Millisecond}).Run(context.Background(), spec, nil)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the client took %v", took)
		}
		if r.Valid != (r.Error == "") || err != nil && r.Valid {
			t.Errorf("valid %v, error %q, %v", r.Valid, r.Error, err)
		}
	})
}

// fakeServer answers the first connection with data, in the portions that a client waits for, and sends ten bytes on all others.
func fakeServer(ln net.Listener, data []byte) {
	for n := 0; ; n++ {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(3 * time.Second))
			if n > 0 {
				_, _ = io.CopyN(io.Discard, c, cookieBytes)
				_, _ = c.Write([]byte("0123456789"))
				_, _ = io.Copy(io.Discard, c)
				return
			}
			next := func(n int) {
				n = min(n, len(data))
				_, _ = c.Write(data[:n])
				data = data[n:]
			}
			_, _ = io.CopyN(io.Discard, c, cookieBytes)
			next(1) // 9
			_, _ = readBlob(c, maxParamsBytes)
			next(3) // 10 1 2
			_, _ = io.CopyN(io.Discard, c, 1)
			next(1) // 13
			_, _ = readBlob(c, maxResultsBytes)
			next(len(data))
			_, _ = io.Copy(io.Discard, c)
		}()
	}
}

// TestRecord writes the fuzz corpora anew, from real traffic of Debian's client with Debian's server: LINERATE_RECORD=1.
func TestRecord(t *testing.T) {
	if os.Getenv("LINERATE_RECORD") == "" {
		t.Skip("writes testdata: set LINERATE_RECORD=1")
	}
	write := func(target, name string, values ...string) {
		dir := filepath.Join("testdata", "fuzz", target)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("go test fuzz v1\n"+strings.Join(values, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw := func(b []byte) string { return fmt.Sprintf("[]byte(%q)", b) }
	for name, args := range map[string]string{
		"normal": "-t 1", "reverse": "-t 1 -R", "bidir": "-t 1 --bidir", "two-streams": "-t 1 -P 2", "bytes": "-n 1M", "blocks": "-k 10",
		"options": "-t 1 -b 10M/5 -l 1000 -w 64K -M 1000 -N -S 16 -C reno -T title --repeating-payload --get-server-output",
		"udp":     "-t 1 -u", "udp-reverse": "-t 1 -u -R --udp-counters-64bit",
	} {
		port, _ := startPeer(t, "")
		client, server, datagrams := record(t, port, strings.Fields(args))
		write("FuzzServerControl", "recorded-"+name, raw(client))
		write("FuzzClientControl", "recorded-"+name, raw(server), fmt.Sprintf("bool(%v)", strings.Contains(args, "-R")))
		rest := client[cookieBytes:]
		params, err := readBlob(bytes.NewReader(rest), maxParamsBytes)
		if err != nil {
			t.Fatal(err)
		}
		write("FuzzParams", "recorded-"+name, raw(params))
		results, err := readBlob(bytes.NewReader(rest[4+len(params)+1:]), maxResultsBytes)
		if err != nil {
			t.Fatal(err)
		}
		write("FuzzResults", "recorded-client-"+name, raw(results))
		if results, err = readBlob(bytes.NewReader(server[5:]), maxServerResultsBytes); err != nil {
			t.Fatal(err)
		}
		write("FuzzResults", "recorded-server-"+name, raw(results))
		for i, d := range datagrams {
			write("FuzzDatagrams", fmt.Sprintf("recorded-%s-%d", name, i), raw(d[:min(len(d), 64)]), fmt.Sprintf("int(%d)", min(len(d), 64)),
				fmt.Sprintf("bool(%v)", strings.Contains(args, "64bit")))
		}
	}
}

// record runs the peer's client through a relay and returns what both sides said on the control connection, and some datagrams.
func record(t *testing.T, port int, args []string) (client, server []byte, datagrams [][]byte) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: ln.Addr().(*net.TCPAddr).Port})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	keep := func(b []byte) {
		if len(datagrams) < 4 {
			datagrams = append(datagrams, bytes.Clone(b))
		}
	}
	go func() { // one stream is enough
		var back *net.UDPConn
		b := make([]byte, 1<<16)
		for {
			n, from, err := udp.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			keep(b[:n])
			if back == nil {
				back, _ = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
				go func() {
					b := make([]byte, 1<<16)
					for {
						n, err := back.Read(b)
						if err != nil {
							return
						}
						keep(b[:n])
						_, _ = udp.WriteToUDPAddrPort(b[:n], from)
					}
				}()
			}
			_, _ = back.Write(b[:n])
		}
	}()
	var wait sync.WaitGroup
	go func() {
		for n := 0; ; n++ {
			a, err := ln.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				return
			}
			up, down := io.Writer(b), io.Writer(a)
			var c, s bytes.Buffer
			if n == 0 {
				up, down = io.MultiWriter(b, &c), io.MultiWriter(a, &s)
				wait.Add(1)
			}
			go func() {
				defer a.Close()
				defer b.Close()
				done := make(chan struct{})
				go func() { defer close(done); _, _ = io.Copy(up, a); _ = b.(*net.TCPConn).CloseWrite() }()
				_, _ = io.Copy(down, b)
				<-done
				if n == 0 {
					client, server = c.Bytes(), s.Bytes()
					wait.Done()
				}
			}()
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "iperf3", append([]string{"-c", "127.0.0.1", "-p", fmt.Sprint(ln.Addr().(*net.TCPAddr).Port)}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	wait.Wait()
	return client, server, datagrams
}
