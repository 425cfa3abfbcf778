package throughput

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// boardTree is a box with r8169 on two ports, an adapter on USB and a VLAN, as the kernel shows them.
func boardTree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(path, to string) {
		if err := os.MkdirAll(filepath.Join(root, "sys", to), 0o755); err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(root, "sys", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, "sys", to), path); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/interrupts", `           CPU0       CPU1       CPU2       CPU3
 26:       1000          0          0          0     GICv3  27 Level     arch_timer
 94:          0          0     120034          0   ITS-MSI 33554432 Edge      eth1
 95:          0          0          0      88123   ITS-MSI 1085276160 Edge      eth2-rx-0
 96:          0          0          0          0   ITS-MSI 1085276161 Edge      eth2-tx-0
 97:         12          7          0          0   ITS-MSI 5 Edge      eth10
 70:          0      55123          0          0     GICv3 202 Level     xhci-hcd:usb3
IPI0:      4000       4000       4000       4000       Rescheduling interrupts
Err:          0
`)
	for irq, list := range map[string]string{"94": "2", "95": "3", "96": "0", "97": "0-1", "70": "1"} {
		write("proc/irq/"+irq+"/effective_affinity_list", list+"\n")
		write("proc/irq/"+irq+"/smp_affinity_list", "0-3\n")
	}
	link("class/net/eth1/device", "devices/pci0001:00/0001:01:00.0")
	write("sys/devices/pci0001:00/0001:01:00.0/msi_irqs/94", "msi\n")
	link("class/net/eth2/device", "devices/pci0002:00/0002:01:00.0")
	link("class/net/enx00/device", "devices/platform/usbdrd3/xhci-hcd.1/usb3/3-1/3-1:1.0")
	link("class/net/eth1.130/lower_eth1", "class/net/eth1")
	link("class/net/veth0/queues", "devices/virtual/net/veth0/queues")
	return root
}

func TestInterruptCores(t *testing.T) {
	root := boardTree(t)
	for iface, want := range map[string][]int{
		"eth1": {2}, "eth2": {3}, "enx00": {1}, "eth1.130": {2}, "eth10": {0, 1}, "veth0": nil, "lo": nil, "nosuch": nil,
	} {
		if got := interruptCores(root, iface); !slices.Equal(got, want) {
			t.Errorf("%s: interrupts on cores %v, want %v", iface, got, want)
		}
	}
}

func TestParseCores(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-1,3\n": {0, 1, 3}, "": nil, "x": nil, "3-x": nil, "2-1": nil, "-1": nil} {
		if got := parseCores(list); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", list, got, want)
		}
	}
}

// Every thread stays off the core while one port is tested, and may run there again when a second is, or none.
func TestKeepOff(t *testing.T) {
	var usual unix.CPUSet
	if err := unix.SchedGetaffinity(0, &usual); err != nil || usual.Count() < 2 {
		t.Skip("needs two cores")
	}
	root := boardTree(t)
	core := -1
	for c := range 1024 {
		if usual.IsSet(c) {
			core = c
		}
	}
	name := filepath.Join(root, "proc/irq/94/effective_affinity_list")
	if err := os.WriteFile(name, []byte(strconv.Itoa(core)), 0o644); err != nil {
		t.Fatal(err)
	}
	stop, up := make(chan struct{}), make(chan struct{})
	defer close(stop)
	for range 4 { // some threads of their own
		go func() {
			runtime.LockOSThread()
			up <- struct{}{}
			<-stop
		}()
		<-up
	}
	p := placer{root: root, ports: map[string]int{}}
	barred := func() bool { // no thread may run on the core
		tasks, _ := os.ReadDir("/proc/self/task")
		all, none := true, true
		for _, task := range tasks {
			raw, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
			if err != nil {
				continue
			}
			_, rest, _ := strings.Cut(string(raw), "Cpus_allowed_list:")
			list, _, _ := strings.Cut(rest, "\n")
			may := slices.Contains(parseCores(list), core)
			all, none = all && may, none && !may
		}
		if !all && !none {
			t.Errorf("some threads may run on core %d and some not", core)
		}
		return none
	}
	first := p.enter("eth1")
	if !barred() {
		t.Error("the threads may still run on the interrupt's core")
	}
	again := p.enter("eth1")
	again()
	if !barred() {
		t.Error("the end of one of two tests on the port lets the threads go")
	}
	second := p.enter("eth2")
	if barred() {
		t.Error("two ports are tested: nothing may be barred")
	}
	second()
	if !barred() {
		t.Error("one port is left: its core must be barred again")
	}
	first()
	first()
	if barred() || len(p.ports) != 0 {
		t.Error("no test runs: nothing may be barred")
	}
	var now unix.CPUSet
	if err := unix.SchedGetaffinity(0, &now); err != nil || now != usual {
		t.Error("the process may not run everywhere as before")
	}
	leave := p.enter("veth0")
	if barred() {
		t.Error("a port without interrupts bars nothing")
	}
	leave()
}
