package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// Networkd is systemd-networkd. An override is a .network file of ours that sorts before all others that name the port,
// so that it alone counts (systemd.network(5)); what the others say is left as it is.
type Networkd struct{ bus bus }

const (
	networkdName    = "org.freedesktop.network1"
	networkdObject  = dbus.ObjectPath("/org/freedesktop/network1")
	networkdManager = networkdName + ".Manager"
	networkdLink    = networkdName + ".Link"
	networkdStates  = "/run/systemd/netif/links"

	networkdLasting   = "/etc/systemd/network/01-linerate-"
	networkdTentative = "/run/systemd/network/00-linerate-" // before the lasting one, which it replaces for a while
	networkdSuffix    = ".network"

	maxOwnFiles = 64
	maxOwnBytes = 64 << 10
)

// Name of the manager.
func (*Networkd) Name() string { return "systemd-networkd" }

// Owners asks networkd for its links: one that it does not list under our index and name is in another network
// namespace, and one that it calls unmanaged is not its own.
func (n *Networkd) Owners(ctx context.Context, names map[int]string) (map[int]Owner, error) {
	running, err := n.bus.runs(ctx, networkdName)
	if err != nil || !running {
		return nil, err
	}
	var links []struct {
		Index int32
		Name  string
		Path  dbus.ObjectPath
	}
	if err := n.bus.call(ctx, networkdName, networkdObject, networkdManager+".ListLinks", nil, &links); err != nil {
		return nil, err
	}
	out := map[int]Owner{}
	for _, l := range links {
		if names[int(l.Index)] != l.Name {
			continue
		}
		var state string
		if err := n.bus.property(ctx, networkdName, l.Path, networkdLink, "AdministrativeState", &state); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			continue // it has gone meanwhile
		}
		if state != "unmanaged" {
			out[int(l.Index)] = Owner{n.Name(), networkdFile(int(l.Index))}
		}
	}
	return out, nil
}

// networkdFile is the .network file that networkd took for a link; "" where it does not say.
func networkdFile(index int) string {
	b, err := readSmall(fmt.Sprintf("%s/%d", networkdStates, index))
	if err != nil {
		return ""
	}
	return valueOf(b, "NETWORK_FILE=")
}

// valueOf is what stands behind the first line that begins with the key; "" without one.
func valueOf(text, key string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), key); ok {
			return v
		}
	}
	return ""
}

// Files is one .network file.
func (*Networkd) Files(o Override, tentative bool) []File {
	prefix := networkdLasting
	if tentative {
		prefix = networkdTentative
	}
	return []File{{Path: prefix + o.Key + networkdSuffix, Content: networkdText(o), Mode: 0o644}}
}

// networkdText is the override as systemd.network(5) has it. DHCP's identifier is the MAC, so that a server's
// reservation holds; link-local is for when no server answers.
func networkdText(o Override) string {
	var b strings.Builder
	line := func(key string, value any) { fmt.Fprintf(&b, "%s=%v\n", key, value) }
	fmt.Fprintf(&b, "# Made by linerate, which rewrites it; `linerate netcfg --restore` removes it.\n[Match]\n")
	if len(o.Paths) > 0 {
		line("Path", strings.Join(o.Paths, " "))
	} else {
		line("Name", o.Name)
	}
	b.WriteString("\n[Link]\n")
	if o.MAC != nil {
		line("MACAddress", o.MAC)
	}
	if o.MTU > 0 {
		line("MTUBytes", o.MTU)
	}
	line("RequiredForOnline", "no")
	b.WriteString("\n[Network]\n")
	if o.Empty {
		line("LinkLocalAddressing", "no")
		line("IPv6AcceptRA", "no")
		return b.String()
	}
	line("DHCP", yes(o.DHCP))
	if o.DHCP {
		line("LinkLocalAddressing", "yes")
	} else {
		line("LinkLocalAddressing", "ipv6")
	}
	line("IPv6AcceptRA", "yes")
	for _, a := range o.Addresses {
		line("Address", a)
	}
	if o.DHCP {
		b.WriteString("\n[DHCPv4]\n")
		line("ClientIdentifier", "mac")
	}
	for _, r := range o.Routes {
		b.WriteString(networkdRoute(r))
	}
	return b.String()
}

func networkdRoute(r Route) string {
	if len(r.Hops) != 1 {
		return "" // a way over several interfaces is not this one's
	}
	var b strings.Builder
	line := func(set bool, key string, value any) {
		if set {
			fmt.Fprintf(&b, "%s=%v\n", key, value)
		}
	}
	b.WriteString("\n[Route]\n")
	line(true, "Destination", r.Destination)
	line(r.Hops[0].Gateway.IsValid(), "Gateway", r.Hops[0].Gateway)
	line(r.Hops[0].Flags&unix.RTNH_F_ONLINK != 0, "GatewayOnLink", "yes")
	line(r.Source.IsValid(), "PreferredSource", r.Source)
	line(r.Metric > 0, "Metric", r.Metric)
	line(r.Table != unix.RT_TABLE_MAIN && r.Table != 0, "Table", r.Table)
	line(r.MTU > 0, "MTUBytes", r.MTU)
	line(r.InitCwnd > 0, "InitialCongestionWindow", r.InitCwnd)
	line(r.InitRwnd > 0, "InitialAdvertisedReceiveWindow", r.InitRwnd)
	return b.String()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Ours lists our .network files.
func (*Networkd) Ours() (map[string]string, error) {
	return ownFiles(networkdLasting+"*"+networkdSuffix, networkdTentative+"*"+networkdSuffix)
}

// Load makes networkd read its files, which applies those that changed, then applies them to the links once more: one
// whose file did not change may have been changed by somebody else.
func (n *Networkd) Load(ctx context.Context, indexes []int) error {
	if running, err := n.bus.runs(ctx, networkdName); err != nil || !running {
		return err // it reads them when it starts
	}
	if err := n.bus.call(ctx, networkdName, networkdObject, networkdManager+".Reload", nil); err != nil {
		return err
	}
	var failed error
	for _, i := range indexes {
		err := n.bus.call(ctx, networkdName, networkdObject, networkdManager+".ReconfigureLink", []any{int32(i)})
		var said dbus.Error
		if errors.As(err, &said) && said.Name == networkdName+".NoSuchLink" {
			continue
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// ownFiles reads the files that the patterns name. One that cannot be read is listed, as empty.
func ownFiles(patterns ...string) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range patterns {
		names, err := filepath.Glob(p)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if len(out) == maxOwnFiles {
				return nil, fmt.Errorf("more than %d files of ours in %s", maxOwnFiles, path.Dir(p))
			}
			out[name], _ = readSmall(name)
		}
	}
	return out, nil
}

// readSmall reads a regular file that is not a link, 64 KiB at most.
func readSmall(name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errors.Join(err, fs.ErrInvalid)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxOwnBytes))
	return string(b), err
}

// IDPath is udev's name for the place of the device with this interface index, which Path= matches
// ("platform-3c0000000.pcie-pci-0000:01:00.0"); "" where there is no udev, or no device.
func IDPath(index int) string {
	b, err := readSmall(fmt.Sprintf("/run/udev/data/n%d", index))
	if err != nil {
		return ""
	}
	return valueOf(b, "E:ID_PATH=")
}
