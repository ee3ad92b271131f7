package connmgr

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/reason"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// request is a job that waits for the scheduler's word.
type request struct {
	id     uint64                 // tells the scheduler's runs apart
	job    scheduler.Job          // guarded by Manager.mu from pick on
	ready  chan grant             // capacity 1
	why    []scheduler.Considered // of the last word; guarded by Manager.mu while it waits
	rule   string                 // and which rule made it, for people; as why
	second chan grant             // capacity 1: of a further host, as the one that has the job is slow; nil = not wanted
	early  bool                   // it is not made yet: the word is due once a host is there, and takes no credit
}

// grant is the scheduler's word: a connection with one of its credits, or a decision
// that no host gets the job.
type grant struct {
	req      *request
	host     *host
	conn     *conn // one of host's, or nil: none gets the job
	credit   job.Credit
	decision scheduler.Decision
}

// pick waits until the job may go to a host or has to be done here.
func (m *Manager) pick(ctx context.Context, r *request) (grant, error) {
	m.mu.Lock()
	// Those that came earlier go first; what none of them can use may serve r.
	m.waiting = append(m.waiting, r)
	m.hereLocked(time.Now())
	m.dispatchLocked()
	if len(m.waiting) > 0 { // else it was counted while it was prepared
		m.demandsLocked(time.Now())
	}
	m.mu.Unlock()
	select {
	case g := <-r.ready:
		return g, nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	if i := slices.Index(m.waiting, r); i >= 0 {
		m.waiting = slices.Delete(m.waiting, i, i+1)
	}
	m.mu.Unlock()
	select {
	case g := <-r.ready: // it came at the same moment
		m.giveBack(g)
	default:
	}
	return grant{}, context.Cause(ctx)
}

// dispatchLocked asks the scheduler for the jobs that take too long where they are,
// and for all that wait, in the order that is fair among builds.
func (m *Manager) dispatchLocked() {
	if len(m.waiting) == 0 && len(m.asking) == 0 && len(m.racing) == 0 {
		return
	}
	now := time.Now()
	next := m.formsLocked(now)
	soon := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	soon(m.hedgesLocked(now)) // before the others take the place
	m.jobs = m.jobs[:0]
	for _, r := range m.waiting {
		m.jobs = append(m.jobs, &r.job)
	}
	served := 0
	for _, i := range m.sched.Order(now, m.jobs) {
		r := m.waiting[i]
		g, ok := m.tryLocked(now, r)
		if !ok {
			soon(g.decision.Until)
			continue
		}
		r.ready <- g
		m.jobs[i] = nil
		served++
	}
	if served > 0 {
		left := m.waiting[:0]
		for i, r := range m.waiting {
			if m.jobs[i] != nil {
				left = append(left, r)
			}
		}
		clear(m.waiting[len(left):])
		m.waiting = left
	}
	clear(m.jobs)
	soon(m.hedgesLocked(now)) // those that went just now can become late
	if !next.IsZero() {
		m.alarm.Reset(max(next.Sub(now), time.Millisecond))
	}
}

// wake is the alarm's: something may have changed just by the time.
func (m *Manager) wake() {
	m.mu.Lock()
	m.dispatchLocked()
	m.mu.Unlock()
}

// tryLocked asks the scheduler once.
func (m *Manager) tryLocked(now time.Time, r *request) (grant, bool) {
	d := m.chooseLocked(now, &r.job)
	switch d.Verdict {
	case scheduler.Local:
		r.why = m.sched.Consider(now, &r.job, &d)
		r.rule = ruleOf(r.why, &d, &r.job)
		if d.Share {
			m.startHereLocked(now, r.id, &r.job)
		}
		return grant{req: r, decision: d}, true
	case scheduler.Run:
		if r.early { // the credit would lie idle while the preprocessor runs
			m.sched.Done(now, d.Host, scheduler.Unused, scheduler.Report{})
			m.hosts[d.Host].creditsLocked()
			return grant{req: r, decision: d}, true
		}
		r.why = m.sched.Consider(now, &r.job, &d)
		r.rule = ruleOf(r.why, &d, &r.job)
		return m.grantLocked(now, r, d.Host), true
	case scheduler.Wait:
		if d.Redial {
			m.redialLocked(now)
		}
		if r.early && !d.Gone {
			return grant{req: r, decision: d}, true
		}
	}
	return grant{decision: d}, false
}

// grantLocked takes the credit that the scheduler has chosen for r.
func (m *Manager) grantLocked(now time.Time, r *request, addr string) grant {
	h := m.hosts[addr]
	l := h.bestLocked()
	h.served = h.link
	m.sched.Started(now, r.id, addr, &r.job)
	r.job.Tried[addr] = true
	return grant{req: r, host: h, conn: l, credit: l.takeLocked()}
}

// hopeless says whether the job can be done here without further ado: before the
// preprocessor has run for nothing. Where all hosts that it could go to are not there, it
// waits as long for one as the scheduler does.
func (m *Manager) hopeless(c *client) *ipc.GoLocal {
	r := &request{id: c.id, job: c.request(0, c.lease.NeedTree), ready: make(chan grant, 1), early: true}
	m.mu.Lock()
	m.hereLocked(time.Now())
	g, ok := m.tryLocked(time.Now(), r)
	m.mu.Unlock()
	if !ok {
		c.watch()
		var err error
		if g, err = m.pick(c.ctx, r); err != nil {
			return interrupted
		}
	}
	if g.decision.Verdict != scheduler.Local {
		return nil
	}
	c.share = g.decision.Share
	c.consider(r)
	return localDecision(g.decision)
}

// question is a job that waits for its form: whether a host shows private trees is
// known once it is connected.
type question struct {
	c     *client
	ready chan bool // capacity 1
}

// trees says whether the job is to be made for a private tree. An error says that
// the wrapper is gone.
func (m *Manager) trees(c *client) (bool, error) {
	q := &question{c: c, ready: make(chan bool, 1)}
	m.mu.Lock()
	m.asking = append(m.asking, q)
	m.dispatchLocked()
	m.mu.Unlock()
	select {
	case tree := <-q.ready:
		return tree, nil
	default:
	}
	c.watch()
	select {
	case tree := <-q.ready:
		return tree, nil
	case <-c.ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asking = slices.DeleteFunc(m.asking, func(o *question) bool { return o == q })
	return false, context.Cause(c.ctx)
}

// formsLocked answers the questions that can be answered by now, and says when the
// next one can at the latest: zero when none is left.
func (m *Manager) formsLocked(now time.Time) (next time.Time) {
	m.asking = slices.DeleteFunc(m.asking, func(q *question) bool {
		tree, until := m.sched.Trees(now, q.c.list.sched, q.c.toolchain.ID)
		if !until.IsZero() {
			if next.IsZero() || until.Before(next) {
				next = until
			}
			return false
		}
		q.ready <- tree
		return true
	})
	return next
}

// giveBack returns a grant that was not used.
func (m *Manager) giveBack(g grant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case g.conn != nil:
		m.sched.Done(time.Now(), g.host.addr, scheduler.Unused, scheduler.Report{ID: g.req.id})
		delete(g.req.job.Tried, g.host.addr)
		if slices.Contains(g.host.links, g.conn) { // otherwise the credit has ended with the link
			g.conn.addLocked(g.credit)
		}
		m.dispatchLocked()
	case g.decision.Share:
		m.endHereLocked(scheduler.Unused, scheduler.Report{ID: g.req.id})
	}
}

// again lets a job be placed once more on a host that was lost under it, where there is no
// other way. The one that loses it twice may be brought down by it: then only a job that
// may not be done here goes there again.
func (m *Manager) again(r *request, h *host) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := &r.job
	j.Lost = time.Now()
	if j.Again == nil {
		j.Again = make(map[string]bool)
	}
	_, before := j.Again[h.addr]
	j.Again[h.addr] = !before || j.Strict
}

