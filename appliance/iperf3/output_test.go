package iperf3

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"linerate/appliance/throughput"
)

func TestQuantity(t *testing.T) {
	for _, c := range []struct {
		got, want string
	}{
		{transfer(0), "0.00 Bytes"}, {transfer(1023), "1023 Bytes"}, {transfer(1024), "1.00 KBytes"}, {transfer(128 << 10), " 128 KBytes"},
		{transfer(15 << 20), "15.0 MBytes"}, {transfer(7 << 30), "7.00 GBytes"}, {transfer(4 << 50), "4096 TBytes"},
		{bitrate(1048576), "1.05 Mbits/sec"}, {bitrate(2.35e9), "2.35 Gbits/sec"}, {bitrate(941.3e6), " 941 Mbits/sec"}, {bitrate(33.9e9), "33.9 Gbits/sec"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// What clients get who ask for the server's own report, as text and as JSON, by Debian's client and by ours.
func TestServerOutput(t *testing.T) {
	line := `\[ *[0-9]+\](\[[RT]X-S\])? +[0-9.]+-[0-9.]+ +sec +[0-9.]+ [KMG]?Bytes +[0-9.]+ [KMG]?bits/sec`
	for _, c := range []struct {
		args    string
		lines   int // of streams, intervals and ends
		columns string
	}{
		{"-t 2", 3, "[ ID] Interval           Transfer     Bitrate\n"},
		{"-t 2 -R", 3, "Retr  Cwnd\n"},
		{"-t 2 -P 2", 6, "[SUM]"},
		{"-t 2 --bidir", 6, "[TX-S]"},
		{"-t 2 -u -l 1400", 3, "Lost/Total Datagrams\n"},
		{"-t 2 -u -l 1400 -R", 3, "Total Datagrams\n"},
		{"-t 1 -O 1", 2, "receiver"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			for _, form := range []bool{false, true} {
				srv := startServer(t, "", Options{OutputJSON: form})
				r := iperf3(t, "", 20*time.Second, append(strings.Fields(c.args), "-c", "127.0.0.1", "-p", fmt.Sprint(srv.Port), "--get-server-output")...)
				if r.Error != "" {
					t.Fatal(r.Error)
				}
				if !form {
					if n := len(regexp.MustCompile(line).FindAllString(r.ServerText, -1)); n < c.lines-1 || n > c.lines+1 || !strings.Contains(r.ServerText, c.columns) {
						t.Errorf("%d lines, want %d, and %q, in\n%s", n, c.lines, c.columns, r.ServerText)
					}
					continue
				}
				var s report
				if err := json.Unmarshal(r.ServerJSON, &s); err != nil || len(s.Intervals) == 0 || s.End.Received.Bytes+s.End.Sent.Bytes == 0 {
					t.Errorf("%v: %s", err, r.ServerJSON)
				}
			}
		})
	}
	t.Run("ours", func(t *testing.T) {
		t.Parallel()
		srv := startServer(t, "", Options{})
		ask := throughput.Spec{Host: "127.0.0.1", TCPPort: srv.Port, Seconds: 1, ServerOutput: true}
		r, err := (&Client{}).Run(context.Background(), ask, nil)
		if err != nil || !strings.Contains(r.ServerOutput, "receiver") {
			t.Errorf("%v, %q", err, r.ServerOutput)
		}
		// The next one, which did not ask, gets none.
		ask.ServerOutput = false
		if r, err = (&Client{}).Run(context.Background(), ask, nil); err != nil || r.ServerOutput != "" {
			t.Errorf("%v, %q: it was not asked for", err, r.ServerOutput)
		}
	})
}
