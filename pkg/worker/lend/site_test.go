package lend

import (
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// site is a host's cores in simulated time.
type site struct {
	*Ledger
	now  time.Time
	tick time.Time // of its next look around
	end  map[*Job]time.Time
}

func newSite(o Options) *site {
	return &site{Ledger: New(o), now: time.Unix(1e9, 0), end: make(map[*Job]time.Time)}
}

// add adds a connection of a tenant that is a client by itself.
func (l *Ledger) add(tenant string, weight int) *Conn {
	c := l.Connect(tenant, false)
	l.Join(c, [16]byte{}, weight, 0)
	return c
}

// submit queues a job that takes the given time; what is what its client says about it.
func (s *site) submit(c *Conn, takes time.Duration, what Job) *Job {
	what.Owner, what.Arrived = takes, s.now
	s.Enqueue(c, &what)
	return &what
}

// next calls Next for a host whose free memory does not change and that has no contents to drop.
func (s *site) next() (*Job, *job.Refusal) {
	for {
		switch t := s.Next(s.now); t.Act {
		case Idle:
			return nil, nil
		case Look:
			s.Looked(s.memory.free, s.now)
		case Drop:
			s.Kept(0, s.now)
		case Start:
			return t.Job, t.No
		}
	}
}

// run lets the cores work until then. It calls feed before each choice and ended after each job, and Tick and
// Yields once a simulated second.
func (s *site) run(until time.Time, feed func(), ended func(j *Job)) {
	if s.tick.IsZero() {
		s.tick = s.now.Add(time.Second)
	}
	for s.now.Before(until) {
		feed()
		for s.Running() < s.o.Cores {
			j, _ := s.next()
			if j == nil {
				break
			}
			s.end[j] = s.now.Add(j.Owner.(time.Duration))
		}
		next := s.tick
		if at := s.now.Add(100 * time.Millisecond); at.Before(next) {
			next = at
		}
		for _, e := range s.end {
			if e.Before(next) {
				next = e
			}
		}
		s.now = next
		if s.now.Equal(s.tick) {
			s.tick = s.tick.Add(time.Second)
			s.Tick(s.now)
			for _, v := range s.Yields(s.now) {
				s.end[v] = s.now
			}
		}
		for j, e := range s.end {
			if !e.After(s.now) {
				delete(s.end, j)
				s.Ended(j, false, s.now)
				s.Learn(j, s.now.Sub(j.started), 0)
				ended(j)
			}
		}
	}
}
