package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// candidate is a host for a job, and what is expected of it there.
type candidate struct {
	h      *host
	places int
	one    time.Duration // of a core of speed 1
	blind  bool          // which nothing is known to tell by
	length time.Duration // there
	arrive time.Duration // when it is there
	finish time.Duration // when its result is here
}

// Pick chooses a host for j: where it is expected to be done first (the earliest
// finish of H. Topcuoglu, S. Hariri, M.-Y. Wu: HEFT, 2002). The first of these that
// applies:
//
//   - Run on the host with a free credit where that is; among those as good as it,
//     on the one that has the smallest part of its places taken; with equal parts,
//     the one with fewer jobs of other managers, then with the lower load, then the
//     first in the list (or any, with Random).
//   - Local, as this machine is earlier and has a core free; or as the list's local
//     share has a free place and the hosts are busy, or there is nothing but a
//     local share.
//   - Wait while some host can be expected to have a place, or is earlier though
//     the job has to wait for it: but not several times what it would take elsewhere.
//   - Any of these on a host that was lost under the job and may have it again.
//   - Wait a moment for what comes of an attempt to connect a lost host, where there is
//     no other; with Strict, for any host that can come up.
//   - Local, with the reason that is nearest to a cure.
func (s *Scheduler) Pick(now time.Time, j *Job) Decision {
	t := s.clock(now)
	if t != s.roundAt {
		s.newRound(t)
	}
	if d, ok := s.isFull(now, j); ok {
		return d
	}
	if s.still(t, j) {
		return Decision{Verdict: Wait, Until: s.began.Add(j.note.until)}
	}
	var w waiting
	var no objections
	now1, later := s.choose(now, j, "", false, &w, &no)
	if now1.h == nil && later.h == nil && len(j.Again) > 0 {
		now1, later = s.choose(now, j, "", true, &w, &no)
	}
	if h := &s.local; j.Local && !j.NoLocal && len(j.Tried) == 0 && h.state == Up && (w.any || now1.h != nil) {
		here := s.candidate(h, t, j)
		here.finish += time.Duration(float64(here.length) * (localWeight - 1))
		if len(h.runs) < h.cores() {
			now1 = now1.orSooner(here)
		} else {
			later = later.orSooner(here)
		}
	}
	if now1.h != nil && (later.h == nil || now1.finish <= later.finish+now1.length/worthIt || j.waits(now) > patient*now1.length) {
		s.place(now, j, now1)
		if now1.h == &s.local {
			return Decision{Verdict: Local, Reason: reason.LocalShare, Share: true, Finish: now1.finish - t}
		}
		return Decision{Verdict: Run, Host: now1.h.addr, Finish: now1.finish - t}
	}
	busy := w.any || now1.h != nil
	if j.Share > 0 && !j.NoLocal && (busy && len(s.local.runs) < j.Share || len(j.Hosts) == 0) {
		here := s.candidate(&s.local, t, j)
		s.place(now, j, here)
		return Decision{Verdict: Local, Reason: reason.LocalShare, Share: true, Finish: here.finish - t}
	}
	if !busy && !w.gone {
		d := no.decision()
		d.Verdict = Local
		if d.Reason == reason.HostLost && j.Strict && !now.Before(s.strictEnd(now, j)) {
			d.Detail += fmt.Sprintf("; waited %v for it", s.c.Strict)
		}
		return d
	}
	if later.h != nil {
		later.h.plan.hold(later.arrive, later.length)
	}
	d := Decision{Verdict: Wait, Until: w.until, Gone: !busy}
	if d.Redial = d.Gone && w.stale; d.Redial {
		s.redial(now, j)
	}
	if now1.h != nil { // what it waits for may not come in time
		w.add(now.Add(min(max((now1.finish-later.finish)/2, againSoon), againLate)))
		d.Until = w.until
		j.note = note{round: s.round, until: s.clock(d.Until), tried: len(j.Tried), declined: now1.h, candidate: later}
	} else if of, ok := like(j); ok && !w.own && (j.Strict || !w.gone) {
		f := fullList{of, j.Size, d}
		f.d.Redial = false // once is enough
		s.full = append(s.full, f)
	}
	return d
}

