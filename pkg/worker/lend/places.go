package lend

import "slices"

// A host takes Options.Conns connections whose clients have proven themselves. One tenant can have half of
// them, so that none keeps all others out. Anybody can open connections without a proof, so those do not
// count here: they have a bound of their own (MostUnproven).

// mostOfTenant returns how many connections one tenant can have.
func (o *Options) mostOfTenant() int { return (o.Conns + 1) / 2 }

// MostUnproven returns how many unproven connections a host takes at a time, in addition to conns proven ones.
func MostUnproven(conns int) int { return max(16, conns/4) }

// Full reports whether no more connections can be taken.
func (l *Ledger) Full() bool { return l.conns-len(l.unproven) >= l.o.Conns }

// Conns returns how many proven connections the tenant of that name has, and whether it can have no more.
func (l *Ledger) Conns(tenant string) (n int, full bool) {
	for _, t := range l.tenants {
		if t.name == tenant {
			n = t.conns - t.unproven
		}
	}
	return n, n >= l.o.mostOfTenant()
}

// Crowds reports whether there is no room for a connection that has just proven itself. When there was room
// for one, many may have been let in to give their proof.
func (l *Ledger) Crowds(c *Conn) bool {
	return l.conns-len(l.unproven) > l.o.Conns || c.tenant.conns-c.tenant.unproven > l.o.mostOfTenant()
}

// MakeRoom is to be called before an unproven connection is taken. If the host has its maximum of these,
// MakeRoom returns one that the caller has to end, and stops counting it: the oldest one of the tenant that
// has most. A genuine client proves itself one round trip after our Reply. So a peer that stays silent can
// fill this room but keeps no client out, from its own address or others.
func (l *Ledger) MakeRoom() (out *Conn) {
	if len(l.unproven) < MostUnproven(l.o.Conns) {
		return nil
	}
	for _, c := range l.unproven {
		if out == nil || c.tenant.unproven > out.tenant.unproven {
			out = c
		}
	}
	out.Proved()
	return out
}

// Proved stops counting the connection as unproven. It may be called more than once.
func (c *Conn) Proved() {
	i := slices.Index(c.l.unproven, c)
	if i < 0 {
		return
	}
	c.l.unproven = slices.Delete(c.l.unproven, i, i+1)
	c.tenant.unproven--
}
