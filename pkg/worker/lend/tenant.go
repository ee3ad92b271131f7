package lend

import (
	"slices"
	"time"
)

// Tenant is a party that managers work for, as far as the host can tell by itself: a name that
// a peer has proven to own, or an address. Credits, cores and memory are divided among tenants
// first, each as much as any other, and a tenant's part among its clients: what a peer says
// of itself, its boot number, weight, builds and demand, moves nothing but that part.
type Tenant struct {
	name    string
	clients []*Client // with a connection that has joined, in order of arrival
	conns   int       // connections, joined or not
	// unproven are those of conns whose client has yet to prove who it is.
	unproven int
	left     time.Time // when the last of them ended

	queued, runs int // jobs of all its clients
	// width is how many these were at most since the last tick, widthLast before that one;
	// ended is when the last one left its core.
	width, widthLast int
	ended            time.Time
	yielding         int // of runs, those that are being ended for another tenant

	// pass is the core time that it has had, in seconds; vtime is Client.pass of that of
	// its clients which was served last.
	pass, vtime float64

	// What its compiles really take: averages in which the last ones count most.
	meanWall time.Duration
	meanRSS  float64 // bytes
	excess   float64 // of what a compile took over what the client said; at least 1

	patience patience

	held time.Time // until then it runs no more than its part, see Yields
}

// Name returns the tenant's name.
func (t *Tenant) Name() string { return t.name }

const (
	// tenantKept is how long a tenant without connections is remembered: one that comes again
	// finds what it had of the cores counted.
	tenantKept = time.Minute
	// tenantsKept bounds how many of those there are.
	tenantsKept = 1024
)

// tenant finds or makes a tenant.
func (l *Ledger) tenant(name string) *Tenant {
	for _, t := range l.tenants {
		if t.name == name {
			return t
		}
	}
	t := &Tenant{name: name, pass: l.vtime, excess: 1, patience: patience{left: lapses}}
	l.tenants = append(l.tenants, t)
	return t
}

// forget forgets tenants that have been away for long, and of very many the first.
func (l *Ledger) forget(now time.Time) {
	away := 0
	for _, t := range l.tenants {
		if t.conns == 0 {
			away++
		}
	}
	l.tenants = slices.DeleteFunc(l.tenants, func(t *Tenant) bool {
		if t.conns > 0 || now.Sub(t.left) < tenantKept && away <= tenantsKept {
			return false
		}
		away--
		return true
	})
}

// most returns how many credits the tenant may hold.
func (t *Tenant) most(o *Options) int { return max(t.conns, o.Credits) }

// Crowded reports whether more of the tenant's jobs wait here than Options.Queued allows,
// those that no core has taken yet.
func (l *Ledger) Crowded(t *Tenant) bool {
	waiting := -t.runs
	for _, cl := range t.clients {
		for _, c := range cl.conns {
			waiting += c.jobs
		}
	}
	return l.o.Queued > 0 && waiting > l.o.Queued
}
