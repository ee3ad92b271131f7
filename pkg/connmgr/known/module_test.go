package known

import (
	"errors"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// TestFitModule: no host makes a compiled module if the local compiler would record something else.
func TestFitModule(t *testing.T) {
	for _, c := range []struct {
		major, front   int
		terminal, want bool
	}{{16, 0, false, true}, {19, 0, false, true}, {18, 0, false, false}, {20, 0, false, false}, {16, 0, true, false}, {19, 1, false, false}} {
		cmd := &Command{Lease: &ipc.Lease{Command: &ipc.Command{Terminal: c.terminal}}, Compiler: new(compilers.Compiler)}
		cmd.Compiler.Major = c.major
		if fitModule(cmd, c.front) != c.want {
			t.Errorf("%+v", c)
		}
	}
}

// TestCheckModule: a result without a compiled module, or with something else in its place, is not taken.
func TestCheckModule(t *testing.T) {
	body := &job.Body{Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "a.o"}, {Kind: unit.OutputModule, Name: "a.pcm"}}}
	mem := []byte("\x7fELFCPCH no module")
	object, module := job.File{Index: 0, Segment: job.Segment{Len: 4}}, job.File{Index: 1, Segment: job.Segment{Off: 4, Len: 14}}
	k := &Job{Body: body, Module: &modules.Search{}}
	for name, c := range map[string]struct {
		job   *Job
		r     job.Result
		doubt bool
	}{
		"none":             {k, job.Result{Files: []job.File{object}}, true},
		"something else":   {k, job.Result{Files: []job.File{object, module}}, true},
		"a failed compile": {k, job.Result{Exit: 1}, false},
		"gcc's":            {&Job{Body: body}, job.Result{Files: []job.File{object, module}}, false},
	} {
		if err := c.job.CheckModule(&c.r, mem); errors.Is(err, outputs.ErrDoubt) != c.doubt || !c.doubt && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
