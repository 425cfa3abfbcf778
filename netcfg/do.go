package netcfg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"linerate/netcfg/manager"
)

// Failure is a step that could not be done.
type Failure struct {
	Step Step   `json:"-"`
	Port string `json:"port"`
	Text string `json:"text"` // what was tried, why it failed and what to do, in one line
	err  error
}

// Error is the text.
func (f Failure) Error() string { return f.Text }

// Unwrap gives the kernel's error.
func (f Failure) Unwrap() error { return f.err }

// run does the steps in their order and goes on after a failure. When a vital step of a group fails, what the group
// did so far is undone, last step first, and the rest of it is left out. done holds what was done and stayed.
func run(steps []Step, do func(Step) error) (done []Step, failed []Failure) {
	broken := map[string]bool{}
	for _, s := range steps {
		if s.group != "" && broken[s.group] {
			continue
		}
		err := do(s)
		if err == nil {
			done = append(done, s)
			continue
		}
		failed = append(failed, failure(s, err))
		if !s.vital || s.group == "" {
			continue
		}
		broken[s.group] = true
		var kept []Step
		for _, d := range slices.Backward(done) {
			u, ok := d.undo()
			if d.group != s.group || !ok {
				kept = append(kept, d)
				continue
			}
			if err := do(u); err != nil {
				failed = append(failed, failure(u, err))
			}
		}
		slices.Reverse(kept)
		done = kept
	}
	return done, failed
}

func failure(s Step, err error) Failure {
	return Failure{Step: s, Port: s.Port, Text: fmt.Sprintf("%s: %v: %s", s.Text, err, remedy(s, err)), err: err}
}

// remedy says what to do about an error of a step.
func remedy(s Step, err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC):
		return "make room on that file system"
	case errors.Is(err, unix.EROFS):
		return "make that file system writable: mount -o remount,rw /"
	case s.Kind == TellManager || s.File != nil && !errors.Is(err, fs.ErrPermission):
		return "see `systemctl status " + s.manager + "`"
	case errors.Is(err, fs.ErrPermission) && s.Kind == AddAddress && s.address.Prefix.Addr().Is6() &&
		strings.Contains(err.Error(), "IPv6 is disabled"):
		return "allow it: sysctl net.ipv6.conf." + s.Port + ".disable_ipv6=0"
	case errors.Is(err, fs.ErrPermission):
		return "this needs CAP_NET_ADMIN: run it as root, or leave it to linerate-netcfg.service"
	case errors.Is(err, unix.EBUSY):
		return "end what uses it (`ip -d link show " + s.Port + "` tells), then run `linerate netcfg --once`"
	case errors.Is(err, unix.ENODEV):
		return "it has gone meanwhile: plug it in again"
	case errors.Is(err, unix.EOPNOTSUPP):
		return "its driver cannot do this: leave it out of the config"
	case errors.Is(err, unix.EINVAL) && s.Kind == SetMTU:
		return "its driver refuses this MTU: set a smaller one, or \"leave\""
	case errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH):
		return "the gateway is in no network of " + s.Port + ": correct the route or the address"
	case errors.Is(err, unix.EAGAIN):
		return fmt.Sprintf("the kernel did not answer in %v: see dmesg for its driver", manager.Timeout)
	}
	return "see dmesg, and `ip -d addr show " + s.Port + "`"
}

// doer does single steps on the running system.
type doer struct {
	kernel manager.None
	log    func(msg string, args ...any) // what is no failure but worth a line

	managers []manager.Manager
}

