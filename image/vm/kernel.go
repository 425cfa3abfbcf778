package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kernel is Debian's kernel for the virtual box with its modules, and those that Debian does not build.
type Kernel struct {
	Release string            // as uname -r says
	Image   string            // file to boot
	Tree    string            // folder that holds lib/modules/RELEASE with its index
	Busybox string            // static, of the same architecture
	Missing map[string]string // why one of the modules that Debian does not build is not there
}

// extraModules are built from Debian's kernel source, for Debian's configuration leaves them out: the panel's bus and
// simulated GPIO lines.
var extraModules = []string{"i2c-virtio", "gpio-sim"}

// kernelLayout is part of the name of the cached folder: another number makes it anew.
const kernelLayout = 2

// findKernel returns the newest kernel that the archive has, from the cache where it is there.
func findKernel(ctx context.Context, a *archive, cache string) (*Kernel, error) {
	depends, err := a.field(ctx, "linux-image-arm64:"+guestArch, "Depends")
	if err != nil {
		return nil, err
	}
	image, err := dependency(depends, "linux-image-")
	if err != nil {
		return nil, err
	}
	version, err := a.field(ctx, image+":"+guestArch, "Version")
	if err != nil {
		return nil, err
	}
	release := strings.TrimPrefix(image, "linux-image-")
	dir := filepath.Join(cache, fmt.Sprintf("kernel-%s-%s-%d", release, version, kernelLayout))
	if err := once(dir, func(tmp string) error { return makeKernel(ctx, a, tmp, release) }); err != nil {
		return nil, fmt.Errorf("kernel %s: %w", release, err)
	}
	k := &Kernel{
		Release: release, Image: filepath.Join(dir, "tree/boot/vmlinuz-"+release), Tree: filepath.Join(dir, "tree"),
		Busybox: filepath.Join(dir, "busybox"), Missing: map[string]string{},
	}
	for _, m := range extraModules {
		if why, err := os.ReadFile(filepath.Join(dir, m+".missing")); err == nil {
			k.Missing[m] = string(why)
		}
	}
	return k, nil
}

// makeKernel fetches, unpacks and builds everything into dir. A module that does not build is noted; the rest serves.
func makeKernel(ctx context.Context, a *archive, dir, release string) error {
	work := filepath.Join(dir, "work")
	defer os.RemoveAll(work)
	series := "linux-source-" + strings.Join(strings.SplitN(release, ".", 3)[:2], ".")
	common := strings.TrimSuffix(release, "-"+guestArch) + "-common"
	kbuild := strings.Replace(series, "source", "kbuild", 1)
	debs, err := a.fetch(ctx, filepath.Join(work, "debs"), "linux-image-"+release+":"+guestArch, "busybox-static:"+guestArch,
		"linux-headers-"+release+":"+guestArch, "linux-headers-"+common, kbuild+":"+a.host, series)
	if err != nil {
		return err
	}
	tree, headers := filepath.Join(dir, "tree"), filepath.Join(work, "headers")
	for i, to := range []string{tree, work, headers, headers, headers} {
		if err := errors.Join(os.MkdirAll(to, 0o755), unpack(ctx, debs[i], to)); err != nil {
			return err
		}
	}
	if err := os.Rename(filepath.Join(work, "bin/busybox"), filepath.Join(dir, "busybox")); err != nil {
		return err
	}
	// The headers' Makefile includes that of the common ones by its installed place.
	makefile := filepath.Join(headers, "usr/src/linux-headers-"+release, "Makefile")
	text, err := os.ReadFile(makefile)
	if err != nil {
		return err
	}
	moved := strings.ReplaceAll(string(text), "/usr/src/", filepath.Join(headers, "usr/src")+"/")
	if err := os.WriteFile(makefile, []byte(moved), 0o644); err != nil {
		return err
	}
	source := filepath.Join(work, "source")
	if err := unpackSource(ctx, debs[5], source); err != nil {
		return err
	}
	for _, m := range extraModules {
		module, err := buildModule(ctx, m, source, filepath.Dir(makefile), filepath.Join(work, m))
		if err == nil {
			extra := filepath.Join(tree, "lib/modules", release, "extra")
			err = errors.Join(os.MkdirAll(extra, 0o755), os.Rename(module, filepath.Join(extra, m+".ko")))
		}
		if err != nil {
			if err := os.WriteFile(filepath.Join(dir, m+".missing"), []byte(err.Error()), 0o644); err != nil {
				return err
			}
		}
	}
	_, err = output(ctx, "depmod", "-b", tree, release)
	return err
}

