package results

import (
	"encoding/json"
	"errors"
	"io"
)

// shrink has the log rewritten when it has become too large. That takes seconds on a memory card, so it goes on beside
// the appends. A failure costs nothing but room: it is said and tried again later.
func (s *Store) shrink() {
	n := len(s.entries)
	if s.rewriting || n <= s.maxResults && s.end <= s.maxBytes || n < s.retry {
		return
	}
	s.rewriting, s.retry = true, 0
	s.work.Go(func() {
		err := s.rewrite()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rewriting = false
		if err != nil {
			s.retry = n + s.maxResults/50 + 1
			s.log.Warn("the result log is too large and could not be rewritten", "folder", s.where, "error", err)
			return
		}
		s.shrink() // for what came meanwhile
	})
}

// rewrite puts the newest results into a new file that takes the place of the old one. Lines are copied as they are, so
// what a later version wrote stays; what has become unreadable is left behind. Readers have the old file or the new.
func (s *Store) rewrite() error {
	if err := s.disk.remove(newFileName); err != nil {
		return err
	}
	f, err := s.disk.create(newFileName)
	if err != nil {
		return err
	}
	c := s.copyMost(f)
	if err := s.replace(c); err != nil {
		f.Close()
		return errors.Join(err, s.disk.remove(newFileName))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name()
}

// copyMost copies what is there, without the lock: the log only grows.
func (s *Store) copyMost(f diskFile) *copier {
	s.mu.Lock()
	c := &copier{to: f, from: s.file, until: s.end, unset: map[string]bool{}}
	keep := s.newest()
	s.mu.Unlock()
	c.copy(keep)
	c.sync()
	return c
}

// replace copies what came meanwhile and lets the new file take the place of the old.
func (s *Store) replace(c *copier) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != c.from {
		return errors.New("the log was replaced meanwhile")
	}
	var later []entry
	for _, e := range s.entries {
		if e.off >= c.until || e.off < 0 {
			later = append(later, e)
		}
	}
	c.copy(later)
	for boot := range c.unset {
		if k, known := s.moments[boot]; known {
			if body, err := json.Marshal(k); err == nil {
				c.write(wrap(clockLine, body))
			}
		}
	}
	c.sync()
	if c.err != nil {
		return c.err
	}
	if err := s.disk.rename(newFileName, FileName); err != nil {
		return err
	}
	// From here on the new file is the log, though a power cut may still bring the old one back.
	s.file.Close()
	s.file, s.entries, s.end, s.torn, s.tail, s.unnamed = c.to, nil, c.end, false, false, true
	for _, e := range c.entries {
		s.insert(e)
	}
	s.log.Info("result log rewritten", "folder", s.where, "results", len(s.entries), "unreadable", c.lost)
	return nil
}

// newest chooses what stays: nine tenths of what may be there.
func (s *Store) newest() []entry {
	first, bytes := len(s.entries), int64(0)
	for first > 0 && len(s.entries)-first < s.maxResults*9/10 {
		bytes += int64(s.entries[first-1].size)
		if bytes > s.maxBytes/10*9 {
			break
		}
		first--
	}
	return append([]entry(nil), s.entries[first:]...)
}

// copier copies lines into a new log.
type copier struct {
	to      diskFile
	from    diskFile
	until   int64           // of what was there when copying began
	entries []entry         // in the new log
	unset   map[string]bool // boots with results from before their clock was set
	lost    int
	end     int64
	buf     []byte
	err     error
}

// copy writes the lines of the entries. Those that wait for the disk go on waiting.
func (c *copier) copy(entries []entry) {
	for _, e := range entries {
		if e.off < 0 {
			c.entries = append(c.entries, e)
			continue
		}
		line, stamp, ok := readLine(c.from, e)
		if !ok {
			c.lost++
			continue
		}
		if stamp.Clock != Synced {
			c.unset[stamp.BootID] = true
		}
		if line[len(line)-1] != '\n' {
			line = append(line, '\n')
		}
		c.entries = append(c.entries, entry{e.seq, c.end + int64(len(c.buf)), len(line)})
		c.write(line)
	}
}

func (c *copier) write(b []byte) {
	c.buf = append(c.buf, b...)
	if len(c.buf) >= 1<<20 {
		c.flush()
	}
}

func (c *copier) flush() {
	if c.err == nil {
		_, c.err = c.to.WriteAt(c.buf, c.end)
	}
	c.end += int64(len(c.buf))
	c.buf = c.buf[:0]
}

func (c *copier) sync() {
	c.flush()
	if c.err == nil {
		c.err = c.to.Sync()
	}
}

// readLine reads a line from the disk and checks it again.
func readLine(f io.ReaderAt, e entry) (line []byte, s Stamp, ok bool) {
	line = make([]byte, e.size)
	if _, err := f.ReadAt(line, e.off); err != nil {
		return nil, s, false
	}
	kind, body, _ := unwrap(line)
	if kind != recordLine {
		return nil, s, false
	}
	s, err := stampOf(body)
	return line, s, err == nil
}
