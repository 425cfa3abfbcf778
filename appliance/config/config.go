package config

import (
	"net/netip"
	"slices"
	"time"

	"linerate/appliance/throughput"
)

// Config is the effective config of the box, checked as a whole. Default gives one that serves.
type Config struct {
	Board   Board
	Ports   Ports
	Port    []Port // [[port]]: what is wanted of single ports, in the order of the files
	CPU     CPU
	Server  Server
	Nuttcp  Nuttcp
	Test    Test
	Targets []Target // [[target]], in the order of the files
	Buttons Buttons
	Display Display
	Web     Web
}

// Auto is the word that leaves a choice to the box.
const Auto = "auto"

// Board chooses the board's profile.
type Board struct {
	Profile string // auto, or a profile's name
}

// Bridge says what becomes of a bridge that holds test ports.
type Bridge string

// What may become of a bridge.
const (
	BridgeFree Bridge = "free" // its test ports leave it
	BridgeKeep Bridge = "keep" // it stays as it is
	BridgeAuto Bridge = "auto" // free on a known board or where ports are named, else keep
)

// Ports are the test ports and what they all have in common.
type Ports struct {
	Select  []string // auto, roles, interface names, device paths; never empty
	Bridge  Bridge
	MTU     MTU
	Address []Address // never empty
}

// Port is what is wanted of one port. MTU and Address are those of Ports where the file leaves them out; an MTU among
// the settings stands here too, since it wins.
type Port struct {
	Match   string // role, interface name or device path; unique
	MTU     MTU
	Address []Address
	VLAN    []VLAN
	Native  bool // false: only the tagged VLANs carry addresses
}

// VLAN is a tagged interface (IEEE 802.1Q) on a port.
type VLAN struct {
	ID      int // 1-4094, unique on its port
	Address []Address
}

// IRQ says whether interrupts are spread over the cores.
type IRQ string

// What may be done with interrupts.
const (
	IRQSpread IRQ = "spread"
	IRQLeave  IRQ = "leave"
)

// Leave is the governor that keeps the system's own.
const Leave = "leave"

// CPU is what is wanted of the processor.
type CPU struct {
	Governor string // a cpufreq governor, or Leave
	MinFreq  Frequency
	IRQ      IRQ
}

// Concurrency says what happens to a client that comes while another tests.
type Concurrency string

// What may happen to a further client.
const (
	Parallel  Concurrency = "parallel"  // it tests at the same time
	Queue     Concurrency = "queue"     // it waits, at most Server.QueueWait
	Exclusive Concurrency = "exclusive" // it is told that the box is busy
)

// Server is the throughput server that speaks iperf3's protocol, and the limits of every server.
type Server struct {
	Enable      bool
	Listen      string // host:port; an empty host is every address
	Concurrency Concurrency
	QueueWait   time.Duration
	MaxTests    int            // at once, on each port
	MaxDuration time.Duration  // of a test; 0: no limit
	MaxRate     float64        // bit/s a test; 0: no limit
	Stall       time.Duration  // a test without progress for so long ends; 0: auto
	Allow       []netip.Prefix // who may test; empty: everybody
	Copy        bool           // received payload is copied to user space
}

// Allows says whether a client at this address may test. A zone is ignored, an IPv4-mapped address counts as IPv4.
func (s Server) Allows(client netip.Addr) bool {
	client = client.Unmap().WithZone("")
	return len(s.Allow) == 0 ||
		slices.ContainsFunc(s.Allow, func(p netip.Prefix) bool { return p.Contains(client) })
}

// Nuttcp is the server that speaks nuttcp's protocol.
type Nuttcp struct {
	Enable bool
	Listen string // host:port
}

// Test is what a button press starts.
type Test struct {
	Target     string // auto, or the name of one of Targets
	Seconds    int    // 1-86400
	Streams    int    // 1-128
	Directions []throughput.Direction
	Protocol   throughput.Protocol
	Rate       float64 // bit/s a stream; 0: no limit
}

// Target is a server to test to.
type Target struct {
	Name    string  // unique
	Host    string  // name or address
	Engine  string  // iperf3 | nuttcp
	TCPPort int     // 0: the engine's own
	Via     string  // port (role, interface name or device path) to leave by; "": as the routes say
	Expect  float64 // bit/s that make a result pass; 0: none
}

// Buttons are the keys of the box.
type Buttons struct {
	Enable  bool
	Devices []string // auto, or paths and names of input devices; never empty
}

// Display is the panel. Panel may be auto, none, terminal or a panel profile's name.
type Display struct {
	Panel      string
	Rotate     int           // 0 | 180 degrees
	SleepAfter time.Duration // without a key; 0: never
}

// Values of Display.Panel that name no panel profile.
const (
	PanelNone     = "none"
	PanelTerminal = "terminal"
)

// PINOff is the Web.PIN that lets everybody change things.
const PINOff = "off"

// Web is the page and the API over TCP.
type Web struct {
	Enable bool
	Listen string // auto, or host:port
	PIN    string // auto | off | 4-8 digits
}

// Default returns the config of a box without any file.
func Default() Config {
	return Config{
		Board: Board{Profile: Auto},
		Ports: Ports{Select: []string{Auto}, Bridge: BridgeAuto, Address: []Address{{Method: AddressAuto}}},
		CPU:   CPU{Governor: "performance", MinFreq: FrequencyMax, IRQ: IRQSpread},
		Server: Server{
			Enable: true, Listen: ":5201", Concurrency: Parallel, QueueWait: time.Minute, MaxTests: 16,
		},
		Nuttcp: Nuttcp{Enable: true, Listen: ":5000"},
		Test: Test{
			Target: Auto, Seconds: 10, Streams: 1, Protocol: throughput.TCP,
			Directions: []throughput.Direction{throughput.RX, throughput.TX},
		},
		Buttons: Buttons{Enable: true, Devices: []string{Auto}},
		Display: Display{Panel: Auto, SleepAfter: 10 * time.Minute},
		Web:     Web{Enable: true, Listen: Auto, PIN: Auto},
	}
}
