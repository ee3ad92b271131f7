package tree

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case Arg0:
		Main()
	case victimArg0:
		victim()
	case limitedArg0:
		limited()
	case coveredArg0:
		covered()
	}
	os.Exit(m.Run())
}
