package credits

import (
	"os"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // states are many, small and soon gone
	os.Exit(m.Run())
}
