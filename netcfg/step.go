package netcfg

import (
	"fmt"

	"linerate/appliance"
	"linerate/netcfg/manager"
)

// Kind says what a Step does.
type Kind string

// The kinds of steps.
const (
	LeaveBridge   Kind = "leave-bridge"
	JoinBridge    Kind = "join-bridge"
	SetMTU        Kind = "set-mtu"
	SetMAC        Kind = "set-mac"
	SetUp         Kind = "set-up"
	SetDown       Kind = "set-down"
	AddAddress    Kind = "add-address"
	RemoveAddress Kind = "remove-address"
	SetRoute      Kind = "set-route"
	RemoveRoute   Kind = "remove-route"
	AddBridge     Kind = "add-bridge"
	DeleteBridge  Kind = "delete-bridge"
	WriteFile     Kind = "write-file"
	RemoveFile    Kind = "remove-file"
	TellManager   Kind = "tell-manager"
	Announce      Kind = "announce"
)

// Step is one change of one interface.
type Step struct {
	Kind Kind   `json:"step"`
	Port string `json:"port"` // the interface that is changed
	Text string `json:"text"` // what it does, in a sentence

	File *manager.File `json:"file,omitempty"` // WriteFile, RemoveFile: which, and its content

	index   int                  // of the interface, when the plan was made; 0: it was not there
	bridge  string               // LeaveBridge, JoinBridge: which
	mtu     int                  // SetMTU
	oldMTU  int                  //
	mac     string               // SetMAC
	oldMAC  string               //
	address manager.Address      // AddAddress, RemoveAddress
	move    bool                 // AddAddress: another interface had it before, so the neighbours are told
	route   manager.Route        // SetRoute, RemoveRoute
	before  *manager.Route       // SetRoute: what it takes the place of; nil: nothing
	made    *madeBridge          // AddBridge, DeleteBridge: what the bridge is like
	member  map[string]string    // LeaveBridge, JoinBridge: what the membership is like
	vlans   []manager.MemberVLAN //
	manager string               // WriteFile, RemoveFile, TellManager: who reads it
	old     *string              // WriteFile, RemoveFile: the content before; nil: it was not there
	tell    []int                // interfaces that the manager is told of after it; nil: it is not told yet
	group   string               // steps of one group stand or fall together; "": it stands alone
	vital   bool                 // when it fails, its group is undone

	tellUndone []int // like tell, when it is undone
}

// same says whether two steps want the same thing, whatever the way there.
func (s Step) same(o Step) bool {
	return s.Kind == o.Kind && s.Port == o.Port && s.bridge == o.bridge && s.mtu == o.mtu && s.mac == o.mac &&
		s.address.Prefix == o.address.Prefix && s.route.Equal(o.route) && s.path() == o.path()
}

// path of the step's file.
func (s Step) path() string {
	if s.File == nil {
		return ""
	}
	return s.File.Path
}

// undo is the step that takes s back; false where nothing can or need be taken back.
func (s Step) undo() (Step, bool) {
	u := s
	u.Text = "undo: " + s.Text
	switch s.Kind {
	case LeaveBridge:
		u.Kind = JoinBridge
	case JoinBridge:
		u.Kind = LeaveBridge
	case SetMTU:
		u.mtu, u.oldMTU = s.oldMTU, s.mtu
	case SetMAC:
		u.mac, u.oldMAC = s.oldMAC, s.mac
	case SetUp:
		return Step{}, false // an interface that is up harms nobody, and down it would lose its routes
	case SetDown:
		u.Kind = SetUp
	case AddAddress:
		u.Kind = RemoveAddress
	case RemoveAddress:
		u.Kind = AddAddress
	case SetRoute:
		if s.before == nil {
			u.Kind = RemoveRoute
		} else {
			u.route, u.before = *s.before, &s.route
		}
	case RemoveRoute:
		u.Kind, u.before = SetRoute, nil
	case AddBridge:
		u.Kind = DeleteBridge
	case DeleteBridge:
		u.Kind = AddBridge
	case WriteFile, RemoveFile:
		u.tell, u.tellUndone, u.old = s.tellUndone, s.tell, &s.File.Content
		if s.old == nil {
			u.Kind = RemoveFile
			break
		}
		u.Kind, u.File = WriteFile, &manager.File{Path: s.File.Path, Content: *s.old, Mode: s.File.Mode}
	default:
		return Step{}, false
	}
	return u, true
}

// Plan is what has to change. Running it and planning again gives a plan without steps.
type Plan struct {
	Steps  []Step   `json:"steps"`
	Notes  []string `json:"notes"`  // what is left as it is, or not quite as asked, and why; a line each
	Faults []string `json:"faults"` // what is asked for and cannot be; a line each

	warnings []string // what a person must know before it is done; a line each

	leases []appliance.Port // ports that ask a DHCP server, and need us to
	saves  originals        // what was found, to be kept before the first step
}

func (p *Plan) step(s Step, format string, args ...any) {
	s.Text = s.Port + ": " + fmt.Sprintf(format, args...)
	p.Steps = append(p.Steps, s)
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}
