package worker

import (
	"os"
	"testing"
)

// serverArg0 is how this program is called when it is to be a daemon.
const serverArg0 = "rdistccd-for-test"

func TestMain(m *testing.M) {
	RunHelper()
	if os.Args[0] == serverArg0 {
		serveForTest(os.Args[1], os.Args[2])
	}
	os.Exit(m.Run())
}
