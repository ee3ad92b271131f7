package attacks

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox/probe"
)

// TestMain is also where the processes begin that a test starts of this program.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case privatetree.Arg0:
		privatetree.Main()
	case probe.Arg0:
		probe.Main()
	case rungArg0:
		os.Exit(runRung(os.Args[1]))
	}
	os.Exit(m.Run())
}
