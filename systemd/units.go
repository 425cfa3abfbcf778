package systemd

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

//go:embed all:files
var embedded embed.FS

// Files returns the files as they lie below the root of a system: usr/lib/systemd/system/linerate.service ... All are to
// be owned by root, with mode 0644.
func Files() fs.FS {
	tree, err := fs.Sub(embedded, "files")
	if err != nil {
		panic(err) // a wrong name above
	}
	return tree
}

// Link is a symbolic link below the root of a system.
type Link struct {
	Path   string // without a leading /
	Target string // absolute, as systemctl enable writes it
}

// Links returns the links that enable the units at boot.
func Links() []Link {
	var links []Link
	for _, name := range Paths() {
		if text := read(name); strings.Contains(text, "\nWantedBy=multi-user.target\n") {
			links = append(links, Link{"etc/systemd/system/multi-user.target.wants/" + path.Base(name), "/" + name})
		}
	}
	return links
}

// Paths returns the names of Files, sorted.
func Paths() []string {
	var names []string
	err := fs.WalkDir(Files(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		panic(err) // the tree is compiled in
	}
	slices.Sort(names)
	return names
}

func read(name string) string {
	data, err := fs.ReadFile(Files(), name)
	if err != nil {
		panic(err) // the tree is compiled in
	}
	return string(data)
}

// Print writes all files, each headed by its path.
func Print(w io.Writer) error {
	for i, name := range Paths() {
		gap := "\n"
		if i == 0 {
			gap = ""
		}
		if _, err := fmt.Fprintf(w, "%s# /%s\n%s", gap, name, read(name)); err != nil {
			return err
		}
	}
	return nil
}

// Install writes the files and the links that enable the units below dir ("/" is this system), and returns what it has
// written. Each file is replaced as a whole. Links on the way are followed inside dir only, so that a card's tree can
// never lead to this system's files.
func Install(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("install units: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("install units: %w", err)
	}
	defer root.Close()
	var done []string
	for _, name := range Paths() {
		if err := replace(root, name, func(temporary string) error {
			return writeFile(root, temporary, read(name))
		}); err != nil {
			return done, fmt.Errorf("install /%s in %s: %w", name, dir, err)
		}
		done = append(done, name)
	}
	for _, l := range Links() {
		if err := replace(root, l.Path, func(temporary string) error {
			return root.Symlink(l.Target, temporary)
		}); err != nil {
			return done, fmt.Errorf("enable /%s in %s: %w", l.Path, dir, err)
		}
		done = append(done, l.Path)
	}
	return done, nil
}

// replace makes a file beside the one named and puts it in its place.
func replace(root *os.Root, name string, create func(temporary string) error) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	temporary := path.Join(path.Dir(name), "."+path.Base(name)+".new")
	if err := root.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := create(temporary); err != nil {
		return err
	}
	return root.Rename(temporary, name)
}

func writeFile(root *os.Root, name, text string) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()) // whatever the umask
}
