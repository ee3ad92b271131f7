package worker

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/pkg/worker/cluster"
	"github.com/rdistcc/rdistcc/pkg/worker/received"
	"github.com/rdistcc/rdistcc/pkg/worker/shelves"
)

// Status is the state of a server, as a status page shows it.
type Status struct {
	Load       job.Load       `json:"load"`
	Waiting    int            `json:"waiting"`           // jobs that managers keep for want of a place, on this host or any other
	Ahead      int            `json:"fetched_ahead"`     // jobs whose sources are fetched, or being fetched, before they have a place
	Large      int64          `json:"large_bytes"`       // memory of sources and results beyond slots and sinks
	Tree       bool           `json:"tree"`              // jobs of the sources form are accepted
	NoTree     string         `json:"no_tree,omitempty"` // why they are not: the right that is missing, and what gives it
	Sandbox    SandboxStatus  `json:"sandbox"`
	Cluster    *cluster.Stats `json:"cluster,omitempty"` // what a cluster has done for the server; nil: there is none
	Store      StoreStatus    `json:"store"`
	Results    shelves.Stats  `json:"results"`    // that clients can read
	Toolchains int            `json:"toolchains"` // number that all clients are offered
	// Received are the toolchains that clients have sent, each of which is offered to those that did.
	Received received.Stats `json:"received"`
	// Identifying says that some compilers have not been asked since the start.
	Identifying bool           `json:"identifying"`
	Tenants     int            `json:"tenants"` // number of tenants that the clients work for
	Streams     int            `json:"streams"` // open streams: who reads metrics, profiles or the log by the port of the jobs
	Clients     []ClientStatus `json:"clients"`
	Jobs        []JobStatus    `json:"underway"` // the oldest first
}

// StoreStatus describes the contents that the server keeps for tenants.
type StoreStatus struct {
	store.Stats
	Most int64 `json:"most_bytes"` // bytes kept per tenant at most; 0: none are kept
	// Trees is how many bytes trees keep from one job to the next.
	Trees int64 `json:"tree_bytes"`
}

// JobStatus describes one job that the server has now.
type JobStatus struct {
	Client string        `json:"client"`        // the name that its manager gives itself
	Remote string        `json:"remote"`        // the manager's address
	Via    string        `json:"via,omitempty"` // another protocol that the job came by
	Source string        `json:"source"`        // as the command names it; empty: not read yet
	Phase  string        `json:"phase"`         // fetches, waits, compiles or answers
	Age    time.Duration `json:"age_ns"`
	Place  int           `json:"place"` // that it is in or was in, from 1; 0: it has none yet
	// Taken is how long ago it got its place, Age otherwise.
	Taken time.Duration `json:"taken_ns"`
}

// ClientStatus describes one connection.
type ClientStatus struct {
	Tenant   string    `json:"tenant"`            // the tenant that it counts for
	Name     string    `json:"name"`              // the name that its manager gives itself
	Version  string    `json:"version,omitempty"` // of its program; empty: it does not say
	Remote   string    `json:"remote"`
	Via      string    `json:"via,omitempty"` // another protocol by which it is here for one job
	Credits  int       `json:"credits"`       // unspent
	InHand   int       `json:"in_hand"`       // jobs queued or running
	Weight   int       `json:"weight"`        // of its manager
	Demand   int       `json:"demand"`        // of its manager; -1: it did not say
	Jobs     uint64    `json:"jobs"`
	Since    time.Time `json:"since"`
	BytesIn  uint64    `json:"bytes_in"`
	BytesOut uint64    `json:"bytes_out"`
}

// Status returns the current state.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Load: s.loadLocked(), Waiting: s.lend.Waiting(), Ahead: s.lend.Ahead(), Large: s.large.Used(), Tree: s.places.Trees, NoTree: s.noTree, Sandbox: s.sandboxLocked(), Store: StoreStatus{Stats: s.storeStats(), Trees: s.places.Kept()}, Results: s.shelves.Stats(),
		Toolchains: len(s.Toolchains()), Identifying: s.Identifying(), Tenants: s.lend.Tenants(), Streams: s.streams.all}
	if s.o.Cluster != nil {
		done := s.o.Cluster.Stats()
		st.Cluster = &done
	}
	if s.arrived.store != nil {
		st.Received = s.arrived.store.Stats()
	}
	if s.keep != nil {
		st.Store.Most = s.keep.Most()
	}
	for c := range s.conns {
		if c.claim != nil {
			continue // it has not proven itself yet
		}
		q := ClientStatus{Tenant: c.lent.Tenant().Name(), Name: c.name, Version: c.program, Remote: c.remote.String(), Via: c.via, Credits: len(c.credits), InHand: len(c.tasks), Jobs: c.jobs, Since: c.since}
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

// Demand says how many places the server's managers could use at the moment. An autoscaler reads it.
type Demand struct {
	Running int `json:"running"` // compiles under way
	Queued  int `json:"queued"`  // jobs that wait for a place here
	Waiting int `json:"waiting"` // jobs that managers keep for want of a place, on this host or any other
	Wanted  int `json:"wanted"`  // places that would serve all of these at once
	Places  int `json:"places"`  // of this host
}

// Demand returns the current demand.
func (s *Server) Demand() Demand {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := Demand{Running: s.lend.Running(), Queued: s.lend.Queued(), Waiting: s.lend.Waiting(), Places: s.o.Jobs}
	d.Wanted = d.Running + d.Queued + d.Waiting
	return d
}

func (s *Server) jobLocked(t *task) JobStatus {
	j := JobStatus{Client: t.c.name, Remote: t.c.remote.String(), Via: t.c.via, Phase: "fetches", Age: time.Since(t.queued), Place: t.place}
	if j.Taken = j.Age; !t.started.IsZero() {
		j.Taken = time.Since(t.started)
	}
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

// Ready returns nil if the server takes jobs, otherwise why not. It takes jobs while compilers are being
// identified: a client that knows of none yet waits for the list.
func (s *Server) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drain.begun {
		return errDraining
	}
	if no := s.lend.Closed(); no != nil {
		return no
	}
	if list, more := s.compilers.Now(); len(list) == 0 && !more && s.arrived.store == nil {
		return errNoToolchain
	}
	return nil
}

var (
	errDraining    = errors.New("draining")
	errNoToolchain = errors.New("no compiler found")
)

// storeStats returns the store's figures, zero if there is no store.
func (s *Server) storeStats() store.Stats {
	if s.keep == nil {
		return store.Stats{}
	}
	st := s.keep.Stats()
	s.machine.Correct(&st)
	return st
}
