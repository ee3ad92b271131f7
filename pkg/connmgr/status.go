package connmgr

import (
	"cmp"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/reason"
	"github.com/rdistcc/rdistcc/pkg/sandbox"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// consider notes the scheduler's view of the hosts, and its rule.
func (c *client) consider(r *request) {
	c.record.Considered, c.record.Rule = c.record.Considered[:0:0], r.rule
	for _, x := range r.why {
		c.record.Considered = append(c.record.Considered, report.Considered(x))
	}
}

// note takes the figures of a result.
func (c *client) note(x *ipc.Result) {
	c.remote, c.compiled = true, true
	r := &c.record
	r.Host, r.Attempts = x.Host, x.Attempts
	r.CreditUS, r.WriteUS, r.QueueUS, r.CompileUS, r.ReturnUS = x.CreditUS, x.WriteUS, x.QueueUS, x.CompileUS, x.ReturnUS
	r.BytesOut, r.BytesIn, r.SentFiles = x.BytesOut, x.BytesIn, x.SentFiles
}

// logJob counts and logs a command that has ended.
func (c *client) logJob() {
	r := &c.record
	if r.ID == 0 {
		return // a question, or nothing at all
	}
	if !r.Finished {
		r.Local = !c.remote
		if r.Reason == "" && r.Local {
			r.Reason = reason.Manager
		}
	}
	if r.Local {
		r.Host = ""
		r.Twice = r.Finished && c.compiled
	}
	c.m.mu.Lock()
	if r.Predicted > 0 && !r.Local {
		r.Expected = time.Duration(float64(r.Predicted) / max(c.m.sched.Speed(r.Host, c.toolchain.ID), 0.01))
	}
	c.m.book.Add(r)
	c.m.mu.Unlock()
	c.m.metrics.done(r)
	attrs := []any{"job", r.ID, "source", r.Source, "exit", r.Exit, "total_us", r.TotalUS}
	if !r.Finished {
		attrs = append(attrs, "wrapper", "gone")
	}
	if r.Local {
		attrs = append(attrs, "place", "local", "reason", r.Reason)
		if r.Twice {
			attrs = append(attrs, "twice", true)
		}
		if r.Detail != "" {
			attrs = append(attrs, "detail", r.Detail)
		}
	} else {
		attrs = append(attrs, "place", "remote", "host", r.Host, "out", r.BytesOut, "in", r.BytesIn,
			"preprocess_us", r.PreprocessUS, "credit_us", r.CreditUS, "write_us", r.WriteUS,
			"queue_us", r.QueueUS, "compile_us", r.CompileUS, "return_us", r.ReturnUS)
	}
	c.m.o.Log.Log(c.m.ctx, slog.LevelInfo, "job", attrs...)
}

// Status is the manager's state of now.
func (m *Manager) Status() report.Status {
	own := m.o.Hosts()
	named := m.ownNow().sched
	s := report.Status{Hosts: []report.HostStatus{}, Version: m.o.Version, PID: os.Getpid(), Since: m.started, ListFrom: own.Where}
	if own.Err != nil {
		s.ListError = own.Err.Error()
	} else if own.Stale != nil {
		s.ListError, s.ListKept = own.Stale.Error(), true
	}
	if m.o.Config != nil {
		s.Config = m.o.Config()
	}
	free := m.sources.Stats()
	s.Slots = report.SlotStatus{Max: free.Max, Free: free.Free, Leased: free.Total - free.Free}
	_, s.Waiting.Preprocess = m.cpp.Load()
	_, s.Waiting.Local = m.local.Load()

	m.mu.Lock()
	defer m.mu.Unlock()
	s.Waiting.Credit = len(m.waiting)
	s.Underway = m.underwayLocked(time.Now())
	s.Running = len(s.Underway)
	known := m.snapshotLocked()
	for _, h := range m.hosts {
		s.Hosts = append(s.Hosts, h.statusLocked(known))
	}
	for i := range named {
		if addr := named[i].Addr; m.hosts[addr] == nil { // no job has asked for it yet
			s.Hosts = append(s.Hosts, m.unusedLocked(addr))
		}
	}
	slices.SortFunc(s.Hosts, func(a, b report.HostStatus) int { return cmp.Compare(a.Addr, b.Addr) })
	s.Jobs = m.book.Counts()
	for _, c := range s.Jobs {
		if c.Reason == reason.NoHosts {
			s.NoHosts += c.OK + c.Failed
		}
	}
	s.Inputs = m.book.Inputs()
	s.Recent = m.book.Recent()
	for addr := range m.drains.on {
		s.Drained = append(s.Drained, addr)
	}
	slices.Sort(s.Drained)
	return s
}

// unusedLocked is the state of a host that no job has asked for yet.
func (m *Manager) unusedLocked(addr string) report.HostStatus {
	return report.HostStatus{Addr: addr, State: report.StateUnused, Drained: m.drains.on[addr]}
}

// snapshotLocked is what the scheduler knows of the hosts.
func (m *Manager) snapshotLocked() map[string]scheduler.Status {
	list := m.sched.Snapshot(time.Now())
	known := make(map[string]scheduler.Status, len(list))
	for _, s := range list {
		known[s.Addr] = s
	}
	return known
}

// statusLocked is h's state; known is snapshotLocked's.
func (h *host) statusLocked(known map[string]scheduler.Status) report.HostStatus {
	s := report.HostStatus{Addr: h.addr, State: h.state.String(),
		OK: h.jobs.ok, Failed: h.jobs.failed, Out: h.jobs.out, In: h.jobs.in, Drained: h.m.drains.on[h.addr]}
	k := known[h.addr]
	s.RTTUS, s.Rate, s.Speed = k.Link.RTT.Microseconds(), k.Link.Rate, k.Speed
	s.OnTrial, s.PauseMS, s.DoubtMS, s.Doubt = k.HalfOpen, k.Retry.Milliseconds(), k.Quarantine.Milliseconds(), k.Doubt
	if h.state == hostUp {
		s.Depth = h.m.sched.Depth(h.addr)
	}
	if h.lastErr != nil {
		s.Error = h.lastErr.Error()
	}
	s.HeldFiles, s.HeldBytes = h.holds.Stats()
	if l := h.link; l != nil {
		view, can := l.View(), l.Welcome()
		s.Links, s.Credits, s.Running, s.Load = len(h.links), h.unspentLocked(), h.runningLocked(), &view.Load
		s.LoadFrom, s.LoadAgeMS, s.Pressure = view.From, time.Since(view.At).Milliseconds(), view.Pressure
		measures := sandbox.Set(can.Sandbox)
		s.Sandbox, s.Measures = measures.Level().String(), measures.Names()
		ids, _ := l.Toolchains()
		s.Jobs, s.Tools, s.Tree, s.Demand = int(can.Jobs), len(ids), can.Tree, l.Said()
		s.Identifying = l.Identifying()
		lacks, common := h.lacksLocked()
		s.Compilers, s.Lacks, s.Foreign, s.Refused = l.Compilers(), lacks, !common, h.refused
	}
	return s
}

// Stats is what came of all commands so far.
func (m *Manager) Stats() report.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.book.Stats()
	s.Version, s.Since = m.o.Version, m.started
	for _, h := range m.hosts {
		s.Hosts = append(s.Hosts, report.HostStats{Host: h.addr, OK: h.jobs.ok, Failed: h.jobs.failed, BytesOut: h.jobs.out, BytesIn: h.jobs.in})
	}
	slices.SortFunc(s.Hosts, func(a, b report.HostStats) int { return cmp.Compare(a.Host, b.Host) })
	return s
}

// Why looks for the last jobs of a source or output file. names are its absolute name
// and what was typed.
func (m *Manager) Why(names []string) report.Why {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.book.Why(names, m.started)
}
