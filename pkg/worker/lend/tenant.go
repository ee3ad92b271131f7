package lend

import (
	"slices"
	"time"
)

// Tenant is a party that managers work for, as far as the host itself can tell: a name that a peer has proven
// to own, or an address. Credits, cores and memory are divided evenly among tenants first, and each tenant's
// part among its clients. So what a peer says of itself (boot number, weight, builds, demand) has an effect
// only within its tenant's part.
type Tenant struct {
	name    string
	clients []*Client // with a connection that has joined, in order of arrival
	conns   int       // connections, joined or not
	// unproven is how many of conns have a client that has yet to prove itself.
	unproven int
	left     time.Time // when the last connection ended

	queued, runs int // jobs of all its clients
	ahead        int // jobs whose sources are fetched before they have a core
	// width is the largest sum of queued and runs since the last tick, widthLast that of the tick before.
	width, widthLast int
	ended            time.Time // when a job last left its core
	yielding         int       // how many of runs are being ended for another tenant

	// pass is the core time that the tenant has used, in seconds. vtime is the pass of its client that was
	// served last.
	pass, vtime float64

	// What its compiles really take, as moving averages.
	meanWall time.Duration
	meanRSS  float64 // bytes
	excess   float64 // ratio of what a compile took to what its client said; at least 1

	patience patience

	held time.Time // until then the tenant runs no more than its part, see Yields
}

// Name returns the tenant's name.
func (t *Tenant) Name() string { return t.name }

const (
	// tenantKept is how long a tenant without connections is remembered, so that the core time that it has
	// used still counts when it returns.
	tenantKept = time.Minute
	// tenantsKept bounds how many tenants without connections are remembered.
	tenantsKept = 1024
)

// tenant returns the tenant of that name, and adds it if it is new.
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

// forget removes tenants that have had no connection for tenantKept, and if there are more than tenantsKept
// without one, the first of those.
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

// Crowded reports whether more of the tenant's jobs have arrived but have no core yet than Options.Queued
// allows.
func (l *Ledger) Crowded(t *Tenant) bool {
	waiting := -t.runs
	for _, cl := range t.clients {
		for _, c := range cl.conns {
			waiting += c.jobs
		}
	}
	return l.o.Queued > 0 && waiting > l.o.Queued
}
