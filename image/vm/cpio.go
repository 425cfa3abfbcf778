package vm

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
)

// ramdisk writes an initramfs: a cpio archive of the "newc" format (kernel: Documentation/driver-api/early-userspace/
// buffer-format.rst), compressed.
type ramdisk struct {
	gz    *gzip.Writer
	inode int
	err   error
}

func newRamdisk(w io.Writer) *ramdisk {
	gz, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	return &ramdisk{gz: gz, err: err}
}

// Modes of entries, of stat(2).
const (
	typeFolder = 0o040755
	typeFile   = 0o100644
	typeRun    = 0o100755
)

func (r *ramdisk) entry(name string, mode int, data []byte) {
	r.inode++
	head := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", r.inode, mode, 0, 0, 1, 0, len(data),
		0, 0, 0, 0, len(name)+1, 0)
	r.write(pad([]byte(head + name + "\x00")))
	r.write(pad(data))
}

// pad fills up to a multiple of four. The head with its name is padded as one, as the format has it.
func pad(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func (r *ramdisk) write(b []byte) {
	if r.err == nil {
		_, r.err = r.gz.Write(b)
	}
}

func (r *ramdisk) folder(names ...string) {
	for _, name := range names {
		r.entry(name, typeFolder, nil)
	}
}

// copy takes a file of this machine's.
func (r *ramdisk) copy(name, from string, mode int) {
	data, err := os.ReadFile(from)
	if err != nil && r.err == nil {
		r.err = err
	}
	r.entry(name, mode, data)
}

func (r *ramdisk) close() error {
	r.entry("TRAILER!!!", 0, nil)
	if r.err != nil {
		return r.err
	}
	return r.gz.Close()
}
