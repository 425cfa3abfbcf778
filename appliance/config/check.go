package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// problem is what does not fit together though each value is good. keys are those that it is about.
type problem struct {
	keys    []string
	message string
}

// check holds the config together as a whole. The defaults pass.
func (e effective) check() []problem {
	var out []problem
	fail := func(message string, keys ...string) { out = append(out, problem{keys, message}) }
	c := e.config
	for _, t := range c.Targets {
		if t.Host == "" {
			fail(fmt.Sprintf("[[target]] %s has no host: want its name or address", show(t.Name)), targetTable+"."+t.Name+".name")
		}
	}
	if name := c.Test.Target; name != Auto && !slices.Contains(e.targets, name) {
		message := fmt.Sprintf("test.target = %s names no [[target]]", show(name))
		if len(e.targets) > 0 {
			message += ": the nearest is " + show(nearest(name, e.targets))
		}
		fail(message, "test.target")
	}
	held := map[netip.Addr]string{}
	for _, p := range c.Port {
		prefix := portTable + "." + p.Match + "."
		hold := func(list []Address, key string) {
			for _, a := range list {
				if a.Method != AddressStatic {
					continue
				}
				if before, ok := held[a.Prefix.Addr()]; ok {
					fail(fmt.Sprintf("%s has the address %s of %s", key, a, before), key, before)
				}
				held[a.Prefix.Addr()] = key
			}
		}
		if _, own := e.leaves[prefix+"address"]; own {
			hold(p.Address, prefix+"address")
		}
		for _, v := range p.VLAN {
			hold(v.Address, prefix+"vlan")
		}
	}
	listens := []struct {
		on  bool
		key string
		at  string
	}{
		{c.Server.Enable, "server.listen", c.Server.Listen},
		{c.Nuttcp.Enable, "nuttcp.listen", c.Nuttcp.Listen},
		{c.Web.Enable && c.Web.Listen != Auto, "web.listen", c.Web.Listen},
	}
	for i, a := range listens {
		for _, b := range listens[:i] {
			if a.on && b.on && collide(a.at, b.at) {
				fail(fmt.Sprintf("%s = %q and %s = %q want the same port", b.key, b.at, a.key, a.at), a.key, b.key)
			}
		}
	}
	return out
}

// collide says whether two listeners want the same port of the same address.
func collide(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a)
	hostB, portB, _ := net.SplitHostPort(b)
	any := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return err != nil || ip.IsUnspecified()
	}
	return portA == portB && portA != "0" && (hostA == hostB || any(hostA) || any(hostB))
}
