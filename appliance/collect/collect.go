// Package collect packs what a doctor needs of a box in the field into one archive, and opens such an archive as a tree.
//
// The archive is a gzipped tar whose paths are those of the box ("sys/class/net/eth1/mtu"); links stay links. What the
// programs know beyond files (the kernel's answers to ethtool questions) is added as JSON below "linerate/". Nothing in it is
// secret: a PIN is masked, keys and passwords are in none of the files taken.
//
// Pack reads only regular files and links, at most MaxFile of each, and goes on where the kernel refuses one. Unpack trusts
// nothing: it is bounded in files and bytes and writes nothing outside its folder.
package collect

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Bounds of an archive.
const (
	MaxFile  = 1 << 20   // bytes of one file
	MaxBytes = 256 << 20 // of all files, unpacked
	MaxFiles = 100_000   // files, folders and links
)

// files that are taken whole, as patterns of path.Match.
var files = []string{
	"etc/os-release", "etc/wlanpi-model", "etc/wlanpi-release", "etc/wlanpi-state", "etc/hostname",
	"etc/linerate/*.toml", "etc/linerate/boards/*.toml", "boot/firmware/linerate.toml", "boot/linerate.toml",
	"boot/firmware/config.txt", "boot/config.txt", "boot/armbianEnv.txt",
	"proc/version", "proc/cmdline", "proc/cpuinfo", "proc/meminfo", "proc/stat", "proc/interrupts", "proc/softirqs",
	"proc/modules", "proc/uptime", "proc/loadavg", "proc/device-tree", "proc/net/dev", "proc/net/snmp", "proc/net/netstat",
	"proc/net/softnet_stat", "proc/sys/kernel/random/boot_id",
	"proc/sys/net/core/*", "proc/sys/net/ipv4/tcp_*", "proc/irq/*/*affinity_list",
	"sys/firmware/devicetree/base/model", "sys/firmware/devicetree/base/compatible",
	"sys/class/dmi/id/product_name", "sys/class/dmi/id/sys_vendor",
	"sys/devices/system/cpu/online", "sys/devices/system/cpu/cpu*/cpu_capacity",
	"sys/devices/system/cpu/cpufreq/policy*/*", "sys/class/thermal/*/type", "sys/class/thermal/*/temp",
	"sys/class/thermal/*/trip_point_*", "sys/class/thermal/*/cur_state", "sys/class/thermal/*/max_state",
	"sys/class/leds/*/trigger", "sys/class/leds/*/brightness", "sys/class/i2c-dev/*/name", "sys/class/input/*/device/name",
	"sys/module/pcie_aspm/parameters/policy", "sys/module/usbcore/parameters/autosuspend",
	"run/linerate/netcfg.json",
}

// Of each network interface everything in its folder and in these below it is taken.
var interfaceDirs = []string{"", "statistics", "power", "bridge", "brport", "bonding", "wireless", "queues/*"}

// Of its device, and of each device that one hangs on, these are.
var deviceFiles = []string{
	"uevent", "modalias", "driver", "subsystem", "vendor", "device", "class", "revision", "subsystem_vendor", "subsystem_device",
	"current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "link/*", "power/control",
	"power/autosuspend_delay_ms", "power/runtime_status", "irq", "msi_irqs/*",
	"idVendor", "idProduct", "bcdDevice", "version", "speed", "bMaxPower", "bConfigurationValue", "manufacturer", "product",
}

// secret finds what a config must not carry out of the house.
var secret = regexp.MustCompile(`(?m)^(\s*pin\s*=\s*).*$`)

// Pack writes the archive of the tree below root. more are further files, by their path in the archive.
func Pack(w io.Writer, root string, more map[string][]byte) error {
	z := gzip.NewWriter(w)
	p := packer{root: root, tar: tar.NewWriter(z), seen: map[string]bool{}}
	for _, pattern := range files {
		p.glob(pattern)
	}
	p.glob("sys/class/net/*") // links to the interfaces
	for _, device := range p.interfaces() {
		for _, dir := range interfaceDirs {
			p.glob(path.Join(device, dir, "*"))
		}
		for dir := path.Dir(path.Dir(device)); strings.HasPrefix(dir, "sys/devices/"); dir = path.Dir(dir) {
			for _, name := range deviceFiles {
				p.glob(path.Join(dir, name))
			}
		}
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range more {
			if !yield(name) {
				return
			}
		}
	}) {
		p.add(&tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}, more[name])
	}
	return errors.Join(p.err, p.tar.Close(), z.Close())
}

type packer struct {
	root string
	tar  *tar.Writer
	seen map[string]bool
	err  error // of the archive; what cannot be read of the box is left out
}

// interfaces lists where the links in sys/class/net lead, as paths below the root.
func (p *packer) interfaces() []string {
	var list []string
	names, _ := filepath.Glob(filepath.Join(p.root, "sys/class/net/*"))
	for _, name := range names {
		target, err := os.Readlink(name)
		if err != nil {
			continue
		}
		device := path.Join("sys/class/net", target)
		if strings.HasPrefix(device, "sys/devices/") && filepath.IsLocal(device) {
			list = append(list, device)
		}
	}
	return list
}

// glob takes what matches the pattern below the root.
func (p *packer) glob(pattern string) {
	names, _ := filepath.Glob(filepath.Join(p.root, pattern))
	for _, name := range names {
		rel, err := filepath.Rel(p.root, name)
		if err != nil || p.seen[rel] || len(p.seen) >= MaxFiles {
			continue
		}
		p.seen[rel] = true
		info, err := os.Lstat(name)
		switch {
		case err != nil:
		case info.Mode()&fs.ModeSymlink != 0:
			if target, err := os.Readlink(name); err == nil {
				p.add(&tar.Header{Name: rel, Linkname: target, Mode: 0o777, Typeflag: tar.TypeSymlink}, nil)
			}
		case info.Mode().IsRegular() && info.Mode().Perm()&0o444 != 0:
			if data, err := read(name); err == nil {
				if strings.HasSuffix(rel, ".toml") {
					data = secret.ReplaceAll(data, []byte(`${1}"masked"`))
				}
				p.add(&tar.Header{Name: rel, Mode: 0o644, Typeflag: tar.TypeReg}, data)
			}
		}
	}
}

// read never waits: a file that would block is left out.
func read(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFile))
}

func (p *packer) add(h *tar.Header, data []byte) {
	if p.err != nil {
		return
	}
	h.Size, h.ModTime, h.Format = int64(len(data)), time.Unix(0, 0), tar.FormatPAX
	if p.err = p.tar.WriteHeader(h); p.err == nil {
		_, p.err = p.tar.Write(data)
	}
}

// Unpack lays the archive out below dir, which must exist.
func Unpack(r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	z, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("no archive of `linerate collect`: %w", err)
	}
	t := tar.NewReader(z)
	total := int64(0)
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("archive is damaged: %w", err)
		}
		if n >= MaxFiles {
			return fmt.Errorf("archive has more than %d files: it is none of ours", MaxFiles)
		}
		if total += h.Size; h.Size > MaxFile || total > MaxBytes {
			return fmt.Errorf("archive is larger than ours can be: %s has %d bytes", h.Name, h.Size)
		}
		if err := lay(root, h, t); err != nil {
			return fmt.Errorf("archive: %w", err)
		}
	}
}

func lay(root *os.Root, h *tar.Header, from io.Reader) error {
	name := path.Clean(strings.TrimPrefix(h.Name, "./"))
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, 0o755)
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, from)
		return errors.Join(err, f.Close())
	}
	return fmt.Errorf("%s is neither file nor folder nor link", h.Name)
}
