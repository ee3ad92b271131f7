package attacks

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/internal/privatetree"
)

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case privatetree.Arg0:
		privatetree.Main()
	case rungArg0:
		os.Exit(runRung(os.Args[1]))
	}
	os.Exit(m.Run())
}
