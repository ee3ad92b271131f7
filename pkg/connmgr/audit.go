package connmgr

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

const (
	// auditPatience is how long an audit waits for a host: where there is so much to
	// do, another job will be looked at.
	auditPatience = time.Minute
	// auditBuild: audits are a build of their own among builds.
	auditBuild = 1
)

// audit looks whether hosts can be trusted: no checksum finds a host that computes
// wrongly. A job that has its answer is compiled again elsewhere, and what came out
// is held against the answer. Where that differs, each host does it again, as only
// what a host repeats tells of the host, and a third one says who is right.
type audit struct {
	m     *Manager
	t     *attempt.Task
	job   scheduler.Job // of the answer
	ctx   context.Context
	first *attempt.Attempt
	tries []*attempt.Attempt
}

// auditDone counts what an audit came to.
func (m *Manager) auditDone(result string) {
	m.metrics.Audited(result)
	m.account.addAudit(result)
}

// audited takes a job of which won is the answer: it will release it. Not every one
// is sampled; false leaves it with the caller.
func (m *Manager) audited(req *farm.Request, won *attempt.Attempt) bool {
	if part := m.live().Audit; part <= 0 || rand.Float64() >= part || len(req.Job.Hosts) < 2 || !won.InSink() {
		return false
	}
	if m.auditing.Add(1) > maxAudits {
		m.auditing.Add(-1)
		return false
	}
	m.clients.Go(func() {
		ctx, cancel := context.WithCancel(m.ctx)
		defer cancel()
		m.clients.Go(func() {
			select {
			case <-m.service.stopping:
				cancel()
			case <-ctx.Done():
			}
		})
		a := &audit{m: m, t: won.Task, job: req.Job, ctx: ctx, first: won}
		m.auditDone(a.run())
		for _, x := range a.tries {
			x.Release()
		}
		won.Release()
		m.auditing.Add(-1)
	})
	return true
}

// run does the audit and gives what it came to.
func (a *audit) run() string {
	one := a.first.Host.Addr
	second := a.compile(func(addr string) bool { return addr != one })
	if second == nil {
		return report.AuditVoid
	}
	what := a.first.Differs(second)
	if what == "" {
		return report.AuditSame
	}
	two := second.Host.Addr
	m, log := a.m, a.m.o.Log
	log.Info("two hosts differ", "job", a.t.ID, "source", a.t.Name, "what", what, "hosts", []string{one, two})
	again := func(x *attempt.Attempt, addr string) (same, ok bool) {
		y := a.compile(func(other string) bool { return other == addr })
		return y != nil && x.Differs(y) == "", y != nil
	}
	sameOne, ok1 := again(a.first, one)
	sameTwo, ok2 := again(second, two)
	switch {
	case !ok1 || !ok2:
		return report.AuditVoid
	case !sameOne && !sameTwo:
		return report.AuditUnsound
	}
	third := a.compile(func(addr string) bool { return addr != one && addr != two })
	if third == nil {
		log.Warn("two hosts give different results, and there is no third one to say which is wrong: compile "+a.t.Name+" here to see",
			"what", what, "hosts", []string{one, two})
		return report.AuditOpen
	}
	odd, why := "", ""
	switch {
	case a.first.Differs(third) == "" && (sameOne || !sameTwo):
		odd, why = two, a.words(what, one, third)
	case second.Differs(third) == "" && (sameTwo || !sameOne):
		odd, why = one, a.words(what, two, third)
	default:
		log.Warn("three hosts give three results", "source", a.t.Name, "what", what, "hosts", []string{one, two, third.Host.Addr})
		return report.AuditOpen
	}
	m.quarantine(odd, why)
	return report.AuditDiffers
}

func (a *audit) words(what, good string, third *attempt.Attempt) string {
	return "its " + what + " of " + a.t.Name + " is not that of " + good + " and " + third.Host.Addr
}

// quarantine takes a host away from all jobs, until someone has looked at it.
func (m *Manager) quarantine(addr, why string) {
	m.o.Log.Error("host in quarantine: "+why+"; rdistcc undrain gives it jobs again", "host", addr)
	m.metrics.Quarantined(addr)
	m.farm.Quarantine(addr, why)
}

// compile has a host that may do it compile the task once more, out of those that take
// jobs: none is waited for. Nil says that none did.
func (a *audit) compile(may func(addr string) bool) *attempt.Attempt {
	m := a.m
	ctx, cancel := context.WithTimeout(a.ctx, auditPatience)
	defer cancel()
	j := a.job
	j.Tried = make(map[string]bool)
	j.Since, j.Share, j.Local, j.NoLocal, j.Build = time.Now(), 0, false, true, auditBuild
	// The build has its answer, whatever it would have waited for.
	j.Strict, j.Again, j.Asked, j.Lost = false, nil, time.Time{}, time.Time{}
	some := false
	for i := range j.Hosts {
		addr := j.Hosts[i].Addr
		if may(addr) && m.farm.Takes(addr) {
			some = true
		} else {
			j.Tried[addr] = true
		}
	}
	if !some {
		return nil
	}
	sink, err := m.memory.Sink(ctx, a.t.UID, func() {})
	if err != nil {
		return nil
	}
	g, err := m.farm.Pick(ctx, farm.NewRequest(m.ids.Add(1), j))
	if err != nil || g.Host == nil {
		sink.Drop()
		return nil
	}
	x := attempt.New(a.ctx, a.t, g, sink, time.Now())
	x.Run()
	if x.Out.Result == nil || !x.InSink() {
		x.Release()
		return nil
	}
	a.tries = append(a.tries, x)
	return x
}
