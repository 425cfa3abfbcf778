package throughput

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A thread that receives on the core that takes the port's interrupts loses 20-30 % on small boards. So while exactly one port
// is tested the whole process stays off that port's interrupt cores.

// placement is the process's, since threads inherit where they may run and Go starts them when it likes.
var placement = placer{root: "/", ports: map[string]int{}}

// KeepOff keeps the process off the cores that take the interrupts of an interface, from now until the returned function is
// called. It does nothing where the interface has none (veth), where its interrupts may come on every core, or while another
// port is tested as well.
func KeepOff(iface string) (leave func()) { return placement.enter(iface) }

type placer struct {
	root  string // of /proc and /sys
	mu    sync.Mutex
	ports map[string]int // tests that run
	usual *unix.CPUSet   // where the process might run before; nil: it still may
}

func (p *placer) enter(iface string) (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports[iface]++
	p.arrange()
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.ports[iface]--; p.ports[iface] == 0 {
			delete(p.ports, iface)
		}
		p.arrange()
	})
}

func (p *placer) arrange() {
	if len(p.ports) != 1 {
		if p.usual != nil {
			confine(p.usual)
			p.usual = nil
		}
		return
	}
	if p.usual != nil {
		return
	}
	for iface := range p.ports {
		var usual unix.CPUSet
		if unix.SchedGetaffinity(0, &usual) != nil {
			return
		}
		if rest, ok := without(usual, interruptCores(p.root, iface)); ok {
			p.usual = &usual
			confine(&rest)
		}
	}
}

// without takes cores off a set; false if that changes nothing or leaves nothing.
func without(set unix.CPUSet, cores []int) (rest unix.CPUSet, ok bool) {
	before := set.Count()
	for _, c := range cores {
		set.Clear(c)
	}
	return set, set.Count() > 0 && set.Count() < before
}

// confine sets where every thread of the process may run. One that starts meanwhile inherits from its parent, so it is done
// until nothing is new.
func confine(set *unix.CPUSet) {
	done := map[string]bool{}
	for news := true; news; {
		news = false
		tasks, _ := os.ReadDir("/proc/self/task")
		for _, t := range tasks {
			if id, err := strconv.Atoi(t.Name()); err == nil && !done[t.Name()] {
				done[t.Name()], news = true, true
				_ = unix.SchedSetaffinity(id, set)
			}
		}
	}
}

// interruptCores lists the cores on which the interrupts of an interface arrive, in order; none where it has no interrupt.
func interruptCores(root, iface string) []int {
	var cores []int
	for _, irq := range interruptsOf(root, iface) {
		dir := filepath.Join(root, "proc", "irq", strconv.Itoa(irq))
		list, err := os.ReadFile(filepath.Join(dir, "effective_affinity_list"))
		if err != nil || strings.TrimSpace(string(list)) == "" {
			list, _ = os.ReadFile(filepath.Join(dir, "smp_affinity_list"))
		}
		cores = append(cores, parseCores(string(list))...)
	}
	slices.Sort(cores)
	return slices.Compact(cores)
}

// interruptsOf finds the interrupts of an interface that have ever come: by its name in /proc/interrupts (eth1, eth1-rx-0), by
// its PCI device, or for a USB adapter by the bus it hangs on (xhci-hcd:usb3).
func interruptsOf(root, iface string) []int {
	names := []string{iface}
	numbers := map[int]bool{}
	sys := filepath.Join(root, "sys", "class", "net", iface)
	if lower, _ := filepath.Glob(filepath.Join(sys, "lower_*")); len(lower) > 0 { // a VLAN
		iface = strings.TrimPrefix(filepath.Base(lower[0]), "lower_")
		names = append(names, iface)
		sys = filepath.Join(root, "sys", "class", "net", iface)
	}
	if device, err := filepath.EvalSymlinks(filepath.Join(sys, "device")); err == nil {
		for _, part := range strings.Split(device, string(filepath.Separator)) {
			if n, ok := strings.CutPrefix(part, "usb"); ok && isNumber(n) {
				names = append(names, "xhci-hcd:"+part, "xhci_hcd:"+part, "ehci_hcd:"+part, "dwc2_hsotg:"+part)
			}
		}
		msi, _ := os.ReadDir(filepath.Join(device, "msi_irqs"))
		for _, m := range msi {
			if n, err := strconv.Atoi(m.Name()); err == nil {
				numbers[n] = true
			}
		}
		if raw, err := os.ReadFile(filepath.Join(device, "irq")); err == nil {
			if n, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && n > 0 {
				numbers[n] = true
			}
		}
	}
	raw, _ := os.ReadFile(filepath.Join(root, "proc", "interrupts"))
	return matchInterrupts(string(raw), names, numbers)
}

// matchInterrupts reads /proc/interrupts: number, a count for each core, chip, and the names of who asked for it.
func matchInterrupts(table string, names []string, numbers map[int]bool) (found []int) {
	cores := -1
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if cores < 0 { // CPU0 CPU1 ...
			cores = len(fields)
			continue
		}
		if len(fields) < cores+2 {
			continue
		}
		irq, err := strconv.Atoi(strings.TrimSuffix(fields[0], ":"))
		if err != nil { // NMI, LOC ...
			continue
		}
		came := slices.ContainsFunc(fields[1:cores+1], func(n string) bool { return n != "0" })
		named := slices.ContainsFunc(fields[cores+1:], func(f string) bool {
			f = strings.TrimSuffix(f, ",")
			return slices.ContainsFunc(names, func(n string) bool { return f == n || strings.HasPrefix(f, n+"-") })
		})
		if came && (named || numbers[irq]) {
			found = append(found, irq)
		}
	}
	return found
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// parseCores reads a list of the form 0-1,3.
func parseCores(list string) (cores []int) {
	for _, part := range strings.Split(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(first)
		if err != nil || a < 0 {
			continue
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(last); err != nil {
				continue
			}
		}
		for c := a; c <= b && c < 1024; c++ {
			cores = append(cores, c)
		}
	}
	return cores
}
