package connmgr

import (
	"log/slog"
	"os"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/reason"
)

// consider notes the scheduler's view of the hosts, and its rule.
func (c *client) consider(r *farm.Request) {
	why, rule := r.Considered()
	c.record.Considered, c.record.Rule = c.record.Considered[:0:0], rule
	for _, x := range why {
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
	if r.Predicted > 0 && !r.Local {
		r.Expected = time.Duration(float64(r.Predicted) / max(c.m.farm.Speed(r.Host, c.compiler.ID), 0.01))
	}
	c.m.account.add(r)
	c.m.metrics.Done(r)
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
	named := m.lists.Own().Sched
	s := report.Status{Version: m.o.Version, PID: os.Getpid(), Since: m.started, ListFrom: own.Where}
	if own.Err != nil {
		s.ListError = own.Err.Error()
	} else if own.Stale != nil {
		s.ListError, s.ListKept = own.Stale.Error(), true
	}
	if m.o.Config != nil {
		s.Config = m.o.Config()
	}
	free, _ := m.memory.Stats()
	s.Slots = report.SlotStatus{Max: free.Max, Free: free.Free, Leased: free.Total - free.Free}
	_, s.Waiting.Preprocess = m.turns.cpp.Load()
	_, s.Waiting.Local = m.turns.local.Load()

	s.Underway = m.wrappers.underway(time.Now())
	s.Running = len(s.Underway)
	hosts := m.farm.Snapshot(named)
	s.Hosts, s.Drained, s.Waiting.Credit = hosts.Hosts, hosts.Drained, hosts.Waiting
	m.account.tell(&s)
	return s
}

// Stats is what came of all commands so far.
func (m *Manager) Stats() report.Stats {
	s := m.account.stats()
	s.Version, s.Since = m.o.Version, m.started
	s.Hosts = append(s.Hosts, m.farm.Totals()...)
	return s
}

// Why looks for the last jobs of a source or output file. names are its absolute name
// and what was typed.
func (m *Manager) Why(names []string) report.Why { return m.account.why(names, m.started) }
