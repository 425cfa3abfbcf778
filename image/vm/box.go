package vm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"linerate/systemd"
)

// Options of a box.
type Options struct {
	Binary  string            // linerate for linux/arm64
	Files   map[string]string // of the root file system, path without a leading slash to text, over what is there
	Forward map[string]int    // port of 127.0.0.1 that leads to throughput server 5201, by the role of the box's port; 0: none
	Log     *slog.Logger      // nil: discard

	Lifetime time.Duration // of a machine at most; 0: the constant of that name
}

// Box is a virtual NanoPi R5S with its disk. What is on the disk outlives a Machine; the Box does not outlive the process.
type Box struct {
	Kernel *Kernel
	Disk   *Disk

	opts          Options
	dir           string // of files of this box
	ramdisk, tree string
	image         *os.File
}

// Close removes the box. Its machines must have ended.
func (b *Box) Close() error {
	var err error
	if b.image != nil {
		err = b.image.Close()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// Cache is the folder that keeps what was fetched and built: LINERATE_VM_CACHE, else one of the user's.
func Cache() (string, error) {
	if dir := os.Getenv("LINERATE_VM_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w: say with LINERATE_VM_CACHE where kernel and packages may be kept", err)
	}
	return filepath.Join(dir, "linerate-vm"), nil
}

// packages of the box's root file system. usr-is-merged keeps out a package that would move files.
var packages = []string{"base-files", "base-passwd", "bash", "coreutils", "dash", "dbus", "ethtool", "findutils", "grep",
	"iproute2", "kmod", "libpam-modules", "mount", "procps", "sed", "systemd", "systemd-sysv", "udev", "usr-is-merged",
	"util-linux"}

// boxModules are the modules in the box's root file system; udev loads those it has devices for.
var boxModules = append([]string{"virtio_net", "virtio_input", "virtio-rng", "i2c-virtio", "i2c-dev", "evdev", "gpio-sim",
	"leds-gpio", "ledtrig-netdev", "cpufreq-dt", "cpufreq_powersave", "cpufreq_ondemand", "bridge", "8021q", "macvlan",
	"autofs4", "configfs", "dummy", "veth"}, bootModules...)

// Prepare makes a box. Only the first time for a version of the kernel, or of a package, does it fetch and build.
func Prepare(ctx context.Context, opts Options) (*Box, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if os.Getuid() != 0 {
		return nil, errors.New("the box's files belong to several users: run it as root")
	}
	cache, err := Cache()
	if err != nil {
		return nil, err
	}
	a, err := openArchive(ctx, filepath.Join(cache, "apt"))
	if err != nil {
		return nil, err
	}
	k, err := findKernel(ctx, a, cache)
	if err != nil {
		return nil, err
	}
	for module, why := range k.Missing {
		if module == "i2c-virtio" {
			return nil, fmt.Errorf("no panel without the module %s: %s", module, why)
		}
		opts.Log.Warn("the kernel lacks a module", "module", module, "why", why)
	}
	base, err := findBase(ctx, a, cache, k)
	if err != nil {
		return nil, err
	}
	b := &Box{Kernel: k, opts: opts}
	if b.dir, err = os.MkdirTemp(cache, "box-"); err != nil {
		return nil, err
	}
	if err := b.make(ctx, base); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// make makes the box's files in its folder.
func (b *Box) make(ctx context.Context, base string) (err error) {
	b.ramdisk = filepath.Join(b.dir, "ramdisk")
	if err := writeRamdisk(b.ramdisk, b.Kernel, bootModules, nil); err != nil {
		return err
	}
	if b.tree, err = writeTree(ctx, b.dir); err != nil {
		return err
	}
	root, image := filepath.Join(b.dir, "root"), filepath.Join(b.dir, "disk")
	// Links to the cache's files, which are never written to, only replaced.
	if _, err := output(ctx, "cp", "-al", base, root); err != nil {
		return err
	}
	if err := furnish(ctx, root, b.opts); err != nil {
		return err
	}
	if err := errors.Join(makeImage(ctx, root, image, imageBytes), os.RemoveAll(root)); err != nil {
		return err
	}
	if b.image, err = os.Open(image); err != nil {
		return err
	}
	b.Disk, err = OpenDisk(b.image, b.opts.Log)
	return err
}

// makeImage makes an ext4 file system of that size of a tree.
func makeImage(ctx context.Context, root, image string, size int64) error {
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	_, err = output(ctx, "mke2fs", "-q", "-t", "ext4", "-d", root, "-E", "lazy_itable_init=1", image)
	return err
}

const imageBytes = 768 << 20

// findBase returns the folder with the box's root file system as the distribution has it: unpacked packages, nothing of
// ours.
func findBase(ctx context.Context, a *archive, cache string, k *Kernel) (string, error) {
	names, err := a.closure(ctx, packages...)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendln(nil, baseLayout, k.Tree, boxModules, names))
	dir := filepath.Join(cache, fmt.Sprintf("root-%x", sum[:8]))
	return dir, once(dir, func(tmp string) error {
		debs, err := a.fetchClosure(ctx, packages...)
		if err != nil {
			return err
		}
		return makeBase(ctx, debs, tmp, k)
	})
}

// baseLayout is part of the name of the cached folder: another number makes it anew.
const baseLayout = 2

func makeBase(ctx context.Context, debs []string, root string, k *Kernel) error {
	for _, dir := range []string{"bin", "sbin", "lib"} { // merged /usr
		if err := errors.Join(os.MkdirAll(filepath.Join(root, "usr", dir), 0o755),
			os.Symlink("usr/"+dir, filepath.Join(root, dir))); err != nil {
			return err
		}
	}
	for _, deb := range debs {
		if err := unpack(ctx, deb, root); err != nil {
			return err
		}
	}
	for _, dir := range []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"} {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	// What the packages' scripts would have done.
	for name, target := range map[string]string{"var/run": "/run", "var/lock": "/run/lock"} {
		if err := errors.Join(os.RemoveAll(filepath.Join(root, name)), os.Symlink(target, filepath.Join(root, name))); err != nil {
			return err
		}
	}
	for _, name := range []string{"passwd", "group"} {
		data, err := os.ReadFile(filepath.Join(root, "usr/share/base-passwd", name+".master"))
		if err == nil {
			err = os.WriteFile(filepath.Join(root, "etc", name), data, 0o644)
		}
		if err != nil {
			return err
		}
	}
	if _, err := output(ctx, "systemd-sysusers", "--root="+root); err != nil {
		return err
	}
	list, err := k.moduleFiles(slices.DeleteFunc(slices.Clone(boxModules), func(m string) bool { return k.Missing[m] != "" })...)
	if err != nil {
		return err
	}
	under := filepath.Join("lib/modules", k.Release)
	for _, name := range append(list, "modules.builtin", "modules.builtin.modinfo", "modules.order") {
		data, err := os.ReadFile(filepath.Join(k.Tree, under, name))
		to := filepath.Join(root, "usr", under, name)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o644))
		}
		if err != nil {
			return err
		}
	}
	_, err = output(ctx, "depmod", "-b", root, k.Release)
	return err
}

