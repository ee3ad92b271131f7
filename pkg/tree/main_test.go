package tree

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Args[0] == Arg0 {
		Main()
	}
	os.Exit(m.Run())
}
