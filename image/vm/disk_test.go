package vm

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// newChance is a source of chance whose seed is printed, so that a failure can be had again.
func newChance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("note: seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// newDisk is a disk of some blocks, each full of its number.
func newDisk(t testing.TB, blocks int) *Disk {
	t.Helper()
	var content []byte
	for n := range blocks {
		content = append(content, bytes.Repeat([]byte{byte(n)}, block)...)
	}
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	d, err := OpenDisk(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// client speaks NBD as QEMU does.
type client struct {
	t    *testing.T
	conn net.Conn
	size uint64
}

func newClient(t *testing.T, d *Disk) *client {
	t.Helper()
	ours, theirs := net.Pipe()
	d.serving.Go(func() { _ = d.talk(theirs); theirs.Close() })
	c := &client{t: t, conn: ours}
	if err := ours.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	hello := c.read(18)
	if binary.BigEndian.Uint64(hello) != nbdMagic || binary.BigEndian.Uint16(hello[16:]) != nbdHandshake {
		t.Fatalf("hello is % x", hello)
	}
	c.write(uint32(nbdHandshake))
	c.write(uint64(nbdOption), uint32(8), uint32(0)) // structured replies: there are none
	if head := c.read(20); binary.BigEndian.Uint32(head[12:]) != repUnknown {
		t.Errorf("an unknown option is answered by % x", head)
	}
	c.write(uint64(nbdOption), uint32(optGo), uint32(6), uint32(0), uint16(0))
	info := c.read(20 + 12)
	c.size = binary.BigEndian.Uint64(info[22:])
	if ack := c.read(20); binary.BigEndian.Uint32(ack[12:]) != repAck {
		t.Errorf("no acknowledgement but % x", ack)
	}
	return c
}

func (c *client) write(values ...any) {
	c.t.Helper()
	var b bytes.Buffer
	for _, v := range values {
		if err := binary.Write(&b, binary.BigEndian, v); err != nil {
			c.t.Fatal(err)
		}
	}
	if _, err := c.conn.Write(b.Bytes()); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) read(n int) []byte {
	c.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(c.conn, b); err != nil {
		c.t.Fatal(err)
	}
	return b
}

// do sends a request and returns the error of its answer.
func (c *client) do(flags, command uint16, at uint64, n uint32, data []byte) uint32 {
	c.t.Helper()
	c.write(uint32(nbdRequest), flags, command, uint64(77), at, n, data)
	head := c.read(16)
	if binary.BigEndian.Uint32(head) != nbdReply || binary.BigEndian.Uint64(head[8:]) != 77 {
		c.t.Fatalf("answer % x", head)
	}
	return binary.BigEndian.Uint32(head[4:])
}

func (c *client) get(at uint64, n uint32) []byte {
	c.t.Helper()
	if e := c.do(0, cmdRead, at, n, nil); e != 0 {
		c.t.Fatalf("read at %d: error %d", at, e)
	}
	return c.read(int(n))
}

func TestDisk(t *testing.T) {
	d := newDisk(t, 8)
	c := newClient(t, d)
	if c.size != 8*block {
		t.Errorf("%d bytes", c.size)
	}
	text := func(s string) []byte { return bytes.Repeat([]byte(s), sector) }
	put := func(flags uint16, at uint64, s string) {
		t.Helper()
		if e := c.do(flags, cmdWrite, at, sector, text(s)); e != 0 {
			t.Fatalf("write: error %d", e)
		}
	}
	put(0, block-sector, "a") // the end of a block
	put(0, 2*block, "f")
	if e := c.do(0, cmdFlush, 0, 0, nil); e != 0 {
		t.Errorf("flush: error %d", e)
	}
	put(0, 2*block, "u")      // over what was flushed
	put(0, 3*block, "u")      // over the file
	put(nbdFUA, 4*block, "t") // written through
	if got := c.get(2*block-sector, 2*sector); got[0] != 1 || got[sector] != 'u' {
		t.Errorf("read back %q %q", got[0], got[sector])
	}
	for _, bad := range []struct {
		command uint16
		at      uint64
		n       uint32
		data    []byte
	}{{cmdRead, 8*block - 1, 2, nil}, {cmdRead, 1 << 63, 1, nil}, {cmdWrite, 8 * block, 1, []byte{1}}, {9, 0, 0, nil}} {
		if e := c.do(0, bad.command, bad.at, bad.n, bad.data); e != nbdInvalid {
			t.Errorf("%+v: error %d", bad, e)
		}
	}
	c.write(uint32(nbdRequest), uint16(0), uint16(cmdEnd), uint64(0), uint64(0), uint32(0))

	d.Cut(newChance(t), 0)
	c = newClient(t, d)
	for at, want := range map[uint64]byte{block - sector: 'a', 0: 0, 2 * block: 'f', 3 * block: 3, 4 * block: 't'} {
		if got := c.get(at, sector); got[0] != want || got[sector-1] != want {
			t.Errorf("after the cut %q at %d, not %q", got[0], at, want)
		}
	}
	if lost, _ := d.Lost(); lost == 0 {
		t.Error("nothing was lost")
	}
	_ = c.conn.Close()
}

// TestCutByChance: what is kept is kept by whole sectors, and not all of it shares one fate.
func TestCutByChance(t *testing.T) {
	d := newDisk(t, 64)
	d.writeAt(bytes.Repeat([]byte{0xee}, 64*block), 0, false)
	d.Cut(newChance(t), 0.5)
	now := make([]byte, 64*block)
	d.readAt(now, 0)
	kept := 0
	for s := 0; s < len(now); s += sector {
		old, fresh := byte(s/block), byte(0xee)
		if got := now[s]; got != old && got != fresh || bytes.Count(now[s:s+sector], []byte{now[s]}) != sector {
			t.Fatalf("sector %d is torn", s/sector)
		}
		if now[s] == fresh {
			kept++
		}
	}
	if kept < 100 || kept > 412 {
		t.Errorf("%d of 512 sectors are kept", kept)
	}
}

// FuzzDisk: whatever a client says, the disk ends or answers.
func FuzzDisk(f *testing.F) {
	say := func(values ...any) []byte {
		var b bytes.Buffer
		for _, v := range values {
			_ = binary.Write(&b, binary.BigEndian, v) // to memory, of numbers
		}
		return b.Bytes()
	}
	start := say(uint32(3), uint64(nbdOption), uint32(optGo), uint32(0))
	f.Add(append(bytes.Clone(start), say(uint32(nbdRequest), uint16(0), uint16(cmdRead), uint64(1), uint64(0), uint32(512))...))
	f.Add(append(bytes.Clone(start), say(uint32(nbdRequest), uint16(1), uint16(cmdWrite), uint64(1), uint64(4096), uint32(2), uint16(9))...))
	f.Add(append(bytes.Clone(start), say(uint32(nbdRequest), uint16(0), uint16(cmdFlush), uint64(1), uint64(1)<<63, uint32(1)<<31)...))
	f.Add(say(uint32(3), uint64(nbdOption), uint32(optAbort), uint32(1)<<31))
	d := newDisk(f, 2)
	f.Fuzz(func(t *testing.T, said []byte) {
		_ = d.talk(struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(said), io.Discard})
	})
}
