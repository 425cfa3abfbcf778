package netcfg

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"slices"
	"strings"

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
	}
	return fmt.Errorf("no such step: %q", s.Kind)
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
