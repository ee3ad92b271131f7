package worker

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Args[0] == GuardArg0 {
		Guard()
	}
	os.Exit(m.Run())
}
