package simfarm

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// oracle places the jobs of all clients by one list schedule: the longest waiting job first, each where it
// will end first, by the true times, speeds, links and loads, including future ones. A job whose best place
// is not free yet waits for it. The oracle knows nothing of jobs that make has not started.
//
// Earliest finish by list order is Graham's rule (SIAM J. Appl. Math. 17(2), 1969),
// for machines of unequal speed as in Ibarra and Kim, JACM 24(2), 1977.
type oracle struct {
	f     *farm
	rules []*oracleRule
	asked bool
	alarm *event
}

type oracleRule struct {
	o       *oracle
	c       *client
	waiting int  // number at the last turn
	dirty   bool // a place may have become free
}

func newOracle(f *farm, _ uint64) func(*client) rule {
	o := &oracle{f: f}
	return func(c *client) rule {
		r := &oracleRule{o: o, c: c}
		o.rules = append(o.rules, r)
		return r
	}
}

func (r *oracleRule) start() {
	for _, l := range r.c.links {
		if l.d.well() {
			l.connect()
		}
	}
}

func (r *oracleRule) up(*link)                    { r.dirty = true }
func (r *oracleRule) load(*link, view)            {}
func (r *oracleRule) credits(*link)               {}
func (r *oracleRule) done(*flight, time.Duration) { r.dirty = true }
func (r *oracleRule) ended(*work)                 {}
func (r *oracleRule) lost(l *link, _ string) {
	if l.d.well() {
		l.connect()
	}
}

func (r *oracleRule) turn() {
	if !r.dirty && len(r.c.waiting) == r.waiting || r.o.asked {
		return
	}
	r.dirty = false
	r.o.asked = true
	r.o.f.e.after(0, func() {
		r.o.asked = false
		r.o.plan()
		for _, r := range r.o.rules {
			r.waiting = len(r.c.waiting)
		}
	})
}

// plan considers all waiting jobs, and sends those that should start now.
func (o *oracle) plan() {
	now := o.f.e.now
	var all []*work
	for _, c := range o.f.clients {
		all = append(all, c.waiting...)
	}
	if len(all) == 0 {
		return
	}
	all = sorted(all, func(a, b *work) int { return cmp.Compare(b.cpu, a.cpu) })
	bytes := uint64(0)
	for _, w := range all {
		bytes = max(bytes, w.Bytes)
	}
	hosts := make([]planned, len(o.f.daemons))
	open := 0 // places that a job sent now would find free
	for i, d := range o.f.daemons {
		hosts[i] = o.look(d, len(all), bytes)
		open += hosts[i].open()
	}
	next := time.Duration(math.MaxInt64)
	for _, w := range all {
		if open == 0 {
			break
		}
		best, bestEnd, bestArrival := -1, time.Duration(math.MaxInt64), time.Duration(0)
		for i := range hosts {
			h := &hosts[i]
			l := w.c.links[i]
			if l.conn == nil || w.tried[l.d.Name] {
				continue
			}
			arrival := l.arrives(w)
			end := l.d.ends(max(arrival, h.free[0]), w.cpu, h.share)
			if end < math.MaxInt64 {
				end += l.down.takes(w.Out) + l.d.RTT/2
			}
			if end < bestEnd {
				best, bestEnd, bestArrival = i, end, arrival
			}
		}
		if best < 0 {
			if !o.reachable(w) {
				w.c.take(w)
				w.c.runHere(w)
			}
			continue
		}
		h := &hosts[best]
		l := w.c.links[best]
		start := max(bestArrival, h.free[0])
		if h.free[0] <= bestArrival {
			w.c.take(w)
			l.send(w, false)
		} else if l.store != nil { // it sets out later than if it had to bring everything
			next = min(next, now+h.free[0]-bestArrival)
		}
		open -= h.open()
		h.take(l.d.ends(start, w.cpu, h.share))
		open += h.open()
	}
	// A job that must be there when a place becomes free sets out earlier.
	for i := range hosts {
		if t := hosts[i].free[0] - hosts[i].way; t > now {
			next = min(next, t)
		}
	}
	if next < math.MaxInt64 && (o.alarm == nil || o.alarm.do == nil || o.alarm.at > next) {
		o.alarm.cancel()
		o.alarm = o.f.e.at(next, o.plan)
	}
}

// reachable reports whether w has a host, now or soon.
func (o *oracle) reachable(w *work) bool {
	for _, l := range w.c.links {
		if l.d.well() && !w.tried[l.d.Name] {
			return true
		}
	}
	return false
}

// planned is a host in the plan.
type planned struct {
	free  []time.Duration // of each place, sorted
	share int             // processes of ours that share the host then
	now   time.Duration
	way   time.Duration // of the largest waiting job
}

// take occupies the place that is free first until end.
func (p *planned) take(end time.Duration) {
	p.free[0] = end
	for i := 1; i < len(p.free) && p.free[i] < p.free[i-1]; i++ {
		p.free[i], p.free[i-1] = p.free[i-1], p.free[i]
	}
}

// open returns how many places are free when a job sent now arrives.
func (p *planned) open() int {
	n := 0
	for n < len(p.free) && p.free[n] <= p.now+p.way {
		n++
	}
	return n
}

// look returns a host with what it has and what is on the way to it.
func (o *oracle) look(d *daemon, waiting int, bytes uint64) planned {
	d.m.settle()
	now := o.f.e.now
	var coming []*flight
	for _, c := range d.conns {
		for _, f := range c.l.flights {
			if f.task == nil {
				coming = append(coming, f)
			}
		}
	}
	p := planned{free: make([]time.Duration, d.Cores), now: now}
	p.way = (&pipe{rate: d.Rate}).takes(bytes) + d.RTT/2
	p.share = min(d.Cores, len(d.m.tasks)+len(coming)+waiting)
	for i := range p.free {
		p.free[i] = now
	}
	for _, t := range d.m.tasks {
		p.take(d.ends(now, time.Duration(t.left*1e9), p.share))
	}
	slices.SortStableFunc(coming, func(a, b *flight) int { return cmp.Compare(a.sent, b.sent) })
	for _, f := range coming {
		p.take(d.ends(p.free[0], f.w.cpu, p.share))
	}
	return p
}

// ends returns when work that starts at a time ends on d, shared by n processes of ours: never, if d dies before.
func (d *daemon) ends(start time.Duration, work time.Duration, n int) time.Duration {
	if start == math.MaxInt64 {
		return start
	}
	speed, foreign, fate := d.Speed, d.Foreign, d.Host.Fate
	at := start
	left := work.Seconds()
	rate := func() float64 { return speed * min(1, float64(d.Cores)/float64(n+foreign)) }
	for i := range d.Changes {
		ch := &d.Changes[i]
		if ch.At > at {
			if fate == Closed || fate == Silent {
				return math.MaxInt64
			}
			r := rate()
			if need := time.Duration(left / r * 1e9); at+need <= ch.At {
				return at + need
			}
			if ch.Fate == Closed || ch.Fate == Silent {
				return math.MaxInt64 // it would die with the work
			}
			left -= (ch.At - at).Seconds() * r
			at = ch.At
		}
		if ch.Speed > 0 {
			speed = ch.Speed
		}
		if ch.Foreign >= 0 {
			foreign = ch.Foreign
		}
		if ch.Fate != Same {
			fate = ch.Fate
		}
	}
	if fate == Closed || fate == Silent {
		return math.MaxInt64
	}
	return at + time.Duration(left/rate()*1e9)
}
