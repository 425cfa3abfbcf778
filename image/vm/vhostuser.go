package vm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The back end of a vhost-user device (QEMU's docs/interop/vhost-user.rst): QEMU hands over the guest's memory and the
// addresses of one virtqueue (virtio 1.2, section 2.7, split rings); requests are then taken from it without QEMU.

// Messages of the front end that are obeyed; those it needs no more than an acknowledgement for are left out.
const (
	getFeatures         = 1
	setMemTable         = 5
	setVringNum         = 8
	setVringAddr        = 9
	setVringBase        = 10
	getVringBase        = 11
	setVringKick        = 12
	setVringCall        = 13
	getProtocolFeatures = 15
	getQueueNum         = 17
)

// Bits.
const (
	featureIndirect  = 1 << 28 // VIRTIO_F_INDIRECT_DESC
	featureProtocol  = 1 << 30 // VHOST_USER_F_PROTOCOL_FEATURES
	featureVersion1  = 1 << 32 // VIRTIO_F_VERSION_1
	protocolReplyAck = 1 << 3  // VHOST_USER_PROTOCOL_F_REPLY_ACK
	flagVersion      = 1
	flagReply        = 1 << 2
	flagNeedReply    = 1 << 3
	descriptorNext   = 1
	descriptorWrite  = 2
	descriptorTable  = 4
)

// Bounds on what a front end or a guest may say.
const (
	maxMessage = 4096
	maxRegions = 8
	maxQueue   = 1024
	maxChain   = 64
)

// request is one descriptor chain: what the guest wrote, and where it expects an answer. The slices are the guest's memory.
type request struct{ out, in [][]byte }

// vhost serves one device with one queue.
type vhost struct {
	features uint64
	handle   func(request) (written int) // called for one request at a time

	regions []region
	queue   virtqueue
}

// region is a piece of the guest's memory.
type region struct {
	guest, size, user uint64
	mem, whole        []byte // whole: as mapped
}

type virtqueue struct {
	size              int
	desc, avail, used uint64 // user addresses of the three parts
	next              uint16 // in the available ring
	kick, call        int    // eventfds; -1: none
	stop              func() // ends the poller; nil while none runs
}

// serve obeys one front end until it closes the connection.
func (v *vhost) serve(c *net.UnixConn) error {
	v.queue = virtqueue{kick: -1, call: -1}
	defer v.forget()
	for {
		m, err := readMessage(c)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer, err := v.obey(m)
		closeAll(m.files) // those that were kept are -1 by now
		if err != nil {
			return fmt.Errorf("vhost-user message %d: %w", m.request, err)
		}
		if answer == nil && m.flags&flagNeedReply != 0 {
			answer = make([]byte, 8)
		}
		if answer != nil {
			head := binary.LittleEndian.AppendUint32(nil, m.request)
			head = binary.LittleEndian.AppendUint32(head, flagVersion|flagReply)
			head = binary.LittleEndian.AppendUint32(head, uint32(len(answer)))
			if _, err := c.Write(append(head, answer...)); err != nil {
				return err
			}
		}
	}
}

type message struct {
	request, flags uint32
	body           []byte
	files          []int
}

// u64 reads the n-th number of 8 bytes; 0 beyond the end.
func (m message) u64(at int) uint64 {
	if at+8 > len(m.body) {
		return 0
	}
	return binary.LittleEndian.Uint64(m.body[at:])
}

func (m message) u32(at int) uint32 {
	if at+4 > len(m.body) {
		return 0
	}
	return binary.LittleEndian.Uint32(m.body[at:])
}

// take hands the first file over to the caller; -1 if there is none.
func (m message) take() int {
	if len(m.files) == 0 {
		return -1
	}
	fd := m.files[0]
	m.files[0] = -1
	return fd
}

func readMessage(c *net.UnixConn) (message, error) {
	head, oob := make([]byte, 12), make([]byte, unix.CmsgSpace(maxRegions*4))
	n, oobn, _, _, err := c.ReadMsgUnix(head, oob)
	if err != nil {
		return message{}, err
	}
	if n == 0 {
		return message{}, io.EOF
	}
	var m message
	if list, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
		for _, one := range list {
			files, err := unix.ParseUnixRights(&one)
			if err == nil {
				m.files = append(m.files, files...)
			}
		}
	}
	if _, err := io.ReadFull(c, head[n:]); err != nil {
		closeAll(m.files)
		return message{}, err
	}
	m.request, m.flags = binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	size := binary.LittleEndian.Uint32(head[8:])
	if size > maxMessage {
		closeAll(m.files)
		return message{}, fmt.Errorf("vhost-user message %d is %d bytes long, more than %d", m.request, size, maxMessage)
	}
	m.body = make([]byte, size)
	if _, err := io.ReadFull(c, m.body); err != nil {
		closeAll(m.files)
		return message{}, err
	}
	return m, nil
}

