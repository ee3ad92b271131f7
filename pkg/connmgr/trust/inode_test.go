package trust

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestInode: a result with the name of a target region is not taken, wherever in it that is, if the command could make one.
func TestInode(t *testing.T) {
	const name = "__omp_offloading_fe00_98483b_f_l2"
	for args, want := range map[string]bool{
		"-fopenmp -c": true, "-fopenmp=libomp -O2 -S": true, "-O2 -c": false, "-fopenmp-simd -c": false, "-fopenmp -c -fno-openmp": true,
	} {
		for _, in := range [...]string{"assembly", "messages", "nothing"} {
			body := &job.Body{Compiler: "/usr/bin/clang-19", Args: strings.Fields(args), Outputs: []unit.Output{{Kind: unit.OutputAssembly, Name: "a.s"}}}
			mem := strings.Replace("assembly of "+strings.Repeat("x", 40)+"\nmessages", in, name, 1)
			file, words := strings.Index(mem, "\n"), strings.Index(mem, "\n")+1
			r := &job.Result{Files: []job.File{{Segment: job.Segment{Len: uint64(file)}}}, Stderr: job.Segment{Off: uint64(words), Len: uint64(len(mem) - words)}}
			what, err := Contents(r, []byte(mem), body, modules.Rules{}, func() (outputs.Object, bool) { return outputs.Object{}, false })
			if want := want && in != "nothing"; errors.Is(err, ErrInode) != want || want && (what != in || !errors.Is(err, outputs.ErrDoubt)) {
				t.Errorf("%s: in %s: %s, %v", args, in, what, err)
			}
		}
	}
}
