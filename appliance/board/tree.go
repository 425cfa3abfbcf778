package board

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"
)

// Where things are, below the root.
const (
	boardsDir   = "etc/linerate/boards"
	modelFile   = "etc/wlanpi-model"
	netClass    = "sys/class/net"
	deviceTree  = "proc/device-tree"
	firmwareDT  = "sys/firmware/devicetree/base" // what proc/device-tree links to
	dmiProduct  = "sys/class/dmi/id/product_name"
	dmiVendor   = "sys/class/dmi/id/sys_vendor"
	devicesRoot = "sys/devices/"
)

// Bounds on what is read.
const (
	maxProfileBytes = 64 << 10
	maxProfiles     = 64   // files in boardsDir
	maxFactBytes    = 4096 // a property of the device tree, a line of /etc
	maxInterfaces   = 1024
	maxText         = 64 // characters of a name shown to a person
	maxLinks        = 40 // as the kernel's MAXSYMLINKS
)

// tree is a file system seen from one of its folders: links lead nowhere outside, so a tree copied from another box
// reads as it did there.
type tree string

// resolve follows all links and returns the path below the root, clean and without a leading slash. The file need
// exist.
func (t tree) resolve(name string) (string, error) {
	todo, done := strings.Split(name, "/"), ""
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if done = path.Dir(done); done == "." {
				done = ""
			}
			continue
		}
		next := path.Join(done, part)
		info, err := os.Lstat(filepath.Join(string(t), next))
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "open", Path: "/" + name, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(filepath.Join(string(t), next))
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			done = ""
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done, nil
}

// read returns the content of a regular file of at most limit bytes.
func (t tree) read(name string, limit int64) ([]byte, error) {
	rel, err := t.resolve(name)
	if err != nil {
		return nil, err
	}
	// O_NONBLOCK: a FIFO put there must not hold the box up.
	f, err := os.OpenFile(filepath.Join(string(t), rel), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("/%s is no regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("/%s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("/%s is larger than %d bytes", name, limit)
	}
	return data, nil
}

// facts is what a box says of itself.
type facts struct {
	wlanpi     string   // first line of /etc/wlanpi-model
	compatible []string // of the device tree's root, most specific first
	model      string   // of the device tree or of the firmware of a PC
}

// look reads the facts of a tree. What is not there is no error; what cannot be read is.
func (t tree) look() (facts, []error) {
	var f facts
	var errs []error
	get := func(names ...string) []byte {
		for _, name := range names {
			data, err := t.read(name, maxFactBytes)
			if err == nil {
				return data
			}
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
				errs = append(errs, fmt.Errorf("board: cannot read what the box says of itself: %w", err))
			}
		}
		return nil
	}
	f.wlanpi = parseModelLine(get(modelFile))
	f.compatible = parseCompatible(get(deviceTree+"/compatible", firmwareDT+"/compatible"))
	f.model = oneLine(get(deviceTree+"/model", firmwareDT+"/model"))
	if f.model == "" {
		vendor, product := oneLine(get(dmiVendor)), oneLine(get(dmiProduct))
		if !strings.HasPrefix(product, vendor) {
			product = strings.TrimSpace(vendor + " " + product)
		}
		f.model = clip(product)
	}
	return f, errs
}

// parseModelLine returns the first line of /etc/wlanpi-model, "" where it holds nothing that can be shown.
func parseModelLine(data []byte) string {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // byte order mark of an editor on a PC
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return oneLine(line)
}

// maxCompatible bounds the strings of one compatible property; real ones have two to five.
const maxCompatible = 32

// parseCompatible splits the compatible property of a device tree: strings that each end in NUL (Devicetree
// Specification 2.3.1). What is empty or not printable is left out.
func parseCompatible(data []byte) []string {
	var out []string
	for s := range strings.SplitSeq(string(data), "\x00") {
		if s = strings.TrimSpace(s); s != "" && printable(s) && len(out) < maxCompatible {
			out = append(out, s)
		}
	}
	return out
}

// oneLine makes a short printable line of what a file holds, up to its first NUL or line end.
func oneLine(data []byte) string {
	if i := bytes.IndexAny(data, "\x00\r\n"); i >= 0 {
		data = data[:i]
	}
	s := strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, string(data)))
	return clip(s)
}

// clip shortens a text to what fits into a message.
func clip(s string) string {
	if r := []rune(s); len(r) > maxText {
		return strings.TrimSpace(string(r[:maxText]))
	}
	return s
}

// printable says whether a text is one line that can be shown as it is.
func printable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return false
		}
	}
	return true
}

// DevicePaths returns the device path of each network interface below root that has a device: the real path of
// /sys/class/net/X/device, below /sys/devices and without a leading slash. Bridges, VLANs, veth and the like have
// none.
func DevicePaths(root string) (map[string]string, error) {
	t := tree(root)
	dir, err := t.resolve(netClass)
	if err != nil {
		return nil, fmt.Errorf("network interfaces: %w", err)
	}
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil, fmt.Errorf("network interfaces: %w", err)
	}
	if len(entries) > maxInterfaces {
		return nil, fmt.Errorf("network interfaces: /%s holds %d, more than %d", netClass, len(entries), maxInterfaces)
	}
	paths := map[string]string{}
	for _, e := range entries {
		device, err := t.resolve(netClass + "/" + e.Name() + "/device")
		if err != nil {
			continue // no device, or gone since
		}
		if below, ok := strings.CutPrefix(device, devicesRoot); ok {
			paths[e.Name()] = below
		}
	}
	return paths, nil
}
