package web

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Group whose members may change things beside root and the server's own user.
const Group = "linerate"

type accessKey struct{}

// access of one connection.
type access struct {
	local  bool // from the unix socket
	change bool // may start tests, press keys, change settings
}

// withAccess remembers with each connection what its peer may do: every local user may read; changes need uid 0, the
// server's own uid, or the group.
func withAccess(ctx context.Context, c net.Conn) context.Context {
	a := access{}
	if u, ok := c.(*net.UnixConn); ok {
		a.local = true
		a.change = mayChange(u)
	}
	return context.WithValue(ctx, accessKey{}, a)
}

func accessOf(r *http.Request) access {
	a, _ := r.Context().Value(accessKey{}).(access)
	return a
}

func mayChange(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	allowed := false
	_ = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return
		}
		if cred.Uid == 0 || int(cred.Uid) == os.Geteuid() {
			allowed = true
			return
		}
		gid, ok := groupID()
		allowed = ok && (cred.Gid == gid || slices.Contains(peerGroups(int(fd)), gid))
	})
	return allowed
}

func groupID() (uint32, bool) {
	g, err := user.LookupGroup(Group)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(g.Gid, 10, 32)
	return uint32(n), err == nil
}

// peerGroups reads the supplementary groups of the socket's peer (SO_PEERGROUPS of include/uapi/asm-generic/socket.h).
func peerGroups(fd int) []uint32 {
	groups := make([]uint32, 1024)
	size := uint32(len(groups) * 4)
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil
	}
	return groups[:size/4]
}
