package ethnl

import (
	"slices"
	"strings"
)

// Numbers of the messages from user space (ETHTOOL_MSG_*_GET).
var (
	cmdLinkInfo  = command{2, "LINKINFO"}
	cmdLinkModes = command{4, "LINKMODES"}
	cmdLinkState = command{6, "LINKSTATE"}
	cmdWoL       = command{9, "WOL"}
	cmdFeatures  = command{11, "FEATURES"}
	cmdRings     = command{15, "RINGS"}
	cmdCoalesce  = command{19, "COALESCE"}
	cmdPause     = command{21, "PAUSE"}
	cmdEEE       = command{23, "EEE"}
)

// Duplex as LINKMODES tells it.
const (
	DuplexHalf    = 0
	DuplexFull    = 1
	DuplexUnknown = 0xff
)

// LinkInfo is what sits at the end of the wire.
type LinkInfo struct {
	Port        uint8 // PORT_*: 0 twisted pair, 3 fibre, 5 direct attach, 0xef none, 0xff other
	PHYAddress  uint8
	Transceiver uint8 // XCVR_*: 0 internal, 1 external
}

// LinkInfo asks for the kind of port.
func (c *Conn) LinkInfo(index int) (out LinkInfo, err error) {
	return out, c.ask(cmdLinkInfo, index, func(b []byte) (err error) { out, err = parseLinkInfo(b); return err })
}

func parseLinkInfo(b []byte) (out LinkInfo, err error) {
	return out, Walk(b, func(kind uint16, v []byte) (err error) {
		switch kind {
		case 2:
			out.Port, err = u8(v)
		case 3:
			out.PHYAddress, err = u8(v)
		case 6:
			out.Transceiver, err = u8(v)
		}
		return err
	})
}

// LinkModes is what this end can do and offers, what the other end offers, and what came of it. The names are link
// modes (2500baseT/Full) mixed with port and flow control bits (TP, Autoneg, Pause, Asym_Pause): Modes picks the
// former.
type LinkModes struct {
	Autoneg    bool
	Supported  []string
	Advertised []string
	Peer       []string // empty: the driver does not say, or there is no link
	SpeedMbps  int      // 0 is unknown
	Duplex     uint8    // Duplex*
}

// LinkModes asks for speeds.
func (c *Conn) LinkModes(index int) (out LinkModes, err error) {
	return out, c.ask(cmdLinkModes, index, func(b []byte) (err error) { out, err = parseLinkModes(b); return err })
}

// maxSpeedMbps is above every speed of the kernel's table (800000); what is more is a driver's garbage.
const maxSpeedMbps = 10_000_000

func parseLinkModes(b []byte) (LinkModes, error) {
	out := LinkModes{Duplex: DuplexUnknown}
	return out, Walk(b, func(kind uint16, v []byte) error {
		var n uint8
		var speed uint32
		var bits bitset
		var err error
		switch kind {
		case 2:
			n, err = u8(v)
			out.Autoneg = n == 1
		case 3:
			bits, err = parseBitset(v)
			out.Supported, out.Advertised = bits.mask, bits.set
		case 4:
			bits, err = parseBitset(v)
			out.Peer = bits.set
		case 5:
			if speed, err = u32(v); speed <= maxSpeedMbps { // SPEED_UNKNOWN is all ones
				out.SpeedMbps = int(speed)
			}
		case 6:
			out.Duplex, err = u8(v)
		}
		return err
	})
}

// Modes keeps the link modes of a list of LinkModes and leaves out the rest; never nil.
func Modes(names []string) []string {
	out := make([]string, 0, len(names))
	for _, n := range names {
		if strings.Contains(n, "base") && strings.Contains(n, "/") {
			out = append(out, n)
		}
	}
	return out
}

// SpeedOf is the speed in Mbit/s that a link mode's name begins with; 0 where it has none.
func SpeedOf(mode string) int {
	n := 0
	for i := 0; i < len(mode) && n <= maxSpeedMbps; i++ {
		switch c := mode[i]; {
		case c >= '0' && c <= '9':
			n = n*10 + int(c-'0')
		case strings.HasPrefix(mode[i:], "base"):
			return n
		default:
			return 0
		}
	}
	return 0
}

// LinkState is the carrier as the PHY sees it. Reasons for a link that is down are ETHTOOL_LINK_EXT_STATE_*.
type LinkState struct {
	Link   bool
	Reason *uint8  // why it is down, where the driver knows: 1 no partner in autonegotiation, 4 no cable, 7 power budget
	Downs  *uint32 // times the link went down for physical reasons, where the driver counts
}

// LinkState asks for the carrier.
func (c *Conn) LinkState(index int) (out LinkState, err error) {
	return out, c.ask(cmdLinkState, index, func(b []byte) (err error) { out, err = parseLinkState(b); return err })
}

func parseLinkState(b []byte) (out LinkState, err error) {
	return out, Walk(b, func(kind uint16, v []byte) error {
		var n uint8
		var count uint32
		var err error
		switch kind {
		case 2:
			n, err = u8(v)
			out.Link = n == 1
		case 5:
			n, err = u8(v)
			out.Reason = &n
		case 7:
			count, err = u32(v)
			out.Downs = &count
		}
		return err
	})
}

// WoL holds the wake-on-LAN reasons, named as the kernel does: magic, phy, ucast ...
type WoL struct {
	Supported []string
	Active    []string
}

