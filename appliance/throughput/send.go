package throughput

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	sendBytes = 1 << 20 // of one write
	// The kernel's queue of unsent bytes is kept short enough to stay in the processor's cache.
	notSentLowWater = 256 << 10
)

// randomPayload is what every sender sends: bytes that no compressing path can shrink. Shared, never written again.
var randomPayload = sync.OnceValue(func() []byte {
	p := make([]byte, sendBytes)
	chacha := rand.NewChaCha8([32]byte([]byte("linerate payload, nothing secret")))
	_, _ = chacha.Read(p)
	return p
})

// repeatingPayload is the ASCII digits that `--repeating-payload` asks for.
var repeatingPayload = sync.OnceValue(func() []byte {
	p := make([]byte, sendBytes)
	for i := range p {
		p[i] = '0' + byte(i%10)
	}
	return p
})

func (o StreamOptions) payload() []byte {
	if o.Repeating {
		return repeatingPayload()
	}
	return randomPayload()
}

// memoryFile holds the payload for sendfile; made once, kept for ever.
func memoryFile(p []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("linerate-payload", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a memory file for the payload: %w", err)
	}
	f := os.NewFile(uintptr(fd), "payload")
	if _, err := f.Write(p); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("fill the memory file for the payload: %w", err)
	}
	return f, nil
}

// spread lets the kernel lay out what the pacer lets go, and returns how much time's worth that should be: long, since it
// comes to no burst on the wire. Where a burst is asked for or the kernel refuses, it is the usual tick.
func (s *Stream) spread() time.Duration {
	tick := paceTick
	if s.opt.Burst > 0 {
		return tick
	}
	if s.opt.KernelPaced {
		return paceSpread
	}
	_ = s.raw.Control(func(fd uintptr) {
		if unix.SetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, uint64(s.opt.RateBPS/8*paceMargin)) == nil {
			tick = paceSpread
		}
	})
	return tick
}

func (s *Stream) send() error {
	data := s.opt.payload()
	size := sendBytes
	if s.opt.Block > 0 && s.opt.Block < DefaultBlock {
		size = s.opt.Block
	}
	write := func(fd uintptr, n int) (uintptr, syscall.Errno) {
		got, _, errno := syscall.Syscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(n),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		return got, errno
	}
	if s.opt.ZeroCopy {
		f, err := memoryFile(data)
		if err != nil {
			return err
		}
		defer f.Close()
		in := int(f.Fd())
		write = func(fd uintptr, n int) (uintptr, syscall.Errno) {
			var from int64
			got, err := unix.Sendfile(int(fd), in, &from, n)
			if err != nil {
				errno, _ := err.(syscall.Errno)
				return 0, errno
			}
			return uintptr(got), 0
		}
	}
	var pace *pacer
	if s.opt.RateBPS > 0 {
		block := s.opt.Block
		if block == 0 {
			block = DefaultBlock
		}
		pace = newPacer(s.opt.RateBPS, block, s.opt.Burst, s.spread(), size)
	} else if !s.opt.KernelPaced {
		_ = s.raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSentLowWater)
		})
	}

	var left int // of the piece that is being written
	var end error
	burst := 0
	push := func(fd uintptr) bool {
		for left > 0 && !s.stopped.Load() {
			n, errno := write(fd, min(left, size))
			switch errno {
			case 0:
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				return false
			default:
				end = errno
				return true
			}
			s.moved.Add(int64(n))
			left -= int(n)
			if burst += int(n); burst >= sendBytes {
				burst = 0
				runtime.Gosched() // with 128 such loops the sampler would else wait for a second
			}
		}
		return true
	}
	start := time.Now()
	for !s.stopped.Load() {
		piece := size
		if pace != nil {
			n, wait := pace.next(time.Since(start), s.moved.Load())
			if n == 0 {
				if !s.sleep(wait) {
					break
				}
				continue
			}
			piece = n
		}
		if left = s.opt.Budget.take(piece); left == 0 {
			return nil
		}
		s.due.Store(true)
		err := s.raw.Write(push)
		s.due.Store(false)
		s.opt.Budget.put(left)
		if err != nil {
			return err
		}
		if end != nil {
			return end
		}
	}
	return nil
}
