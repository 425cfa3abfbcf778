package config

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// WriteFile replaces a file as a whole: whoever reads it, also after a power cut, sees the old content or the new. It is
// on the disk when WriteFile returns without an error. After an error the old file is there still, or the new one where
// only the sync of the folder failed. A link by that name is replaced, not followed. One writer at a time for each path.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	return writeFile(osDisk{}, path, data, mode)
}

// disk is what a replacement needs of the file system, so that a test can lose power at any step.
type disk interface {
	create(path string, mode fs.FileMode) (file, error) // the path must be free
	rename(from, to string) error
	remove(path string) error
	syncDir(path string) error
}

type file interface {
	io.WriteCloser
	Sync() error
}

func writeFile(d disk, path string, data []byte, mode fs.FileMode) (err error) {
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	temporary := filepath.Join(dir, "."+base+".new") // always the same, so that power cuts leave at most one
	_ = d.remove(temporary)
	f, err := d.create(temporary, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, reason(err))
	}
	defer func() {
		if err != nil {
			_ = d.remove(temporary)
			err = fmt.Errorf("write %s: %w", path, reason(err))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = d.rename(temporary, path)
	}
	if err == nil {
		err = d.syncDir(dir)
	}
	return err
}

type osDisk struct{}

func (osDisk) create(path string, mode fs.FileMode) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, mode)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(mode); err != nil { // whatever the umask
		f.Close()
		return nil, err
	}
	return f, nil
}

func (osDisk) rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err.(*os.LinkError).Err
	}
	return nil
}

func (osDisk) remove(path string) error { return os.Remove(path) }

func (osDisk) syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