// networkd's and systemd's files as they are on the boxes: the two fast ports in a bridge with a static address.
var furniture = map[string]string{
	"etc/hostname":                       "nanopi-r5s\n",
	"etc/machine-id":                     "7d1f0c6b1f9e4c0f8a55b1c0a9e0d5f1\n",
	"etc/systemd/network/10-br0.netdev":  "[NetDev]\nName=br0\nKind=bridge\n",
	"etc/systemd/network/20-lan.network": "[Match]\nName=eth1 eth2\n\n[Network]\nBridge=br0\n",
	"etc/systemd/network/30-br0.network": "[Match]\nName=br0\n\n[Network]\nAddress=192.168.2.15/24\nGateway=192.168.2.2\n",
	"etc/systemd/network/40-wan.network": "[Match]\nName=eth0\n\n[Network]\nDHCP=ipv4\n",
	"etc/systemd/system/test-shell.service": "[Unit]\nDescription=The tests' shell\nDefaultDependencies=no\n\n" +
		"[Service]\nExecStart=/usr/local/bin/test-shell\nRestart=always\nRestartSec=100ms\nStandardInput=null\n",
	"etc/linerate/boards/nanopi-r5s-virtual.toml": string(embedded("board.toml")),
	"var/log/journal/.keep":                       "",
	// Emulated, each device that udev looks at costs a tenth of a second, and most of the hundreds mean nothing to the box.
	"etc/systemd/system/systemd-udev-trigger.service.d/few.conf": "[Service]\nExecStart=\n" +
		"ExecStart=-udevadm trigger --type=subsystems --action=add\n" +
		"ExecStart=-udevadm trigger --type=devices --action=add" + matches("subsystem", "net", "block", "input", "i2c",
		"i2c-dev", "leds", "virtio", "virtio-ports", "platform", "gpio", "misc", "cpu", "rtc", "hwmon") + "\n",
	// Groups that udev's own scripts make.
	"usr/lib/sysusers.d/udev.conf": "g input -\ng kvm -\ng render -\ng sgx -\n",
}

