package throughput

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tcpi_options of include/uapi/linux/tcp.h.
const tcpiTimestamps = 1

// readTCPInfo fills in the kernel's figures of a connection. A kernel older than a field leaves it zero. It makes no
// garbage: 128 streams are read ten times a second.
func readTCPInfo(raw syscall.RawConn, info *unix.TCPInfo) error {
	var errno syscall.Errno
	err := raw.Control(func(fd uintptr) {
		size := uint32(unsafe.Sizeof(*info))
		_, _, errno = syscall.RawSyscall6(unix.SYS_GETSOCKOPT, fd, unix.IPPROTO_TCP, unix.TCP_INFO,
			uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}