// ended tells the scheduler, and the history, what an attempt came to.
func (m *Manager) ended(a *attempt) {
	m.learn(a, m.endedLocking(a))
}

// endedLocking gives the speed of the host too.
func (m *Manager) endedLocking(a *attempt) float64 {
	h := a.at
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sched.Done(time.Now(), h.addr, a.out.blame, a.report())
	switch a.out.blame {
	case scheduler.OK:
		h.jobs.ok++
		h.refused = ""
		h.movedLocked(0, resultBytes(a.out.result))
	case scheduler.Unused:
	default:
		h.jobs.failed++
		if a.out.local != nil && (a.out.blame == scheduler.Refused || a.out.blame == scheduler.Full) {
			h.refused = strings.TrimPrefix(a.out.local.Detail, h.addr+" ")
		}
		m.metrics.jobs.WithLabelValues("remote", "", m.metrics.hosts.of(h.addr), resultRetried).Inc()
	}
	m.dispatchLocked()
	return m.sched.Speed(h.addr, a.toolchain)
}

// localDecision is what the wrapper hears of the scheduler's refusal.
func localDecision(d scheduler.Decision) *ipc.GoLocal {
	no := &ipc.GoLocal{Reason: d.Reason, Detail: d.Detail, Host: d.Host}
	switch d.Reason {
	case "host-lost":
		no.Trouble, no.Code = true, reason.ExitConnect
	case "no-hosts":
		no.Trouble, no.Code = true, reason.ExitNoHosts
	case "refused:toolchain":
		no.Code = reason.ExitNoCompiler
	case "refused:full", "refused:draining", "refused:memory", "refused:quarantine":
		no.Trouble, no.Code = true, reason.ExitConnect
	case "denied":
		no.Trouble, no.Code = true, reason.ExitDenied
	}
	return no
}

// wantHosts starts the connections that a job of list may need. eager, when set,
// is how long after a loss the job wants a host dialled again at the latest.
func (m *Manager) wantHosts(list *parsedList, eager *time.Duration) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sched.Ensure(now, list.sched)
	for i := range list.sched {
		m.hostLocked(list.sched[i].Addr).wantLocked(now, eager)
	}
	m.refreshViewsLocked(now, list)
}

// hostLocked is the host of an address, which gets its goroutine with the first job.
func (m *Manager) hostLocked(addr string) *host {
	h := m.hosts[addr]
	if h == nil {
		h = &host{m: m, addr: addr, grow: make(chan struct{}, 1), kick: make(chan struct{}, 1), lastWant: time.Now()}
		m.hosts[addr] = h
		m.hostsRun.Go(func() { h.run(m.ctx) })
	}
	return h
}

// viewFresh is how old a view of a host's load may be when one is about to be chosen.
const viewFresh = 500 * time.Millisecond

// refreshViewsLocked has the views of a list's hosts renewed where that helps to
// choose: what is asked now is there when the preprocessor has ended.
func (m *Manager) refreshViewsLocked(now time.Time, list *parsedList) {
	if len(list.sched) < 2 {
		return
	}
	for i := range list.sched {
		if h := m.hosts[list.sched[i].Addr]; h != nil && h.link != nil {
			h.link.Refresh(now, viewFresh)
		}
	}
}
