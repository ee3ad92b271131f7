package top

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// rateOver is the time over which rates are taken.
const rateOver = 10 * time.Second

// rates tells how fast counters of a manager grow, from its last answers. The zero value knows none.
type rates struct {
	pid     int // with since: which manager
	since   time.Time
	samples []sample // the oldest first
}

// sample is what had been counted at a time.
type sample struct {
	at    time.Time
	done  uint64
	hosts map[string]counted
}

type counted struct{ done, out, in uint64 }

// add takes an answer into account. Those of another manager begin anew.
func (r *rates) add(s *report.Status, now time.Time) {
	if r.pid != s.PID || !r.since.Equal(s.Since) {
		*r = rates{pid: s.PID, since: s.Since}
	}
	x := sample{at: now, hosts: make(map[string]counted, len(s.Hosts))}
	for i := range s.Jobs {
		x.done += s.Jobs[i].OK + s.Jobs[i].Failed
	}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		x.hosts[h.Addr] = counted{h.OK, h.Out, h.In}
	}
	r.samples = append(r.samples, x)
	for len(r.samples) > 2 && now.Sub(r.samples[0].at) > rateOver {
		r.samples = r.samples[1:]
	}
}

// per returns the growth per second of what of finds in a sample; ok is false if it is not known yet.
func (r *rates) per(of func(*sample) uint64) (perSecond float64, ok bool) {
	if len(r.samples) < 2 {
		return 0, false
	}
	first, last := &r.samples[0], &r.samples[len(r.samples)-1]
	from, to := of(first), of(last)
	d := last.at.Sub(first.at).Seconds()
	if d <= 0 || to < from {
		return 0, d > 0
	}
	return float64(to-from) / d, true
}

func (r *rates) jobs() (float64, bool) { return r.per(func(s *sample) uint64 { return s.done }) }

// host returns how many jobs a host does for this machine.
func (r *rates) host(addr string) (float64, bool) {
	return r.per(func(s *sample) uint64 { return s.hosts[addr].done })
}

// bytes returns what is sent to all hosts and received from them. A host that is on one side only counts nothing.
func (r *rates) bytes() (out, in float64) {
	if len(r.samples) < 2 {
		return 0, 0
	}
	for addr := range r.samples[0].hosts {
		o, _ := r.per(func(s *sample) uint64 { return s.hosts[addr].out })
		i, _ := r.per(func(s *sample) uint64 { return s.hosts[addr].in })
		out, in = out+o, in+i
	}
	return out, in
}
