package simfarm

import "github.com/rdistcc/rdistcc/pkg/scheduler"

// Stores says what hosts keep of what each client sends them.
type Stores struct {
	Warm  bool   // everything was sent before
	Only  string // Warm: only to this host; "" = to all
	Limit uint64 // bytes that a host keeps for a client, the most recently used; 0 = no limit
}

// Part is a set of headers that jobs of a project share.
type Part struct {
	ID    int // from 0 on
	Bytes uint64
}

// store is what a host keeps for a client, and what the client believes that it keeps: everything sent
// since they were connected, until a job is refused for lack of it.
//
// A link carries its messages in order, so what the host has when a job arrives is decided when the job is
// sent: store changes then.
type store struct {
	limit, size uint64
	parts       []kept // by Part.ID
	uses        int
}

// kept is a part in a store.
type kept struct {
	bytes    uint64
	used     int // larger is later; 0: it is not there
	believed bool
}

// newStore returns the store on a host for a client with these jobs.
func newStore(s *Stores, host string, jobs []Job) *store {
	n := 0
	for i := range jobs {
		for _, p := range jobs[i].Shared {
			n = max(n, p.ID+1)
		}
	}
	st := &store{limit: s.Limit, parts: make([]kept, n)}
	if s.Warm && (s.Only == "" || s.Only == host) {
		for i := range jobs {
			st.take(&jobs[i])
		}
	}
	return st
}

// needs returns how many bytes of j go over the wire: first what j brings, and late what the host turns out
// to lack. Without a store these are all, and none.
func (s *store) needs(j *Job) (first, late uint64) {
	first = j.Bytes
	if s == nil {
		return first, 0
	}
	for _, p := range j.Shared {
		if k := &s.parts[p.ID]; k.believed {
			first -= p.Bytes
			if k.used == 0 {
				late += p.Bytes
			}
		}
	}
	return first, late
}

// held returns how many bytes of j the client believes to be there.
func (s *store) held(j *Job) uint64 {
	first, _ := s.needs(j)
	return j.Bytes - first
}

// take makes the host keep what j reads. The least recently used makes room.
func (s *store) take(j *Job) {
	if s == nil {
		return
	}
	for _, p := range j.Shared {
		k := &s.parts[p.ID]
		if k.used == 0 {
			s.size += p.Bytes
		}
		s.uses++
		*k = kept{bytes: p.Bytes, used: s.uses, believed: true}
	}
	for s.limit > 0 && s.size > s.limit {
		oldest := -1
		for i := range s.parts {
			if u := s.parts[i].used; u > 0 && (oldest < 0 || u < s.parts[oldest].used) {
				oldest = i
			}
		}
		s.size -= s.parts[oldest].bytes
		s.parts[oldest].used = 0
	}
}

// clear handles the end of a connection: the client starts over.
func (s *store) clear() {
	if s != nil {
		clear(s.parts)
		s.size = 0
	}
}

// heldOf returns how many bytes of j each of the hosts is believed to hold, as a manager tells its scheduler.
func (c *client) heldOf(j *Job) map[string]uint64 {
	held := make(map[string]uint64, len(c.links))
	for _, l := range c.links {
		if l.store != nil && l.conn != nil && l.d.Name != scheduler.LocalHost {
			if n := l.store.held(j); n > 0 {
				held[l.d.Name] = n
			}
		}
	}
	return held
}
