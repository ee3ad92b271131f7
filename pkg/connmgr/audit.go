package connmgr

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

const (
	// auditPatience is how long an audit waits for a host. If the farm is that busy, another job will be
	// audited.
	auditPatience = time.Minute
	// auditPause comes before each repetition, so that no two are in the same second, which is how finely compilers
	// date what they write; auditTimes is how many there are on each host.
	auditPause = 1100 * time.Millisecond
	auditTimes = 3
	// auditStrikes is how many sources a host may come to several results for, unlike others, before it is blamed.
	auditStrikes = 3
	// auditBuild is the number of the build that audits count as.
	auditBuild = 1
)

// audit checks whether a host compiles correctly, which no checksum can show. A job that has its answer is
// compiled again on another host, and the results are compared. If they differ, both hosts and a third one compile
// it several times, and only what they repeat counts: a compile may depend on the time, as one of an object for
// Windows does, or on chance. A host is blamed if two others come to one result, each time, and it comes to another,
// each time. One that comes to several is blamed once that has happened with several sources, as the compile of one
// may just rarely come to another result.
type audit struct {
	m     *Manager
	t     *attempt.Task
	job   scheduler.Job // the job that was answered
	ctx   context.Context
	first *attempt.Attempt
	tries []*attempt.Attempt
}

// auditDone counts the result of an audit.
func (m *Manager) auditDone(result string) {
	m.metrics.Audited(result)
	m.account.addAudit(result)
}

// audited starts an audit of a job that won has answered, if the job is sampled. It reports whether it is;
// then the audit releases won, otherwise the caller does.
func (m *Manager) audited(req *farm.Request, won *attempt.Attempt) bool {
	if part := m.live().Audit; part <= 0 || rand.Float64() >= part || len(req.Job.Hosts) < 2 || !won.InSink() {
		return false
	}
	if m.auditing.Add(1) > maxAudits {
		m.auditing.Add(-1)
		return false
	}
	a := &audit{m: m, t: won.Task, job: req.Job, first: won}
	a.begin(a.run, won.Release)
	return true
}

// begin runs an audit, which has to be counted already, in the background. It calls end when the audit has
// ended.
func (a *audit) begin(run func() string, end func()) {
	m := a.m
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
		a.ctx = ctx
		m.auditDone(run())
		for _, x := range a.tries {
			x.Release()
		}
		end()
		m.auditing.Add(-1)
	})
}

// run does the audit and returns its result.
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
	log := a.m.o.Log
	log.Info("two hosts differ", "job", a.t.ID, "source", a.t.Name, "what", what, "hosts", []string{one, two})
	sameOne, ok1 := a.steady(a.first)
	sameTwo, ok2 := a.steady(second)
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
	sameThree, ok3 := a.steady(third)
	switch {
	case !ok3:
		return report.AuditVoid
	case sameOne && sameThree && a.first.Differs(third) == "":
		return a.blame(two, a.words(what, one, third.Host.Addr), sameTwo)
	case sameTwo && sameThree && second.Differs(third) == "":
		return a.blame(one, a.words(what, two, third.Host.Addr), sameOne)
	case sameOne && sameTwo && sameThree:
		log.Warn("three hosts give three results", "source", a.t.Name, "what", what, "hosts", []string{one, two, third.Host.Addr})
		return report.AuditOpen
	}
	return report.AuditUnsound
}

// steady reports whether the host of x comes to the same result again and again, at other times than before. ok is
// false if it does not compile.
func (a *audit) steady(x *attempt.Attempt) (same, ok bool) {
	for range auditTimes {
		select {
		case <-time.After(auditPause):
		case <-a.ctx.Done():
			return false, false
		}
		y := a.compile(func(addr string) bool { return addr == x.Host.Addr })
		if y == nil {
			return false, false
		}
		same = x.Differs(y) == ""
		a.tries = slices.DeleteFunc(a.tries, func(z *attempt.Attempt) bool { return z == y })
		y.Release()
		if !same {
			return false, true
		}
	}
	return true, true
}

// blame puts a host in quarantine whose result is not that of two others, each of which repeats its own, and returns the
// audit's result. steady says whether it repeats its own as well.
func (a *audit) blame(addr, why string, steady bool) string {
	if !steady && !a.m.strikes.add(addr, a.t.Name) {
		a.m.o.Log.Warn("a host gives several results, unlike others", "host", addr, "source", a.t.Name)
		return report.AuditUnsound
	}
	a.m.quarantine(addr, why)
	return report.AuditDiffers
}

// strikes are the sources for which hosts came to several results while others came to one. The zero value has none.
type strikes struct {
	mu      sync.Mutex
	sources map[string][]string // by host
}

// add notes a source. It reports whether the host has had its strikes, which begin anew then.
func (s *strikes) add(addr, source string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sources == nil {
		s.sources = make(map[string][]string)
	}
	if !slices.Contains(s.sources[addr], source) {
		s.sources[addr] = append(s.sources[addr], source)
	}
	if len(s.sources[addr]) < auditStrikes {
		return false
	}
	delete(s.sources, addr)
	return true
}

func (a *audit) words(what, good, third string) string {
	return "its " + what + " of " + a.t.Name + " is not that of " + good + " and " + third
}

// quarantine keeps all jobs away from a host until an operator has looked at it.
func (m *Manager) quarantine(addr, why string) {
	m.o.Log.Error("host in quarantine: "+why+"; rdistcc undrain gives it jobs again", "host", addr)
	m.metrics.Quarantined(addr)
	m.farm.Quarantine(addr, why)
	if m.results != nil {
		m.results.Distrust(addr)
	}
}

// compile compiles the task once more, on one of the hosts that take jobs and for which may returns true. It
// waits for none, and returns nil if no host has compiled the task.
func (a *audit) compile(may func(addr string) bool) *attempt.Attempt {
	m := a.m
	ctx, cancel := context.WithTimeout(a.ctx, auditPatience)
	defer cancel()
	j := a.job
	j.Tried = make(map[string]bool)
	j.Since, j.Share, j.Local, j.NoLocal, j.Build = time.Now(), 0, false, true, auditBuild
	// The build has its answer, so the job's own conditions on waiting do not apply.
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
	x.Alone = true
	x.Run()
	if x.Out.Result == nil || !x.InSink() {
		x.Release()
		return nil
	}
	a.tries = append(a.tries, x)
	return x
}
