package known

import (
	"bytes"
	"slices"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// left makes the job of a compile that a link with LTO has left. Nothing is looked for: the files that it reads are those of the
// command, and those that an index names.
func (t *Table) left(c *Command, plan *compile.Plan) (k *Job, why string) {
	dirs, _ := plan.IncludeDirs()
	if len(dirs)+len(plan.AsmDirs())+len(plan.Sysroots()) > 0 || plan.Driver.Tidy {
		return nil, unknownCommand
	}
	q := listing(c, plan.Whole(), slices.Concat([]string{plan.Source}, plan.Inputs), nil)
	q.Unsure = true // debug information names files that do not exist there
	set, err := t.inputs.Resolve(q)
	switch {
	case err != nil:
		return nil, err.(*inputs.Doubt).Why // as documented
	case total(set, nil) > t.most || !listable(set):
		return nil, unknownSize
	}
	k = &Job{Set: set, Body: body(c, plan), Left: true}
	if k.fill(nil) != nil {
		return nil, inputs.DoubtChanged
	}
	source := k.Source
	if source == nil {
		if source, err = set.Files[0].Append(nil); err != nil {
			return nil, inputs.DoubtChanged
		}
	}
	if bytes.Contains(source, []byte(".incbin")) || bytes.Contains(source, []byte(".include")) {
		return nil, unknownCommand // assembly in it reads files, which the wrapper looks for
	}
	if _, what := compile.Unasked(plan.Driver.Family, k.Body); what != "" {
		return nil, unknownCommand
	}
	return k, ""
}
