package privatetree

import (
	"debug/elf"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// init keeps an attempt on the first thread: one of another that asked to be traced could be reaped by its parent's
// thread only, which waits for the process.
func init() {
	if os.Args[0] == attemptArg0 {
		runtime.LockOSThread()
	}
}

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
	case attemptArg0:
		attempt()
	case reachArg0:
		reach()
	case lackingArg0:
		lacking()
	case forbiddenArg0:
		forbidden()
	}
	unix.Umask(0o022) // files that the caller makes have its umask
	os.Exit(m.Run())
}

// allTests is set where short mode means fewer compilers only: below TestWithoutRoot.
const allTests = "TREE_TEST_ALL"

// long leaves a test that takes seconds out of short mode.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() && os.Getenv(allTests) == "" {
		t.Skip("takes seconds")
	}
}

// needStatic skips a test that starts this program in a tree, which shows no libraries: the race detector
// makes it need some.
func needStatic(t testing.TB) {
	t.Helper()
	f, err := elf.Open("/proc/self/exe")
	must(t, err)
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Skip("needs a static test program: not with -race")
	}
}
