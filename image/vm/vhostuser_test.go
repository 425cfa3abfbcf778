package vm

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Where the driver's memory lies for the guest and for the front end, and what is where in it.
const (
	guestBase  = 0x4000_0000
	userBase   = 0x7f00_0000_0000
	memorySize = 64 << 10
	queueSize  = 4
	atDesc     = 0
	atAvail    = 0x1000
	atUsed     = 0x2000
	atTable    = 0x3000
	atBuffers  = 0x4000
)

// driver is a front end and a guest's driver at once.
type driver struct {
	t          *testing.T
	conn       *net.UnixConn
	mem        []byte
	memory     int // memfd
	kick, call int
	sent       uint16
}

// newDriver connects to the back end and starts its queue.
func newDriver(t *testing.T, path string) *driver {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, conn: c}
	if d.memory, err = unix.MemfdCreate("guest", unix.MFD_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(d.memory, memorySize); err != nil {
		t.Fatal(err)
	}
	if d.mem, err = unix.Mmap(d.memory, 0, memorySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	for _, fd := range []*int{&d.kick, &d.call} {
		if *fd, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_ = c.Close()
		_ = unix.Munmap(d.mem)
		closeAll([]int{d.memory, d.kick, d.call})
	})
	if got := binary.LittleEndian.Uint64(d.ask(getFeatures)); got != featureZeroLength|featureIndirect|featureProtocol|featureVersion1 {
		t.Errorf("features %#x", got)
	}
	d.tell(setMemTable, []int{d.memory}, 1, guestBase, memorySize, userBase, 0)
	d.tell(setVringNum, nil, queueSize<<32)
	d.tell(setVringAddr, nil, 0, userBase+atDesc, userBase+atUsed, userBase+atAvail, 0)
	d.tell(setVringBase, nil, 0)
	d.tell(setVringCall, []int{d.call}, 0)
	d.tell(setVringKick, []int{d.kick}, 0)
	return d
}

func (d *driver) send(request uint32, flags uint32, files []int, words ...uint64) {
	d.t.Helper()
	var body []byte
	for _, w := range words {
		body = binary.LittleEndian.AppendUint64(body, w)
	}
	head := binary.LittleEndian.AppendUint32(nil, request)
	head = binary.LittleEndian.AppendUint32(head, flagVersion|flags)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(body)))
	var oob []byte
	if files != nil {
		oob = unix.UnixRights(files...)
	}
	if _, _, err := d.conn.WriteMsgUnix(append(head, body...), oob, nil); err != nil {
		d.t.Fatal(err)
	}
}

// ask sends a message that is answered.
func (d *driver) ask(request uint32, words ...uint64) []byte {
	d.t.Helper()
	d.send(request, 0, nil, words...)
	return d.answer(request)
}

func (d *driver) answer(request uint32) []byte {
	d.t.Helper()
	if err := d.conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		d.t.Fatal(err)
	}
	head := make([]byte, 12)
	if _, err := io.ReadFull(d.conn, head); err != nil {
		d.t.Fatal(err)
	}
	if got := binary.LittleEndian.Uint32(head); got != request {
		d.t.Fatalf("an answer to message %d, not to %d", got, request)
	}
	body := make([]byte, binary.LittleEndian.Uint32(head[8:]))
	if _, err := io.ReadFull(d.conn, body); err != nil {
		d.t.Fatal(err)
	}
	return body
}

// tell sends a message and waits for its acknowledgement.
func (d *driver) tell(request uint32, files []int, words ...uint64) {
	d.t.Helper()
	d.send(request, flagNeedReply, files, words...)
	if got := binary.LittleEndian.Uint64(d.answer(request)); got != 0 {
		d.t.Fatalf("message %d is refused: %d", request, got)
	}
}

// buffer is one descriptor: data of the guest's, or room for n bytes of the device's.
type buffer struct {
	data []byte
	room int
}

