package worker

import (
	"os"
	"path/filepath"

	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox/probe"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

// RunHelper checks whether this process was started as a helper, and if so, runs that and does not return. A
// Server starts its own program under other names: for private trees, for the probe that tests them, and for
// the guard that removes the work area of a daemon that was killed. So every program that has a Server must
// call RunHelper first.
func RunHelper() {
	switch filepath.Base(os.Args[0]) {
	case workdir.Arg0:
		workdir.Main()
	case privatetree.Arg0:
		privatetree.Main()
	case probe.Arg0:
		probe.Main()
	}
}
