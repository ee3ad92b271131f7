package worker

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/store"
)

// Status is what a status page shows.
type Status struct {
	Load       job.Load      `json:"load"`
	Large      int64         `json:"large_bytes"` // of sources and results beyond slots and sinks
	Tree       bool          `json:"tree"`        // jobs of the sources form are taken
	Sandbox    SandboxStatus `json:"sandbox"`
	Store      StoreStatus   `json:"store"`
	Toolchains int           `json:"toolchains"` // that clients are offered
	// Identifying: not all compilers have been asked since the start.
	Identifying bool           `json:"identifying"`
	Tenants     int            `json:"tenants"` // whom the clients work for
	Clients     []ClientStatus `json:"clients"`
	Jobs        []JobStatus    `json:"underway"` // the oldest first
}

// StoreStatus is of contents that clients send once.
type StoreStatus struct {
	store.Stats
	Most int64 `json:"most_bytes"` // of one tenant's; 0: none are kept
	// Trees is how many bytes trees keep from one job to the next.
	Trees int64 `json:"tree_bytes"`
}

// JobStatus is one job that the server has now.
type JobStatus struct {
	Client string        `json:"client"` // what its manager says of itself
	Remote string        `json:"remote"` // and its address
	Source string        `json:"source"` // as its command names it; empty: that was not read yet
	Phase  string        `json:"phase"`  // fetches, waits, compiles or answers
	Age    time.Duration `json:"age_ns"`
}

// ClientStatus is one connection's part of a Status.
type ClientStatus struct {
	// Tenant is whom it counts for, Name what it says of itself.
	Tenant   string    `json:"tenant"`
	Name     string    `json:"name"`
	Remote   string    `json:"remote"`
	Credits  int       `json:"credits"` // unspent
	InHand   int       `json:"in_hand"` // queued or running
	Weight   int       `json:"weight"`  // of its manager
	Demand   int       `json:"demand"`  // the same; -1: it did not say
	Jobs     uint64    `json:"jobs"`
	Since    time.Time `json:"since"`
	BytesIn  uint64    `json:"bytes_in"`
	BytesOut uint64    `json:"bytes_out"`
}

// Status returns the state of now.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Load: s.loadLocked(), Large: s.large.Used(), Tree: s.places.Trees, Sandbox: s.sandboxLocked(), Store: StoreStatus{Stats: s.storeStats(), Trees: s.places.Kept()},
		Toolchains: len(s.Toolchains()), Identifying: s.Identifying(), Tenants: s.lend.Tenants()}
	if s.keep != nil {
		st.Store.Most = s.keep.Most()
	}
	for c := range s.conns {
		if c.claim != nil {
			continue // no client yet
		}
		q := ClientStatus{Tenant: c.lent.Tenant().Name(), Name: c.name, Remote: c.remote.String(), Credits: len(c.credits), InHand: len(c.tasks), Jobs: c.jobs, Since: c.since}
		if cl := c.lent.Client(); cl != nil {
			q.Weight, q.Demand = cl.Weight(), cl.Demand()
		}
		if c.qp != nil {
			qs := c.qp.Stats()
			q.BytesIn, q.BytesOut = qs.BytesReceived, qs.BytesSent
		}
		st.Clients = append(st.Clients, q)
		for _, t := range c.tasks {
			st.Jobs = append(st.Jobs, s.jobLocked(t))
		}
	}
	slices.SortFunc(st.Jobs, func(a, b JobStatus) int { return cmp.Compare(b.Age, a.Age) })
	return st
}

func (s *Server) jobLocked(t *task) JobStatus {
	j := JobStatus{Client: t.c.name, Remote: t.c.remote.String(), Phase: "fetches", Age: time.Since(t.queued)}
	switch {
	case t.lent.Runs():
		j.Phase = "compiles"
	case t.lent.Waits():
		j.Phase = "waits"
	case !t.started.IsZero():
		j.Phase = "answers"
	}
	if name := t.shown.Load(); name != nil {
		j.Source = *name
	}
	return j
}

// Ready says whether the server takes jobs, or why not. While compilers are being
// identified it does: a client that knows of none yet waits for the list.
func (s *Server) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drain.begun {
		return errDraining
	}
	if no := s.lend.Closed(); no != nil {
		return no
	}
	if list, more := s.compilers.Now(); len(list) == 0 && !more {
		return errNoToolchain
	}
	return nil
}

var (
	errDraining    = errors.New("draining")
	errNoToolchain = errors.New("no compiler found")
)

// storeStats are the store's figures; zero where there is none.
func (s *Server) storeStats() store.Stats {
	if s.keep == nil {
		return store.Stats{}
	}
	st := s.keep.Stats()
	s.machine.Correct(&st)
	return st
}