func closeAll(files []int) {
	for _, fd := range files {
		if fd >= 0 {
			_ = unix.Close(fd) // nothing was written
		}
	}
}

// obey carries a message out and returns the answer it asks for, nil if it asks for none.
func (v *vhost) obey(m message) ([]byte, error) {
	number := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	q := &v.queue
	switch m.request {
	case getFeatures:
		return number(v.features | featureIndirect | featureProtocol | featureVersion1), nil
	case getProtocolFeatures:
		return number(protocolReplyAck), nil
	case getQueueNum:
		return number(1), nil
	case setMemTable:
		return nil, v.takeMemory(m)
	case setVringNum:
		if n := m.u32(4); n == 0 || n > maxQueue || n&(n-1) != 0 {
			return nil, fmt.Errorf("a queue of %d", n)
		}
		q.size = int(m.u32(4))
	case setVringAddr:
		q.desc, q.used, q.avail = m.u64(8), m.u64(16), m.u64(24)
	case setVringBase:
		q.next = uint16(m.u32(4))
	case getVringBase: // also means stop
		v.halt()
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, m.u32(0)), uint32(q.next)), nil
	case setVringKick:
		v.halt()
		closeAll([]int{q.kick})
		q.kick = m.take()
		return nil, v.start()
	case setVringCall:
		running := q.stop != nil
		v.halt() // it writes to the old one
		closeAll([]int{q.call})
		q.call = m.take()
		if running {
			return nil, v.start()
		}
	}
	return nil, nil
}

