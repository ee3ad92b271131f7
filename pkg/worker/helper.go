package worker

import (
	"os"
	"path/filepath"

	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox/probe"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

// RunHelper runs the helper that this process was started as, and does not return then. A Server starts its own program
// under other names: for private trees, for what tries them, and for what removes the work directory of a daemon that was
// killed. So every program with a Server calls it first.
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