const (
	// localWeight is what a job here costs beside what it takes: the preprocessors
	// and linkers of others wait for the same cores.
	localWeight = 1.25

	worthIt   = 10 // a job waits for a host to save this part of its length
	patient   = 4  // times its length, but no longer
	tieOf     = 20 // finishes that differ by this part of the length are the same
	againSoon = 20 * time.Millisecond
	againLate = 2 * time.Second

	// A host that was not heard of for probeAfter gets a job, a short one that
	// loses at most probeLoss of its lengths by it; one host each probePause.
	probeAfter = 30 * time.Second
	probePause = 5 * time.Second
	probeLoss  = 2
)

// waits says since when j waits.
func (j *Job) waits(now time.Time) time.Duration {
	if j.Since.IsZero() {
		return 0
	}
	return now.Sub(j.Since)
}

func (s *Scheduler) newRound(t time.Duration) {
	s.roundAt = t
	s.round++
	s.freed, s.freedBefore = s.freedBefore[:0], s.freed
	s.changed()
}

// orSooner is b where that ends before a, or a is none.
func (a candidate) orSooner(b candidate) candidate {
	if a.h == nil || b.finish < a.finish {
		return b
	}
	return a
}

// candidate is h for j, with a place there.
func (s *Scheduler) candidate(h *host, t time.Duration, j *Job) candidate {
	c := candidate{h: h, one: s.time(j), blind: s.blind(j), arrive: h.arrive(t, j.bytes(h))}
	at := max(c.arrive, s.freeAt(h, t)) // and how much it lags
	c.length = s.length(h, t, c.one, j.Toolchain)
	c.finish = at + c.length + s.back(h)
	return c
}

// afterAnother is h for j, in the place of a job that runs: its end has to come here,
// and j to go there.
func (s *Scheduler) afterAnother(h *host, t time.Duration, j *Job) candidate {
	c := s.candidate(h, t, j)
	back := s.back(h)
	at := s.freeAt(h, t)
	if len(h.runs) > 0 && len(h.runs) < h.cores() { // it is not for want of cores that it takes none
		at = max(at, h.plan.ours)
	}
	c.finish = max(c.finish, at+back+h.moves(j.bytes(h))+h.link.RTT/2+c.length+back)
	return c
}

// choose finds the best host but not for j: of those that have a place now, and of
// those where one of our jobs has to end first. With again it looks at those only that
// were lost under j.
func (s *Scheduler) choose(now time.Time, j *Job, not string, again bool, w *waiting, no *objections) (best, later candidate) {
	t := s.clock(now)
	hosts := s.resolve(j.Hosts)
	s.found = s.found[:0]
	at := 0
	if j.Random && len(hosts) > 0 {
		at = int(s.c.Rand() * float64(len(hosts)))
	}
	for range hosts {
		h, e := hosts[at], &j.Hosts[at]
		if at++; at == len(hosts) {
			at = 0
		}
		switch {
		case h == nil:
			no.lost(nil)
			continue
		case again && !j.Again[e.Addr]: // it was looked at
			continue
		case e.Addr == not || !again && len(j.Tried) > 0 && j.Tried[e.Addr]:
			no.tried++
			continue
		}
		switch s.takes(now, h, e, j, w, no) {
		case nowhere:
		case busy:
			later = later.orSooner(s.afterAnother(h, t, j))
		case free:
			c := s.candidate(h, t, j)
			c.places = h.places(e)
			s.found = append(s.found, c)
			best = best.orSooner(c)
		}
	}
	if best.h == nil {
		return best, later
	}
	if not == "" {
		if c := s.probe(t, best); c.h != nil {
			return c, candidate{}
		}
	}
	limit := best.finish + best.length/tieOf
	tie := candidate{}
	for _, c := range s.found {
		if c.finish <= limit && (tie.h == nil || better(t, c.h, c.places, tie.h, tie.places)) {
			tie = c
		}
	}
	return tie, later
}

