// Package part has large suites run a part of their cases, another one each day, so that every case is met within
// some days without each change waiting for all of them. What a run took is repeated by the same value of one variable.
package part

import (
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Variable is the environment variable that chooses the part, as SEED/N: each case runs with one of every N seeds in
// a row. The Makefile sets it, with the number of the day as the seed. Without it, everything runs.
const Variable = "RDISTCC_TEST_PART"

// Part is what a run takes of the cases of a suite.
type Part struct {
	seed, of uint64 // of is 0 for everything
}

// Of returns the part that the environment chooses. It fails the test if the variable makes no sense.
func Of(t testing.TB) Part {
	t.Helper()
	p, err := Parse(os.Getenv(Variable))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Parse returns the part that a value of the variable chooses.
func Parse(value string) (Part, error) {
	if value == "" {
		return Part{}, nil
	}
	seed, of, ok := strings.Cut(value, "/")
	s, serr := strconv.ParseUint(seed, 10, 32)
	n, nerr := strconv.ParseUint(of, 10, 32)
	if !ok || serr != nil || nerr != nil || n == 0 {
		return Part{}, fmt.Errorf("%s is %q, want SEED/N, as in 20420/8", Variable, value)
	}
	return Part{s, n}, nil
}

// Skip skips a test, of a suite whose tests are its cases, that is not in the part. A helper may call it for all tests that
// use it. It fails a subtest whose test did not call it first: that would go on, and judge what its subtests left out.
func Skip(t testing.TB) {
	t.Helper()
	name, _, sub := strings.Cut(t.Name(), "/")
	if _, ok := asked.Load(name); sub && !ok {
		t.Fatalf("%s must call part.Skip itself, before its subtests", name)
	}
	asked.Store(name, true)
	if !Of(t).Has(name) {
		t.Skip("its turn is another day")
	}
}

var asked sync.Map // names of the tests that have called Skip

// SkipCase skips a subtest that is not in the part, and is a case of its own: its test judges nothing that the cases did together.
func SkipCase(t testing.TB) {
	t.Helper()
	if !Of(t).Has(t.Name()) {
		t.Skip("its turn is another day")
	}
}

// Whole reports whether the part is everything, each case in all its ways.
func (p Part) Whole() bool { return p.of == 0 }

// Has reports whether the case with this name is in the part.
func (p Part) Has(name string) bool {
	return p.Whole() || hash(name)%p.of == p.seed%p.of
}

// Way returns which of n ways a case of the part runs in, from 0 to n-1: another one each time its turn comes, so
// that it has been in all of them after n turns. It must not be called for a whole part, or with n = 0.
func (p Part) Way(name string, n int) int {
	return int((hash(name)/p.of + p.seed/p.of) % uint64(n))
}

// Parts returns how many parts there are; 1 for everything.
func (p Part) Parts() int { return int(max(p.of, 1)) }

// Seed returns a number for what is random in a case: with each seed of the part another one.
func (p Part) Seed() uint64 { return p.seed }

// String returns the value of the variable for this part.
func (p Part) String() string {
	if p.Whole() {
		return "everything"
	}
	return fmt.Sprintf("%s=%d/%d", Variable, p.seed, p.of)
}

func hash(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	// Mixed once more: the last bits of names that end alike are alike.
	x := h.Sum64()
	x ^= x >> 32
	return x
}
