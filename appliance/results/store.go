package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
)

// FileName of the log in its folder.
const FileName = "results.jsonl"

const newFileName = FileName + ".new"

// Size of the log. Beyond it the oldest results go, a tenth more than needed, so that it is not rewritten each time.
const (
	MaxResults = 5000
	MaxBytes   = 32 << 20
)

const (
	inMemory   = 16      // newest results that are kept decoded
	maxPending = 4 << 20 // bytes of lines that wait for the disk
	maxJump    = 10_000  // between the last good seq and one that is read out of damage
)

// Store is the log with its one writer. Its methods may be called from any goroutine; Append waits for the disk, the
// others for an Append that is under way.
type Store struct {
	disk  disk
	where string
	clock Clock
	log   *slog.Logger

	next atomic.Uint64 // seq; not under mu, since a test must not wait for the disk to begin

	mu        sync.Mutex
	held      io.Closer // the lock; nil: not ours yet
	file      diskFile  // nil: not open
	writable  bool      // file is
	end       int64     // behind the last good line
	torn      bool      // what lies behind end must go before the next write
	tail      bool      // the last good line has no end of line
	entries   []entry   // by seq
	recent    map[uint64]Record
	pending   []pending
	moments   moments
	unset     bool // this boot has results from before its clock was set
	unnamed   bool // a power cut may lose the name of the file
	rewriting bool
	retry     int // entries at which a rewrite is tried again
	report    Report
	closed    bool
	work      sync.WaitGroup

	maxResults int
	maxBytes   int64
}

// entry is where a result lies.
type entry struct {
	seq  uint64
	off  int64 // of the line; -1: it waits for the disk
	size int
}

// pending is a line that waits for the disk.
type pending struct {
	seq  uint64 // 0: a clock line
	line []byte
}

// Open opens the log in dir for writing, and makes both where they are missing. The Store is usable also with an error:
// then results are kept in memory, and each Append tries the disk again. A nil log is none.
func Open(dir string, clock Clock, log *slog.Logger) (*Store, error) {
	return open(folder(dir), dir, clock, log)
}

func open(d disk, where string, clock Clock, log *slog.Logger) (*Store, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		disk: d, where: where, clock: clock, log: log, recent: map[uint64]Record{}, moments: moments{},
		maxResults: MaxResults, maxBytes: MaxBytes,
	}
	s.next.Store(1)
	if err := s.ready(); err != nil {
		return s, fmt.Errorf("open %s in %s: %w", FileName, where, err)
	}
	return s, nil
}

// Close gives the log to the next writer. Results that wait for the disk are tried once more; the error says that they
// are lost.
func (s *Store) Close() error {
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	var err error
	if len(s.pending) > 0 {
		err = s.flush()
	}
	s.closed = true
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	if s.held != nil {
		err = errors.Join(err, s.held.Close())
	}
	s.file, s.held, s.writable = nil, nil, false
	return err
}

// Report says what was found when the log was opened.
func (s *Store) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report
}

// Reserve hands out the id of a test that starts now. An id that is never stored leaves a gap and does no harm.
func (s *Store) Reserve() (id string) { return strconv.FormatUint(s.reserve(), 10) }

func (s *Store) reserve() uint64 { return s.next.Add(1) - 1 }

// Append stamps and stores a result under the id that Reserve gave, or the next one where r has none. It returns the record
// as it is stored, on the disk when the error is nil. With an error the record is kept in memory, is part of Last, and
// follows as soon as writing works again. Of a stamp that is given only ID and Run count; an empty Run becomes the id.
func (s *Store) Append(r Record) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r = bounded(r)
	seq, err := strconv.ParseUint(r.ID, 10, 64)
	if err != nil || seq == 0 || seq >= s.next.Load() || s.find(seq) >= 0 {
		seq = s.reserve()
	}
	run := r.Run
	r.Stamp = s.clock.Stamp()
	r.Seq, r.ID, r.Run = seq, strconv.FormatUint(seq, 10), run
	if r.Run == "" {
		r.Run = r.ID
	}
	body, err := encode(r)
	if err != nil {
		return r, err
	}
	s.noteClock()
	s.unset = s.unset || r.Clock == Unsynced && r.BootID == s.clock.BootID
	s.insert(entry{seq: seq, off: -1})
	s.recent[seq] = r
	s.pending = append(s.pending, pending{seq, wrap(recordLine, body)})
	err = s.flush()
	s.forget()
	if err != nil {
		return r, fmt.Errorf("write %s in %s: %w", FileName, s.where, err)
	}
	s.shrink()
	return r, nil
}

