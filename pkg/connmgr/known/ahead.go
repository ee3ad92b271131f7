package known

import (
	"crypto/sha256"
	"path/filepath"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// aheadName is the name of the empty source that a job of Ahead compiles, without its suffix.
const aheadName = "rdistcc-header-ahead"

// Ahead returns a job by which a host makes the image while it is made here: it compiles an empty source, and has the image.
// Its result is of no use. It returns nil if hosts cannot make the image.
//
// The image that the host keeps has the name of what it is made of, so compiles use it if that has not changed when the
// command here has ended.
func (m *Making) Ahead() *Job {
	if m.from == nil || m.from.Len > m.t.most {
		return nil
	}
	l, cmd := m.c.Lease, m.c.Lease.Command
	cwd := sources.RealPath(l.Cwd)
	driver, ok := compile.DriverOf(cmd.Argv0, cmd.Real)
	if !ok || cwd == "" {
		return nil
	}
	plan := compile.Parse([]string{"-c", aheadName + ".c", "-o", aheadName + ".o"}, driver, variables(cmd.Env))
	if plan.Local {
		return nil
	}
	source := &inputs.Input{Name: filepath.Join(cwd, aheadName+".c"), ID: sha256.Sum256(nil)}
	list, _ := m.from.List()
	return &Job{
		Set:    &inputs.Set{Files: []*inputs.Input{source}, Dirs: []string{cwd}, Links: m.from.Links},
		Source: []byte{},
		Images: []*inputs.Set{m.from},
		Body: &job.Body{Argv0: cmd.Argv0, Compiler: cmd.Real, Args: plan.Whole(), Language: plan.Language, Name: filepath.Base(plan.Source), Cwd: l.Cwd,
			Env: cmd.Env, Outputs: plan.Outputs, Files: []unit.File{{Name: source.Name}}, Images: []job.Body{m.body(list)}},
	}
}

// body returns the command as a host gets it to make the image of what a list names.
func (m *Making) body(list unit.ContentID) job.Body {
	l, cmd := m.c.Lease, m.c.Lease.Command
	return job.Body{Argv0: cmd.Argv0, Compiler: cmd.Real, Args: m.plan.Whole(), Language: m.plan.Language, Name: filepath.Base(m.plan.Source), Cwd: l.Cwd,
		Env: cmd.Env, Outputs: m.plan.Makes.Outputs, Lists: []unit.ContentID{list}}
}
