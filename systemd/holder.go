package systemd

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Holder is the process that listens on a port.
type Holder struct {
	PID     int    // 0: /proc does not show it to this user
	Command string // as in /proc/PID/comm; "" with no PID
	UID     int    // owner of the socket
}

// String names the process as far as it is known: "iperf3 (pid 812)".
func (h Holder) String() string {
	if h.PID == 0 {
		return fmt.Sprintf("a process of uid %d (as root, ss -lntup shows which)", h.UID)
	}
	return fmt.Sprintf("%s (pid %d)", h.Command, h.PID)
}

// Bounds of the search: a box has some hundred processes, each with some hundred files at most.
const (
	maxSocketLines = 1 << 16
	maxProcesses   = 1 << 14
	maxFiles       = 1 << 12
)

// FindHolder finds out who listens on a port, "tcp" or "udp", on whatever address. proc is /proc. It returns false where no
// such socket is shown.
func FindHolder(proc, network string, port int) (Holder, bool) {
	for _, family := range []string{"", "6"} {
		f, err := os.Open(filepath.Join(proc, "net", network+family))
		if err != nil {
			continue
		}
		uid, inode, ok := findSocket(f, network, port)
		f.Close()
		if !ok {
			continue
		}
		h := Holder{UID: uid}
		h.PID, h.Command = findProcess(proc, inode)
		return h, true
	}
	return Holder{}, false
}

// States of /proc/net/tcp (include/net/tcp_states.h): TCP_LISTEN, and TCP_CLOSE, which is what an unconnected UDP socket has.
const (
	stateListen = "0A"
	stateClose  = "07"
)

// findSocket reads /proc/net/{tcp,udp}{,6}: sl local remote st queues timer retransmits uid timeout inode ...
func findSocket(r io.Reader, network string, port int) (uid int, inode string, ok bool) {
	state := stateListen
	if network == "udp" {
		state = stateClose
	}
	suffix := fmt.Sprintf(":%04X", port)
	lines := bufio.NewScanner(r)
	for n := 0; n < maxSocketLines && lines.Scan(); n++ {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || !strings.HasSuffix(f[1], suffix) || f[3] != state {
			continue
		}
		uid, err := strconv.Atoi(f[7])
		if _, number := strconv.ParseUint(f[9], 10, 64); err != nil || uid < 0 || number != nil {
			continue
		}
		return uid, f[9], true
	}
	return 0, "", false
}

// findProcess looks for the socket among the open files of the processes this user may look at.
func findProcess(proc, inode string) (pid int, command string) {
	want := "socket:[" + inode + "]"
	for _, name := range names(proc, maxProcesses) {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		files := filepath.Join(proc, name, "fd")
		for _, fd := range names(files, maxFiles) {
			if target, err := os.Readlink(filepath.Join(files, fd)); err != nil || target != want {
				continue
			}
			comm, err := os.ReadFile(filepath.Join(proc, name, "comm"))
			if err != nil {
				return pid, "a process"
			}
			return pid, strings.TrimSpace(string(comm))
		}
	}
	return 0, ""
}

// names of at most n entries of a folder.
func names(folder string, n int) []string {
	f, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	list, _ := f.Readdirnames(n) // what was read before an error is good
	return list
}
