package simfarm

import (
	"cmp"
	"slices"
	"time"
)

// Rules with which a case can be run.
const (
	Scheduler = "rdistcc"      // pkg/scheduler
	Distcc    = "distcc"       // the list's order with fixed slots, 60 s of back-off
	Least     = "least loaded" // the host with the smallest fraction of its cores in use
	Fastest   = "fastest"      // the fastest host with a free core
	Oracle    = "oracle"       // knows everything
	Untold    = "untold"       // pkg/scheduler without being told what hosts hold
)

// Rules lists the rules in the order of the tables.
var Rules = []string{Scheduler, Distcc, Least, Fastest, Oracle}

// Simple lists the rules that a scheduler has to beat.
var Simple = []string{Distcc, Least, Fastest}

var rules = map[string]func(f *farm, seed uint64) func(c *client) rule{
	Scheduler: manager(true),
	Untold:    manager(false),
	Oracle:    newOracle,
	Distcc:    simple(60*time.Second, false, distccOrder),
	Least:     simple(retryTime, true, leastLoaded),
	Fastest:   simple(retryTime, true, fastestFirst),
}

// retryTime is after how long the simple rules, except distcc's, try a lost host again.
const retryTime = 5 * time.Second

// simpleRule sends a job to the best of the hosts with a free place as soon as possible, in order of
// arrival. A host's places are its cores; what other clients have there is known as rdistcc's managers know
// it. The transport is the same for all rules, including distcc's: warm connections, lost peers that are
// noticed, and no polling of slots once a second. Only the choice differs.
type simpleRule struct {
	c       *client
	backoff time.Duration
	again   bool // a failed job goes to another host; distcc's runs here
	better  func(a, b *choice) int
	hosts   []choice
}

// choice is a host as a simple rule sees it.
type choice struct {
	l      *link
	up     bool
	mine   int // jobs there
	others int // of others, as of the last view
}

func (h *choice) places() int { return h.l.d.Cores }

func simple(backoff time.Duration, again bool, better func(a, b *choice) int) func(*farm, uint64) func(*client) rule {
	return func(*farm, uint64) func(*client) rule {
		return func(c *client) rule {
			r := &simpleRule{c: c, backoff: backoff, again: again, better: better, hosts: make([]choice, len(c.links))}
			for i, l := range c.links {
				r.hosts[i].l = l
			}
			return r
		}
	}
}

// distccOrder prefers the first slot of each host, in the list's order, then the second of each, and so on
// (distcc's where.c).
func distccOrder(a, b *choice) int { return cmp.Compare(a.mine, b.mine) }

func leastLoaded(a, b *choice) int {
	part := func(h *choice) float64 { return float64(h.mine+h.others) / float64(h.places()) }
	return cmp.Compare(part(a), part(b))
}

func fastestFirst(a, b *choice) int { return cmp.Compare(b.l.d.Speed, a.l.d.Speed) }

func (r *simpleRule) start() {
	for _, l := range r.c.links {
		l.connect()
	}
}

func (r *simpleRule) up(l *link)      { r.hosts[l.i].up = true }
func (r *simpleRule) credits(l *link) {}
func (r *simpleRule) ended(w *work)   {}

func (r *simpleRule) load(l *link, v view) {
	h := &r.hosts[l.i]
	h.others = max(0, v.running+v.queued-h.mine)
}

func (r *simpleRule) lost(l *link, _ string) {
	r.hosts[l.i].up = false
	r.c.f.e.after(r.backoff, l.connect)
}

func (r *simpleRule) turn() {
	for i := 0; i < len(r.c.waiting); {
		w := r.c.waiting[i]
		if !r.again && w.troubles > 0 {
			r.c.take(w)
			r.c.runHere(w)
			continue
		}
		var best *choice
		known := false
		for i := range r.hosts {
			h := &r.hosts[i]
			known = known || h.up
			if !h.up || h.mine >= h.places() || w.tried[h.l.d.Name] {
				continue
			}
			if best == nil || r.better(h, best) < 0 {
				best = h
			}
		}
		switch {
		case best != nil:
			r.c.take(w)
			best.mine++
			best.l.send(w, false)
		case !known && r.c.f.e.now > r.c.Start+connectTime:
			r.c.take(w)
			r.c.runHere(w)
		default:
			i++
		}
	}
}

func (r *simpleRule) done(f *flight, _ time.Duration) { r.hosts[f.l.i].mine-- }

// sorted returns a sorted copy.
func sorted[T any](in []T, less func(a, b T) int) []T {
	out := slices.Clone(in)
	slices.SortStableFunc(out, less)
	return out
}