// NoteClock writes down what time it is once the clock has been set, so that this boot's results from before keep their
// right time after the next boot. It does nothing where there is nothing to do; call it every now and then.
func (s *Store) NoteClock() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.noteClock() {
		return nil
	}
	if err := s.flush(); err != nil {
		return fmt.Errorf("write %s in %s: %w", FileName, s.where, err)
	}
	return nil
}

func (s *Store) noteClock() bool {
	if !s.unset || s.closed {
		return false
	}
	now := s.clock.Stamp()
	if now.Clock != Synced {
		return false
	}
	k := moment{now.BootID, now.Time, now.UptimeS}
	body, err := json.Marshal(k)
	if err != nil {
		return false
	}
	s.moments.learn(k)
	s.unset = false
	s.pending = append(s.pending, pending{0, wrap(clockLine, body)})
	return true
}

// Last returns the newest n results, newest first; all for n < 1. Times of results from before the clock was set are
// corrected. A result whose place on the disk has become unreadable is left out.
func (s *Store) Last(n int) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 1 || n > len(s.entries) {
		n = len(s.entries)
	}
	out := make([]Record, 0, n)
	known := s.moments.with(s.clock)
	for i := len(s.entries) - 1; i >= 0 && len(out) < n; i-- {
		if r, ok := s.load(s.entries[i]); ok {
			known.correct(&r.Stamp)
			out = append(out, r)
		}
	}
	return out
}

// Get returns one result.
func (s *Store) Get(id string) (Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq, err := strconv.ParseUint(id, 10, 64)
	i := s.find(seq)
	if err != nil || i < 0 {
		return Record{}, false
	}
	r, ok := s.load(s.entries[i])
	if ok {
		s.moments.with(s.clock).correct(&r.Stamp)
	}
	return r, ok
}

func (s *Store) load(e entry) (Record, bool) {
	if r, ok := s.recent[e.seq]; ok {
		return bounded(r), true
	}
	line, ok := s.line(e)
	if !ok {
		return Record{}, false
	}
	_, body, _ := unwrap(line)
	r, err := decode(body)
	return r, err == nil
}

// line reads a line from the disk and checks it again.
func (s *Store) line(e entry) ([]byte, bool) {
	if s.file == nil || e.off < 0 {
		return nil, false
	}
	line := make([]byte, e.size)
	if _, err := s.file.ReadAt(line, e.off); err != nil {
		return nil, false
	}
	kind, _, _ := unwrap(line)
	return line, kind == recordLine
}

func (s *Store) find(seq uint64) int {
	i, ok := slices.BinarySearchFunc(s.entries, seq, compareSeq)
	if !ok {
		return -1
	}
	return i
}

func compareSeq(e entry, seq uint64) int {
	switch {
	case e.seq < seq:
		return -1
	case e.seq > seq:
		return 1
	}
	return 0
}

// insert keeps the order. Of two lines with the same seq, which only a foreign hand makes, the later counts.
func (s *Store) insert(e entry) {
	i, ok := slices.BinarySearchFunc(s.entries, e.seq, compareSeq)
	if ok {
		s.entries[i] = e
		return
	}
	s.entries = slices.Insert(s.entries, i, e)
}

// forget keeps the memory small: the newest results, and those that wait for the disk up to a bound.
func (s *Store) forget() {
	waiting := 0
	for _, p := range s.pending {
		waiting += len(p.line)
	}
	for waiting > maxPending {
		p := s.pending[0]
		s.pending = s.pending[1:]
		waiting -= len(p.line)
		if i := s.find(p.seq); i >= 0 {
			s.log.Warn("result lost: the disk has not been writable for too long", "id", p.seq)
			s.entries = slices.Delete(s.entries, i, i+1)
			delete(s.recent, p.seq)
		}
	}
	least := uint64(0)
	if n := len(s.entries); n > inMemory {
		least = s.entries[n-inMemory].seq
	}
	for seq := range s.recent {
		if i := s.find(seq); seq < least && (i < 0 || s.entries[i].off >= 0) {
			delete(s.recent, seq)
		}
	}
}
