package stream

import (
	"slices"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// registrations are the regions of a program's memory that a connection has open for posted operations.
type registrations struct {
	sync.Mutex
	open []iwarp.MR
	over bool // the connection has ended
}

// remove reports whether mr was open. It is the caller's to deregister then.
func (r *registrations) remove(mr iwarp.MR) bool {
	r.Lock()
	defer r.Unlock()
	i := slices.Index(r.open, mr)
	if i < 0 {
		return false
	}
	r.open = slices.Delete(r.open, i, i+1)
	return true
}

// end deregisters all that is open.
func (r *registrations) end() {
	r.Lock()
	defer r.Unlock()
	for _, mr := range r.open {
		_ = mr.Dereg() // nothing is on its way any more
	}
	r.open, r.over = nil, true
}
