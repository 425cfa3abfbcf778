package results

import (
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strconv"
)

// ready opens the log for writing. Where that cannot be, what is there is at least read.
func (s *Store) ready() error {
	if s.closed {
		return fs.ErrClosed
	}
	if s.file != nil && !s.disk.holds(FileName, s.file) {
		s.leave()
	}
	if s.writable {
		return nil
	}
	f, err := s.openWritable()
	if err == nil {
		err = s.take(f)
	}
	if err == nil {
		s.writable = true
		return nil
	}
	if s.file == nil {
		if f, e := s.disk.open(FileName, false); e == nil {
			_ = s.take(f)
		}
	}
	return err
}

func (s *Store) openWritable() (diskFile, error) {
	if s.held == nil {
		held, err := s.disk.lock()
		if err != nil {
			return nil, err
		}
		s.held = held
	}
	f, err := s.disk.open(FileName, true)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	s.unnamed = true
	return s.disk.create(FileName)
}

// take reads an open log and keeps it, or closes it.
func (s *Store) take(f diskFile) error {
	if err := s.read(f); err != nil {
		f.Close()
		return err
	}
	if s.file != nil {
		s.file.Close()
	}
	s.file = f
	return nil
}

// leave lets go of a log that somebody removed or replaced. Its results are gone, since that is what they wanted.
func (s *Store) leave() {
	s.log.Warn("the result log was removed or replaced; going on with what is there now", "folder", s.where)
	s.file.Close()
	s.file, s.writable = nil, false
	s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { return e.off >= 0 })
	for seq := range s.recent {
		if s.find(seq) < 0 {
			delete(s.recent, seq)
		}
	}
}

// read takes in what the log has. Results that were made before it could be opened come after it.
func (s *Store) read(f diskFile) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	var entries []entry
	known, unset := moments{}, false
	report, end, high, err := scan(f, size, func(l line) {
		switch l.kind {
		case clockLine:
			var k moment
			if json.Unmarshal(l.body, &k) == nil {
				known.learn(k)
			}
		case recordLine:
			stamp, err := stampOf(l.body)
			if err != nil {
				return
			}
			entries = append(entries, entry{stamp.Seq, l.off, l.size})
			if stamp.Clock == Synced {
				known.learn(moment{stamp.BootID, stamp.Time, stamp.UptimeS})
			} else if stamp.BootID == s.clock.BootID {
				unset = true
			}
		}
	})
	if err != nil {
		return err
	}
	waiting := slices.DeleteFunc(s.entries, func(e entry) bool { return e.off >= 0 })
	s.entries = nil
	top := uint64(0)
	for _, e := range entries {
		s.insert(e)
		top = max(top, e.seq)
	}
	report.Results = len(s.entries)
	if high > top && high-top < maxJump {
		top = high // a number that somebody may have seen is not given again
	}
	s.shift(waiting, top)
	_, seen := known[s.clock.BootID]
	for _, k := range known {
		s.moments.learn(k)
	}
	s.unset = s.unset || unset && !seen
	s.report, s.end, s.torn, s.tail = report, end, report.Tail > 0, false
	if end > 0 {
		last := make([]byte, 1)
		_, err := f.ReadAt(last, end-1)
		s.tail = err == nil && last[0] != '\n'
	}
	if report.Damaged > 0 || report.Tail > 0 {
		s.log.Warn("the result log was damaged", "folder", s.where, "found", report.String())
	}
	return nil
}

// shift gives the results that wait new numbers above top.
func (s *Store) shift(waiting []entry, top uint64) {
	var by uint64
	if len(waiting) > 0 && waiting[0].seq <= top {
		by = top
	}
	recent := map[uint64]Record{}
	s.pending = slices.DeleteFunc(s.pending, func(p pending) bool { return p.seq != 0 })
	for _, e := range waiting {
		r := s.recent[e.seq]
		e.seq += by
		id := strconv.FormatUint(e.seq, 10)
		if r.Run == r.ID {
			r.Run = id
		}
		r.Seq, r.ID = e.seq, id
		recent[e.seq] = r
		s.insert(e)
		if body, err := encode(r); err == nil {
			s.pending = append(s.pending, pending{e.seq, wrap(recordLine, body)})
		}
	}
	s.recent = recent
	s.next.Store(max(s.next.Load()+by, top+1))
}

// flush writes all lines that wait, behind the last good line, and syncs.
func (s *Store) flush() error {
	if err := s.ready(); err != nil {
		return err
	}
	if s.torn {
		if err := s.file.Truncate(s.end); err != nil {
			return err
		}
		s.torn = false
	}
	var all []byte
	if s.tail {
		all = append(all, '\n')
	}
	start := make([]int64, len(s.pending))
	for i, p := range s.pending {
		start[i] = s.end + int64(len(all))
		all = append(all, p.line...)
	}
	s.torn = true // whatever happens now may leave half a line
	if _, err := s.file.WriteAt(all, s.end); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	if err := s.name(); err != nil {
		return err
	}
	s.torn, s.tail = false, false
	s.end += int64(len(all))
	for i, p := range s.pending {
		if p.seq > 0 {
			s.insert(entry{p.seq, start[i], len(p.line)})
		}
	}
	s.pending = nil
	return nil
}

// name makes sure that the file is found by its name after a power cut.
func (s *Store) name() error {
	if !s.unnamed {
		return nil
	}
	if err := s.disk.sync(); err != nil {
		return err
	}
	s.unnamed = false
	return nil
}
