package attacks

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/tree"
)

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case tree.Arg0:
		tree.Main()
	case rungArg0:
		os.Exit(runRung(os.Args[1]))
	}
	os.Exit(m.Run())
}