func (d doer) do(s Step) error {
	switch s.Kind {
	case LeaveBridge:
		return d.kernel.LeaveMaster(s.Port)
	case JoinBridge:
		if err := d.kernel.JoinMaster(s.Port, s.bridge); err != nil {
			return err
		}
		d.restoreSettings(s.Port, "brport", memberSettings, s.member)
		d.restoreVLANs(s.Port, s.vlans, false)
		return nil
	case SetMTU:
		return d.kernel.SetMTU(s.Port, s.mtu)
	case SetMAC:
		mac, err := net.ParseMAC(s.mac)
		if err != nil {
			return err
		}
		return d.kernel.SetMAC(s.Port, mac)
	case SetUp:
		return d.kernel.SetUp(s.Port)
	case SetDown:
		return d.kernel.SetDown(s.Port)
	case AddAddress:
		if err := d.kernel.AddAddress(s.address); err != nil {
			return err
		}
		if s.move {
			if err := d.kernel.Announce(s.Port, s.address.Prefix.Addr()); err != nil {
				d.log("could not tell the neighbours", "port", s.Port, "address", s.address.Prefix, "error", err)
			}
		}
		return nil
	case RemoveAddress:
		return d.kernel.RemoveAddress(s.address)
	case SetRoute:
		return d.kernel.SetRoute(s.route)
	case RemoveRoute:
		return d.kernel.RemoveRoute(s.route)
	case AddBridge:
		mac, _ := net.ParseMAC(s.made.mac) // none is the kernel's choice
		if err := d.kernel.AddBridge(s.Port, mac); err != nil {
			return err
		}
		d.restoreSettings(s.Port, "bridge", bridgeSettings, s.made.settings)
		d.restoreVLANs(s.Port, s.made.vlans, true)
		return nil
	case DeleteBridge:
		return d.kernel.DeleteBridge(s.Port)
	case Announce:
		return d.announce(s)
	case WriteFile, RemoveFile, TellManager:
		return d.override(s)
	}
	return fmt.Errorf("no such step: %q", s.Kind)
}

// override changes a file of ours, or tells its manager to read it. When the manager refuses, the file is as before.
func (d doer) override(s Step) error {
	var content *string
	if s.Kind == WriteFile {
		content = &s.File.Content
	}
	if s.File != nil {
		if err := putFile(*s.File, content); err != nil {
			return err
		}
	}
	if s.tell == nil {
		return nil
	}
	m := managed{known: d.managers}.byName(s.manager)
	if m == nil {
		return fmt.Errorf("no such network manager: %q", s.manager)
	}
	err := m.Load(context.Background(), s.tell)
	if err != nil && s.File != nil {
		err = errors.Join(err, putFile(*s.File, s.old))
	}
	return err
}

// putFile writes the content into a file; nil removes it. It is on the disk when it returns.
func putFile(f manager.File, content *string) error {
	dir := path.Dir(f.Path)
	if content != nil {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		return writeFile(f.Path, []byte(*content), f.Mode, true)
	}
	if err := os.Remove(f.Path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return syncDir(dir)
}

// announce waits until the manager has given the port its address, and the link is there, then tells the neighbours.
func (d doer) announce(s Step) error {
	for end := time.Now().Add(holdFor); ; time.Sleep(20 * time.Millisecond) {
		ready, err := d.kernel.Ready(s.Port, s.address.Prefix)
		if err != nil {
			return err
		}
		if ready {
			return d.kernel.Announce(s.Port, s.address.Prefix.Addr())
		}
		if time.Now().After(end) {
			return fmt.Errorf("it has not got the address within %v", holdFor)
		}
	}
}

// restoreSettings writes what differs. A bridge that forwards with another forward delay is a bridge, so what cannot be
// put back is only mentioned.
func (d doer) restoreSettings(name, dir string, order []string, settings map[string]string) {
	for _, attr := range order {
		file := path.Join("/sys/class/net", name, dir, attr)
		old, err := os.ReadFile(file)
		want, kept := settings[attr]
		if !kept || err == nil && strings.TrimSpace(string(old)) == want {
			continue
		}
		if err == nil {
			err = os.WriteFile(file, []byte(want), 0)
		}
		if err != nil {
			d.log("could not put a setting of the bridge back", "interface", name, "setting", attr, "value", want,
				"error", err)
		}
	}
}

func (d doer) restoreVLANs(name string, vlans []manager.MemberVLAN, self bool) {
	if len(vlans) == 0 {
		return
	}
	if err := d.kernel.SetMemberVLANs(name, vlans, self); err != nil {
		d.log("could not put the VLANs of the bridge back", "interface", name, "error", err)
	}
}
