package connmgr

import (
	"slices"

	"github.com/rdistcc/rdistcc/internal/driver/recipes"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
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
		if c.sought = c.m.known.JudgeListed(c.Context(), c.command(recipes.Native{}), k.Body, f.Images); c.sought != "" {
			return nil, c.staysHere()
		}
		c.reading(k)
		return c.compileWith(k)
	}
	if c.sought = c.m.known.JudgeListed(c.Context(), c.command(recipes.Native{}), t.Body, nil); c.sought != "" {
		return nil, c.staysHere()
	}
	t.Known = c.m.known.Listed(t.Body, t.Text[t.TextOff:], t.Modules)
	c.reading(t.Known)
	if l := t.Body.Language; l == unit.LanguageIR || l == unit.LanguageLTO {
		return c.compileLeft(t)
	}
	if c.m.results == nil || t.Known == nil || !listedWhole(t) {
		return c.compile(t, true)
	}
	key := resultcache.ListKeyOf(c.compiler.ID, t.Body, t.Known.Set.Sum())
	return c.compileNamed(t, key, manner{tree: true, words: true, missed: missedListed})
}

// listedWhole reports whether the result of a job that its wrapper has made depends on nothing but its command and what it shows to
// the compiler. The wrapper sends none that reads a clock.
func listedWhole(t *attempt.Task) bool {
	module := func(out unit.Output) bool { return out.Kind == unit.OutputModule }
	return !readsClock(t.Body.Args) && len(t.Body.Images) == 0 && t.Modules.Module == "" && len(t.Modules.Imports) == 0 && !slices.ContainsFunc(t.Body.Outputs, module)
}

// missedListed is what the cache has to say of a command for which the compiler was asked what it reads.
const missedListed = "no result of the same command and files is kept (its compiler is asked each time which files these are)"

// howListed returns how the wrapper made a job, in words for the record.
func howListed(f *ipc.Submit) string {
	if f.Tree {
		return "list"
	}
	return "text"
}