// transfer hands a chain over and returns what the device wrote, buffer by buffer, and how many bytes it said that was.
func (d *driver) transfer(indirect bool, chain ...buffer) (in [][]byte, written uint32) {
	d.t.Helper()
	table := d.mem[atDesc:]
	if indirect {
		table = d.mem[atTable:]
		descriptor(d.mem[atDesc:], guestBase+atTable, uint32(16*len(chain)), descriptorTable, 0)
	}
	at := atBuffers
	for i, b := range chain {
		flags, n := uint16(0), len(b.data)
		copy(d.mem[at:], b.data)
		if b.room > 0 {
			flags, n = descriptorWrite, b.room
			in = append(in, d.mem[at:at+n])
		}
		if i+1 < len(chain) {
			flags |= descriptorNext
		}
		descriptor(table[16*i:], guestBase+uint64(at), uint32(n), flags, uint16(i+1))
		at += n
	}
	return in, d.offer(0)
}

func descriptor(to []byte, address uint64, n uint32, flags, next uint16) {
	binary.LittleEndian.PutUint64(to, address)
	binary.LittleEndian.PutUint32(to[8:], n)
	binary.LittleEndian.PutUint16(to[12:], flags)
	binary.LittleEndian.PutUint16(to[14:], next)
}

// offer puts a chain into the available ring, kicks, and waits until it is in the used ring.
func (d *driver) offer(head uint16) (written uint32) {
	d.t.Helper()
	binary.LittleEndian.PutUint16(d.mem[atAvail+4+2*int(d.sent%queueSize):], head)
	d.sent++
	setIndex(d.mem[atAvail:], d.sent)
	if _, err := unix.Write(d.kick, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		d.t.Fatal(err)
	}
	for index(d.mem[atUsed:]) != d.sent {
		ready := []unix.PollFd{{Fd: int32(d.call), Events: unix.POLLIN}}
		if n, err := unix.Poll(ready, 10_000); err != nil || n == 0 {
			d.t.Fatalf("the device does not answer (%v)", err)
		}
		var count [8]byte
		_, _ = unix.Read(d.call, count[:])
	}
	return binary.LittleEndian.Uint32(d.mem[atUsed+4+8*int((d.sent-1)%queueSize)+4:])
}

// notes is a device that keeps the messages and answers with its own.
type notes struct{ got [][]byte }

func (n *notes) Write(p []byte) (int, error) { n.got = append(n.got, p); return len(p), nil }

func (n *notes) Read(p []byte) (int, error) { return copy(p, "abcdefgh"), nil }

func head(address uint16, flags uint32) buffer {
	b := binary.LittleEndian.AppendUint16(nil, address<<1)
	return buffer{data: binary.LittleEndian.AppendUint32(append(b, 0, 0), flags)}
}

