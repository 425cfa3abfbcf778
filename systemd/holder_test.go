package systemd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// As Linux 6.1 writes them: a listener on :5201, a connection to it, a UDP socket.
const (
	procTCP = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1451 0100007F:8EC2 01 00000000:00000000 00:00000000 00000000  1000        0 41414 1 0000000000000000 20 4 30 10 -1
`
	procTCP6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:1451 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 4242 1 0000000000000000 100 0 0 10 0
`
	procUDP = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 2204: 00000000:1451 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 777 2 0000000000000000 0
`
)

func TestFindHolder(t *testing.T) {
	proc := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("net/tcp", procTCP)
	write("net/tcp6", procTCP6)
	write("net/udp", procUDP)
	write("812/comm", "iperf3\n")
	write("self", "no process")
	if err := os.MkdirAll(filepath.Join(proc, "812/fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	for fd, target := range map[string]string{"0": "/dev/null", "3": "socket:[4242]"} {
		if err := os.Symlink(target, filepath.Join(proc, "812/fd", fd)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		network string
		port    int
		want    string
	}{
		{"tcp", 5201, "iperf3 (pid 812)"}, // the connection in net/tcp is none that listens
		{"udp", 5201, "a process of uid 0 (as root, ss -lntup shows which)"},
		{"tcp", 5202, ""},
		{"sctp", 5201, ""},
	} {
		h, ok := FindHolder(proc, tt.network, tt.port)
		if got := h.String(); ok != (tt.want != "") || ok && got != tt.want {
			t.Errorf("%s port %d: %q, %v, want %q", tt.network, tt.port, got, ok, tt.want)
		}
	}
	if err := os.Remove(filepath.Join(proc, "812/comm")); err != nil { // it ends while it is looked at
		t.Fatal(err)
	}
	if h, ok := FindHolder(proc, "tcp", 5201); !ok || h.String() != "a process (pid 812)" {
		t.Errorf("%v, %v", h, ok)
	}
}

func FuzzFindSocket(f *testing.F) {
	for _, table := range []string{procTCP, procTCP6, procUDP} {
		f.Add([]byte(table), "tcp", 5201)
		f.Add([]byte(table), "udp", 5201)
	}
	f.Fuzz(func(t *testing.T, table []byte, network string, port int) {
		uid, inode, ok := findSocket(bytes.NewReader(table), network, port)
		if ok && (uid < 0 || inode == "" || strings.Trim(inode, "0123456789") != "") {
			t.Errorf("uid %d, inode %q", uid, inode)
		}
		if ok && !bytes.Contains(table, []byte(inode)) {
			t.Errorf("inode %q is not in the table", inode)
		}
	})
}
