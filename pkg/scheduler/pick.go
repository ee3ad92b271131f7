package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// candidate is a host for a job, with the expected times there.
type candidate struct {
	h      *host
	places int
	one    time.Duration // time on a core of speed 1
	blind  bool          // one is a guess from nothing
	length time.Duration // runtime there
	arrive time.Duration // when the job reaches the host
	finish time.Duration // when the result is back here
}

// Pick chooses a host for j: the one where it is expected to finish first (the earliest
// finish of H. Topcuoglu, S. Hariri, M.-Y. Wu: HEFT, 2002). The first of these that
// applies:
//
//   - Run on that host if it has a free credit. Among hosts with as good a finish, the
//     one with the smallest part of its places taken; then the one with fewer jobs of
//     other managers, then with the lower load, then the one that the job's Name belongs
//     to, or the first in the list (or any, with Random).
//   - Local, if this machine would finish earlier and has a core free; or if the list's
//     local share has a free place and the hosts are busy, or the list is nothing but a
//     local share.
//   - Wait while some host can be expected to have a place, or would finish earlier even
//     though the job has to wait for it: but not several times its runtime elsewhere.
//   - Any of these on a host that was lost under the job and may have it again.
//   - Wait a moment for the outcome of an attempt to connect a lost host, where there is
//     no other; with Strict, for any host that can come up.
//   - Local, with the objection that is easiest to remedy.
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
		if d.Reason == reason.Toolchain && no.stalled {
			d.Stalled = s.c.Strict
			d.Detail += fmt.Sprintf("; no more of it has arrived there for %v", s.c.Strict)
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
		f.d.Redial = false // one redial is enough
		s.full = append(s.full, f)
	}
	return d
}

const (
	// localWeight is the cost of running a job here relative to its runtime: the preprocessors
	// and linkers of other jobs wait for the same cores.
	localWeight = 1.25

	worthIt   = 10 // a job waits for a host only to save at least this fraction (1/n) of its length
	patient   = 4  // longest wait, as a multiple of its length
	tieOf     = 20 // finishes within this fraction (1/n) of the length count as equal
	againSoon = 20 * time.Millisecond
	againLate = 2 * time.Second

	// A host not heard of for probeAfter gets a job, one that is short and loses at most probeLoss
	// times its length by it; one host every probePause.
	probeAfter = 30 * time.Second
	probePause = 5 * time.Second
	probeLoss  = 2
)

// waits returns how long j has waited.
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

// orSooner returns b if it finishes before a, or a is empty, else a.
func (a candidate) orSooner(b candidate) candidate {
	if a.h == nil || b.finish < a.finish {
		return b
	}
	return a
}

// candidate returns h as a candidate for j, assuming that h has a place.
func (s *Scheduler) candidate(h *host, t time.Duration, j *Job) candidate {
	c := candidate{h: h, one: s.time(j), blind: s.blind(j), arrive: h.arrive(t, j.bytes(h))}
	at := max(c.arrive, s.freeAt(h, t)) // also updates how far h lags
	c.length = s.length(h, t, c.one, j.Toolchain)
	c.finish = at + c.length + s.back(h)
	return c
}

// afterAnother returns h as a candidate for j, in the place of a running job: its end must be
// reported here before j can travel there.
func (s *Scheduler) afterAnother(h *host, t time.Duration, j *Job) candidate {
	c := s.candidate(h, t, j)
	back := s.back(h)
	at := s.freeAt(h, t)
	if len(h.runs) > 0 && len(h.runs) < h.cores() { // it is full for a reason other than its cores
		at = max(at, h.plan.ours)
	}
	c.finish = max(c.finish, at+back+h.moves(j.bytes(h))+h.link.RTT/2+c.length+back)
	return c
}

// choose finds the best host for j other than not: best among those that have a place now,
// later among those where one of our jobs has to end first. With again it considers only hosts
// that were lost under j.
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
		case again && !j.Again[e.Addr]: // considered before
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
	tie, name := candidate{}, j.Name
	if j.Random {
		name = 0
	}
	for _, c := range s.found {
		if c.finish <= limit && (tie.h == nil || better(t, c.h, c.places, tie.h, tie.places, name)) {
			tie = c
		}
	}
	return tie, later
}

// probe finds a host, other than the best, that is due for a job just to hear from it.
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

// note records why a job waits for another host though one has a place. It stands in the next
// round too, unless a place has become free that is as good.
type note struct {
	candidate
	declined *host
	round    uint64
	until    time.Duration
	tried    int
}

// still reports whether what j waits for is still worth it, without examining all hosts again,
// and holds j's place there.
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

// asGood reports whether a place at h now is as good as a later one.
func (s *Scheduler) asGood(h *host, later candidate, t time.Duration, j *Job) bool {
	c := s.candidate(h, t, j)
	return c.finish <= later.finish+c.length/worthIt
}

// free notes that h may have one more place.
func (s *Scheduler) free(h *host) {
	if !slices.Contains(s.freed, h) {
		s.freed = append(s.freed, h)
	}
	s.changed()
}

// resolve returns the hosts of a list, nil for those that are not known.
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

// fullList remembers for one round that a job has to wait: jobs like it then have to as well.
type fullList struct {
	of   likeness
	size uint64
	d    Decision
}

// likeness holds what, apart from the size, determines whether any host has a place for a job.
type likeness struct {
	list                         *Host
	hosts                        int
	toolchain                    [16]byte
	share                        int
	tree, noLocal, local, strict bool
}

// like returns the likeness of j. A job with a history of its own has none.
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
		if d.Gone { // strictEnd differs from job to job
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
