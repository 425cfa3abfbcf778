package results

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// memDisk behaves as a disk does: content is there after Sync of the file, names after sync of the folder. Of what was not
// synced, a power cut keeps any sectors and any first names.
type memDisk struct {
	mu      sync.Mutex
	names   map[string]*memFile
	stored  map[string]*memFile
	changes []func(map[string]*memFile) // of names, not synced
	budget  int                         // steps until the power goes; < 0: never
	fault   func(op string) error       // of the disk
	ops     int
}

type memFile struct {
	d             *memDisk
	data, durable []byte
}

var errPower = errors.New("power is off")

func newMemDisk(data []byte) *memDisk {
	d := &memDisk{names: map[string]*memFile{}, stored: map[string]*memFile{}, budget: -1}
	if data != nil {
		f := &memFile{d, slices.Clone(data), slices.Clone(data)}
		d.names[FileName], d.stored[FileName] = f, f
	}
	return d
}

// step is called with the lock held.
func (d *memDisk) step(op string) error {
	d.ops++
	if d.budget == 0 {
		return errPower
	}
	if d.budget > 0 {
		d.budget--
	}
	if d.fault != nil {
		return d.fault(op)
	}
	return nil
}

func (d *memDisk) change(f func(map[string]*memFile)) {
	f(d.names)
	d.changes = append(d.changes, f)
}

func (d *memDisk) lock() (io.Closer, error) { return io.NopCloser(nil), nil }

func (d *memDisk) open(name string, writable bool) (diskFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	op := "open"
	if !writable {
		op = "look"
	}
	if err := d.step(op); err != nil {
		return nil, err
	}
	if f := d.names[name]; f != nil {
		return f, nil
	}
	return nil, fs.ErrNotExist
}

func (d *memDisk) create(name string) (diskFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step("create"); err != nil {
		return nil, err
	}
	if d.names[name] != nil {
		return nil, fs.ErrExist
	}
	f := &memFile{d: d}
	d.change(func(names map[string]*memFile) { names[name] = f })
	return f, nil
}

func (d *memDisk) rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step("rename"); err != nil {
		return err
	}
	f := d.names[from]
	d.change(func(names map[string]*memFile) { delete(names, from); names[to] = f })
	return nil
}

func (d *memDisk) remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step("remove"); err != nil {
		return err
	}
	d.change(func(names map[string]*memFile) { delete(names, name) })
	return nil
}

func (d *memDisk) sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step("syncdir"); err != nil {
		return err
	}
	for _, c := range d.changes {
		c(d.stored)
	}
	d.changes = nil
	return nil
}

func (d *memDisk) holds(name string, f diskFile) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.names[name] == f.(*memFile)
}

// crash returns what the next boot finds.
func (d *memDisk) crash(rnd *rand.Rand) *memDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.changes[:rnd.IntN(len(d.changes)+1)] {
		c(d.stored)
	}
	next := newMemDisk(nil)
	for name, f := range d.stored {
		const sector = 512
		size := len(f.durable)
		if rnd.IntN(2) == 0 {
			size = len(f.data)
		}
		data := make([]byte, size)
		copy(data, f.durable)
		for at := 0; at < size; at += sector {
			if end := min(at+sector, size, len(f.data)); rnd.IntN(2) == 0 && at < end {
				copy(data[at:end], f.data[at:end])
			}
		}
		g := &memFile{next, data, slices.Clone(data)}
		next.names[name], next.stored[name] = g, g
	}
	return next
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return bytes.NewReader(f.data).ReadAt(b, off)
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	err := f.d.step("write")
	if err != nil {
		b = b[:len(b)/2]
	}
	if grow := int(off) + len(b) - len(f.data); grow > 0 {
		f.data = append(slices.Clone(f.data), make([]byte, grow)...)
	} else {
		f.data = slices.Clone(f.data)
	}
	return copy(f.data[off:], b), err
}

func (f *memFile) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return int64(len(f.data)), nil
}

func (f *memFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.step("truncate"); err != nil {
		return err
	}
	f.data = slices.Clone(f.data[:size])
	return nil
}

func (f *memFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.step("sync"); err != nil {
		return err
	}
	f.durable = f.data
	return nil
}

func (f *memFile) Close() error { return nil }

// TestPowerCuts: power goes at any step of appends and rewrites, again and again. Nothing that was confirmed is lost but
// what a rewrite leaves out, and the log always opens.
func TestPowerCuts(t *testing.T) {
	const most = 10
	for round := range 400 {
		rnd := rand.New(rand.NewPCG(2, uint64(round)))
		d := newMemDisk(nil)
		confirmed := map[uint64]int64{}
		n := int64(0)
		for boot := range 4 {
			d.budget = 1 + rnd.IntN(60)
			b := &box{now: noon, boot: fmt.Sprint(boot), synced: rnd.IntN(2) == 0}
			s, err := open(d, "mem", b.clock(), nil)
			s.maxResults = most
			for err == nil {
				n++
				var r Record
				if r, err = s.Append(example(int(n))); err == nil {
					confirmed[r.Seq] = n
				}
				if rnd.IntN(2) == 0 {
					s.work.Wait()
				}
				b.synced = rnd.IntN(2) == 0
			}
			s.work.Wait()
			d = d.crash(rnd)
		}
		s, err := open(d, "mem", (&box{now: noon}).clock(), nil)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		got := map[uint64]int64{}
		for _, r := range s.Last(0) {
			got[r.Seq] = r.Bytes
		}
		for seq, want := range confirmed {
			newer := 0
			for k := range got {
				if k > seq {
					newer++
				}
			}
			if got[seq] != want && newer < most*9/10 {
				t.Fatalf("round %d: result %d is %d, want %d", round, seq, got[seq], want)
			}
		}
	}
}
