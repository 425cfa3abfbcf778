package vm

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed files
var files embed.FS

func embedded(name string) []byte {
	data, err := files.ReadFile("files/" + name)
	if err != nil {
		panic(err) // a wrong name; compiled in
	}
	return data
}

// bootModules are loaded before the disk is there. ext4 names crc32c as an algorithm, so nothing says it needs it.
var bootModules = []string{"virtio_pci", "virtio_blk", "virtio_console", "crc32c_generic", "ext4",
	"cpufreq_powersave"} // the governor that the kernel starts with

// writeRamdisk writes the first file system of a machine: busybox, modules in the order in which they are loaded, and more
// files, name in the guest to name here. With a /start among them it is the only one.
func writeRamdisk(to string, k *Kernel, modules []string, more map[string]string) (err error) {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	r := newRamdisk(f)
	r.folder("bin", "sbin", "dev", "proc", "sys", "run", "tmp", "modules.d")
	r.copy("bin/busybox", k.Busybox, typeRun)
	r.entry("init", typeRun, embedded("init.sh"))
	r.entry("bin/shell", typeRun, embedded("shell.sh"))
	list, err := k.moduleFiles(modules...)
	if err != nil {
		return err
	}
	var order strings.Builder
	for _, m := range list {
		name := "modules.d/" + filepath.Base(m)
		fmt.Fprintln(&order, "/"+name)
		r.copy(name, filepath.Join(k.Tree, "lib/modules", k.Release, m), typeFile)
	}
	r.entry("modules", typeFile, []byte(order.String()))
	for name, from := range more {
		r.copy(name, from, typeRun)
	}
	if err := r.close(); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	return f.Close()
}
