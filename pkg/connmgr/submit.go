package connmgr

import (
	"github.com/rdistcc/rdistcc/internal/driver/recipes"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// onSubmit runs the job on a host and answers with its result, or with the reason why the wrapper has to run
// it.
func (c *client) onSubmit(f *ipc.Submit) error {
	if c.source == nil || c.free {
		return errProtocol
	}
	c.free = true // the preprocessor has ended
	c.record.PreprocessUS = f.PreprocessUS
	c.place.Enter(report.PhaseWaits)
	c.record.Inputs = howListed(f)
	c.m.metrics.Inputs(c.record.Inputs)
	var r *ipc.Result
	no := c.takeLarge(slotEnd(f))
	c.endTurn()
	c.prepared()
	c.Watch()
	if no == nil {
		var t *attempt.Task
		if t, no = c.task(f); no == nil {
			r, no = c.compileListed(t, f)
		}
	}
	switch {
	case c.Context().Err() != nil:
		return nil
	case no != nil:
		return c.goLocal(no)
	}
	c.record.Host = r.Host
	c.place.Enter(report.PhaseReturns)
	return c.sendResult(r)
}

// compileListed makes a host compile a job that the wrapper has made. If the compiler's list of files is
// enough to know what the job reads, its result can be kept. The host gets only contents that it lacks.
func (c *client) compileListed(t *attempt.Task, f *ipc.Submit) (*ipc.Result, *ipc.GoLocal) {
	if native, ok := c.compiler.Native(c.lease.Machine); ok && c.m.known.Learn(c.query, f, t.Body) {
		k, why := c.know(native)
		if why == known.Sought {
			return nil, c.staysHere()
		}
		if k != nil {
			r, no := c.compileWith(k)
			if no == nil || no.Reason != known.Changed {
				return r, no
			}
		}
	}
	if !f.Tree {
		return c.compileText(t)
	}
	if len(f.Images) > 0 {
		k, why := c.m.known.WithImages(c.Context(), c.command(recipes.Native{}), f, t.Body, c.asked.UnixNano())
		if k == nil {
			return nil, &ipc.GoLocal{Reason: why}
		}
		c.reading(k)
		return c.compileWith(k)
	}
	if c.sought = c.m.known.JudgeListed(c.Context(), c.command(recipes.Native{}), t.Body); c.sought != "" {
		return nil, c.staysHere()
	}
	t.Known = c.m.known.Listed(t.Body, t.Text[t.TextOff:], t.Modules)
	c.reading(t.Known)
	if l := t.Body.Language; l == unit.LanguageIR || l == unit.LanguageLTO {
		return c.compileLeft(t)
	}
	return c.compile(t, true)
}

// howListed returns how the wrapper made a job, in words for the record.
func howListed(f *ipc.Submit) string {
	if f.Tree {
		return "list"
	}
	return "text"
}
