package manager

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// MemberVLAN is one VLAN that a bridge which filters by VLAN lets through a member, or, of the bridge itself, to the
// box.
type MemberVLAN struct {
	ID       int  `json:"id"`
	PVID     bool `json:"pvid,omitempty"`     // frames without a tag belong to it
	Untagged bool `json:"untagged,omitempty"` // it leaves without a tag
}

// MemberVLANs lists them by interface index.
func MemberVLANs() (map[int][]MemberVLAN, error) {
	list, err := netlink.BridgeVlanList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list the VLANs of bridges: %w", err)
	}
	out := map[int][]MemberVLAN{}
	for index, vlans := range list {
		for _, v := range vlans {
			out[int(index)] = append(out[int(index)], MemberVLAN{
				ID: int(v.Vid), PVID: v.Flags&nl.BRIDGE_VLAN_INFO_PVID != 0,
				Untagged: v.Flags&nl.BRIDGE_VLAN_INFO_UNTAGGED != 0,
			})
		}
	}
	return out, nil
}

// SetMemberVLANs gives a member (self false) or a bridge (self true) exactly these VLANs.
func (None) SetMemberVLANs(name string, vlans []MemberVLAN, self bool) error {
	link, err := find(name)
	if err != nil {
		return err
	}
	have, err := MemberVLANs()
	if err != nil {
		return err
	}
	for _, v := range have[link.Attrs().Index] {
		if !slices.Contains(vlans, v) {
			if err := netlink.BridgeVlanDel(link, uint16(v.ID), v.PVID, v.Untagged, self, !self); err != nil {
				return fmt.Errorf("VLAN %d: %w", v.ID, err)
			}
		}
	}
	for _, v := range vlans {
		if err := netlink.BridgeVlanAdd(link, uint16(v.ID), v.PVID, v.Untagged, self, !self); err != nil {
			return fmt.Errorf("VLAN %d: %w", v.ID, err)
		}
	}
	return nil
}
