package results

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReserveAndOrder(t *testing.T) {
	dir := t.TempDir()
	b := &box{now: noon, boot: "b"}
	s := mustOpen(t, dir, b.clock())
	first, second := s.Reserve(), s.Reserve()
	store := func(id, run, want, wantRun string) {
		t.Helper()
		r := example(1)
		r.ID, r.Run, r.Time, r.Seq = id, run, noon.AddDate(9, 0, 0), 77
		got, err := s.Append(r)
		if err != nil || got.ID != want || fmt.Sprint(got.Seq) != want || got.Run != wantRun || !got.Time.Equal(noon) {
			t.Errorf("Append(%q): %+v, %v; want id %s run %s", id, got.Stamp, err, want, wantRun)
		}
	}
	store(second, "", "2", "2") // the later one ends first
	store(first, "2", "1", "2")
	store("", "", "3", "3")
	store("1", "", "4", "4")        // is there already
	store("nonsense", "", "5", "5") // is no id
	store("99", "", "6", "6")       // was not reserved
	abandoned := s.Reserve()
	if abandoned != "7" {
		t.Errorf("reserved %s, want 7", abandoned)
	}
	ids := func(list []Record) (out []string) {
		for _, r := range list {
			out = append(out, r.ID)
		}
		return out
	}
	want := []string{"6", "5", "4", "3", "2", "1"}
	if diff := cmp.Diff(want, ids(s.Last(0))); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:2], ids(s.Last(2))); diff != "" {
		t.Errorf("the last two (-want +got):\n%s", diff)
	}
	mustClose(t, s)
	if _, err := s.Append(example(1)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Append after Close: %v", err)
	}
	s = mustOpen(t, dir, b.clock())
	if id := s.Reserve(); id != "7" {
		t.Errorf("after a restart %s, want 7", id)
	}
	if r, ok := s.Get("2"); !ok || r.ID != "2" {
		t.Errorf("Get(2): %v, %v", r.ID, ok)
	}
	for _, id := range []string{"0", "7", "-1", "x", ""} {
		if _, ok := s.Get(id); ok {
			t.Errorf("Get(%q) finds something", id)
		}
	}
	list, report, err := Read(filepath.Join(dir, FileName), 2, b.clock())
	if err != nil || report.Results != 6 || strings.Join(ids(list), " ") != "6 5" {
		t.Errorf("Read: %v, %v, %v", ids(list), report, err)
	}
}

