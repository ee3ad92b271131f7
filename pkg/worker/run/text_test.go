package run

import (
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
)

// textBody returns the body of a job of the text form.
func textBody(args ...string) *job.Body {
	return &job.Body{
		Argv0: "cc", Args: args, Language: "cpp-output", Name: "a.c", Cwd: "/nowhere",
		Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "x.o"}},
	}
}

// TestOwnWordsAreLast: the daemon's own words come after all words of the client, which the policy relies on.
func TestOwnWordsAreLast(t *testing.T) {
	b := textBody("-O2", "-o", "-x")
	argv := arguments(b)
	if want := []string{"-O2", "-o", "-x", "-x", "cpp-output", "-c", driver.Source, "-o", driver.Output}; !slices.Equal(argv, want) {
		t.Errorf("words %q, want %q", argv, want)
	}
	if b.Outputs[0].Kind = unit.OutputAssembly; arguments(b)[5] != "-S" {
		t.Errorf("words for an assembly: %q", arguments(b))
	}
}

// TestEnvironmentIsMadeFromNothing: a compile's environment has what the daemon sets, and of the client's
// variables those that the policy lets through.
func TestEnvironmentIsMadeFromNothing(t *testing.T) {
	environments := func(variable string) (ofText, sources []string, errs [2]error) {
		tc := &toolchain.Toolchain{Family: "gcc", Major: 12, Exec: "/usr/bin/gcc", Path: "/usr/bin/gcc"}
		b := textBody("-O2")
		b.Env = []string{variable}
		x := &textInTree{text{j: &Job{Toolchain: tc, body: b}}}
		errs[0] = x.check()
		w := &job.Body{
			Argv0: "gcc", Args: []string{"-c", "a.c", "-o", "x.o"}, Language: "c", Name: "a.c", Cwd: "/src", Env: b.Env,
			Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "x.o"}}, Files: []unit.File{{Name: "a.c"}},
		}
		s := &sourcesInTree{j: &Job{Toolchain: tc, body: w, Files: &files.Set{Body: w, Text: [][]byte{nil}}}}
		errs[1] = s.check()
		return x.environment("/w/tmp"), s.env, errs
	}
	ofText, sources, errs := environments("LC_ALL=C.UTF-8")
	if errs != [2]error{} {
		t.Fatal(errs)
	}
	if !slices.Equal(ofText, []string{"PATH=" + SearchPath, "TMPDIR=/w/tmp", "LC_ALL=C.UTF-8"}) {
		t.Errorf("with text %q", ofText)
	}
	if !slices.Equal(sources, []string{"PATH=" + SearchPath, "TMPDIR=/tmp", "LC_ALL=C.UTF-8"}) {
		t.Errorf("with sources %q", sources)
	}
	if _, _, errs = environments("LD_PRELOAD=x"); errs[0] == nil || errs[1] == nil {
		t.Errorf("anything goes along: %v", errs)
	}
}

// TestExcessHasItsCause: the answer says which limit a compile exceeded, so that a manager does not take it
// for trouble of the host.
func TestExcessHasItsCause(t *testing.T) {
	h := &Host{File: 1 << 20}
	for x, want := range map[sandbox.Excess]job.Cause{
		sandbox.ExcessMemory: job.CauseMemory, sandbox.ExcessProcesses: job.CauseLimit, sandbox.ExcessFile: job.CauseTooBig,
		sandbox.ExcessCPU: job.CauseTimeout, sandbox.ExcessDenied: job.CauseLimit, sandbox.ExcessNames: job.CauseTree,
	} {
		no := h.exceeded(x, &sandbox.Limits{})
		if no == nil || no.Cause != want || Failed(no).Status != job.StatusFailed {
			t.Errorf("%v: %+v, want %v", x, no, want)
		}
	}
	if no := h.exceeded(sandbox.ExcessNone, &sandbox.Limits{}); no != nil {
		t.Errorf("no excess: %+v", no)
	}
}
