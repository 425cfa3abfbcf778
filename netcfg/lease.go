package netcfg

import (
	"log/slog"
	"slices"
	"strings"

	"linerate/appliance"
	"linerate/netcfg/manager"
)

// clients are the DHCP clients of the ports that no manager asks for. It is used by one goroutine.
type clients struct {
	log   *slog.Logger
	ports map[client]*manager.DHCP
}

// client tells a port from one that was plugged in again, or that is called or known otherwise.
type client struct {
	index     int
	name, mac string
}

// update starts and stops clients so that each of the ports has one, and tells them of the links.
func (c *clients) update(ports []appliance.Port) {
	if c.ports == nil {
		c.ports = map[client]*manager.DHCP{}
	}
	key := func(p appliance.Port) client { return client{p.Index, p.Name, p.MAC} }
	for k, d := range c.ports {
		if !slices.ContainsFunc(ports, func(p appliance.Port) bool { return key(p) == k }) {
			d.Stop()
			delete(c.ports, k)
		}
	}
	for _, p := range ports {
		up := p.Link == appliance.LinkUp
		if d := c.ports[key(p)]; d != nil {
			d.Carrier(up)
			continue
		}
		c.ports[key(p)] = manager.StartDHCP(p.Name, up, c.log)
	}
}

// failures says what is wrong at the ports themselves; that nobody answers is none.
func (c *clients) failures() []Failure {
	var out []Failure
	for k, d := range c.ports {
		if text := d.Fault(); text != "" {
			out = append(out, Failure{Port: k.name, Text: text})
		}
	}
	slices.SortFunc(out, func(a, b Failure) int { return strings.Compare(a.Text, b.Text) })
	return out
}

// leave ends the clients and leaves the addresses: another process goes on.
func (c *clients) leave() {
	for _, d := range c.ports {
		d.Leave()
	}
}