// takeMemory takes over the guest's memory.
func (v *vhost) takeMemory(m message) error {
	v.halt()
	v.unmap()
	n := int(m.u32(0))
	if n > maxRegions || n != len(m.files) || 8+32*n > len(m.body) {
		return fmt.Errorf("%d regions with %d files in %d bytes", n, len(m.files), len(m.body))
	}
	for i := range n {
		at := 8 + 32*i
		r := region{guest: m.u64(at), size: m.u64(at + 8), user: m.u64(at + 16)}
		offset := m.u64(at + 24)
		if r.size == 0 || r.size > 1<<40 || offset > 1<<40 {
			return fmt.Errorf("a region of %d bytes at %d", r.size, offset)
		}
		mem, err := unix.Mmap(m.files[i], 0, int(offset+r.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("map the guest's memory: %w", err)
		}
		r.mem, r.whole = mem[offset:], mem
		v.regions = append(v.regions, r)
	}
	return nil
}

func (v *vhost) unmap() {
	for _, r := range v.regions {
		_ = unix.Munmap(r.whole) // mapped above
	}
	v.regions = nil
}

// forget lets all go that a front end has handed over.
func (v *vhost) forget() {
	v.halt()
	v.unmap()
	closeAll([]int{v.queue.kick, v.queue.call})
	v.queue.kick, v.queue.call = -1, -1
}

// at returns n bytes of the guest's memory by guest or user address; nil where there is no such memory.
func (v *vhost) at(address uint64, n int, user bool) []byte {
	for _, r := range v.regions {
		base := r.guest
		if user {
			base = r.user
		}
		if off := address - base; address >= base && off <= r.size && uint64(n) <= r.size-off {
			return r.mem[off : off+uint64(n)]
		}
	}
	return nil
}

// halt ends the poller and waits for it; the eventfd it slept on is closed.
func (v *vhost) halt() {
	if v.queue.stop != nil {
		v.queue.stop()
		v.queue.stop = nil
	}
}

// start polls the queue until halt. The kick's file description is QEMU's too, so it is polled and read but never made
// blocking or not.
func (v *vhost) start() error {
	q := &v.queue
	if q.kick < 0 {
		return nil
	}
	r := rings{
		desc:  v.at(q.desc, 16*q.size, true),
		avail: v.at(q.avail, 6+2*q.size, true),
		used:  v.at(q.used, 6+8*q.size, true),
	}
	if q.size == 0 || r.desc == nil || r.avail == nil || r.used == nil || q.avail%4 != 0 || q.used%4 != 0 {
		return fmt.Errorf("a queue of %d outside of the guest's memory", q.size)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	q.stop = func() {
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		<-done
		closeAll([]int{wake})
	}
	kick, call := q.kick, q.call
	go func() {
		defer close(done)
		for {
			v.drain(r, call)
			ready := []unix.PollFd{{Fd: int32(kick), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
			if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			if ready[1].Revents != 0 {
				return
			}
			if ready[0].Revents != 0 {
				var count [8]byte
				_, _ = unix.Read(kick, count[:]) // only to make it sleep again
			}
		}
	}()
	return nil
}

// rings are the parts of a split virtqueue.
type rings struct{ desc, avail, used []byte }

// drain answers all requests that are there.
func (v *vhost) drain(r rings, call int) {
	q := &v.queue
	for q.next != index(r.avail) {
		head := binary.LittleEndian.Uint16(r.avail[4+2*(int(q.next)%q.size):])
		q.next++
		written := 0
		if req, ok := v.chain(r.desc, head); ok {
			written = v.handle(req)
		}
		done := index(r.used)
		element := r.used[4+8*(int(done)%q.size):]
		binary.LittleEndian.PutUint32(element, uint32(head))
		binary.LittleEndian.PutUint32(element[4:], uint32(written))
		setIndex(r.used, done+1)
		if call >= 0 {
			_, _ = unix.Write(call, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // a full counter wakes the guest just as well
		}
	}
}

// chain gathers the buffers of one request. A chain that leads nowhere is refused.
func (v *vhost) chain(table []byte, i uint16) (request, bool) {
	var req request
	for range maxChain {
		if 16*int(i)+16 > len(table) {
			return req, false
		}
		d := table[16*int(i):]
		address, size := binary.LittleEndian.Uint64(d), binary.LittleEndian.Uint32(d[8:])
		flags, next := binary.LittleEndian.Uint16(d[12:]), binary.LittleEndian.Uint16(d[14:])
		buf := v.at(address, int(size), false)
		switch {
		case buf == nil:
			return req, false
		case flags&descriptorTable != 0:
			table, i = buf, 0
			continue
		case flags&descriptorWrite != 0:
			req.in = append(req.in, buf)
		default:
			req.out = append(req.out, buf)
		}
		if flags&descriptorNext == 0 {
			return req, true
		}
		i = next
	}
	return req, false
}

// index reads the running number of a ring, the upper half of its first word; what the guest wrote before it is seen
// after it.
func index(ring []byte) uint16 {
	return uint16(atomic.LoadUint32((*uint32)(unsafe.Pointer(&ring[0]))) >> 16)
}

// setIndex publishes what was written to the ring before. The flags beside the number stay 0: kick always.
func setIndex(ring []byte, n uint16) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&ring[0])), uint32(n)<<16)
}
