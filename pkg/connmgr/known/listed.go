package known

import (
	"context"
	"strings"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// Where it is not certain what a compile or a precompiled header reads, a compiler has listed it. What follows is for such
// lists together with precompiled headers: a host needs to know of all files what they were when the compiler was asked.

// WithImages returns the job that a wrapper has made from what its compiler has listed, with the precompiled headers that the
// compile may find here. The compiler was asked after the time began, in nanoseconds since 1970. If there is no such job, why is the
// reason.
func (t *Table) WithImages(ctx context.Context, c *Command, f *ipc.Submit, body *job.Body, began int64) (k *Job, why string) {
	cmd := c.Lease.Command
	if cmd == nil || c.Foreign || !sees(cmd.View, c.Lease.Cwd) || body.Front > 0 || len(body.Files) == 0 {
		return nil, Image
	}
	used, why := t.use(ctx, c, nil, f.Images)
	if why != "" {
		return nil, Image
	}
	q := listing(c, body.Args, namesOf(body.Files), body.Dirs)
	q.Unsure, q.Timed = f.Unsure, true // what else the result depends on is not known
	set, why := t.listed(q, began)
	if why != "" {
		return nil, Changed
	}
	for _, r := range used {
		set = set.With(r.set)
	}
	if total(set, used) > t.most {
		return nil, Image
	}
	k = &Job{Set: set, Body: new(job.Body)}
	*k.Body = *body
	if k.fill(used) != nil {
		return nil, Changed
	}
	return k, ""
}

// listing returns the query for files that a compiler has listed for a command with these arguments.
func listing(c *Command, args, names, dirs []string) *inputs.Query {
	l, cmd := c.Lease, c.Lease.Command
	return &inputs.Query{Source: names[0], Cwd: l.Cwd, Only: names, Dirs: dirs, Key: strings.Join([]string{"listed", string(c.Compiler.ID[:]), l.Compiler, cmd.Argv0, l.Cwd,
		strings.Join(args, "\x00"), strings.Join(cmd.Env, "\x00"), strings.Join(names, "\x00"), strings.Join(dirs, "\x00")}, "\x01")}
}

func namesOf(files []unit.File) []string {
	names := make([]string, len(files))
	for i := range files {
		names[i] = files[i].Name
	}
	return names
}

// listed returns the files of a listing if none has changed since the time began, in nanoseconds since 1970. (File systems record
// times in steps of a few milliseconds, within which no compiler has read anything yet.)
func (t *Table) listed(q *inputs.Query, began int64) (*inputs.Set, string) {
	set, err := t.inputs.Resolve(q)
	if err != nil {
		return nil, err.(*inputs.Doubt).Why // as documented
	}
	if !set.Before(began) {
		return nil, inputs.DoubtChanged
	}
	return set, ""
}
