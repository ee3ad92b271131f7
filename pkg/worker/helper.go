package worker

import (
	"os"
	"path/filepath"

	"github.com/rdistcc/rdistcc/pkg/sandbox/probe"
	"github.com/rdistcc/rdistcc/pkg/tree"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

// RunHelper runs the helper that this process was started as, and does not return then. A Server starts its own program
// under other names: for private trees, for what tries them, and for what removes the work directory of a daemon that was
// killed. So every program with a Server calls it first.
func RunHelper() {
	switch filepath.Base(os.Args[0]) {
	case workdir.Arg0:
		workdir.Main()
	case tree.Arg0:
		tree.Main()
	case probe.Arg0:
		probe.Main()
	}
}
