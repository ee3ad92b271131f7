package worker

import (
	"os"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/sandbox/probe"
	"github.com/rdistcc/rdistcc/pkg/tree"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

// serverArg0 is how this program is called when it is to be a daemon.
const serverArg0 = "rdistccd-for-test"

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case workdir.Arg0:
		workdir.Main()
	case tree.Arg0:
		tree.Main()
	case probe.Arg0:
		probe.Main()
	case serverArg0:
		serveForTest(os.Args[1], os.Args[2])
	}
	os.Exit(m.Run())
}
