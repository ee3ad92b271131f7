package connmgr

import (
	"cmp"
	"log/slog"
	"math"
	"path/filepath"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/paired"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// begin marks c as a command, which keeps an idle manager alive. source, output and program are its files as
// it names them, empty if it has none.
func (c *client) begin(source, output, program string) {
	c.id = c.m.ids.Add(1)
	c.record.ID, c.record.Began = c.id, time.Now()
	c.record.Compiler, c.record.Source, c.record.Output = program, source, output
	c.place.Begin(c.id, cmp.Or(source, output, filepath.Base(program)), c.record.Began)
}

// belongsTo records the build of the command.
func (c *client) belongsTo(build uint64) {
	c.record.Build = build
	c.place.BelongsTo(build)
}

// consider records the scheduler's view of the hosts, and its rule.
func (c *client) consider(r *farm.Request) {
	why, rule := r.Considered()
	c.record.Considered, c.record.Rule = c.record.Considered[:0:0], rule
	for _, x := range why {
		c.record.Considered = append(c.record.Considered, report.Considered(x))
	}
}

// note records the figures of a result.
func (c *client) note(x *ipc.Result) {
	c.remote, c.compiled = true, true
	r := &c.record
	r.Host, r.Attempts = x.Host, x.Attempts
	r.CreditUS, r.WriteUS, r.QueueUS, r.CompileUS, r.ReturnUS = x.CreditUS, x.WriteUS, x.QueueUS, x.CompileUS, x.ReturnUS
	r.BytesOut, r.BytesIn, r.SentFiles = x.BytesOut, x.BytesIn, x.SentFiles
	c.answered()
}

// answered records that a result has come, from a host or from the cache.
func (c *client) answered() { c.record.AnsweredUS = micros(time.Since(c.record.Began)) }

func micros(d time.Duration) uint32 { return uint32(min(max(d.Microseconds(), 0), math.MaxUint32)) }

// pairs returns what a compile that does the same work has in common with this one.
func (c *client) pairs() paired.Compile {
	return paired.Compile{Compiler: c.record.Compiler, Cwd: c.record.Cwd, Source: c.record.Source, Output: c.record.Output}
}

// measure records what the command takes on this machine, and learns from it.
func (c *client) measure() {
	r := &c.record
	compiles := c.lease != nil && r.Finished && r.Exit == 0
	what := c.pairs()
	cpu := time.Duration(r.CPUUS) * time.Microsecond
	switch {
	case !r.Local:
		if compiles && r.Cached == "" {
			c.m.paired.Far(what, r.Host, cpu)
		}
		r.HereUS = micros(time.Duration(float64(cpu) * c.m.paired.Ratio(r.Host)))
	case r.Source != "" && !reason.Links(r.Reason) && cpu > 0:
		// On a busy machine a compile takes longer than its CPU time, but not because of itself.
		if compiles {
			c.m.paired.Here(what, cpu)
		}
		r.HereUS = r.CPUUS
	case !c.began.IsZero():
		r.HereUS = micros(r.Ended.Sub(c.began))
	}
}

// logJob counts and logs a command that has ended.
func (c *client) logJob() {
	r := &c.record
	if r.ID == 0 {
		return // a control request, or nothing at all
	}
	if !r.Finished {
		r.Ended = time.Now()
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
	c.measure()
	c.m.account.add(r)
	c.spend()
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

// onFinish records what the wrapper reports at the end of the command.
func (c *client) onFinish(f *ipc.Finish) {
	c.free = c.free || f.Closed
	c.record.Finished, c.record.Ended = true, time.Now()
	c.record.Exit = f.Exit
	c.record.TotalUS = f.TotalUS
	if f.PreprocessUS != 0 {
		c.record.PreprocessUS = f.PreprocessUS
	}
	c.record.Local = f.Where == ipc.WhereLocal
	if c.record.Local {
		if c.compiled && f.Exit == 0 { // on a host, with the same files
			c.m.paired.Far(c.pairs(), c.record.Host, time.Duration(c.record.CPUUS)*time.Microsecond)
		}
		c.record.CPUUS = f.CPUUS
	}
	if c.record.Local && f.Reason != "" {
		c.record.Reason = f.Reason
	}
}
