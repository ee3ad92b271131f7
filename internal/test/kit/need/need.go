// Package need skips tests that need something which the machine lacks, and makes them fail on a machine
// that is said to have it: a test that is skipped where it should run would go unnoticed.
package need

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Required is the environment variable that lists, separated by commas, what this machine has. A test fails
// if that is missing.
const Required = "RDISTCC_TEST_REQUIRE"

// Thing is what tests need beyond Go, gcc, g++ and make.
type Thing string

const (
	Sandbox Thing = "sandbox" // what confines compiles: user and mount namespaces, Landlock, seccomp
	Network Thing = "network" // network namespaces, which root can make
	Tools   Thing = "tools"   // programs installed by make deps
	Stores  Thing = "stores"  // servers that results can be kept in, installed by make deps
)

var things = []Thing{Sandbox, Network, Tools, Stores}

// Skipf ends a test that lacks a thing: it skips the test, or fails it if Required names the thing. format
// and args say what is missing.
func Skipf(t testing.TB, what Thing, format string, args ...any) {
	t.Helper()
	if Has(t, what) {
		t.Fatalf("%s has %q, but: "+format, append([]any{Required, what}, args...)...)
	}
	t.Skipf(format, args...)
}

// Has reports whether Required names a thing. It fails the test if Required has a word that is none.
func Has(t testing.TB, what Thing) bool {
	t.Helper()
	has := false
	for _, word := range strings.FieldsFunc(os.Getenv(Required), func(r rune) bool { return r == ',' || r == ' ' }) {
		thing := Thing(word)
		if !slices.Contains(things, thing) {
			t.Fatalf("%s has %q; it knows %q", Required, word, things)
		}
		has = has || thing == what
	}
	return has
}
