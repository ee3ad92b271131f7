package watched

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
)

// TestJudge: a combination is watched with each kind of text once, and once in Every jobs after that; what was seen holds for all.
func TestJudge(t *testing.T) {
	var x Table
	watches := 0
	judge := func(k byte, kinds uint64, v Verdict) string {
		return x.Judge(t.Context(), Key{k}, kinds, func() Verdict { watches++; return v })
	}
	for i, step := range []struct {
		key     byte
		kinds   uint64
		v       Verdict
		doubt   string
		watches int
	}{
		{1, 3, Verdict{}, "", 1},
		{1, 1, Verdict{}, "", 1},
		{1, 4, Verdict{Void: true}, "", 2},
		{1, 4, Verdict{}, "", 3}, // that said nothing
		{1, 7, Verdict{}, "", 3},
		{2, 7, Verdict{Doubt: "/x"}, "/x", 4},
		{2, 15, Verdict{}, "/x", 4},
		{1, 8, Verdict{Doubt: "/y"}, "/y", 5},
		{1, 1, Verdict{}, "/y", 5},
		{4, 1, Verdict{Unseen: true}, "", 6},
		{4, 1, Verdict{}, "", 6},
	} {
		if got := judge(step.key, step.kinds, step.v); got != step.doubt || watches != step.watches {
			t.Errorf("%d: %q after %d watches, want %q, %d", i, got, watches, step.doubt, step.watches)
		}
	}
	if got, want := x.Tally(), (Tally{Watched: 2, Doubtful: 2, Last: "/y", Unseen: true}); got != want {
		t.Errorf("Tally = %+v, want %+v", got, want)
	}
	watches = 0
	for range 2 * Every {
		judge(3, 1, Verdict{})
	}
	if watches != 3 {
		t.Errorf("%d watches of %d jobs, want 3", watches, 2*Every)
	}
	watches = 0
	for range 10 * seldom {
		judge(5, 1, Verdict{Void: true})
	}
	if want := mostVoid + 10; watches != want {
		t.Errorf("%d watches of %d jobs of a compiler that lists nothing, want %d", watches, 10*seldom, want)
	}
}

// TestJudgeTogether: of jobs at the same time one is watched, and the others wait, unless their wrappers go.
func TestJudgeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x Table
		watches, end := 0, make(chan struct{})
		gone, cancel := context.WithCancel(t.Context())
		got := make(chan string, 3)
		judge := func(ctx context.Context) {
			got <- x.Judge(ctx, Key{}, 1, func() Verdict { watches++; <-end; return Verdict{Doubt: "/x"} })
		}
		go judge(t.Context())
		synctest.Wait()
		go judge(t.Context())
		go judge(gone)
		synctest.Wait()
		cancel()
		if s := <-got; s != "" {
			t.Errorf("one that is gone: %q", s)
		}
		close(end)
		if a, b := <-got, <-got; a != "/x" || b != "/x" || watches != 1 {
			t.Errorf("%q, %q, %d watches", a, b, watches)
		}
	})
}

// TestKeep: the next manager of the same version knows what was watched, but no doubts, and nothing by a damaged file.
func TestKeep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "watched")
	var first Table
	first.Keep(file, "v1")
	first.Judge(t.Context(), Key{1}, 0x35, func() Verdict { return Verdict{} })
	first.Judge(t.Context(), Key{2}, 1, func() Verdict { return Verdict{Doubt: "/x"} })
	first.Judge(t.Context(), Key{3}, 1, func() Verdict { return Verdict{Unseen: true} })
	if err := first.Save(); err != nil {
		t.Fatal(err)
	}
	if err := first.Save(); err != nil { // nothing new
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		version, content string
		watches          int
	}{
		"same": {"v1", string(b), 2}, "other": {"v2", string(b), 3}, "cut": {"v1", string(b[:len(b)-1]), 3}, "empty": {"v1", "", 3}, "odd": {"v1", "rdistcc watched 1 v1\n01 zz\n", 3},
	} {
		if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		var x Table
		x.Keep(file, c.version)
		watches := 0
		for _, k := range []Key{{1}, {2}, {3}} {
			x.Judge(t.Context(), k, 1, func() Verdict { watches++; return Verdict{} })
		}
		if watches != c.watches {
			t.Errorf("%s: %d watches, want %d", what, watches, c.watches)
		}
	}
}
