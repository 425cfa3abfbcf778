package appliance

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"linerate/appliance/config"
	"linerate/appliance/results"
	"linerate/appliance/throughput"
)

// How much of the past a State keeps. The rest is in the result store.
const (
	MaxResults = 10
	MaxPoints  = 60 // of a running test, one a second
)

// State is one picture of the whole box. Its JSON is what `linerate status --json` prints. Nothing in it, and nothing it
// points to, changes once it is published.
type State struct {
	Version       string           `json:"version"`
	Board         string           `json:"board"` // name of the profile
	Name          string           `json:"name"`  // of the host
	UptimeS       float64          `json:"uptime_s"`
	Clock         string           `json:"clock"`   // synced | unsynced
	Ports         []Port           `json:"ports"`   // test ports first, then by label
	Running       []*Test          `json:"running"` // those that wait for their turn last
	Results       []results.Record `json:"results"` // the last ones, newest first, without intervals
	Findings      []Finding        `json:"findings"`
	Faults        []Fault          `json:"faults"`
	Health        Health           `json:"health"`
	Page          Page             `json:"page"`
	Targets       []Target         `json:"targets"`
	ConfigState   ConfigState      `json:"config"`
	NetworkChange *NetworkChange   `json:"network_change"`

	Now     time.Time     `json:"-"` // of the newest event
	Started time.Time     `json:"-"` // of the first
	Config  config.Config `json:"-"` // in force
	Keys    []config.Key  `json:"-"` // the same, key by key
	Request *Request      `json:"-"` // the run that was asked for and is not done yet
	Wishes  []Wish        `json:"-"` // settings chosen and not stored yet
	View    View          `json:"-"` // what the display shows beside the page's name
	Picked  string        `json:"-"` // name of the target picked on the box; "" leaves it to the config
	Sought  time.Time     `json:"-"` // when servers were last looked for

	requests int // how many there have been, so that each has a number of its own
}

// ConfigState says whether the newest config could be used.
type ConfigState struct {
	Valid bool   `json:"valid"`
	Error string `json:"error"`
}

// NetworkChange is a change that is rolled back unless it is confirmed in time.
type NetworkChange struct {
	Change string    `json:"change"`
	Until  time.Time `json:"until"`
}

// Test is a test that runs or waits for its turn.
type Test struct {
	ID        string               `json:"id"`
	Role      throughput.Role      `json:"role"`
	Peer      string               `json:"peer"`
	Port      string               `json:"port"` // interface; "" where the local address is on none
	Direction throughput.Direction `json:"direction"`
	Protocol  throughput.Protocol  `json:"protocol"`
	Streams   int                  `json:"streams"`
	BPS       float64              `json:"bps"` // now, both directions together
	ElapsedS  float64              `json:"elapsed_s"`
	Seconds   float64              `json:"seconds"` // asked for; 0: until the client ends it
	Waiting   bool                 `json:"waiting"`

	RXBPS       float64  `json:"rx_bps"`
	TXBPS       float64  `json:"tx_bps"`
	Retransmits *int64   `json:"retransmits"`
	RTTMS       *float64 `json:"rtt_ms"`
	Target      string   `json:"target"`

	Local     string    `json:"-"`
	Points    []float64 `json:"-"` // bits per second, one a second, the newest last
	Cancelled bool      `json:"-"` // somebody wants it to end
}

// Target is a server that a test can be started to.
type Target struct {
	Name      string  `json:"name"`
	Host      string  `json:"host"`
	Engine    string  `json:"engine"`
	TCPPort   int     `json:"tcp_port"` // 0: the engine's own
	Via       string  `json:"via"`
	ExpectBPS float64 `json:"expect_bps"`
	Source    string  `json:"source"`  // config | peer | gateway
	Answers   *bool   `json:"answers"` // null: not asked
}

// Request is a run of one or more tests, one after the other.
type Request struct {
	Number    int // another run is another number
	Specs     []throughput.Spec
	IDs       []string // of the tests; empty: the runner gives them
	Cancelled bool
}

// Wish is a setting that somebody chose.
type Wish struct {
	Key   string
	Value any
}

// New is the State a box starts with.
func New(version, board, name string, cfg config.Config) State {
	s := State{
		Version: version, Board: board, Name: name, Clock: results.Unsynced, Page: PageBoot,
		ConfigState: ConfigState{Valid: true},
		Ports:       []Port{}, Running: []*Test{}, Results: []results.Record{}, Findings: []Finding{}, Faults: []Fault{},
	}
	s.setConfig(cfg)
	return s
}

func (s *State) setConfig(cfg config.Config) {
	if cfg.Test.Target != s.Config.Test.Target {
		s.Picked = ""
	}
	s.Config = cfg
	s.setTargets(slices.DeleteFunc(slices.Clone(s.Targets), func(t Target) bool { return t.Source == SourceConfig }))
}

// Where a target comes from.
const (
	SourceConfig  = "config"
	SourcePeer    = "peer"
	SourceGateway = "gateway"
)

