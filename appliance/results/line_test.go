package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWrapUnwrap(t *testing.T) {
	// The check value of CRC-32C for "123456789" is e3069283 (RFC 3720 names the polynomial).
	if got, want := string(wrap(recordLine, []byte("123456789"))), `{"crc32c":"e3069283","length":9,"record":123456789}`+"\n"; got != want {
		t.Errorf("line %s, want %s", got, want)
	}
	body := []byte(`{"id":"1","seq":1,"label":"}"}`)
	for _, kind := range []string{recordLine, clockLine} {
		line := wrap(kind, body)
		for _, c := range []struct {
			b    []byte
			size int
		}{
			{line, len(line)},
			{line[:len(line)-1], len(line) - 1},
			{append(slices.Clone(line), "more"...), len(line)},
		} {
			k, got, size := unwrap(c.b)
			if k != kind || !bytes.Equal(got, body) || size != c.size {
				t.Errorf("unwrap(%q) = %q, %q, %d", c.b, k, got, size)
			}
		}
		for n := range len(line) - 1 {
			if _, _, size := unwrap(line[:n]); size != 0 {
				t.Errorf("unwrap(%q) takes %d bytes", line[:n], size)
			}
		}
		for i := range len(line) - 1 {
			for _, x := range []byte{0, 0xff, line[i] ^ 1, line[i] ^ 0x20} {
				bad := slices.Clone(line)
				bad[i] = x
				// Hexadecimal digits in the other case say the same.
				if _, _, size := unwrap(bad); size != 0 && x != line[i] && !strings.EqualFold(string(bad), string(line)) {
					t.Errorf("unwrap(%q) takes a damaged line", bad)
				}
			}
		}
	}
	for _, s := range []string{"", "{", head, head + `00000000","length":`, head + `00000000","length":999999999,"record":`,
		head + `00000000","length":-1,"record":}`, head + `00000000","length":0,"record":`, head + `zzzzzzzz","length":0,"record":}`} {
		if _, _, size := unwrap([]byte(s)); size != 0 {
			t.Errorf("unwrap(%q) takes %d bytes", s, size)
		}
	}
}

// fullLog is as large a log as there may be: where each line begins, and what comes behind the last.
func fullLog(t testing.TB, n int) (data []byte, start []int) {
	for i := range n {
		r := example(i)
		r.Stamp = Stamp{ID: fmt.Sprint(i + 1), Seq: uint64(i + 1), Run: fmt.Sprint(i + 1), Time: noon, Clock: Synced, BootID: "b"}
		r.Label = r.Label[:i%len(r.Label)]
		body, err := encode(r)
		if err != nil {
			t.Fatal(err)
		}
		start = append(start, len(data))
		data = append(data, wrap(recordLine, body)...)
	}
	return data, append(start, len(data))
}

// survivors scans and returns where the good lines begin.
func survivors(t testing.TB, data []byte) (starts []int, report Report, end int64) {
	report, end, _, err := scan(bytes.NewReader(data), int64(len(data)), func(l line) { starts = append(starts, int(l.off)) })
	if err != nil {
		t.Fatal(err)
	}
	return starts, report, end
}

// TestDamage: 300 times a full log is cut anywhere or has pages of zeros. Every line that was not touched is read.
func TestDamage(t *testing.T) {
	rounds, n := 300, MaxResults
	if testing.Short() || raceEnabled {
		n = 500
	}
	whole, start := fullLog(t, n)
	for round := range rounds {
		rnd := rand.New(rand.NewPCG(1, uint64(round)))
		data := slices.Clone(whole)
		var touched func(from, to int) bool
		what := ""
		if round%2 == 0 {
			cut := rnd.IntN(len(data) + 1)
			what = fmt.Sprintf("cut at %d", cut)
			data = data[:cut]
			touched = func(_, to int) bool { return to-1 > cut } // a line may do without its end of line
		} else {
			size := []int{1, 512, 4096, 65536}[rnd.IntN(4)]
			zero := map[int]bool{}
			for range 1 + rnd.IntN(8) {
				page := rnd.IntN(len(data)/size + 1)
				zero[page] = true
				clear(data[page*size : min(len(data), (page+1)*size)])
			}
			what = fmt.Sprintf("pages of %d zeroed: %v", size, zero)
			touched = func(from, to int) bool {
				for page := range zero {
					if page*size < to-1 && from < (page+1)*size {
						return true
					}
				}
				return false
			}
		}
		var want []int
		var seqs []uint64
		for i := range n {
			if !touched(start[i], start[i+1]) {
				want, seqs = append(want, start[i]), append(seqs, uint64(i+1))
			}
		}
		got, report, end := survivors(t, data)
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %d results survive, want %d", what, len(got), len(want))
		}
		if report.Skipped+report.Tail > int64(len(data)) || end+report.Tail != int64(len(data)) {
			t.Errorf("%s: %v, good until %d of %d", what, report, end, len(data))
		}
		if round%75 < 2 {
			damagedStore(t, data, seqs)
		}
	}
}

