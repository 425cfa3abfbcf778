package netcfg

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"linerate/appliance"
	"linerate/appliance/board"
	"linerate/netcfg/manager"
)

// managed is what is known of the network managers: who owns what, and which files of ours they read.
type managed struct {
	known     []manager.Manager
	owners    map[string]manager.Owner // by interface; one that nobody owns is not in it
	files     map[string]string        // our files that there are, by path
	fileOf    map[string]string        // by path: the name of its manager
	tentative map[string]string        // by manager whose lasting files cannot be written: why
	idPaths   map[string]string        // udev's name for a port's place, by interface
	random    map[string]bool          // ports whose MAC is another at each boot (addr_assign_type 1)
	macs      map[string]string        // of ports
	seed      string                   // what tells this box from others

	bridged map[string]string // by port: the bridge that its manager's own files put it into
	static  map[string]static // by such a bridge: what they give it
	absent  []absent          // ports of the board that are not there yet, before the managers start
	trial   bool              // a change waits to be confirmed: nothing of it is lasting yet
	early   bool              // before the managers start: udev may not have named places yet
}

// static is what files give an interface that is always there.
type static struct {
	addresses []netip.Prefix
	routes    []manager.Route
}

// absent is a port of the board that has not appeared.
type absent struct {
	role            board.Port
	manager, bridge string
}

// ask adds what the managers say. One that does not answer owns what it owned when it last did: a port that is taken for
// nobody's would be fought over. That is said as a fault.
func (k *Keeper) ask(ctx context.Context, s *Seen) {
	m := k.files(s)
	m.trial = k.readTrial() != nil
	names := map[int]string{}
	for _, l := range s.links {
		names[l.index] = l.name
	}
	for _, one := range k.managers {
		owners, err := k.owners(ctx, one, names)
		if err != nil {
			s.Faults = append(s.Faults, fmt.Sprintf("%s does not answer: %v: see `systemctl status %s`", one.Name(), err,
				one.Name()))
		}
		for index, owner := range owners {
			if _, taken := m.owners[names[index]]; !taken {
				m.owners[names[index]] = owner
			}
		}
	}
	for _, one := range k.managers {
		var own manager.Own
		for _, p := range s.Ports {
			if m.owners[p.Name].Manager != one.Name() {
				continue
			}
			if own == nil {
				own = one.Read()
			}
			m.claim(own, m.candidate(p))
		}
	}
	s.managed = m
}

// files reads what does not need an answer of the managers.
func (k *Keeper) files(s *Seen) managed {
	m := managed{known: k.managers, owners: map[string]manager.Owner{}, files: map[string]string{},
		fileOf: map[string]string{}, tentative: map[string]string{}, idPaths: map[string]string{}, random: map[string]bool{},
		macs: map[string]string{}, bridged: map[string]string{}, static: map[string]static{}}
	for _, one := range k.managers {
		files, err := one.Ours()
		if err != nil {
			s.Faults = append(s.Faults, err.Error())
		}
		for name, content := range files {
			m.files[name], m.fileOf[name] = content, one.Name()
		}
		for _, f := range one.Files(manager.Override{Key: "x"}, false) {
			dir := path.Dir(f.Path)
			if err := unix.Access(dir, unix.W_OK); err != nil && !errors.Is(err, unix.ENOENT) {
				m.tentative[one.Name()] = fmt.Sprintf("%s cannot be written (%v): what keeps the ports free is lost at a "+
					"restart of the box", dir, err)
			}
		}
	}
	fs, err := openSysfs("/")
	if err == nil {
		defer fs.root.Close()
		m.seed = fs.seed()
		for _, p := range s.Ports {
			const random = 1 // NET_ADDR_RANDOM
			n, _ := fs.number(path.Join(netClass, p.Name, "addr_assign_type"))
			m.random[p.Name] = n == random
			m.macs[p.Name] = fs.text(path.Join(netClass, p.Name, "address")) // after it: what is set is not random
		}
	}
	for _, p := range s.Ports {
		if id := manager.IDPath(p.Index); id != "" {
			m.idPaths[p.Name] = id
		}
	}
	return m
}

func (m managed) candidate(p appliance.Port) manager.Candidate {
	return manager.Candidate{Name: p.Name, IDPath: m.idPaths[p.Name], Driver: p.Driver, MAC: m.macs[p.Name]}
}

// claim notes which bridge the manager's own files put a port into.
func (m managed) claim(own manager.Own, c manager.Candidate) (bridge string) {
	if bridge = own.BridgeOf(c); bridge == "" {
		return ""
	}
	m.bridged[c.Name] = bridge
	if _, known := m.static[bridge]; !known {
		addresses, routes := own.Static(bridge)
		m.static[bridge] = static{addresses, routes}
	}
	return bridge
}

func (k *Keeper) owners(ctx context.Context, m manager.Manager, names map[int]string) (map[int]manager.Owner, error) {
	owners, err := m.Owners(ctx, names)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.owned[m.Name()] = owners
	}
	return k.owned[m.Name()], err
}

// managerNames tells who owns the ports: "none", or the managers' names.
func (s *Seen) managerNames() string {
	var out []string
	for _, p := range s.Ports {
		if o, ok := s.managed.owners[p.Name]; ok && !slices.Contains(out, o.Manager) {
			out = append(out, o.Manager)
		}
	}
	if len(out) == 0 {
		return manager.None{}.Name()
	}
	return strings.Join(out, ", ")
}

func (m managed) byName(name string) manager.Manager {
	i := slices.IndexFunc(m.known, func(k manager.Manager) bool { return k.Name() == name })
	if i < 0 {
		return nil
	}
	return m.known[i]
}

// pathsOf is how a file of ours names the place of a port, so that it means the port before it is there: by the places of
// the board's profile where they fit what udev calls it, else by what udev calls it. Without udev there is no place.
func pathsOf(idPath string, role board.Port) []string {
	if idPath == "" {
		return nil
	}
	globs := placesOf(role)
	if slices.ContainsFunc(globs, func(g string) bool { ok, _ := path.Match(g, idPath); return ok }) {
		return globs
	}
	return []string{escapeGlob(idPath)}
}

// placesOf turns the places of a profile into patterns for udev's ID_PATH, which joins the platform device and the PCI
// address: "platform-3c0000000.pcie-pci-0000:01:00.0". Of a PCI root ("pci0001:10") only its domain counts: the
// numbers of the buses behind it are the kernel's choice.
func placesOf(role board.Port) []string {
	var out []string
	for _, m := range role.Match {
		last := path.Base(m)
		if domain, ok := strings.CutPrefix(last, "pci"); ok && len(domain) >= 5 && domain[4] == ':' {
			last = "pci-" + domain[:5]
			out = append(out, "*"+last+"*")
			continue
		}
		if _, _, pci := strings.Cut(last, ":"); pci { // 0000:01:00.0, or a place on the USB
			out = append(out, "*-"+escapeGlob(last))
			continue
		}
		out = append(out, "platform-"+escapeGlob(last), "platform-"+escapeGlob(last)+"-*")
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// escapeGlob makes a shell pattern that means the text alone.
func escapeGlob(text string) string {
	return strings.NewReplacer("\\", "\\\\", "*", "\\*", "?", "\\?", "[", "\\[").Replace(text)
}

// keyOf names a port in the names of our files.
func keyOf(p appliance.Port) string {
	if p.Role != "" {
		return strings.ReplaceAll(p.Role, "/", "_")
	}
	return p.Name
}
