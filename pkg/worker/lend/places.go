package lend

import "slices"

// Places are the connections that a host takes: Options.Conns of those whose clients have
// proven who they are, and half of that of one tenant, so that none keeps all others out.
// Connections that have proven nothing yet take none of these places, as anybody can make such;
// there are places of their own for them.

// mostOfTenant returns how many connections one tenant can have.
func (o *Options) mostOfTenant() int { return (o.Conns + 1) / 2 }

// MostUnproven returns how many connections may stand before their proof at a time, beside so
// many that have given it.
func MostUnproven(conns int) int { return max(16, conns/4) }

// Full reports whether no further connection can be taken.
func (l *Ledger) Full() bool { return l.conns-len(l.unproven) >= l.o.Conns }

// Conns returns how many connections the tenant of that name has, without those that
// have proven nothing yet, and whether it can have no further one.
func (l *Ledger) Conns(tenant string) (n int, full bool) {
	for _, t := range l.tenants {
		if t.name == tenant {
			n = t.conns - t.unproven
		}
	}
	return n, n >= l.o.mostOfTenant()
}

// Crowds reports whether there is no place for the connection, which has just proven itself: many
// can have been let in to do so when there was one.
func (l *Ledger) Crowds(c *Conn) bool {
	return l.conns-len(l.unproven) > l.o.Conns || c.tenant.conns-c.tenant.unproven > l.o.mostOfTenant()
}

// MakeRoom is to be called before an unproven connection is taken. If there are as many as there may
// be it returns one that is to be ended, which does not count from now on: of the tenant that has
// most of them the oldest. A client that has what it takes proves itself one round trip after our
// Reply; so a peer that says nothing can fill these places, but keeps none out, at its own address
// or others.
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

// Proved ends counting the connection as one that has proven nothing. It may be called again.
func (c *Conn) Proved() {
	i := slices.Index(c.l.unproven, c)
	if i < 0 {
		return
	}
	c.l.unproven = slices.Delete(c.l.unproven, i, i+1)
	c.tenant.unproven--
}
