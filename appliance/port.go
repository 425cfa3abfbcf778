package appliance

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"linerate/appliance/throughput"
)

// Link states of a Port.
const (
	LinkUp   = "up"
	LinkDown = "down"
)

// Duplex of a link. Drivers of the cdc family fill in no duplex; that reads as unknown, never as half.
const (
	DuplexFull    = "full"
	DuplexHalf    = "half"
	DuplexUnknown = "unknown"
)

// Port is one physical Ethernet port (or, in tests, a veth) as the kernel shows it. A nil pointer is unknown.
type Port struct {
	Name      string `json:"name"` // interface, may change from boot to boot
	Role      string `json:"role"` // from the board's profile: lan1, wan ...; "" where it names none
	Path      string `json:"path"` // of the device below /sys/devices; "" for a port without a device
	Driver    string `json:"driver"`
	Firmware  string `json:"firmware"`
	MAC       string `json:"mac"`
	Link      string `json:"link"`       // up: the carrier is there
	SpeedMbps *int   `json:"speed_mbps"` // null while there is no link
	Duplex    string `json:"duplex"`
	Autoneg   *bool  `json:"autoneg"`
	MTU       int    `json:"mtu"` // bytes
	MTUMin    *int   `json:"mtu_min"`
	MTUMax    *int   `json:"mtu_max"`
	Master    string `json:"master"` // bridge, bond, team or VRF it is a member of
	Test      bool   `json:"test"`   // selected by [ports] select

	Addresses       []string `json:"addresses"`        // CIDR, IPv6 link-local last
	Gateway         string   `json:"gateway"`          // of its default route, IPv4 first; "" where there is none
	SupportedModes  []string `json:"supported_modes"`  // as ethtool names them: 2500baseT/Full
	AdvertisedModes []string `json:"advertised_modes"` //
	PeerModes       []string `json:"peer_modes"`       // empty: the driver does not say

	Pause          *Pause          `json:"pause"`
	EEE            *EEE            `json:"eee"`
	WoL            []string        `json:"wol"`             // active wake-on-LAN modes
	Features       map[string]bool `json:"features"`        // kernel's feature name -> active; never changed once published
	CarrierChanges int             `json:"carrier_changes"` // since the interface appeared
	USB            *USB            `json:"usb"`
	PCIe           *PCIe           `json:"pcie"`

	Index  int    `json:"-"` // ifindex; another one is another port, though the name be the same
	Bridge bool   `json:"-"` // Master is a bridge
	VLANs  []VLAN `json:"-"` // tagged interfaces on top of this port

	Since time.Time `json:"-"` // when the link or the presence of an address last changed; Apply keeps it
}

// VLAN is a tagged interface on a port.
type VLAN struct {
	Name      string
	ID        int
	Addresses []string // CIDR
}

// Pause is flow control (IEEE 802.3 Annex 31B) as set on the port.
type Pause struct {
	Autoneg bool `json:"autoneg"`
	RX      bool `json:"rx"`
	TX      bool `json:"tx"`
}

// EEE is energy-efficient Ethernet (IEEE 802.3az).
type EEE struct {
	Enabled bool `json:"enabled"`
	Active  bool `json:"active"`
}

// USB is the USB device behind a port.
type USB struct {
	SpeedMbps  int    `json:"speed_mbps"`
	Version    string `json:"version"` // bcdUSB
	Vendor     string `json:"vendor"`  // four hexadecimal digits
	Product    string `json:"product"` //
	MaxPowerMA int    `json:"max_power_ma"`
}

// PCIe is the PCI Express link of a port: transfers in GT/s, width in lanes.
type PCIe struct {
	GTs      float64 `json:"gts"`
	Width    int     `json:"width"`
	MaxGTs   float64 `json:"max_gts"`
	MaxWidth int     `json:"max_width"`
}

// Label is what a person knows the port by: its role, else its interface name.
func (p Port) Label() string {
	if p.Role != "" {
		return p.Role
	}
	return p.Name
}

// Speed is the link's speed as it is spoken of: "2.5G", "100M"; "" where it is unknown.
func (p Port) Speed() string {
	if p.SpeedMbps == nil || *p.SpeedMbps <= 0 {
		return ""
	}
	if mbps := *p.SpeedMbps; mbps < 1000 {
		return strconv.Itoa(mbps) + "M"
	}
	return strconv.FormatFloat(float64(*p.SpeedMbps)/1000, 'f', -1, 64) + "G"
}

// Address is the address to type into a client: IPv4 first, then global IPv6, then IPv6 link-local, without prefix
// length; "" where there is none yet.
func (p Port) Address() string {
	best, rank := "", 0
	for _, a := range p.Addresses {
		prefix, err := netip.ParsePrefix(a)
		if err != nil {
			continue
		}
		r := 1
		switch ip := prefix.Addr(); {
		case ip.Is4() && !ip.IsLinkLocalUnicast():
			r = 4
		case ip.Is4():
			r = 3
		case !ip.IsLinkLocalUnicast():
			r = 2
		}
		if r > rank {
			best, rank = prefix.Addr().String(), r
		}
	}
	return best
}

// Holds says whether the port or one of its VLANs has this address; vlan is then the tag, 0 for the port itself.
func (p Port) Holds(ip netip.Addr) (vlan int, ok bool) {
	ip = ip.Unmap().WithZone("")
	has := func(cidr string) bool {
		prefix, err := netip.ParsePrefix(cidr)
		return err == nil && prefix.Addr() == ip
	}
	if slices.ContainsFunc(p.Addresses, has) {
		return 0, true
	}
	for _, v := range p.VLANs {
		if slices.ContainsFunc(v.Addresses, has) {
			return v.ID, true
		}
	}
	return 0, false
}

// MarshalJSON writes null for each name that is unknown or that there is none of.
func (p Port) MarshalJSON() ([]byte, error) {
	type plain Port // without this method
	return json.Marshal(struct {
		Name     string          `json:"name"`
		Role     throughput.Text `json:"role"`
		Path     throughput.Text `json:"path"`
		Driver   throughput.Text `json:"driver"`
		Firmware throughput.Text `json:"firmware"`
		MAC      throughput.Text `json:"mac"`
		plain
		Master  throughput.Text `json:"master"`
		Gateway throughput.Text `json:"gateway"`
	}{
		Name: p.Name, Role: throughput.Text(p.Role), Path: throughput.Text(p.Path), Driver: throughput.Text(p.Driver),
		Firmware: throughput.Text(p.Firmware), MAC: throughput.Text(p.MAC), plain: plain(p),
		Master: throughput.Text(p.Master), Gateway: throughput.Text(p.Gateway),
	})
}
