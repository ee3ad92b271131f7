package connmgr

import (
	"math/rand/v2"
	"slices"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/connmgr/trust"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// hit is a result of the cache that is audited: compiled again, and compared.
type hit struct {
	*audit
	key    resultcache.Key
	exact  resultcache.Key // what was looked for: another one if the second step has found it
	lists  resultcache.Key // manifest, if there may be one
	tier   string
	origin resultcache.Origin
	result job.Result
	mem    []byte // its outputs
}

// auditHit audits a hit of a job whose inputs are known, if it is sampled. e's outputs are copied.
func (c *client) auditHit(k *known.Job, e *resultcache.Entry, tier string) {
	if !c.samplesHit() {
		return
	}
	h := c.newHit(c.knownTask(k), e, tier, true)
	h.exact = c.names(k).exact
	if c.stepsTwice(k) {
		h.lists = manifestOf(c.compiler.ID, k)
	}
	h.begin(h.run, func() {})
}

// auditNamed does the same for a hit that was found by what t itself has.
func (c *client) auditNamed(t *attempt.Task, e *resultcache.Entry, tier string, tree bool) {
	if c.samplesHit() {
		h := c.newHit(t, e, tier, tree)
		h.begin(h.run, t.Hold())
	}
}

// samplesHit decides whether a hit is audited, and counts it among the audits under way if it is.
func (c *client) samplesHit() bool {
	m := c.m
	if part := m.live().Audit; part <= 0 || rand.Float64() >= part || len(c.list.Sched) == 0 {
		return false
	}
	if m.auditing.Add(1) > maxAudits {
		m.auditing.Add(-1)
		return false
	}
	return true
}

// newHit returns the audit of a hit. tree says that only a host with private trees can repeat it.
func (c *client) newHit(t *attempt.Task, e *resultcache.Entry, tier string, tree bool) *hit {
	req := c.request(t.Total(), tree)
	req.Cost = t.Cost
	h := &hit{audit: &audit{m: c.m, t: t, job: req}, key: e.Key, exact: e.Key, tier: tier, origin: e.Origin}
	h.result, h.mem = outputsOf(e)
	return h
}

// outputsOf returns an entry as a host would have answered, with a copy of its outputs.
func outputsOf(e *resultcache.Entry) (r job.Result, mem []byte) {
	mem = make([]byte, 0, e.Len())
	for _, part := range e.Parts() {
		mem = append(mem, *part...)
	}
	return segmentsOf(e), mem
}

// run does the audit and returns its result. A hit that is not what two compiles come to is removed everywhere. It is
// wrong if these agree on another result, and their hosts repeat it. Its entry names the host that made it, but whoever
// can write to a store can write any name there. So that host is only blamed if it gives a wrong result again, or has
// served the hit itself.
func (h *hit) run() string {
	m, log := h.m, h.m.o.Log
	other := func(addr string) bool { return addr != h.origin.Host }
	anyHost := func(string) bool { return true }
	one := h.compile(other)
	if one == nil {
		one = h.compile(anyHost)
	}
	if one == nil {
		return report.AuditVoid
	}
	what := h.differs(one)
	if what == "" {
		return report.AuditSame
	}
	two := h.compile(func(addr string) bool { return addr != one.Host.Addr })
	if two == nil {
		two = h.compile(anyHost)
	}
	if two == nil {
		return report.AuditVoid
	}
	m.results.Drop(h.key)
	if h.exact != h.key {
		m.results.Drop(h.exact)
	}
	if h.lists != (resultcache.Key{}) {
		m.results.DropManifest(h.lists) // it may lead to the result for other inputs
	}
	m.farm.ForgetResult(h.key)
	same := one.Differs(two) == ""
	ok := true
	for _, x := range []*attempt.Attempt{one, two} {
		if same && ok {
			same, ok = h.steady(x)
		}
	}
	switch {
	case !ok:
		return report.AuditVoid
	case !same:
		log.Warn("a kept result is removed, as the compile gives another one each time", "source", h.t.Name, "what", what)
		return report.AuditUnsound
	}
	log.Error("a kept result is wrong, and removed", "source", h.t.Name, "what", what, "tier", h.tier, "made by", h.origin.Host,
		"for", h.origin.Builder, "at", h.origin.Made, "hosts that agree", slices.Compact([]string{one.Host.Addr, two.Host.Addr}))
	if one.Host == two.Host {
		return report.AuditDiffers // its word against that of the host that has made the hit
	}
	why := "its " + what + " of " + h.t.Name + ", which was kept, is not that of " + one.Host.Addr + " and " + two.Host.Addr
	if h.tier == resultcache.TierFarm {
		m.quarantine(h.origin.Host, why)
		return report.AuditDiffers
	}
	again := h.compile(func(addr string) bool { return addr == h.origin.Host })
	if again != nil && again.Differs(one) != "" {
		if steady, ok := h.steady(again); ok {
			h.blame(h.origin.Host, why, steady)
		}
	}
	return report.AuditDiffers
}

// differs returns what differs between the hit and the result of a, or "".
func (h *hit) differs(a *attempt.Attempt) string {
	return trust.Differ(a.Body, &h.result, h.mem, a.Out.Result, a.Sink.Bytes())
}