// probe finds a host, other than the best, that is due for a job just to hear of it.
func (s *Scheduler) probe(t time.Duration, best candidate) (found candidate) {
	if t-s.probed < probePause || best.one > s.ordinary() {
		return found
	}
	for _, c := range s.found {
		h := c.h
		if h != best.h && len(h.runs) == 0 && t-max(h.heard, h.probed, h.sinceAt) >= probeAfter && c.finish <= best.finish+probeLoss*best.length {
			found = found.orSooner(c)
		}
	}
	if found.h != nil {
		found.h.probed, s.probed = t, t
	}
	return found
}

// note is why a job waits though a host has a place: for another one. It stands in
// the next round too, unless a place has come free that is as good.
type note struct {
	candidate
	declined *host
	round    uint64
	until    time.Duration
	tried    int
}

// still says whether what j waits for is still worth it, without looking at all
// hosts again, and holds its place there.
func (s *Scheduler) still(t time.Duration, j *Job) bool {
	n := &j.note
	if n.h == nil || n.round+1 < s.round || t >= n.until || n.tried != len(j.Tried) || n.h.state != Up {
		return false
	}
	later := s.afterAnother(n.h, t, j)
	if later.finish > n.finish+later.length/worthIt || s.asGood(n.declined, later, t, j) {
		return false
	}
	for _, freed := range [2][]*host{s.freedBefore, s.freed} {
		for _, h := range freed {
			if (h.credits > 0 && h.state == Up && len(h.runs) < h.cores()+h.deep || h == &s.local) && s.asGood(h, later, t, j) {
				return false
			}
		}
	}
	n.round = s.round
	n.h.plan.hold(later.arrive, later.length)
	return true
}

// asGood says whether a place at h now is as good as a later one.
func (s *Scheduler) asGood(h *host, later candidate, t time.Duration, j *Job) bool {
	c := s.candidate(h, t, j)
	return c.finish <= later.finish+c.length/worthIt
}

// free notes that h may have a place more.
func (s *Scheduler) free(h *host) {
	if !slices.Contains(s.freed, h) {
		s.freed = append(s.freed, h)
	}
	s.changed()
}

// resolve is the hosts of a list, nil for those that are not known.
func (s *Scheduler) resolve(list []Host) []*host {
	if len(list) == 0 {
		return nil
	}
	hosts := s.lists[&list[0]]
	if len(hosts) == len(list) {
		return hosts
	}
	if len(s.lists) >= maxLists {
		clear(s.lists)
	}
	hosts = make([]*host, len(list))
	for i := range list {
		hosts[i] = s.hosts[list[i].Addr]
	}
	s.lists[&list[0]] = hosts
	return hosts
}

const maxLists = 64

// fullList remembers for one round that a job has to wait: then others like it
// have to, too.
type fullList struct {
	of   likeness
	size uint64
	d    Decision
}

// likeness of jobs: what, beside the size, tells whether any host has a place.
type likeness struct {
	list                         *Host
	hosts                        int
	toolchain                    [16]byte
	share                        int
	tree, noLocal, local, strict bool
}

// like is j's; there is none of a job with a history of its own.
func like(j *Job) (likeness, bool) {
	if len(j.Hosts) == 0 || len(j.Tried) > 0 {
		return likeness{}, false
	}
	return likeness{&j.Hosts[0], len(j.Hosts), j.Toolchain, j.Share, j.Tree, j.NoLocal, j.Local, j.Strict}, true
}

func (s *Scheduler) isFull(now time.Time, j *Job) (Decision, bool) {
	of, ok := like(j)
	if !ok {
		return Decision{}, false
	}
	for i := range s.full {
		f := &s.full[i]
		if f.of != of || j.Size > f.size {
			continue
		}
		d := f.d
		if d.Gone { // which ends for each by itself
			end := s.strictEnd(now, j)
			if !now.Before(end) {
				return Decision{}, false
			}
			if end.Before(d.Until) {
				d.Until = end
			}
		}
		return d, true
	}
	return Decision{}, false
}
