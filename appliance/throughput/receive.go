package throughput

import (
	"io"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	receiveBytes = 1 << 20   // of one recv
	copyBytes    = 128 << 10 // of one recv that copies: room that stays in the processor's cache

	// What a paced gigabit costs the receiver is its wake-ups, not the copying. So the kernel is asked to let it sleep until
	// about lowWaterTime's worth of payload is there, unless the rate is so low that nobody would feel the difference.
	lowWaterTime  = 2 * time.Millisecond
	lowWaterFloor = 100e6 // bit/s
	lowWaterMax   = 512 << 10
	// Beyond this the processors are busy anyway, and what counts is that all that is in flight stays in their caches.
	lowWaterFast   = 5e9 // bit/s of all flows
	lowWaterMin    = 128 << 10
	lowWaterCopies = 2 // where the payload is copied as well, there is more to be won back
)

// lowWater is the SO_RCVLOWAT for a stream that receives bps, one of flows that do.
func lowWater(bps float64, flows int, copies bool) int {
	if bps < lowWaterFloor {
		return 1
	}
	flows = max(1, flows)
	most := lowWaterMax
	if bps*float64(flows) > lowWaterFast {
		most = max(lowWaterMin, lowWaterMax/max(2, flows))
	} else if copies {
		most *= lowWaterCopies
	}
	return min(most, int(bps/8*lowWaterTime.Seconds()*float64(flows)))
}

// Adapt sets how much must have arrived before the kernel wakes the receiver. The sampler calls it, not the loop: the
// loop may be asleep for bytes that do not come any more.
func (s *Stream) Adapt(bps float64, flows int) {
	if s.dir != RX || s.opt.MaxBPS > 0 || s.opt.Window > 0 && s.opt.Window < 4*lowWaterMax {
		return
	}
	want := lowWater(bps, flows, s.opt.Copy)
	// Small moves are not worth a call; the way down to 1 always is.
	if want == s.lowWater || want > 1 && s.lowWater > 1 && want*4 < s.lowWater*5 && want*5 > s.lowWater*4 {
		return
	}
	if s.setLowWater(want) == nil {
		s.lowWater = want
	}
}

func (s *Stream) setLowWater(n int) error {
	var err error
	if e := s.raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n)
	}); e != nil {
		return e
	}
	return err
}

// Drain lets the receiver take each byte as it comes. To be called when the sender is known to have stopped.
func (s *Stream) Drain() {
	if s.dir == RX {
		_ = s.setLowWater(1)
		s.lowWater = 1
	}
}

func (s *Stream) receive() error {
	flags := uintptr(unix.MSG_DONTWAIT | unix.MSG_TRUNC)
	var at unsafe.Pointer // MSG_TRUNC on TCP drops the payload in the kernel, so it needs no room
	size := receiveBytes
	if s.opt.Copy {
		flags, size = unix.MSG_DONTWAIT, copyBytes
		at = unsafe.Pointer(unsafe.SliceData(make([]byte, size)))
	}
	var limit *pacer
	if s.opt.MaxBPS > 0 {
		limit = newPacer(s.opt.MaxBPS, DefaultBlock, 0, paceTick, size)
		size = limit.piece
	}
	start := time.Now()
	var end error
	burst := 0
	once := func(fd uintptr) bool {
		for {
			n, _, errno := syscall.Syscall6(unix.SYS_RECVFROM, fd, uintptr(at), uintptr(size), flags, 0, 0)
			switch errno {
			case 0:
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				return s.stopped.Load()
			default:
				end = errno
				return true
			}
			if n == 0 {
				end = io.EOF
				return true
			}
			s.moved.Add(int64(n))
			if s.stopped.Load() || limit != nil {
				return true
			}
			if burst += int(n); burst >= receiveBytes {
				burst = 0
				runtime.Gosched() // with 128 such loops the sampler would else wait for a second
			}
		}
	}
	for {
		if err := s.raw.Read(once); err != nil {
			return err
		}
		if end != nil || s.stopped.Load() {
			return end
		}
		if limit == nil {
			continue
		}
		if _, wait := limit.next(time.Since(start), s.moved.Load()); wait > 0 && !s.sleep(wait) {
			return nil
		}
	}
}

// sleep returns false when the stream was stopped meanwhile.
func (s *Stream) sleep(d time.Duration) bool {
	if d < paceTick {
		d = paceTick
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.stop:
		return false
	case <-t.C:
		return true
	}
}