// sources are the files of the kernel's source that the modules are made of, flat in one folder each.
var sources = map[string][]string{
	"i2c-virtio": {"drivers/i2c/busses/i2c-virtio.c"},
	// CONFIG_IRQ_SIM is off too, so it becomes part of the module.
	"gpio-sim": {"drivers/gpio/gpio-sim.c", "drivers/gpio/gpiolib.h", "kernel/irq/irq_sim.c"},
}

func unpackSource(ctx context.Context, deb, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var names []string
	for _, files := range sources {
		for _, f := range files {
			names = append(names, "*/"+f)
		}
	}
	slices.Sort(names)
	script := `set -e -o pipefail; dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards "./usr/src/*.tar.xz" | xz -dc -T0 |
		tar -x -C "$2" --strip-components=1 --wildcards "${@:3}"`
	_, err := output(ctx, "bash", append([]string{"-c", script, "bash", deb, dir}, names...)...)
	return err
}

// buildModule builds one module out of the kernel's tree and returns its file.
func buildModule(ctx context.Context, name, source, headers, work string) (string, error) {
	if err := os.MkdirAll(work, 0o755); err != nil {
		return "", err
	}
	objects := []string{}
	for _, file := range sources[name] {
		data, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			return "", err
		}
		text := string(data)
		base := filepath.Base(file)
		switch base {
		case "i2c-virtio.c":
			// A signal ends its wait, and then it frees what the device still reads; Go's runtime sends many. No real
			// controller's driver waits so.
			text = strings.ReplaceAll(text, "wait_for_completion_interruptible(&req->completion)",
				"(wait_for_completion(&req->completion), 0)")
		case "irq_sim.c": // irq_to_desc is not exported; this does the same with the number
			text = strings.ReplaceAll(text, "handle_simple_irq(irq_to_desc(irqnum))", "generic_handle_irq(irqnum)")
		case "gpio-sim.c": // the object that bears the module's name is linked of two
			base = "gpio-sim-core.c"
		}
		if object, ok := strings.CutSuffix(base, ".c"); ok {
			objects = append(objects, object+".o")
		}
		if err := os.WriteFile(filepath.Join(work, base), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	kbuild := fmt.Sprintf("obj-m := %s.o\n", name)
	if len(objects) > 1 {
		kbuild += fmt.Sprintf("%s-objs := %s\n", name, strings.Join(objects, " "))
	}
	if err := os.WriteFile(filepath.Join(work, "Kbuild"), []byte(kbuild), 0o644); err != nil {
		return "", err
	}
	cross := ""
	if arch, err := output(ctx, "dpkg", "--print-architecture"); err != nil || strings.TrimSpace(arch) != guestArch {
		cross = "aarch64-linux-gnu-"
	}
	// Debian's kernel and its headers name the compiler, for example gcc-12.
	if _, err := output(ctx, "make", "-s", "-C", headers, "M="+work, "ARCH=arm64", "CROSS_COMPILE="+cross, "modules"); err != nil {
		return "", err
	}
	module := filepath.Join(work, name+".ko")
	_, err := os.Stat(module)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("make built no %s.ko", name)
	}
	return module, err
}

// moduleFiles lists the files of modules and of all they need, below lib/modules/RELEASE, in the order in which they
// can be loaded. Those that are built in need none.
func (k *Kernel) moduleFiles(names ...string) ([]string, error) {
	index, err := os.ReadFile(filepath.Join(k.Tree, "lib/modules", k.Release, "modules.dep"))
	if err != nil {
		return nil, err
	}
	needs := map[string][]string{} // by the module's name
	for line := range strings.Lines(string(index)) {
		file, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		list := strings.Fields(rest)
		slices.Reverse(list) // modules.dep(5): the last named is loaded first
		needs[moduleName(file)] = append(list, file)
	}
	built, err := os.ReadFile(filepath.Join(k.Tree, "lib/modules", k.Release, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	var files []string
	for _, name := range names {
		list := needs[moduleName(name)]
		if list == nil && !strings.Contains(string(built), "/"+name+".ko") &&
			!strings.Contains(string(built), "/"+strings.ReplaceAll(name, "_", "-")+".ko") {
			return nil, fmt.Errorf("kernel %s has no module %s", k.Release, name)
		}
		for _, file := range list {
			if !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files, nil
}

// moduleName is the name by which the kernel knows a module file.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".ko"), "-", "_")
}