func matches(what string, values ...string) string {
	var text strings.Builder
	for _, v := range values {
		fmt.Fprintf(&text, " --%s-match=%s", what, v)
	}
	return text.String()
}

// masked are units that cost seconds of an emulated boot and touch nothing that is tested.
var masked = []string{"dev-hugepages.mount", "dev-mqueue.mount", "kmod-static-nodes.service", "modprobe@dm_mod.service",
	"modprobe@drm.service", "modprobe@efi_pstore.service", "modprobe@loop.service", "proc-sys-fs-binfmt_misc.automount",
	"serial-getty@ttyAMA0.service", "sys-fs-fuse-connections.mount", "sys-kernel-debug.mount", "sys-kernel-tracing.mount",
	"systemd-logind.service", "systemd-machine-id-commit.service", "systemd-random-seed.service",
	"systemd-remount-fs.service", "systemd-tmpfiles-clean.timer", "systemd-update-utmp-runlevel.service",
	"systemd-hwdb-update.service", "systemd-journal-catalog-update.service", "ldconfig.service",
	"systemd-update-utmp.service", "systemd-user-sessions.service"}

// links that the packages' scripts, or a person, would have made.
var links = map[string]string{
	"etc/systemd/system/multi-user.target.wants/systemd-networkd.service": "/usr/lib/systemd/system/systemd-networkd.service",
	"etc/systemd/system/dbus-org.freedesktop.network1.service":            "/usr/lib/systemd/system/systemd-networkd.service",
	"etc/systemd/system/sockets.target.wants/systemd-networkd.socket":     "/usr/lib/systemd/system/systemd-networkd.socket",
	"etc/systemd/system/sysinit.target.wants/test-shell.service":          "/etc/systemd/system/test-shell.service",
}

