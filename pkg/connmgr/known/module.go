package known

import (
	"fmt"
	"slices"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// fitModule reports whether a host may make a compiled module of clang's by a command. front is the number of words that
// stand for native ones.
//
// Only compilers are used that have shown that what they write is read as they mean it. On a terminal, clang records that messages
// have colours.
func fitModule(c *Command, front int) bool {
	return !c.Lease.Command.Terminal && front == 0 && c.Compiler.ReadsModules()
}

// searchOf returns what a compiled module has to say of where its compiler looked for headers, by a query that has been
// answered.
func searchOf(q *inputs.Query) *modules.Search {
	return &modules.Search{
		Given: len(q.Quote) + len(q.Angle) + len(q.System) + len(q.After),
		Own:   slices.Clone(q.Own), Missing: slices.Clone(q.Missing),
	}
}

// CheckModule returns an error, which wraps outputs.ErrDoubt, if the job makes a compiled module of clang's and what a host
// has made is not what the local compiler would have made: there, the driver has found other directories. mem has the
// unpacked result, which must have passed trust.Result.
func (k *Job) CheckModule(r *job.Result, mem []byte) error {
	if k.Module == nil || r.Exit != 0 {
		return nil
	}
	for _, f := range r.Files {
		if k.Body.Outputs[f.Index].Kind != unit.OutputModule {
			continue
		}
		if what := k.Module.Differs(mem[f.Off:][:f.Len]); what != "" {
			return fmt.Errorf("%s (%w)", what, outputs.ErrDoubt)
		}
		return nil
	}
	return fmt.Errorf("no content (%w)", outputs.ErrDoubt)
}
