package scheduler

import (
	"cmp"
	"slices"
	"time"
)

// Considered is one host's part in the choice for a job: when the job would be done there,
// counted from now, or why it cannot go there. An objection comes alone, or with the
// finish that the job would have after waiting.
type Considered struct {
	Host   string
	Finish time.Duration // 0 = it cannot go there
	Why    string
}

// maxConsidered bounds how many hosts of a long list are examined again.
const maxConsidered = 64

// Consider explains d, which Pick has just returned for j, at the same now: the host that was
// chosen first, then the others by expected finish. Of very long lists it examines the first
// hosts only.
func (s *Scheduler) Consider(now time.Time, j *Job, d *Decision) []Considered {
	t := s.clock(now)
	var list []Considered
	chosen := d.Host
	if d.Share {
		chosen = LocalHost
	}
	if chosen != "" {
		list = append(list, Considered{Host: chosen, Finish: max(d.Finish, 1)})
	}
	for i, h := range s.resolve(j.Hosts) {
		e := &j.Hosts[i]
		if i == maxConsidered {
			break
		}
		if e.Addr == chosen {
			continue
		}
		x := Considered{Host: e.Addr}
		switch {
		case h == nil:
			x.Why = "not known yet"
		case j.Tried[e.Addr]:
			x.Why = "tried before"
		default:
			x.Finish, x.Why = s.opinion(now, t, h, e, j)
		}
		list = append(list, x)
	}
	if j.Local && !j.NoLocal && chosen != LocalHost && s.local.state == Up {
		list = append(list, Considered{Host: LocalHost, Finish: s.candidate(&s.local, t, j).finish - t})
	}
	if len(list) == 0 {
		return nil
	}
	rest := list
	if chosen != "" {
		rest = list[1:]
	}
	slices.SortStableFunc(rest, func(a, b Considered) int {
		return cmp.Or(cmp.Compare(btoi(a.Finish == 0), btoi(b.Finish == 0)), cmp.Compare(a.Finish, b.Finish))
	})
	return list
}

// Length returns how long j is expected to run on a host, which must be known, once it has a core there.
func (s *Scheduler) Length(now time.Time, addr string, j *Job) time.Duration {
	h := s.host(addr)
	if h == nil {
		return 0
	}
	return s.length(h, s.clock(now), s.time(j), j.Toolchain)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// opinion returns what speaks against a host that did not get j.
func (s *Scheduler) opinion(now time.Time, t time.Duration, h *host, e *Host, j *Job) (time.Duration, string) {
	var w waiting
	var no objections
	switch s.takes(now, h, e, j, &w, &no) {
	case free:
		return s.candidate(h, t, j).finish - t, ""
	case busy:
		return s.candidate(h, t, j).finish - t, "busy"
	case nowhere:
	}
	switch {
	case !w.any && !w.gone:
	case h.state == Up && !h.toolchains[j.Toolchain]:
		return 0, "starting: it has not found this compiler yet"
	case h.state == Up && w.any:
		return 0, "no place yet"
	case h.state == Connecting && !h.answered.IsZero():
		return 0, "starting"
	case h.state == Unknown, h.state == Connecting:
		return 0, "being connected"
	default:
		no = objections{}
		no.lost(h)
	}
	return 0, no.decision().Detail
}