// damagedStore opens the log for writing, appends, and finds everything again.
func damagedStore(t *testing.T, data []byte, want []uint64) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	b := &box{now: noon, synced: true, boot: "x"}
	s := mustOpen(t, dir, b.clock())
	r, err := s.Append(example(1))
	if err != nil {
		t.Fatal(err)
	}
	if len(want) > 0 && r.Seq <= want[len(want)-1] {
		t.Fatalf("seq %d after %d", r.Seq, want[len(want)-1])
	}
	s.work.Wait()
	mustClose(t, s)
	list, report, err := Read(path, 0, b.clock())
	if err != nil || report.Tail != 0 {
		t.Fatalf("read again: %v, %v", report, err)
	}
	want = append(slices.Clone(want), r.Seq)
	if len(want) > MaxResults {
		want = want[len(want)-MaxResults*9/10:]
	}
	if len(list) != len(want) {
		t.Fatalf("%d results, want %d", len(list), len(want))
	}
	for i, r := range list {
		if r.Seq != want[len(want)-1-i] {
			t.Fatalf("place %d: seq %d, want %d", i, r.Seq, want[len(want)-1-i])
		}
	}
}

// TestLostEndOfLine: one damaged byte between two lines costs neither.
func TestLostEndOfLine(t *testing.T) {
	data, start := fullLog(t, 3)
	data[start[1]-1] = 0
	if got, report, _ := survivors(t, data); len(got) != 3 || report.Damaged != 1 || report.Skipped != 1 {
		t.Errorf("%v survive, %v", got, report)
	}
}

// TestLinesAreJSON: any tool that reads lines of JSON reads the log, also where a power cut took the last end of line.
func TestLinesAreJSON(t *testing.T) {
	data, _ := fullLog(t, 2)
	d := newMemDisk(data[:len(data)-1])
	s, err := open(d, "mem", (&box{now: noon}).clock(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(example(1)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(d.names[FileName].data), "\n"), "\n")
	if len(lines) != 3 {
		t.Errorf("%d lines, want 3", len(lines))
	}
	for _, l := range lines {
		var v struct {
			Length int
			Record json.RawMessage
		}
		if err := json.Unmarshal([]byte(l), &v); err != nil || v.Length != len(v.Record) {
			t.Errorf("%v: length %d, record of %d: %.80s", err, v.Length, len(v.Record), l)
		}
	}
}

// TestForeignFiles: whatever stands in the log's place is read in bounded memory and time.
func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	c := (&box{now: noon}).clock()
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 256<<20); err != nil {
		t.Fatal(err)
	}
	if list, report, err := Read(path, 0, c); err != nil || len(list) != 0 || report.Tail != 256<<20 {
		t.Errorf("zeros: %d results, %v, %v", len(list), report, err)
	}
	if _, _, err := Read(dir, 0, c); err == nil || !strings.Contains(err.Error(), "is no regular file") {
		t.Errorf("a folder: %v", err)
	}
	if list, _, err := Read(filepath.Join(dir, "none"), 0, c); err != nil || len(list) != 0 {
		t.Errorf("nothing there: %v, %v", list, err)
	}
}

