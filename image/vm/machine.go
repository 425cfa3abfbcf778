package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// Lifetime is the longest that a machine may run; whatever hangs ends then.
const Lifetime = 15 * time.Minute

// spec is a machine to start.
type spec struct {
	kernel   *Kernel
	ramdisk  string
	tree     string // device tree blob; "": QEMU's own
	cmdline  string
	disk     *Disk
	panel    bool
	devices  []string // further arguments of QEMU
	lifetime time.Duration
}

// memoryMiB of a machine. The device tree depends on it and on the number of processors.
const (
	memoryMiB  = 512
	processors = 2
)

// hardware are the arguments that make the machine; with them alone QEMU prints the device tree that belongs to it. There is
// no hardware virtualisation in them.
func hardware() []string {
	size := strconv.Itoa(memoryMiB) + "M"
	return []string{"-cpu", "cortex-a72", "-smp", strconv.Itoa(processors), "-m", size, "-nodefaults", "-display", "none",
		"-object", "memory-backend-memfd,id=ram,size=" + size + ",share=on", "-numa", "node,memdev=ram"}
}

const emulator = "qemu-system-aarch64"

// Machine is one run of the emulator, from power-on to power-off.
type Machine struct {
	Panel   *Panel    // nil where there is none
	Started time.Time // when the emulator did

	log     *slog.Logger
	dir     string
	cmd     *exec.Cmd
	sockets []net.Listener
	monitor *monitor
	shell   *shell
	said    bytes.Buffer  // by the emulator itself
	over    chan struct{} // closed when the emulator has ended
	end     error         // of it; read after over
}

// start powers a machine on and returns when the emulator runs.
func start(s spec, log *slog.Logger) (*Machine, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	dir, err := os.MkdirTemp("", "linerate-vm-") // short: a socket's path has 107 bytes
	if err != nil {
		return nil, err
	}
	m := &Machine{log: log, dir: dir, over: make(chan struct{})}
	if err := m.power(s); err != nil {
		m.Kill()
		return nil, err
	}
	return m, nil
}

func (m *Machine) power(s spec) error {
	if s.lifetime == 0 {
		s.lifetime = Lifetime
	}
	args := append([]string{"-k", "5", strconv.Itoa(int(s.lifetime.Seconds())), emulator}, hardware()...)
	machine := "virt,accel=tcg"
	args = append(args, "-M", machine, "-no-reboot", "-kernel", s.kernel.Image, "-initrd", s.ramdisk, "-append", s.cmdline,
		"-serial", "file:"+m.path("console"))
	if s.tree != "" {
		args = append(args, "-dtb", s.tree)
	}
	mon, err := m.listen("monitor")
	if err != nil {
		return err
	}
	sh, err := m.listen("shell")
	if err != nil {
		return err
	}
	args = append(args, "-chardev", "socket,id=monitor,path="+m.path("monitor"), "-mon", "chardev=monitor,mode=control",
		"-chardev", "socket,id=shell,path="+m.path("shell"), "-device", "virtio-serial-pci,addr=0x10",
		"-device", "virtserialport,chardev=shell,name=shell", "-device", "virtio-rng-pci,addr=0x11")
	if s.disk != nil {
		l, err := m.listen("disk")
		if err != nil {
			return err
		}
		go s.disk.serve(l)
		args = append(args, "-drive", "if=none,id=disk,format=raw,file=nbd+unix:///?socket="+m.path("disk"),
			"-device", "virtio-blk-pci,drive=disk,addr=0x12")
	}
	if s.panel {
		l, err := m.listen("i2c")
		if err != nil {
			return err
		}
		m.Panel = newPanel()
		go serveI2C(l, m.Panel, panelAddress, m.Panel.took, m.log)
		args = append(args, "-chardev", "socket,id=i2c,path="+m.path("i2c"),
			"-device", "vhost-user-i2c-pci,chardev=i2c,addr=0x13,event_idx=off")
	}
	if err := m.spawn(append(args, s.devices...)); err != nil {
		return err
	}
	a, err := m.accept(mon)
	if err != nil {
		return err
	}
	b, err := m.accept(sh)
	if err != nil {
		return err
	}
	m.shell = newShell(b)
	m.monitor, err = newMonitor(a)
	return err
}

// panelAddress is that of the panel on its bus.
const panelAddress = 0x3c

func (m *Machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *Machine) listen(name string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: m.path(name), Net: "unix"})
	if err == nil {
		m.sockets = append(m.sockets, l)
	}
	return l, err
}

// accept waits for the emulator to connect, or to end.
func (m *Machine) accept(l *net.UnixListener) (*net.UnixConn, error) {
	if err := l.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-m.over:
			l.Close()
		case <-stop:
		}
	}()
	c, err := l.AcceptUnix()
	if err == nil {
		return c, nil
	}
	select {
	case <-m.over:
		return nil, fmt.Errorf("%s ended: %w: %s", emulator, m.end, last(m.said.String()))
	default:
		return nil, fmt.Errorf("%s does not connect: %w", emulator, err)
	}
}

// spawn starts the emulator under timeout(1). It dies with this process, too.
func (m *Machine) spawn(args []string) error {
	m.cmd = exec.Command("timeout", args...)
	m.cmd.Stdout, m.cmd.Stderr = &m.said, &m.said
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	m.cmd.WaitDelay = time.Second
	if _, err := exec.LookPath(emulator); err != nil {
		return fmt.Errorf("%w: install the package qemu-system-arm", err)
	}
	m.log.Debug("start", "args", args)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the signal at our death is that of this thread
		m.Started = time.Now()
		err := m.cmd.Start()
		started <- err
		if err == nil {
			m.end = m.cmd.Wait()
			close(m.over)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", emulator, err)
	}
	return nil
}

// Kill takes the power away, and closes and removes all that belongs to the machine.
func (m *Machine) Kill() {
	if m.cmd != nil && m.cmd.Process != nil {
		_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL) // gone already: as well
		<-m.over
	}
	for _, l := range m.sockets {
		_ = l.Close()
	}
	if m.monitor != nil {
		_ = m.monitor.conn.Close()
	}
	if m.shell != nil {
		_ = m.shell.conn.Close()
	}
	_ = os.RemoveAll(m.dir)
}

// Wait waits until the machine has switched itself off.
func (m *Machine) Wait(ctx context.Context) error {
	select {
	case <-m.over:
		if m.end != nil {
			return fmt.Errorf("%s ended: %w: %s", emulator, m.end, last(m.said.String()))
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the machine still runs: %w", context.Cause(ctx))
	}
}

// Console is what the kernel and the system have written to the serial console.
func (m *Machine) Console() string {
	data, err := os.ReadFile(m.path("console"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	return string(data)
}
