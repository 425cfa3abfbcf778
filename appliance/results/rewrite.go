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
		}
	})
}

// rewrite puts the newest results into a new file that takes the place of the old one. Lines are copied as they are, so
// what a later version wrote stays; what has become unreadable is left behind. Readers have the old file or the new.
func (s *Store) rewrite() (err error) {
	if err := s.disk.remove(newFileName); err != nil {
		return err
	}
	f, err := s.disk.create(newFileName)
	if err != nil {
		return err
	}
	taken := false
	defer func() {
		if err != nil && !taken {
			f.Close()
			err = errors.Join(err, s.disk.remove(newFileName))
		}
	}()

	s.mu.Lock()
	c := &copier{to: f, from: s.file, done: map[string]bool{}}
	keep, end, known := s.newest(), s.end, s.moments.with(s.clock)
	s.mu.Unlock()
	c.copy(keep, known)
	if err := c.sync(); err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != c.from {
		return errors.New("the log was replaced meanwhile")
	}
	var later []entry // written meanwhile, or waiting
	for _, e := range s.entries {
		if e.off >= end || e.off < 0 {
			later = append(later, e)
		}
	}
	c.copy(later, s.moments)
	if err := c.sync(); err != nil {
		return err
	}
	if err := s.disk.rename(newFileName, FileName); err != nil {
		return err
	}
	// From here on the new file is the log, though a power cut may still bring the old one back.
	s.file.Close()
	s.file, s.entries, s.end, s.torn, s.tail = f, nil, c.end, false, false
	for _, e := range c.entries {
		s.insert(e)
	}
	s.log.Info("result log rewritten", "folder", s.where, "results", len(s.entries), "unreadable", c.lost)
	taken, s.unnamed = true, true
	return s.name()
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
	entries []entry // in the new log
	done    map[string]bool
	lost    int
	end     int64
	buf     []byte
	err     error
}

// copy writes the lines of the entries, and before the first result of a boot whose clock was not set the moment by which
// it is corrected.
func (c *copier) copy(entries []entry, known moments) {
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
		if k, ok := known[stamp.BootID]; ok && stamp.Clock != Synced && !c.done[stamp.BootID] {
			c.done[stamp.BootID] = true
			if body, err := json.Marshal(k); err == nil {
				c.write(wrap(clockLine, body))
			}
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

func (c *copier) sync() error {
	c.flush()
	if c.err != nil {
		return c.err
	}
	return c.to.Sync()
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
