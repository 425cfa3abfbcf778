package display

import (
	"fmt"
	"net/netip"
	"strings"

	"linerate/appliance"
)

// linkOf says how the link of a port is: "no link", "2.5G full", "1G half"; an unknown duplex is not spoken of.
func linkOf(p appliance.Port) (text string, i ink) {
	if p.Link != appliance.LinkUp {
		return "no link", dim
	}
	speed := p.Speed()
	switch {
	case speed == "":
		speed = "link"
	case p.Duplex == appliance.DuplexFull:
		speed += " full"
	}
	if p.Duplex == appliance.DuplexHalf {
		return speed + " HALF", bad
	}
	return speed, white
}

// addressOf is the address of a port with a link, or what is done about it, in texts from long to short.
func (v *screen) addressOf(p appliance.Port) []string {
	if a := p.Address(); a != "" {
		return []string{a}
	}
	if p.Bridge {
		return []string{"member of bridge " + p.Master, "in bridge " + p.Master}
	}
	if p.Master != "" {
		return []string{"member of " + p.Master}
	}
	wait := span(v.s.Now.Sub(p.Since))
	if p.Since.IsZero() {
		return []string{"asking for an address", "no address yet"}
	}
	return []string{"asking for an address " + wait, "no address yet " + wait, "no address " + wait}
}

// portLines shows a port in full: label and link, and the address on a line of its own, or on two.
func (v *screen) portLines(p appliance.Port) []line {
	link, i := linkOf(p)
	lines := []line{{left: p.Label(), leftInk: white, right: link, rightInk: i}}
	if p.Link != appliance.LinkUp {
		lines[0].leftInk = dim
		return lines
	}
	address := longest(v.cols, v.addressOf(p)...)
	if p.Address() == "" {
		return append(lines, line{right: address, rightInk: warn})
	}
	if v.tall && count(address) <= fits(medium, v.w-2*margin) {
		return append(lines, line{right: address, medium: true})
	}
	for _, t := range wrap(address, v.cols) {
		lines = append(lines, line{right: t})
	}
	return lines
}

// portTwo shows a port in two lines; an address that needs more is shown in pieces.
func (v *screen) portTwo(p appliance.Port) []line {
	lines := v.portLines(p)
	if len(lines) > 2 {
		lines = append(lines[:1], line{right: p.Address()})
	}
	return lines
}

// portOne shows a port in one line, in which link and address take turns.
func (v *screen) portOne(p appliance.Port) []line {
	l := v.portLines(p)[0]
	if p.Link == appliance.LinkUp {
		room := max(4, v.cols-count(p.Label())-1)
		address := longest(room, v.addressOf(p)...)
		l.turns = append([]string{l.right}, pieces(address, room)...)
	}
	return []line{l}
}

// ports shows one port in full.
func (v *screen) ports() {
	n := len(v.s.Ports)
	if n == 0 {
		v.note("Ports", "No Ethernet port found.", accent)
		return
	}
	i := min(v.s.View.Cursor, n-1)
	p := v.s.Ports[i]
	right := ""
	if n > 1 {
		right = fmt.Sprintf("%d/%d", i+1, n)
	}
	v.title(p.Label(), right, accent)
	v.stack(v.portDetails(p), v.h)
}

func (v *screen) portDetails(p appliance.Port) []line {
	var lines []line
	add := func(left, right string) {
		if right != "" {
			lines = append(lines, line{left: left, right: right})
		}
	}
	link, i := linkOf(p)
	kind := "port"
	if p.Test {
		kind = "test port"
	}
	lines = append(lines, line{left: kind, right: link, rightInk: i})
	if p.Link == appliance.LinkUp && p.Address() == "" {
		lines = append(lines, line{right: longest(v.cols, v.addressOf(p)...), rightInk: warn})
	}
	for _, f := range v.s.Findings {
		if f.Port == p.Label() && f.Severity != appliance.Info && !f.Done {
			lines = append(lines, line{left: "⚠ " + f.Title, leftInk: severity(f)})
		}
	}
	address := func(cidr string) {
		for _, t := range wrap(cidr, v.cols) {
			lines = append(lines, line{right: t})
		}
	}
	for _, a := range p.Addresses {
		// A full IPv6 address fills two lines without what nearly all have.
		if strings.Contains(a, ":") {
			a = strings.TrimSuffix(a, "/64")
		}
		address(a)
	}
	for _, l := range p.VLANs {
		add("VLAN", fmt.Sprint(l.ID))
		for _, a := range l.Addresses {
			address(a)
		}
	}
	if gateway, err := netip.ParseAddr(p.Gateway); err == nil {
		add("via", gateway.String())
	}
	if p.MTU > 0 {
		add("MTU", fmt.Sprint(p.MTU))
	}
	if p.Name != p.Label() {
		add("name", p.Name)
	}
	if p.Address() != "" {
		add("member of", p.Master)
	}
	add("driver", p.Driver)
	add("", p.MAC)
	if u := p.USB; u != nil && u.SpeedMbps > 0 {
		add("USB", fmt.Sprintf("%d Mbit/s", u.SpeedMbps))
	}
	return lines
}

func severity(f appliance.Finding) ink {
	if f.Severity == appliance.Grave {
		return bad
	}
	return warn
}
