package results

import (
	"bytes"
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"linerate/appliance/throughput"
)

func TestCSV(t *testing.T) {
	r := example(1)
	r.Stamp = Stamp{ID: "12", Seq: 12, Run: "11", Time: noon.Add(5 * time.Millisecond), Clock: Synced, BootID: "b", UptimeS: 0.25}
	r.Label = "a,\"b\"\nc"
	var b bytes.Buffer
	if err := WriteCSV(&b, []Record{r, {}}); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	want := strings.ReplaceAll(names, " cpu intervals shared_with", ` cpu.user_s cpu.system_s cpu.process_user_s cpu.process_system_s
		cpu.busiest_core_percent cpu.peer_percent`)
	want = strings.ReplaceAll(want, " findings", "")
	if diff := cmp.Diff(strings.Fields(want), rows[0]); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	got := map[string]string{}
	for i, name := range rows[0] {
		got[name] = rows[1][i]
	}
	for name, want := range map[string]string{
		"id": "12", "time": "2026-11-30T12:00:00.005Z", "uptime_s": "0.25", "label": "a,\"b\"\nc", "vlan": "130",
		"bps": "2350000000", "tx_bps": "", "retransmits": "3", "copied": "false", "cpu.user_s": "0.8", "cpu.peer_percent": "",
		"pass": "true", "valid": "true", "error": "", "direction": "rx",
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
}

func TestTable(t *testing.T) {
	b := &box{now: noon, up: time.Hour, boot: "b", synced: true}
	at := func(r Record, id string, ago time.Duration) Record {
		r.Stamp = Stamp{ID: id, BootID: "b", UptimeS: (time.Hour - ago).Seconds()}
		return r
	}
	rx, both, bad := example(1), example(1), example(1)
	both.Direction, both.RXBPS, both.TXBPS = throughput.Both, new(2.3e9), new(941.5e6)
	both.Target, both.Peer, both.Findings, both.Pass, both.PossiblePercent = "", "2001:db8::aaaa:bbbb:cccc:dddd", nil, nil, nil
	bad.Direction, bad.BPS, bad.LineRatePercent, bad.Valid = throughput.TX, 0, nil, false
	bad.Error, bad.Target = "peer\x1b[2J went away", "\u202ecore"
	var out bytes.Buffer
	if err := WriteTable(&out, []Record{at(rx, "12", 5*time.Second), at(both, "11", 5*time.Minute), at(bad, "9", 0)}, b.clock()); err != nil {
		t.Fatal(err)
	}
	want := `
ID  WHEN       PEER                           DIR    RATE                      OF LINK  OF POSSIBLE  FINDINGS                   RESULT
12  5 s ago    core                           RX     2.35 Gbit/s               94.0 %   99.8 %       jumbo-slower, not-the-box  PASS
11  5 min ago  2001:db8::aaaa:bbbb:cccc:dddd  RX+TX  2.30 Gbit/s + 942 Mbit/s  94.0 %   -            -                          -
9   0 s ago    ?core                          TX     0.00 bit/s                -        99.8 %       jumbo-slower, not-the-box  error: peer?[2J went away
`
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestBits(t *testing.T) {
	for bps, want := range map[float64]string{
		1: "1.00 bit/s", 999.4: "999 bit/s", 999.6: "1.00 kbit/s", 12345: "12.3 kbit/s", 99.96e6: "100 Mbit/s",
		941.5e6: "942 Mbit/s", 999.7e6: "1.00 Gbit/s", 2.353e9: "2.35 Gbit/s", 9.4e12: "9400 Gbit/s",
	} {
		if got := bits(bps); got != want {
			t.Errorf("bits(%v) = %q, want %q", bps, got, want)
		}
	}
}
