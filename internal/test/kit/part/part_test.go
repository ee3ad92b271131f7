package part

import (
	"fmt"
	"runtime"
	"testing"
)

// TestRotation: of N seeds in a row each case meets exactly one, and after as many turns as it has ways it has been in each.
func TestRotation(t *testing.T) {
	const of, ways = 8, 3
	sizes := make(map[uint64]int)
	for i := range 2000 {
		name := fmt.Sprintf("case-%d@gcc", i)
		met := make(map[int]int)
		turns := 0
		for seed := uint64(20420); seed < 20420+of*ways; seed++ {
			if p := (Part{seed, of}); p.Has(name) {
				turns++
				met[p.Way(name, ways)]++
				sizes[seed]++
			}
		}
		if turns != ways || len(met) != ways {
			t.Fatalf("%s: %d turns, ways %v", name, turns, met)
		}
	}
	for seed, n := range sizes {
		if n < 2000/of*3/4 || n > 2000/of*5/4 {
			t.Errorf("seed %d: %d of 2000 cases, want about an eighth", seed, n)
		}
	}
}

func TestParse(t *testing.T) {
	for value, want := range map[string]Part{"": {}, "20420/8": {20420, 8}, "7/1": {7, 1}} {
		if p, err := Parse(value); err != nil || p != want {
			t.Errorf("%q: %v, %v", value, p, err)
		}
	}
	for _, value := range []string{"8", "1/0", "/8", "-1/8", "1/x", "1/2/3"} {
		if p, err := Parse(value); err == nil {
			t.Errorf("%q is taken for %v", value, p)
		}
	}
	if p, _ := Parse(""); !p.Whole() || !p.Has("anything") {
		t.Error("without the variable, not everything")
	}
}

// TestSkipOfSubtests: a test whose subtests are left out must not go on to judge what they did.
func TestSkipOfSubtests(t *testing.T) {
	sub := &recorded{TB: t, name: "TestOther/sub"}
	sub.run(func() { Skip(sub) })
	if !sub.failed {
		t.Error("a subtest was taken whose test has not asked")
	}
	t.Setenv(Variable, "1/1")
	top := &recorded{TB: t, name: "TestOther"}
	top.run(func() { Skip(top) })
	sub.failed = false
	sub.run(func() { Skip(sub) })
	if top.failed || sub.failed {
		t.Error("a subtest was refused whose test has asked")
	}
}

// TestSkipCase: a subtest that is a case of its own meets one of N seeds in a row, whether its test has asked or not.
func TestSkipCase(t *testing.T) {
	met := 0
	sub := &recorded{TB: t, name: "TestCompilers/gcc"}
	for seed := range 8 {
		t.Setenv(Variable, fmt.Sprintf("%d/8", 20420+seed))
		sub.run(func() {
			SkipCase(sub)
			met++
		})
	}
	if met != 1 || sub.failed {
		t.Errorf("met by %d of 8, failed: %v", met, sub.failed)
	}
}

// recorded is a test of another name, which notes that it failed.
type recorded struct {
	testing.TB
	name   string
	failed bool
}

func (r *recorded) Name() string { return r.name }

func (r *recorded) Fatalf(string, ...any) {
	r.failed = true
	runtime.Goexit()
}

func (r *recorded) Skip(...any) { runtime.Goexit() }

// run calls f on a goroutine of its own, which Fatalf may end.
func (r *recorded) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}
