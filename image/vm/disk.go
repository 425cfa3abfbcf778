package vm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
)

// block is the unit in which a Disk remembers, sector the one that a power cut leaves whole.
const (
	block  = 4096
	sector = 512
)

// Disk is a disk with a volatile write cache, served to QEMU as a network block device. What the guest has not flushed when
// the power goes may be lost, each sector of it by itself: no order is kept between two flushes. Nothing is written
// to the file below it.
type Disk struct {
	log  *slog.Logger
	base io.ReaderAt
	size int64

	mu      sync.Mutex
	durable map[int64]*[block]byte // flushed
	cached  map[int64]*[block]byte // written since the last flush, by the number of the block
	lost    int                    // sectors, by all cuts
	flushes int
	serving sync.WaitGroup
}

// OpenDisk makes a disk of what a file holds.
func OpenDisk(base *os.File, log *slog.Logger) (*Disk, error) {
	info, err := base.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 || info.Size()%block != 0 {
		return nil, fmt.Errorf("disk %s: its size is not a multiple of %d", base.Name(), block)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Disk{log: log, base: base, size: info.Size(), durable: map[int64]*[block]byte{},
		cached: map[int64]*[block]byte{}}, nil
}

// Cut is the power cut: of each sector in the cache chance decides whether it is on the disk. It waits until nobody is
// connected any more. keep is the probability that a sector has made it.
func (d *Disk) Cut(chance *rand.Rand, keep float64) {
	d.serving.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, now := range d.cached {
		old := d.read(n, d.durable)
		for s := 0; s < block; s += sector {
			if chance.Float64() < keep {
				copy(old[s:s+sector], now[s:s+sector])
			} else {
				d.lost++
			}
		}
		d.durable[n] = old
	}
	clear(d.cached)
}

// Lost is how many sectors all cuts have lost, and Flushes how often the guest asked that nothing be.
func (d *Disk) Lost() (sectors, flushes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost, d.flushes
}

// read copies a block out of the first layer that has it.
func (d *Disk) read(n int64, layers ...map[int64]*[block]byte) *[block]byte {
	data := new([block]byte)
	for _, l := range layers {
		if b := l[n]; b != nil {
			*data = *b
			return data
		}
	}
	if _, err := d.base.ReadAt(data[:], n*block); err != nil {
		d.log.Error("the disk's file cannot be read", "error", err)
	}
	return data
}

// readAt and writeAt are given ranges within the disk.
func (d *Disk) readAt(p []byte, at int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(p) > 0 {
		n := copy(p, d.read(at/block, d.cached, d.durable)[at%block:])
		p, at = p[n:], at+int64(n)
	}
}

func (d *Disk) writeAt(p []byte, at int64, through bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(p) > 0 {
		number := at / block
		b := d.cached[number]
		if b == nil {
			b = d.read(number, d.durable)
			d.cached[number] = b
		}
		n := copy(b[at%block:], p)
		if through {
			d.durable[number] = b
			delete(d.cached, number)
		}
		p, at = p[n:], at+int64(n)
	}
}

func (d *Disk) flush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flushes++
	for n, b := range d.cached {
		d.durable[n] = b
	}
	clear(d.cached)
}

// The protocol: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md, fixed newstyle with simple replies.
const (
	nbdMagic       = 0x4e42444d41474943
	nbdOption      = 0x49484156454F5054
	nbdOptionReply = 0x3e889045565a9
	nbdRequest     = 0x25609513
	nbdReply       = 0x67446698

	nbdHandshake = 1 | 2        // fixed newstyle, no zeroes
	nbdExport    = 1 | 1<<2 | 8 // flags are meant, flush, force unit access
	nbdMax       = 32 << 20     // of one request
	nbdFUA       = 1            // flag of a write
	nbdInvalid   = 22           // EINVAL
	optExport    = 1
	optAbort     = 2
	optInfo      = 6
	optGo        = 7
	repAck       = 1
	repInfo      = 3
	repUnknown   = 1<<31 | 1
	cmdRead      = 0
	cmdWrite     = 1
	cmdEnd       = 2
	cmdFlush     = 3
)