func TestI2CBehindVhostUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i2c")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	device, after := &notes{}, 0
	go serveI2C(l, device, panelAddress, func() { after++ }, slog.New(slog.DiscardHandler))
	d := newDriver(t, path)
	status := buffer{room: 1}

	for _, indirect := range []bool{false, true} {
		if in, n := d.transfer(indirect, head(panelAddress, 0), buffer{data: []byte{0x40, 1, 2}}, status); in[0][0] != i2cGood || n != 1 {
			t.Errorf("write, indirect %t: status %d, %d bytes written", indirect, in[0][0], n)
		}
		in, n := d.transfer(indirect, head(panelAddress, i2cRead), buffer{room: 3}, status)
		if string(in[0]) != "abc" || in[1][0] != i2cGood || n != 4 {
			t.Errorf("read, indirect %t: %q, status %d, %d bytes written", indirect, in[0], in[1][0], n)
		}
	}
	if want := []byte{0x40, 1, 2}; after != 2 || len(device.got) != 2 || !slices.Equal(device.got[1], want) {
		t.Errorf("the device got %x in %d messages", device.got, after)
	}
	if in, _ := d.transfer(false, head(0x3d, 0), buffer{data: []byte{0}}, status); in[0][0] != i2cError || len(device.got) != 2 {
		t.Errorf("nobody is at 0x3d, yet status %d", in[0][0])
	}

	// Chains that lead nowhere are given back, and do no harm to the next ones.
	descriptor(d.mem, guestBase+memorySize-4, 8, 0, 0) // beyond the memory
	if n := d.offer(0); n != 0 {
		t.Errorf("%d bytes written of a chain outside of the memory", n)
	}
	descriptor(d.mem, guestBase+atBuffers, 8, descriptorNext, 0) // a ring
	if n := d.offer(0); n != 0 {
		t.Errorf("%d bytes written of a chain without an end", n)
	}
	if n := d.offer(queueSize + 7); n != 0 { // no such descriptor
		t.Errorf("%d bytes written of a chain that is not there", n)
	}
	// Another call, as QEMU gives while the queue runs.
	d.tell(setVringCall, []int{d.call}, 0)
	if in, _ := d.transfer(false, head(panelAddress, 0), buffer{data: []byte{0, 0xaf}}, status); in[0][0] != i2cGood {
		t.Errorf("after all that: status %d", in[0][0])
	}

	// Stopped, and started again where it was.
	if got := binary.LittleEndian.Uint32(d.ask(getVringBase, 0)[4:]); got != uint32(d.sent) {
		t.Errorf("stopped at %d, not at %d", got, d.sent)
	}
	d.tell(setVringKick, []int{d.kick}, 0)
	if in, _ := d.transfer(false, head(panelAddress, 0), buffer{data: []byte{0, 0xae}}, status); in[0][0] != i2cGood {
		t.Errorf("started again: status %d", in[0][0])
	}
}

// pair is a connection.
func pair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

// FuzzVhostUser: whatever a front end says, the back end ends or answers.
func FuzzVhostUser(f *testing.F) {
	message := func(request uint32, words ...uint64) []byte {
		b := binary.LittleEndian.AppendUint32(nil, request)
		b = binary.LittleEndian.AppendUint32(b, flagVersion|flagNeedReply)
		b = binary.LittleEndian.AppendUint32(b, uint32(8*len(words)))
		for _, w := range words {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	f.Add(slices.Concat(message(getFeatures), message(setVringNum, queueSize<<32), message(getVringBase, 0)))
	f.Add(slices.Concat(message(setVringNum, 3<<32), message(setMemTable, 1, guestBase, memorySize, userBase, 0)))
	f.Add(slices.Concat(message(setVringAddr, 0, userBase, userBase, userBase), message(setVringKick, 0), message(99)))
	f.Fuzz(func(t *testing.T, stream []byte) {
		ours, theirs := pair(t)
		defer ours.Close()
		go func() {
			_, _ = ours.Write(stream)
			_ = ours.CloseWrite()
			_, _ = io.Copy(io.Discard, ours)
		}()
		v := &vhost{handle: func(request) int { return 0 }}
		if err := theirs.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_ = v.serve(theirs) // an error is an answer, too
		_ = theirs.Close()
	})
}

// FuzzChain: whatever a guest writes into its descriptors, the back end stays within the guest's memory.
func FuzzChain(f *testing.F) {
	one := make([]byte, 64)
	descriptor(one, guestBase+64, 16, descriptorTable, 0)
	descriptor(one[16:], guestBase, 8, descriptorNext|descriptorWrite, 2)
	f.Add(one, uint16(0))
	f.Add(one, uint16(1))
	f.Add([]byte{}, uint16(3))
	f.Fuzz(func(t *testing.T, memory []byte, head uint16) {
		v := &vhost{regions: []region{{guest: guestBase, size: uint64(len(memory)), user: userBase, mem: memory}}}
		table := memory[:min(len(memory), 16*queueSize)]
		req, ok := v.chain(table, head)
		total := 0
		for _, b := range slices.Concat(req.in, req.out) {
			total += len(b)
		}
		if len(req.in)+len(req.out) > maxChain || total > maxChain*len(memory) {
			t.Errorf("%d buffers of %d bytes (%t)", len(req.in)+len(req.out), total, ok)
		}
		if ok {
			i2cMessage(req, &notes{}, panelAddress, func() {})
		}
	})
}
