package main

import (
	"net/netip"

	"github.com/rdistcc/rdistcc/internal/discover"
)

// announce announces on the local network where jobs are taken, if the settings ask for it; it
// returns nil if they do not. An address bound to loopback only is not announced, as no other
// host could reach it, unless the settings name the loopback itself.
func (d *daemon) announce() (*discover.Announcer, error) {
	c := d.cfg.Discovery
	if !c.MDNS {
		return nil, nil
	}
	a := discover.Announcement{Interfaces: c.Interfaces, Log: d.log.Logger}
	for _, l := range d.listen {
		at, err := netip.ParseAddrPort(l.Addr().String())
		if err == nil && (!at.Addr().IsLoopback() || len(c.Interfaces) > 0) {
			a.Listen = append(a.Listen, at)
		}
	}
	if len(a.Listen) == 0 {
		d.log.Warn("nothing to announce: jobs are taken from this machine only; listen on an address that others reach (--listen 0.0.0.0:7632)")
		return nil, nil
	}
	return discover.Announce(a)
}
