package results

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// disk is what the log needs of the file system, so that a test can lose power at any step.
type disk interface {
	lock() (io.Closer, error) // the one writer
	open(name string, writable bool) (diskFile, error)
	create(name string) (diskFile, error) // the name must be free
	rename(from, to string) error
	remove(name string) error
	sync() error                        // of the folder: names are on the disk
	holds(name string, f diskFile) bool // the name still leads to f
}

type diskFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	Sync() error
}

// errLocked says that another process writes.
var errLocked = errors.New("another linerate writes there")

// folder is the disk proper: a folder and the names in it.
type folder string

func (d folder) path(name string) string { return filepath.Join(string(d), name) }

func (d folder) lock() (io.Closer, error) {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(string(d))
	if err != nil {
		return nil, err
	}
	// The kernel gives it up when the process ends, however it ends.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", d, err)
	}
	return f, nil
}

func (d folder) open(name string, writable bool) (diskFile, error) {
	if writable {
		return openRegular(d.path(name), os.O_RDWR)
	}
	return openRegular(d.path(name), os.O_RDONLY)
}

// openRegular never waits: a pipe by the log's name is an error.
func openRegular(path string, flags int) (diskFile, error) {
	f, err := os.OpenFile(path, flags|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return osFile{f}, nil
}

func (d folder) create(name string) (diskFile, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (d folder) rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }

func (d folder) remove(name string) error {
	err := os.Remove(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (d folder) holds(name string, f diskFile) bool {
	there, err := os.Stat(d.path(name))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	here, err := f.(osFile).Stat()
	return err != nil || os.SameFile(there, here)
}

func (d folder) sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
