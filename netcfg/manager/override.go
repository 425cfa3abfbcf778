package manager

import (
	"context"
	"io/fs"
	"net"
	"net/netip"
)

// Override is what a network manager is told about one interface, in the place of what its other files say: it stands
// alone, in no bridge, and serves nobody an address.
type Override struct {
	Key       string           // names the file: the port's role, else the interface's name
	Paths     []string         // udev's ID_PATH as shell patterns; empty: it is matched by Name
	Name      string           // of the interface
	MAC       net.HardwareAddr // nil: its own
	MTU       int              // bytes; 0: as it is
	DHCP      bool             // IPv4 and IPv6, with IPv4 link-local where no server answers
	Addresses []netip.Prefix   // static ones
	Routes    []Route          // of it
	Empty     bool             // a bridge that all ports have left: no address at all
}

// File is a whole file that is ours.
type File struct {
	Path    string      `json:"path"`
	Content string      `json:"content"`
	Mode    fs.FileMode `json:"mode"`
}

// Owner says who owns an interface, and by which of its files; File is empty where that cannot be told.
type Owner struct {
	Manager string `json:"manager"`
	File    string `json:"file,omitempty"`
}

// Manager is a program that owns ports. Its methods may be called from any goroutine; each returns when its context ends,
// and soon when the manager does not answer.
type Manager interface {
	// Name as it is told to people.
	Name() string
	// Owners tells which of the interfaces, by their index, the manager owns at this moment. A manager that does not
	// run owns none, and that is no error.
	Owners(ctx context.Context, names map[int]string) (map[int]Owner, error)
	// Files is the override in the manager's own words. A tentative one is gone after a restart of the box.
	Files(o Override, tentative bool) []File
	// Ours lists what there is of such files, by path.
	Ours() (map[string]string, error)
	// Load makes the manager read its files and apply them to the interfaces with these indexes; those that are gone
	// are left out. It returns when the manager has taken the order, not when the order is carried out.
	Load(ctx context.Context, indexes []int) error
	// Starts says whether the manager is started at boot, for who runs before it.
	Starts() bool
	// Read reads what the manager's files say without ours.
	Read() Own
}

// Own is what a manager's own files say. It does no more than what was read.
type Own interface {
	// BridgeOf names the bridge that the port would be put into; "" for none.
	BridgeOf(c Candidate) string
	// Static lists what the files give an interface that is always there.
	Static(name string) (addresses []netip.Prefix, routes []Route)
}

// Candidate is a port as far as it is known; without a name it is not there yet.
type Candidate struct{ Name, IDPath, Driver, MAC string }

// Managers lists all that are known here.
func Managers() []Manager { return []Manager{&Networkd{}} }
