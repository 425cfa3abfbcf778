package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// MaxFileSize of a file, in bytes.
const MaxFileSize = 64 << 10

// Paths says where the files are. The zero value is the running system without settings.
type Paths struct {
	Root     string // of the tree that holds /etc and /boot; "": /
	File     string // the main file, --config; "": /etc/linerate/linerate.toml below Root
	StateDir string // holds settings.toml; "": there are no settings
}

const (
	mainFile     = "/etc/linerate/linerate.toml"
	settingsName = "settings.toml"
)

// bootFiles are on the boot partition, where any PC can write them; the first that exists counts.
var bootFiles = []string{"/boot/firmware/linerate.toml", "/boot/linerate.toml"}

// MainFile returns the path of the main config file.
func (p Paths) MainFile() string {
	if p.File != "" {
		return p.File
	}
	return filepath.Join(p.root(), mainFile)
}

// SettingsFile returns the path of the settings, "" where there are none.
func (p Paths) SettingsFile() string {
	if p.StateDir == "" {
		return ""
	}
	return filepath.Join(p.StateDir, settingsName)
}

func (p Paths) root() string {
	if p.Root == "" {
		return "/"
	}
	return p.Root
}

// candidates are all files that may count, the lowest layer first.
func (p Paths) candidates() []string {
	list := []string{p.MainFile()}
	for _, name := range bootFiles {
		list = append(list, filepath.Join(p.root(), name))
	}
	if p.StateDir != "" {
		list = append(list, p.SettingsFile())
	}
	return list
}

var errNone = errors.New("does not exist")

// source is what was found of one layer.
type source struct {
	file     string
	settings bool
	data     []byte
	err      error
	hint     string // what a person may have meant instead of this file, which is absent
}

// read looks for every layer. What is absent is left out.
func read(p Paths) []source {
	var list []source
	add := func(s source) bool {
		if errors.Is(s.err, fs.ErrNotExist) {
			return false
		}
		list = append(list, s)
		return true
	}
	if p.File != "" {
		s := source{file: p.File}
		if s.data, s.err = readFile(s.file, true); errors.Is(s.err, fs.ErrNotExist) {
			s.err = errNone
		}
		list = append(list, s)
	} else {
		add(p.source(mainFile))
	}
	for _, name := range bootFiles {
		if add(p.source(name)) {
			break
		}
	}
	if len(list) == 0 || !isBoot(p, list[len(list)-1].file) {
		for _, name := range bootFiles {
			wrong := filepath.Join(p.root(), name+".txt")
			if _, err := os.Lstat(wrong); err == nil {
				list = append(list, source{hint: wrong + " is not read: rename it to " + filepath.Base(name)})
			}
		}
	}
	if file := p.SettingsFile(); file != "" {
		s := source{file: file, settings: true}
		s.data, s.err = readFile(file, false)
		add(s)
	}
	return list
}

func isBoot(p Paths, file string) bool {
	for _, name := range bootFiles {
		if file == filepath.Join(p.root(), name) {
			return true
		}
	}
	return false
}

// source reads a file below the root. Links are resolved inside it.
func (p Paths) source(name string) source {
	s := source{file: filepath.Join(p.root(), name)}
	path := s.file
	if p.root() != "/" {
		if path, s.err = inside(p.root(), name); s.err != nil {
			return s
		}
	}
	s.data, s.err = readFile(path, true)
	return s
}

// inside resolves a path as if root were /, so that a link in a tree from another box never leads out of the tree.
func inside(root, name string) (string, error) {
	const mostLinks = 40 // MAXSYMLINKS, include/linux/namei.h
	rest := strings.Split(filepath.ToSlash(filepath.Clean("/"+name)), "/")
	at := "/"
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		at = filepath.Join(at, part) // never above /
		target, err := os.Readlink(filepath.Join(root, at))
		if err != nil {
			continue // no link, or nothing there, which opening it will say
		}
		if links++; links > mostLinks {
			return "", fmt.Errorf("open %s: %w", name, syscall.ELOOP)
		}
		if filepath.IsAbs(target) {
			at = "/"
		} else {
			at = filepath.Dir(at)
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return filepath.Join(root, at), nil
}

// readFile reads a regular file of bounded size. Nothing else is ever waited for or read.
func readFile(path string, follow bool) ([]byte, error) {
	flags := os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY
	if !follow {
		flags |= syscall.O_NOFOLLOW
	}
	f, err := os.OpenFile(path, flags, 0)
	switch {
	case !follow && errors.Is(err, syscall.ELOOP):
		return nil, errors.New("is a link: want a regular file")
	case errors.Is(err, syscall.ENXIO):
		return nil, errors.New("is no regular file")
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", reason(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", reason(err))
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	if info.Size() > MaxFileSize {
		return nil, tooLarge(info.Size())
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", reason(err))
	}
	if len(data) > MaxFileSize {
		return nil, tooLarge(int64(len(data)))
	}
	return data, nil
}

func tooLarge(size int64) error {
	return fmt.Errorf("is %d bytes long: want at most %d", size, MaxFileSize)
}

// reason is the bare error of a PathError, whose path stands in the message already.
func reason(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
