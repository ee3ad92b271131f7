// Package need leaves tests out for what a machine lacks, and has them fail for that on a machine that is said to have it:
// a test that skips itself where it should run would go unnoticed.
package need

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Required is the environment variable that lists, with commas, what this machine has. A test that lacks it fails.
const Required = "RDISTCC_TEST_REQUIRE"

// Thing is what tests need beyond Go, gcc, g++ and make.
type Thing string

const (
	Sandbox Thing = "sandbox" // what compiles are confined with: user and mount namespaces, Landlock, seccomp
	Network Thing = "network" // network namespaces, which root can make
	Tools   Thing = "tools"   // programs, those of make deps
)

var things = []Thing{Sandbox, Network, Tools}

// Skipf ends a test for want of a thing: it skips the test, or fails it where Required names the thing.
// Format and args say what is missing.
func Skipf(t testing.TB, what Thing, format string, args ...any) {
	t.Helper()
	for _, word := range strings.FieldsFunc(os.Getenv(Required), func(r rune) bool { return r == ',' || r == ' ' }) {
		switch thing := Thing(word); {
		case !slices.Contains(things, thing):
			t.Fatalf("%s has %q; it knows %q", Required, word, things)
		case thing == what:
			t.Fatalf("%s has %q, but: "+format, append([]any{Required, what}, args...)...)
		}
	}
	t.Skipf(format, args...)
}
