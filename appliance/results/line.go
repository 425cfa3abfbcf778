package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"regexp"
	"strconv"
)

// Kinds of lines.
const (
	recordLine = "record"
	clockLine  = "clock"
)

// head begins every line. It stands nowhere else in the file, since JSON escapes the quotes of texts, so reading goes on
// behind whatever is damaged.
const head = `{"crc32c":"`

// maxEnvelope is what a line has beside its body.
const maxEnvelope = len(head) + 8 + len(`","length":`) + 7 + len(`,"record":`) + len("}\n")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// wrap makes a line of a body.
func wrap(kind string, body []byte) []byte {
	line := fmt.Appendf(make([]byte, 0, len(body)+maxEnvelope), `%s%08x","length":%d,"%s":`,
		head, crc32.Checksum(body, castagnoli), len(body), kind)
	return append(append(line, body...), '}', '\n')
}

// unwrap reads the line at the beginning of b. size is that of the whole line, with its end if that is there; 0 where the
// line is damaged or b does not hold all of it.
func unwrap(b []byte) (kind string, body []byte, size int) {
	rest, ok := bytes.CutPrefix(b, []byte(head))
	if !ok || len(rest) < 8 {
		return "", nil, 0
	}
	sum, err := strconv.ParseUint(string(rest[:8]), 16, 32)
	rest, ok = bytes.CutPrefix(rest[8:], []byte(`","length":`))
	comma := bytes.IndexByte(rest[:min(len(rest), 8)], ',')
	if err != nil || !ok || comma < 1 {
		return "", nil, 0
	}
	length, err := strconv.ParseUint(string(rest[:comma]), 10, 31)
	if err != nil || length > maxRecordBytes {
		return "", nil, 0
	}
	rest = rest[comma+1:]
	for _, kind := range []string{recordLine, clockLine} {
		body, ok := bytes.CutPrefix(rest, []byte(`"`+kind+`":`))
		if !ok || len(body) <= int(length) || body[length] != '}' {
			continue
		}
		size = len(b) - len(body) + int(length) + 1
		body = body[:length:length]
		if uint64(crc32.Checksum(body, castagnoli)) != sum {
			return "", nil, 0
		}
		if size < len(b) && b[size] == '\n' {
			size++
		}
		return kind, body, size
	}
	return "", nil, 0
}

// Report says what was found in a log.
type Report struct {
	Results int   // good ones
	Damaged int   // places in the middle that were skipped
	Skipped int64 // bytes in those places
	Tail    int64 // bytes at the end that are no result: the last write did not finish
}

// String returns one line.
func (r Report) String() string {
	s := fmt.Sprintf("%d results", r.Results)
	if r.Damaged > 0 {
		s += fmt.Sprintf(", %d damaged places skipped (%d bytes)", r.Damaged, r.Skipped)
	}
	if r.Tail > 0 {
		s += fmt.Sprintf(", unfinished end (%d bytes)", r.Tail)
	}
	return s
}

// line of a log that is good. body is valid during the call only.
type line struct {
	kind string
	body []byte
	off  int64
	size int
}

var seqPattern = regexp.MustCompile(`"seq":([0-9]{1,18}),`)

// scan reads a log of size bytes and hands over each good line. end is behind the last of them. high is the highest seq
// that can still be read in what is damaged. The error is of the disk; what was read until then counts.
func scan(r io.ReaderAt, size int64, visit func(line)) (report Report, end int64, high uint64, err error) {
	const chunk = int64(2 * (maxRecordBytes + maxEnvelope))
	var (
		in    = io.NewSectionReader(r, 0, size)
		space = make([]byte, min(chunk, max(size, 0)+1)) // one more, to see the end
		buf   []byte
		at    int64 // of buf[0] in the file
		bad   int64 // bytes since the last good line
		eof   bool
	)
	skip := func(n int) {
		for _, m := range seqPattern.FindAllSubmatch(buf[:n], -1) {
			seq, _ := strconv.ParseUint(string(m[1]), 10, 64)
			high = max(high, seq)
		}
		bad += int64(n)
		at += int64(n)
		buf = buf[n:]
	}
	for {
		if !eof && len(buf) < maxRecordBytes+maxEnvelope {
			kept := copy(space, buf)
			n, e := io.ReadFull(in, space[kept:])
			buf = space[:kept+n]
			eof = e != nil
			if e != nil && e != io.EOF && !errors.Is(e, io.ErrUnexpectedEOF) {
				err = e
			}
		}
		if len(buf) == 0 {
			break
		}
		kind, body, n := unwrap(buf)
		if n == 0 {
			next := bytes.Index(buf[1:], []byte(head)) + 1
			switch {
			case next > 0:
				skip(next)
			case eof:
				skip(len(buf))
			default:
				skip(max(1, len(buf)-len(head)))
			}
			continue
		}
		if bad > 0 {
			report.Damaged++
			report.Skipped += bad
			bad = 0
		}
		visit(line{kind, body, at, n})
		at += int64(n)
		buf = buf[n:]
		end = at
	}
	report.Tail = bad
	return report, end, high, err
}

// stampOf reads only the beginning of a record, since a log of thousands is read at each start. No text can look like the
// key behind it: JSON escapes its quotes.
func stampOf(body []byte) (Stamp, error) {
	var s Stamp
	if i := bytes.Index(body, []byte(`,"engine":`)); i > 0 {
		body = append(body[:i:i], '}')
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return s, err
	}
	return s, s.check()
}
