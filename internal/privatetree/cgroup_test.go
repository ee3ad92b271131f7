package privatetree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// TestGroupsBoundCommands: in the kernel's control groups a command that takes too much memory, even for
// files, or starts too many processes ends, and the outcome says why; a neighbour goes on, and no group is
// left.
func TestGroupsBoundCommands(t *testing.T) {
	dir, err := sandbox.Delegated()
	if err != nil {
		t.Skip(err)
	}
	for name, kind := range confinedKinds(t) {
		t.Run(name, func(t *testing.T) {
			grouped := func() *Tree {
				s := kind(Spec{Files: programs(t, "/bin/sh", "head", "tail", "sleep")})
				s.Cgroup = dir
				tr, err := New(t.Context(), s)
				must(t, err)
				if !tr.Measures().Has(sandbox.Cgroup) {
					t.Errorf("measures: %v", tr.Measures())
				}
				return tr
			}
			neighbour := grouped()
			fd := int(null(t).Fd())
			honest, err := neighbour.Start(&Command{
				Argv: []string{"/bin/sh", "-c", "sleep 1000"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd,
				Limits: sandbox.Limits{JobMemory: 64 << 20, Processes: 8},
			})
			must(t, err)
			tr := grouped()
			for _, test := range []struct {
				script string
				limits sandbox.Limits
				want   sandbox.Excess
			}{
				{"echo fine", sandbox.Limits{JobMemory: 64 << 20, Processes: 8}, sandbox.ExcessNone},
				{"head -c 400000000 /dev/zero | tail -c 300000000", sandbox.Limits{JobMemory: 32 << 20}, sandbox.ExcessMemory},
				// Files in memory are in no process: only the group counts them.
				{"exec head -c 200000000 /dev/zero >$TMPDIR/big", sandbox.Limits{JobMemory: 32 << 20}, sandbox.ExcessMemory},
				{"i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; wait", sandbox.Limits{Processes: 8}, sandbox.ExcessProcesses},
				{"echo fine", sandbox.Limits{JobMemory: 64 << 20, Processes: 8}, sandbox.ExcessNone},
			} {
				if tr.bare != "" && test.want == sandbox.ExcessMemory && test.script[0] == 'e' {
					continue // on a disk files take none that could not be taken back
				}
				o := runLimited(t, tr, test.script, test.limits)
				if o.Excess != test.want || (o.Exit != 0 || o.Signal != 0) != (test.want != sandbox.ExcessNone) {
					t.Errorf("%s: got %+v, want %v", test.script, o, test.want)
				}
				switch err := tr.Clean(); {
				case errors.Is(err, ErrGone) && test.want == sandbox.ExcessMemory: // the kernel has taken the tree's process
					must(t, tr.Close())
					tr = grouped()
				case err != nil:
					t.Error(err)
				}
			}
			honest.Kill()
			if o, err := honest.Wait(); err != nil || !o.Killed || o.Excess != sandbox.ExcessNone {
				t.Errorf("the neighbour: got %+v, %v", o, err)
			}
			must(t, tr.Close())
			must(t, neighbour.Close())
			left, err := filepath.Glob(fmt.Sprintf("%s/runner-%d-*", dir, os.Getpid()))
			if err != nil || len(left) != 0 {
				t.Errorf("left: %q, %v", left, err)
			}
		})
	}
}
