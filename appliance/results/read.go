package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Read returns the newest n results of a log, newest first; all for n < 1. It needs no lock and changes nothing: a writer
// may append or rewrite meanwhile. Times are corrected as Store.Last does. A log that does not exist has no results.
func Read(path string, n int, clock Clock) ([]Record, Report, error) {
	f, err := openRegular(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Report{}, nil
	}
	if err != nil {
		return nil, Report{}, fmt.Errorf("read results: %w", err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, Report{}, fmt.Errorf("read results: %w", err)
	}
	known := moments{}
	bySeq := map[uint64]entry{}
	report, _, _, err := scan(f, size, func(l line) {
		if l.kind == clockLine {
			var k moment
			if json.Unmarshal(l.body, &k) == nil {
				known.learn(k)
			}
			return
		}
		stamp, err := stampOf(l.body)
		if err != nil {
			return
		}
		bySeq[stamp.Seq] = entry{stamp.Seq, l.off, l.size}
		if stamp.Clock == Synced {
			known.learn(moment{stamp.BootID, stamp.Time, stamp.UptimeS})
		}
	})
	report.Results = len(bySeq)
	order := make([]uint64, 0, len(bySeq))
	for seq := range bySeq {
		order = append(order, seq)
	}
	slices.Sort(order)
	slices.Reverse(order)
	known = known.with(clock)
	var out []Record
	for _, seq := range order {
		if n > 0 && len(out) == n {
			break
		}
		line := make([]byte, bySeq[seq].size)
		if _, err := f.ReadAt(line, bySeq[seq].off); err != nil {
			continue // cut off since: the writer mended its end
		}
		_, body, _ := unwrap(line)
		r, err := decode(body)
		if err != nil {
			continue
		}
		known.correct(&r.Stamp)
		out = append(out, r)
	}
	if err != nil {
		return out, report, fmt.Errorf("read results from %s: %w", path, err)
	}
	return out, report, nil
}