// serve serves connections until the listener is closed.
func (d *Disk) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		d.serving.Go(func() {
			defer c.Close()
			if err := d.talk(c); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) &&
				!errors.Is(err, net.ErrClosed) {
				d.log.Debug("the disk's connection ended", "error", err)
			}
		})
	}
}

func (d *Disk) talk(c io.ReadWriter) error {
	if err := d.negotiate(c); err != nil {
		return err
	}
	head := make([]byte, 28)
	for {
		if _, err := io.ReadFull(c, head); err != nil {
			return err
		}
		if m := binary.BigEndian.Uint32(head); m != nbdRequest {
			return fmt.Errorf("no NBD request but %#x", m)
		}
		flags, what := binary.BigEndian.Uint16(head[4:]), binary.BigEndian.Uint16(head[6:])
		at, n := binary.BigEndian.Uint64(head[16:]), binary.BigEndian.Uint32(head[24:])
		if n > nbdMax {
			return fmt.Errorf("an NBD request of %d bytes", n)
		}
		inside := at <= uint64(d.size) && uint64(n) <= uint64(d.size)-at
		reply := binary.BigEndian.AppendUint64(nil, nbdReply<<32) // no error
		reply = append(reply, head[8:16]...)
		switch {
		case what == cmdEnd:
			return nil
		case what == cmdWrite:
			data := make([]byte, n)
			if _, err := io.ReadFull(c, data); err != nil {
				return err
			}
			if inside {
				d.writeAt(data, int64(at), flags&nbdFUA != 0)
			}
		case what == cmdRead && inside:
			data := make([]byte, n)
			d.readAt(data, int64(at))
			reply = append(reply, data...)
		case what == cmdFlush:
			d.flush()
			inside = true
		default:
			inside = false
		}
		if !inside {
			binary.BigEndian.PutUint32(reply[4:], nbdInvalid)
		}
		if _, err := c.Write(reply); err != nil {
			return err
		}
	}
}

// negotiate answers options until the client has chosen.
func (d *Disk) negotiate(c io.ReadWriter) error {
	hello := binary.BigEndian.AppendUint64(nil, nbdMagic)
	hello = binary.BigEndian.AppendUint64(hello, nbdOption)
	if _, err := c.Write(binary.BigEndian.AppendUint16(hello, nbdHandshake)); err != nil {
		return err
	}
	head := make([]byte, 16)
	if _, err := io.ReadFull(c, head[:4]); err != nil { // the client's flags: it can do what we can
		return err
	}
	export := binary.BigEndian.AppendUint64(nil, uint64(d.size))
	export = binary.BigEndian.AppendUint16(export, nbdExport)
	for {
		if _, err := io.ReadFull(c, head); err != nil {
			return err
		}
		option, n := binary.BigEndian.Uint32(head[8:]), binary.BigEndian.Uint32(head[12:])
		if binary.BigEndian.Uint64(head) != nbdOption || n > 4096 {
			return fmt.Errorf("no NBD option but % x", head)
		}
		if _, err := io.CopyN(io.Discard, c, int64(n)); err != nil { // the export's name: there is but one
			return err
		}
		answer := func(kind uint32, data []byte) error {
			b := binary.BigEndian.AppendUint64(nil, nbdOptionReply)
			for _, v := range []uint32{option, kind, uint32(len(data))} {
				b = binary.BigEndian.AppendUint32(b, v)
			}
			_, err := c.Write(append(b, data...))
			return err
		}
		var err error
		switch option {
		case optExport:
			_, err = c.Write(export)
			return err
		case optAbort:
			return errors.Join(answer(repAck, nil), io.EOF)
		case optInfo, optGo:
			if err = answer(repInfo, append([]byte{0, 0}, export...)); err == nil {
				err = answer(repAck, nil)
			}
			if err == nil && option == optGo {
				return nil
			}
		default:
			err = answer(repUnknown, nil)
		}
		if err != nil {
			return err
		}
	}
}