// furnish lays everything into the root file system that makes it the box.
func furnish(ctx context.Context, root string, opts Options) error {
	if _, err := systemd.Install(root); err != nil {
		return err
	}
	for _, set := range []map[string]string{furniture, opts.Files} {
		for name, text := range set {
			if err := put(root, name, []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	all := maps.Clone(links)
	for _, unit := range masked {
		all["etc/systemd/system/"+unit] = "/dev/null"
	}
	// Nor is there anything on this disk for which systemd's generators would make a unit.
	generators, err := filepath.Glob(filepath.Join(root, "usr/lib/systemd/system-generators/*"))
	if err != nil {
		return err
	}
	for _, g := range generators {
		all["etc/systemd/system-generators/"+filepath.Base(g)] = "/dev/null"
	}
	for name, target := range all {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
			return err
		}
	}
	binary, err := os.ReadFile(opts.Binary)
	if err != nil {
		return fmt.Errorf("%w: `make arm64` builds it", err)
	}
	if err := errors.Join(put(root, "usr/bin/linerate", binary, 0o755),
		put(root, "usr/local/bin/test-shell", embedded("shell.sh"), 0o755)); err != nil {
		return err
	}
	_, err = output(ctx, "systemd-sysusers", "--root="+root, filepath.Join(root, "usr/lib/sysusers.d/udev.conf"))
	return err
}

// put replaces a file, so that what it was linked to stays as it is.
func put(root, name string, data []byte, mode fs.FileMode) error {
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.WriteFile(path, data, mode), os.Chmod(path, mode))
}

// writeTree writes the device tree blob of the virtual R5S into dir.
func writeTree(ctx context.Context, dir string) (string, error) {
	bare, source, blob := filepath.Join(dir, "virt.dtb"), filepath.Join(dir, "r5s.dts"), filepath.Join(dir, "r5s.dtb")
	if _, err := output(ctx, emulator, append(hardware(), "-M", "virt,accel=tcg,dumpdtb="+bare)...); err != nil {
		return "", err
	}
	text, err := output(ctx, "dtc", "-q", "-I", "dtb", "-O", "dts", bare)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(source, append([]byte(text), embedded("r5s.dts")...), 0o644); err != nil {
		return "", err
	}
	_, err = output(ctx, "dtc", "-q", "-I", "dts", "-O", "dtb", "-o", blob, source)
	return blob, err
}

// Port is a jack of the virtual box.
type Port struct {
	Role      string
	Name      string // in the guest
	SpeedMbps int
	Net       string // of the emulator's own network behind it, without the last number; .2 is this machine
}

// Ports of the box, in the order of their PCI slots.
var Ports = []Port{
	{"wan", "eth0", 1000, "192.168.1"},
	{"lan1", "eth1", 2500, "192.168.2"},
	{"lan2", "eth2", 2500, "192.168.3"},
}

// Boot powers the box on.
func (b *Box) Boot() (*Machine, error) {
	var devices []string
	for i, p := range Ports {
		net := fmt.Sprintf("user,id=net-%s,net=%s.0/24,host=%s.2,dhcpstart=%s.15,restrict=off", p.Role, p.Net, p.Net, p.Net)
		if forward := b.opts.Forward[p.Role]; forward != 0 {
			net += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-%s.15:5201", forward, p.Net)
			net += fmt.Sprintf(",hostfwd=udp:127.0.0.1:%d-%s.15:5201", forward, p.Net)
		}
		devices = append(devices, "-netdev", net, "-device", fmt.Sprintf(
			"virtio-net-pci,id=%s,netdev=net-%s,mac=52:54:00:4c:52:%02x,speed=%d,duplex=full,addr=%#x", p.Role, p.Role, i,
			p.SpeedMbps, i+1))
	}
	devices = append(devices, "-device", "virtio-keyboard-pci,addr=0x14")
	return start(spec{
		kernel: b.Kernel, ramdisk: b.ramdisk, tree: b.tree, disk: b.Disk, panel: true, devices: devices,
		lifetime: b.opts.Lifetime,
		cmdline: strings.Join([]string{"console=ttyAMA0", "quiet", "panic=-1", "net.ifnames=0", "audit=0", "apparmor=0",
			"cpufreq.default_governor=powersave", "systemd.show_status=0"}, " "),
	}, b.opts.Log)
}

// Available says what is missing to run virtual machines here, and of the other programs named; nil: nothing.
func Available(more ...string) error {
	var missing []string
	for _, program := range append([]string{emulator, "dtc", "mke2fs", "depmod", "make", "bc", "xz", "apt-get", "dpkg-deb", "timeout",
		"systemd-sysusers"}, more...) {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not here: %s (`make packages` installs them)", strings.Join(missing, ", "))
	}
	return nil
}