// TestNumbersInDamage: the number of a result that can no longer be read is not given again.
func TestNumbersInDamage(t *testing.T) {
	dir := t.TempDir()
	data, start := fullLog(t, 5)
	if err := os.WriteFile(filepath.Join(dir, FileName), data[:start[5]-20], 0o644); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := Open(dir, (&box{now: noon}).clock(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if id := s.Reserve(); id != "6" {
		t.Errorf("reserved %s, want 6: somebody may have seen 5", id)
	}
	tail := fmt.Sprintf("4 results, unfinished end (%d bytes)", start[5]-20-start[4])
	if s.Report().String() != tail || !strings.Contains(log.String(), tail) {
		t.Errorf("report %q, log %q", s.Report(), log.String())
	}
}

// TestDiskFails: whatever the disk refuses, the results are there, and on the disk once it works again.
func TestDiskFails(t *testing.T) {
	for _, op := range []string{"open", "write", "sync", "truncate", "create", "syncdir"} {
		t.Run(op, func(t *testing.T) {
			var data []byte
			if op != "create" && op != "syncdir" {
				data, _ = fullLog(t, 2)
				data = data[:len(data)-5]
			}
			d := newMemDisk(data)
			var full atomic.Bool
			full.Store(true)
			d.fault = func(o string) error {
				if full.Load() && o == op {
					return syscall.ENOSPC
				}
				return nil
			}
			b := &box{now: noon, boot: "b"}
			s, err := open(d, "/state", b.clock(), nil)
			if err != nil && err.Error() != "open results.jsonl in /state: no space left on device" {
				t.Errorf("open: %v", err)
			}
			before := len(s.Last(0))
			if want := min(len(data), 1); before != want {
				t.Errorf("%d results can be read, want %d", before, want)
			}
			var ids []string
			for i := range 3 {
				r, err := s.Append(example(i))
				if err == nil || err.Error() != "write results.jsonl in /state: no space left on device" {
					t.Errorf("Append: %v", err)
				}
				ids = append(ids, r.ID)
			}
			if got := s.Last(0); len(got) != before+3 || got[0].ID != ids[2] {
				t.Errorf("%d results, want %d", len(got), before+3)
			}
			full.Store(false)
			r, err := s.Append(example(3))
			if err != nil {
				t.Fatal(err)
			}
			list := s.Last(0)
			if len(list) != before+4 || list[0].ID != r.ID || list[3].ID != ids[0] {
				t.Errorf("%d results, newest %s", len(list), list[0].ID)
			}
			if diff := cmp.Diff(list, reopen(t, d.crash(rand.New(rand.NewPCG(3, 3))))); diff != "" {
				t.Errorf("after a power cut (-before +after):\n%s", diff)
			}
		})
	}
}

func TestWaitingForTheDiskIsBounded(t *testing.T) {
	d := newMemDisk(nil)
	d.fault = func(string) error { return syscall.EROFS }
	s, err := open(d, "/state", (&box{now: noon}).clock(), nil)
	if !errors.Is(err, syscall.EROFS) {
		t.Fatal(err)
	}
	r := example(1)
	r.Label = ""
	for range maxList {
		r.Findings = append(r.Findings, strings.Repeat("x", 900))
	}
	for range 40 {
		if _, err := s.Append(r); err == nil {
			t.Fatal("want an error")
		}
	}
	n := 0
	for _, p := range s.pending {
		n += len(p.line)
	}
	if list := s.Last(0); n > maxPending || len(list) < 15 || list[0].Seq != 40 || len(s.recent) != len(list) {
		t.Errorf("%d bytes wait, %d results, newest %d", n, len(list), list[0].Seq)
	}
}

// TestOneWriter: the second is told, reads what is there, keeps its own, and writes it when the first has gone.
func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	b := &box{now: noon, boot: "b"}
	first := mustOpen(t, dir, b.clock())
	if _, err := first.Append(example(1)); err != nil {
		t.Fatal(err)
	}
	second, err := Open(dir, b.clock(), nil)
	if !errors.Is(err, errLocked) {
		t.Fatalf("second writer: %v", err)
	}
	defer second.Close()
	r, err := second.Append(example(2))
	if !errors.Is(err, errLocked) || r.ID != "2" {
		t.Errorf("id %s, %v", r.ID, err)
	}
	for range 3 {
		if _, err := first.Append(example(3)); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, first)
	r, err = second.Append(example(4))
	if err != nil {
		t.Fatal(err)
	}
	var bytes []int64
	for _, r := range second.Last(0) {
		bytes = append(bytes, r.Bytes)
	}
	if diff := cmp.Diff([]int64{4, 2, 3, 3, 3, 1}, bytes); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
}

func TestRemovedWhileOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	s := mustOpen(t, dir, (&box{now: noon}).clock())
	for range 2 {
		if _, err := s.Append(example(1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r, err := s.Append(example(2))
	if err != nil || r.ID != "3" {
		t.Fatalf("id %s, %v", r.ID, err)
	}
	list, _, err := Read(path, 0, (&box{}).clock())
	if err != nil || len(list) != 1 || list[0].ID != "3" || len(s.Last(0)) != 1 {
		t.Errorf("%d in the new file, %d in the store, %v", len(list), len(s.Last(0)), err)
	}
}

// TestReadersAndRewrites: several append while others read and the log is rewritten; a reader always sees a whole log.
func TestReadersAndRewrites(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	b := &box{now: noon, boot: "b"}
	s := mustOpen(t, dir, b.clock())
	s.maxResults = 20
	var stop atomic.Bool
	var readers, writers sync.WaitGroup
	var confirmed atomic.Uint64
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				least := confirmed.Load()
				list, report, err := Read(path, 0, b.clock())
				if err != nil || report.Damaged > 0 {
					t.Errorf("%v, %v", report, err)
				}
				if least > 0 && (len(list) == 0 || list[0].Seq < least) {
					t.Errorf("result %d is not there", least)
				}
				for i := 1; i < len(list); i++ {
					if list[i].Seq >= list[i-1].Seq {
						t.Errorf("%d behind %d", list[i].Seq, list[i-1].Seq)
					}
				}
			}
		})
	}
	for range 3 {
		writers.Go(func() {
			for range 60 {
				r := example(1)
				r.ID = s.Reserve()
				r, err := s.Append(r)
				if err != nil {
					t.Error(err)
				}
				for old := confirmed.Load(); old < r.Seq && !confirmed.CompareAndSwap(old, r.Seq); old = confirmed.Load() {
				}
				s.Last(3)
			}
		})
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
	s.work.Wait()
	list := s.Last(0)
	if len(list) > 20 || len(list) < 18 || list[0].Seq != 180 {
		t.Errorf("%d results, newest %d", len(list), list[0].Seq)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 {
		t.Errorf("in the folder: %v, %v", names, err)
	}
}

// TestLimits with the real ones: the log stays below both, and the memory small.
func TestLimits(t *testing.T) {
	dir := t.TempDir()
	n := MaxResults
	if raceEnabled {
		n = 200
	}
	data, _ := fullLog(t, n)
	path := filepath.Join(dir, FileName)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	before := heap()
	s := mustOpen(t, dir, (&box{now: noon}).clock())
	s.maxResults = n
	s.Last(10)
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("an open log of %d results takes %d bytes of memory", n, grown)
	}
	if _, err := s.Append(example(1)); err != nil {
		t.Fatal(err)
	}
	s.work.Wait()
	if got, want := len(s.Last(0)), n*9/10; got != want {
		t.Errorf("%d results, want %d", got, want)
	}
	s.maxBytes = fileSize(t, dir) - 1
	if _, err := s.Append(example(1)); err != nil {
		t.Fatal(err)
	}
	s.work.Wait()
	if size := fileSize(t, dir); size > s.maxBytes {
		t.Errorf("%d bytes, want at most %d", size, s.maxBytes)
	}
	if got := s.Last(1)[0].Seq; got != uint64(n+2) {
		t.Errorf("newest %d, want %d", got, n+2)
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestRewriteFails: a log that cannot be rewritten goes on growing, and it is not tried at each append.
func TestRewriteFails(t *testing.T) {
	d := newMemDisk(nil)
	tries := 0
	broken := true
	d.fault = func(op string) error {
		if op == "rename" && broken {
			tries++
			return syscall.ENOSPC
		}
		return nil
	}
	s, err := open(d, "/state", (&box{now: noon}).clock(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.maxResults = 100
	for range 110 {
		if _, err := s.Append(example(1)); err != nil {
			t.Fatal(err)
		}
		s.work.Wait()
	}
	if tries < 2 || tries > 5 || len(s.Last(0)) != 110 || d.names[newFileName] != nil {
		t.Errorf("%d tries, %d results, names %v", tries, len(s.Last(0)), d.names)
	}
	broken = false
	for range 4 {
		if _, err := s.Append(example(1)); err != nil {
			t.Fatal(err)
		}
		s.work.Wait()
	}
	if n := len(s.Last(0)); n > 100 {
		t.Errorf("%d results after it works again", n)
	}
}

// TestForeignLines: what a later version wrote is kept through a rewrite as it is.
func TestForeignLines(t *testing.T) {
	body := []byte(`{"id":"1","seq":1,"bps":5,"later":{"x":[1,2]}}`)
	d := newMemDisk(wrap(recordLine, body))
	s, err := open(d, "/state", (&box{now: noon}).clock(), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.maxResults = 3
	for i := range 2 {
		if i == 1 {
			s.maxResults = 2
		}
		if _, err := s.Append(example(1)); err != nil {
			t.Fatal(err)
		}
	}
	s.work.Wait()
	s.maxResults = 10
	if err := s.rewrite(); err != nil {
		t.Fatal(err)
	}
	if len(s.Last(0)) != 1 {
		t.Errorf("%d results", len(s.Last(0)))
	}

	d = newMemDisk(wrap(recordLine, body))
	if s, err = open(d, "/state", (&box{now: noon}).clock(), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.rewrite(); err != nil {
		t.Fatal(err)
	}
	if got := d.names[FileName].data; !bytes.Equal(got, wrap(recordLine, body)) {
		t.Errorf("rewritten as %s", got)
	}
	if r, ok := s.Get("1"); !ok || r.BPS != 5 {
		t.Errorf("%+v, %v", r, ok)
	}
}

// TestAppendIsFast enough for a run of short tests: it waits for the disk once.
func TestOneSyncEach(t *testing.T) {
	d := newMemDisk(nil)
	s, err := open(d, "/state", (&box{now: noon}).clock(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(example(1)); err != nil {
		t.Fatal(err)
	}
	d.ops = 0
	if _, err := s.Append(example(2)); err != nil {
		t.Fatal(err)
	}
	if d.ops != 2 {
		t.Errorf("%d operations, want a write and a sync", d.ops)
	}
}

// TestReserveDoesNotWait for a disk that is slow.
func TestReserveDoesNotWait(t *testing.T) {
	d := newMemDisk(nil)
	s, err := open(d, "/state", (&box{now: noon}).clock(), nil)
	if err != nil {
		t.Fatal(err)
	}
	in, out := make(chan bool), make(chan bool)
	d.fault = func(op string) error {
		if op == "sync" {
			in <- true
			<-out
		}
		return nil
	}
	go s.Append(example(1))
	<-in
	got := make(chan string, 1)
	go func() { got <- s.Reserve() }()
	select {
	case id := <-got:
		if id != "2" {
			t.Errorf("reserved %s", id)
		}
	case <-time.After(10 * time.Second):
		t.Error("Reserve waits for the disk")
	}
	out <- true
	s.mu.Lock() // Append is done
	defer s.mu.Unlock()
}