// WoL needs CAP_NET_ADMIN (it would tell the SecureOn password): without it the error is fs.ErrPermission.
func (c *Conn) WoL(index int) (out WoL, err error) {
	return out, c.ask(cmdWoL, index, func(b []byte) (err error) { out, err = parseWoL(b); return err })
}

func parseWoL(b []byte) (out WoL, err error) {
	return out, Walk(b, func(kind uint16, v []byte) error {
		if kind != 2 {
			return nil
		}
		bits, err := parseBitset(v)
		out = WoL{Supported: bits.mask, Active: bits.set}
		return err
	})
}

// Feature is one offload or property of a port.
type Feature struct {
	Active bool // in force now
	Wanted bool // asked for
	Fixed  bool // cannot be changed here
}

// Features asks for all features that the kernel has a name for.
func (c *Conn) Features(index int) (out map[string]Feature, err error) {
	return out, c.ask(cmdFeatures, index, func(b []byte) (err error) { out, err = parseFeatures(b); return err })
}

func parseFeatures(b []byte) (map[string]Feature, error) {
	var hardware, wanted, active, fixed bitset
	err := Walk(b, func(kind uint16, v []byte) (err error) {
		switch kind {
		case 2:
			hardware, err = parseBitset(v)
		case 3:
			wanted, err = parseBitset(v)
		case 4:
			active, err = parseBitset(v)
		case 5:
			fixed, err = parseBitset(v)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make(map[string]Feature, len(hardware.mask))
	for _, n := range hardware.mask {
		changeable := slices.Contains(hardware.set, n) && !slices.Contains(fixed.set, n)
		out[n] = Feature{
			Active: slices.Contains(active.set, n), Wanted: slices.Contains(wanted.set, n), Fixed: !changeable,
		}
	}
	return out, nil
}

// Rings holds the lengths of the receive and transmit rings, in frames.
type Rings struct {
	RX, TX       int
	RXMax, TXMax int
}

// Rings asks for the rings.
func (c *Conn) Rings(index int) (out Rings, err error) {
	return out, c.ask(cmdRings, index, func(b []byte) (err error) { out, err = parseRings(b); return err })
}

func parseRings(b []byte) (out Rings, err error) {
	into := map[uint16]*int{2: &out.RXMax, 5: &out.TXMax, 6: &out.RX, 9: &out.TX}
	err = Walk(b, func(kind uint16, v []byte) error { return number(into, kind, v) })
	return out, err
}

// Coalesce is how long a port gathers frames before it interrupts. What the driver has no setting for stays 0.
type Coalesce struct {
	RXUsecs, RXFrames      int
	TXUsecs, TXFrames      int
	AdaptiveRX, AdaptiveTX bool
}

// Coalesce asks for the interrupt coalescing.
func (c *Conn) Coalesce(index int) (out Coalesce, err error) {
	return out, c.ask(cmdCoalesce, index, func(b []byte) (err error) { out, err = parseCoalesce(b); return err })
}

func parseCoalesce(b []byte) (out Coalesce, err error) {
	numbers := map[uint16]*int{2: &out.RXUsecs, 3: &out.RXFrames, 6: &out.TXUsecs, 7: &out.TXFrames}
	flags := map[uint16]*bool{11: &out.AdaptiveRX, 12: &out.AdaptiveTX}
	err = Walk(b, func(kind uint16, v []byte) error {
		if err := number(numbers, kind, v); err != nil {
			return err
		}
		return flag(flags, kind, v)
	})
	return out, err
}

// Pause is flow control as set on this end (IEEE 802.3 Annex 31B).
type Pause struct {
	Autoneg, RX, TX bool
}

// Pause asks for flow control.
func (c *Conn) Pause(index int) (out Pause, err error) {
	return out, c.ask(cmdPause, index, func(b []byte) (err error) { out, err = parsePause(b); return err })
}

func parsePause(b []byte) (out Pause, err error) {
	into := map[uint16]*bool{2: &out.Autoneg, 3: &out.RX, 4: &out.TX}
	err = Walk(b, func(kind uint16, v []byte) error { return flag(into, kind, v) })
	return out, err
}

// EEE is energy-efficient Ethernet (IEEE 802.3az): asked for here, and in force on this link.
type EEE struct {
	Enabled, Active bool
}

// EEE asks for energy-efficient Ethernet.
func (c *Conn) EEE(index int) (out EEE, err error) {
	return out, c.ask(cmdEEE, index, func(b []byte) (err error) { out, err = parseEEE(b); return err })
}

func parseEEE(b []byte) (out EEE, err error) {
	into := map[uint16]*bool{4: &out.Active, 5: &out.Enabled}
	err = Walk(b, func(kind uint16, v []byte) error { return flag(into, kind, v) })
	return out, err
}

// number stores a u32 attribute where the table has a place for it.
func number(into map[uint16]*int, kind uint16, v []byte) error {
	p, ok := into[kind]
	if !ok {
		return nil
	}
	n, err := u32(v)
	*p = int(n)
	return err
}

// flag stores a u8 attribute as a truth where the table has a place for it.
func flag(into map[uint16]*bool, kind uint16, v []byte) error {
	p, ok := into[kind]
	if !ok {
		return nil
	}
	n, err := u8(v)
	*p = n != 0
	return err
}
