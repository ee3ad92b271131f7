package known

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// TestFitModule: no host makes a compiled module if the local compiler would record something else, or has not shown what it records.
func TestFitModule(t *testing.T) {
	path, err := exec.LookPath("clang++-16")
	if err != nil {
		need.Skipf(t, need.Tools, "no clang++-16")
	}
	table := compilers.New(t.Context(), nil)
	for _, c := range []struct {
		path, family   string
		front          int
		terminal, want bool
	}{{path, "clang", 0, false, true}, {path, "clang", 0, true, false}, {path, "clang", 1, false, false}, {path, "gcc", 0, false, false}, {"/bin/true", "clang", 0, false, false}} {
		tc := new(compilers.Compiler).Toolchain
		tc.Family, tc.ID = c.family, [16]byte([]byte(c.path + "                ")[:16])
		compiler := table.Of(tc, c.path)
		cmd := &Command{Lease: &ipc.Lease{Command: &ipc.Command{Terminal: c.terminal}}, Compiler: &compiler}
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