// FuzzScan: any bytes are read without a crash, and what is read is what was written.
func FuzzScan(f *testing.F) {
	data, start := fullLog(f, 3)
	f.Add(data)
	f.Add(data[:start[2]+40])
	f.Add(append(slices.Clone(data[start[1]:]), data[:start[1]/2]...))
	f.Add(wrap(clockLine, []byte(`{"boot_id":"b","time":"2026-11-30T12:00:00Z","uptime_s":1}`)))
	f.Add(wrap(recordLine, []byte(`{"seq":1}`)))
	f.Add(wrap(recordLine, []byte(`{"seq":18446744073709551615,"intervals":[{"end_s":1e308}],"bps":"x"}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var good int64
		report, end, _, err := scan(bytes.NewReader(data), int64(len(data)), func(l line) {
			good += int64(l.size)
			if !bytes.Equal(data[l.off:l.off+int64(len(head))], []byte(head)) || !bytes.Contains(data[l.off:l.off+int64(l.size)], l.body) {
				t.Errorf("line at %d is none", l.off)
			}
		})
		if err != nil || good+report.Skipped+report.Tail != int64(len(data)) || end > int64(len(data)) {
			t.Errorf("%d good, %v, end %d of %d, %v", good, report, end, len(data), err)
		}
		d := newMemDisk(data)
		s, err := open(d, "fuzz", (&box{now: noon, boot: "b"}).clock(), nil)
		if err != nil {
			t.Fatal(err)
		}
		before := s.Last(0)
		r, err := s.Append(example(1))
		if err != nil {
			t.Fatal(err)
		}
		after := s.Last(0)
		if len(after) < 1 || len(after) != len(before)+1 || after[0].Seq != r.Seq {
			t.Errorf("%d results, then %d, the last %d, want %d", len(before), len(after), after[0].Seq, r.Seq)
		}
		if again := reopen(t, d); len(again) != len(after) {
			t.Errorf("opened again: %d results, want %d", len(again), len(after))
		}
	})
}

// FuzzRecord: a line whose check is right may still hold anything. It is left out or can be shown in every form.
func FuzzRecord(f *testing.F) {
	body, err := encode(Record{Stamp: Stamp{ID: "7", Seq: 7, Time: noon, Clock: Unsynced, BootID: "b", UptimeS: 5}, Result: example(1).Result})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body, []byte(`{"boot_id":"b","time":"2026-11-30T12:00:00Z","uptime_s":10}`))
	f.Add([]byte(`{"id":"9007199254740000","seq":9007199254740000}`), []byte(`{"boot_id":"b","time":"9999-12-31T23:59:59Z","uptime_s":0}`))
	f.Add([]byte(`{"id":"1","seq":1,"uptime_s":3e9,"time":"0000-01-01T00:00:00Z","boot_id":"b"}`), []byte(`{}`))
	f.Add([]byte(`{"id":"1","seq":1,"intervals":[{"end_s":1e308}],"cpu":null,"findings":null,"vlan":-1}`), []byte(`null`))
	f.Add([]byte(`{"id":"1","seq":1,"engine":"\u001b[2J","engine":"x","seq":2}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, body, clock []byte) {
		if len(body) > maxRecordBytes || len(clock) > maxRecordBytes {
			return
		}
		d := newMemDisk(append(wrap(recordLine, body), wrap(clockLine, clock)...))
		b := &box{now: noon, up: time.Minute, boot: "b", synced: true}
		s, err := open(d, "fuzz", b.clock(), nil)
		if err != nil || s.Report().Damaged > 0 || s.Report().Tail > 0 {
			t.Fatalf("%v, %v", s.Report(), err)
		}
		r, err := s.Append(example(1))
		if err != nil {
			t.Fatal(err)
		}
		list := s.Last(0)
		if len(list) == 0 || list[0].Seq != r.Seq {
			t.Fatalf("%d is not the newest of %d", r.Seq, len(list))
		}
		if _, err := json.Marshal(list); err != nil {
			t.Error(err)
		}
		var text bytes.Buffer
		if err := errors.Join(WriteTable(&text, list, b.clock()), WriteCSV(io.Discard, list)); err != nil || strings.ContainsRune(text.String(), 0x1b) {
			t.Errorf("%v: %q", err, text.String())
		}
		if got := reopen(t, d); len(got) != len(list) {
			t.Errorf("opened again: %d results, want %d", len(got), len(list))
		}
	})
}

func reopen(t *testing.T, d disk) []Record {
	s, err := open(d, "fuzz", (&box{now: noon, boot: "c"}).clock(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.report.Tail != 0 {
		t.Errorf("a bad end is left: %v", s.report)
	}
	return s.Last(0)
}
