package cpu

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// readFile reads a small file of /sys or /proc; of a longer one, the beginning.
func readFile(path string, most int64) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	return strings.TrimSpace(string(b)), err
}

// attribute reads a file of one line.
func attribute(path string) (string, error) { return readFile(path, 4096) }

// number reads a file that holds a whole number.
func number(path string) (int, bool) {
	s, err := attribute(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// entries returns the paths in a folder that begin with a prefix, as /sys names what it numbers.
func entries(dir, prefix string) []string {
	list, _ := os.ReadDir(dir)
	var out []string
	for _, e := range list {
		if strings.HasPrefix(e.Name(), prefix) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

// write writes a value and reads it back: some drivers take a value and keep another.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = f.WriteString(value + "\n")
		if e := f.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		return fmt.Errorf("write %s to %s: %w", value, path, explain(err))
	}
	got, err := attribute(path)
	if err != nil {
		return fmt.Errorf("read %s back: %w", path, explain(err))
	}
	if got != value {
		return fmt.Errorf("wrote %s to %s, but it says %s", value, path, got)
	}
	return nil
}

// explain says what an error of the kernel means here.
func explain(err error) error {
	hint := ""
	switch {
	case errors.Is(err, fs.ErrPermission):
		hint = "needs uid 0 or CAP_DAC_OVERRIDE"
	case errors.Is(err, syscall.EROFS):
		hint = "/sys is mounted read-only, as in a container"
	case errors.Is(err, syscall.EINVAL):
		hint = "the driver refuses this value"
	case errors.Is(err, fs.ErrNotExist):
		hint = "the driver has no such file"
	}
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w (%s)", err, hint)
}