// setTargets lists what is configured, or else what was found.
func (s *State) setTargets(found []Target) {
	s.Targets = []Target{}
	for _, t := range s.Config.Targets {
		s.Targets = append(s.Targets, Target{
			Name: t.Name, Host: t.Host, Engine: t.Engine, TCPPort: t.TCPPort, Via: t.Via, ExpectBPS: t.Expect, Source: SourceConfig,
		})
	}
	if len(s.Targets) == 0 {
		s.Targets = append(s.Targets, found...)
	}
}

// Chosen is the target that a press starts a test to: the one picked on the box, else the configured one; for "auto" the last one used, else the first in
// the config, else the first that answers.
func (s State) Chosen() (Target, bool) {
	if t, ok := s.FindTarget(s.Picked); ok {
		return t, true
	}
	if want := s.Config.Test.Target; want != "auto" {
		return s.FindTarget(want)
	}
	for _, r := range s.Results {
		if r.Role != throughput.Client {
			continue
		}
		for _, t := range s.Targets {
			if t.Answers != nil && !*t.Answers {
				continue
			}
			if r.Target != "" && string(r.Target) == t.Name || r.Target == "" && string(r.Peer) == t.Host {
				return t, true
			}
		}
	}
	for _, t := range s.Targets {
		if t.Source == SourceConfig || t.Answers != nil && *t.Answers {
			return t, true
		}
	}
	return Target{}, false
}

// FindTarget finds a target by its name.
func (s State) FindTarget(name string) (Target, bool) {
	i := slices.IndexFunc(s.Targets, func(t Target) bool { return t.Name == name })
	if i < 0 {
		return Target{}, false
	}
	return s.Targets[i], true
}

// Candidates are the addresses worth asking where nothing is configured: the last five peers, then each test port's
// gateway.
func (s State) Candidates() []Target {
	var list []Target
	add := func(host, source string) {
		if host == "" || slices.ContainsFunc(list, func(t Target) bool { return t.Host == host }) {
			return
		}
		list = append(list, Target{Name: host, Host: host, Engine: "iperf3", Source: source})
	}
	for _, r := range s.Results {
		if len(list) < 5 {
			add(string(r.Peer), SourcePeer)
		}
	}
	for _, p := range s.TestPorts() {
		add(p.Gateway, SourceGateway)
	}
	return list
}

// Looking says whether servers are to be looked for now: a page that names targets is open, none is configured, and the
// candidates have not been asked since the page was opened.
func (s State) Looking() bool {
	named := s.Page == PageMenu || s.Page == PageTargets || s.Page == PageTest
	return named && len(s.Config.Targets) == 0 && s.Sought.Before(s.View.Opened) && len(s.Candidates()) > 0
}

// TestPorts are the ports selected for tests.
func (s State) TestPorts() []Port {
	var list []Port
	for _, p := range s.Ports {
		if p.Test {
			list = append(list, p)
		}
	}
	return list
}

// PortOf finds the port that has the address, itself or on one of its VLANs (vlan is then the tag, else 0).
func (s State) PortOf(address string) (p Port, vlan int, ok bool) {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return Port{}, 0, false
	}
	for _, p := range s.Ports {
		if zone := ip.Zone(); zone != "" && zone != p.Name {
			continue
		}
		if vlan, ok := p.Holds(ip); ok {
			return p, vlan, true
		}
	}
	return Port{}, 0, false
}

// MyAddress is the address to tell a person: that of the first test port that has one, else of any port.
func (s State) MyAddress() string {
	for _, p := range s.Ports {
		if a := p.Address(); a != "" && p.Link == LinkUp {
			return a
		}
	}
	return ""
}

// ServesAt is host:port of the throughput server as a client must type it, without the port where it is iperf3's own.
func (s State) ServesAt(address string) string {
	_, port, err := net.SplitHostPort(s.Config.Server.Listen)
	if err != nil || port == "5201" {
		return address
	}
	return net.JoinHostPort(address, port)
}

// Active are the tests that run; those in Running behind them wait for their turn.
func (s State) Active() []*Test {
	n := slices.IndexFunc(s.Running, func(t *Test) bool { return t.Waiting })
	if n < 0 {
		n = len(s.Running)
	}
	return s.Running[:n]
}

// Waiting are the clients that wait for their turn, the oldest first.
func (s State) Waiting() []*Test { return s.Running[len(s.Active()):] }

// find returns the index of a running test.
func (s State) find(id string) int {
	return slices.IndexFunc(s.Active(), func(t *Test) bool { return t.ID == id })
}

// sortPorts puts test ports first, then orders by label as a person counts (lan2 before lan10).
func sortPorts(ports []Port) {
	slices.SortStableFunc(ports, func(a, b Port) int {
		if a.Test != b.Test {
			if a.Test {
				return -1
			}
			return 1
		}
		return compareLabels(a.Label(), b.Label())
	})
}

func compareLabels(a, b string) int {
	textA, numberA := splitNumber(a)
	textB, numberB := splitNumber(b)
	if textA != textB {
		return strings.Compare(textA, textB)
	}
	if numberA != numberB {
		return numberA - numberB
	}
	return strings.Compare(a, b)
}

func splitNumber(s string) (text string, number int) {
	text = strings.TrimRight(s, "0123456789")
	number, _ = strconv.Atoi(s[len(text):])
	return text, number
}
