package caches

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestHits: an equal compile comes from the cache, from another manager's time too, with all of its outputs and words, and
// one that is not equal does not.
func TestHits(t *testing.T) {
	s := start(t, "")
	s.write("a.c", "#include \"a.h\"\nint f(void) { int unused; return A; }\n")
	s.write("a.h", "#define A 1\n")
	cmd := []string{"gcc", "-O2", "-g", "-Wall", "-MD", "-fstack-usage", "-Iinc", "-c", "a.c", "-o", "a.o"}
	s.compiles("remote", cmd...)
	s.settle(1)
	s.compiles("cached:manager", cmd...)
	s.again()
	s.compiles("cached:manager", cmd...)

	s.write("a.h", "#define A 2\n")
	s.compiles("remote", cmd...)
	s.settle(2)
	s.write("a.h", "#define A 1\n") // as it was
	s.compiles("cached:manager", cmd...)
	s.compiles("remote", slices.Replace(slices.Clone(cmd), 1, 2, "-O1")...)
	s.compiles("remote", slices.Replace(slices.Clone(cmd), len(cmd)-1, len(cmd), "b.o")...)
	s.settle(4)

	// A directory that was not there counts as soon as it has a header that comes first.
	s.write("inc/other.h", "")
	s.compiles("remote", cmd...) // gcc says nothing of a directory that is there
	s.settle(5)
	s.write("a.c", "#include <a.h>\nint f(void) { int unused; return A; }\n")
	s.write("inc2/a.h", "#define A 3\n")
	second := append(slices.Clone(cmd), "-Iinc2")
	s.compiles("remote", second...)
	s.settle(6)
	s.compiles("cached:manager", second...)
	s.write("inc/a.h", "#define A 4\n")
	s.compiles("remote", second...)
	s.settle(7)
	if err := os.Remove(filepath.Join(s.work, "inc/a.h")); err != nil {
		t.Fatal(err)
	}
	s.compiles("cached:manager", second...)

	// Times of files do not count.
	now := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(s.work, "a.c"), now, now); err != nil {
		t.Fatal(err)
	}
	s.compiles("cached:manager", second...)
	if n := s.metric(s.Manager, `rdistcc_cm_cache_total{result="hit",tier="manager"}`); n != 5 {
		t.Errorf("%v hits counted, want 5", n)
	}
	if n := s.metric(s.Manager, `rdistcc_cm_jobs_total{host="",place="cached",reason="",result="ok"}`); n != 5 {
		t.Errorf("%v cached commands counted, want 5", n)
	}
	if n := s.metric(s.Manager, "rdistcc_cm_cache_saved_cpu_seconds_total"); n <= 0 {
		t.Errorf("%v s saved", n)
	}
	for _, c := range [][]string{{"status"}, {"stats"}, {"cache", "stats"}, {"why", "a.c"}} {
		control := exec.CommandContext(s.ctx, s.Wrapper, c...)
		control.Dir, control.Env = s.work, s.Env()
		out, err := control.CombinedOutput()
		want := map[string]string{"why": "came from the cache (manager)"}[c[0]]
		if want == "" {
			want = "manager 5"
		}
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("rdistcc %v: %v, without %q:\n%s", c, err, want, out)
		}
	}
}

// TestNotKept: what may depend on more than its name says is compiled each time, and so is what fails.
func TestNotKept(t *testing.T) {
	s := start(t, "")
	s.write("time.c", "const char t[] = __DATE__;\n")
	s.write("hidden.h", "#define NOW __TIME__\n")
	s.write("hidden.c", "#include \"hidden.h\"\nint x;\n")
	s.write("option.c", "const char t[] = NOW;\n")
	s.write("pasted.c", "#define PASTE(a, b) a##b\n#define CLOCK(a, b) PASTE(a, b)\nconst char t[] = CLOCK(__TI, ME__);\n")
	s.write("older.c", "#pragma GCC dependency \"hidden.h\"\nint x;\n")
	s.write("bad.c", "int x = y;\n")
	for range 2 {
		for _, cmd := range [][]string{{"time.c"}, {"hidden.c"}, {"-DNOW=__TIME__", "option.c"}, {"pasted.c"}, {"older.c"}} {
			got := s.run(nil, append([]string{"gcc", "-c"}, cmd...)...)
			if got.status != 0 || strings.HasPrefix(got.where, "cached:") {
				t.Errorf("%v: exit %d, %s: %s", cmd, got.status, got.where, got.out)
			}
		}
		if got := s.run(nil, "gcc", "-c", "bad.c"); got.status != 1 || !strings.HasPrefix(got.where, "remote:") || !strings.Contains(got.out, "undeclared") {
			t.Errorf("a compile that fails: %+v", got)
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // another time
	}
	if kept := s.kept(); len(kept) != 0 {
		t.Errorf("%d results are kept", len(kept))
	}
	// With its value set, a clock is an input like others.
	for _, where := range []string{"remote", "cached:manager"} {
		s.compilesWith(where, []string{"SOURCE_DATE_EPOCH=1700000000"}, "gcc", "-c", "time.c")
		s.settle(1)
	}
	s.compilesWith("remote", []string{"SOURCE_DATE_EPOCH=1600000000"}, "gcc", "-c", "time.c")
}

// TestModes: RDISTCC_CACHE says whether results are looked up and kept.
func TestModes(t *testing.T) {
	s := start(t, "")
	s.write("a.c", "int x;\n")
	kept := 0
	for i, c := range []struct {
		mode, where string
		kept        int
	}{
		{"off", "remote", 0}, {"read", "remote", 0}, {"refresh", "remote", 1}, {"read", "cached:manager", 1}, {"on", "cached:manager", 1}, {"off", "remote", 1},
		{"refresh", "remote", 1}, {"", "cached:manager", 1},
	} {
		s.compilesWith(c.where, []string{"RDISTCC_CACHE=" + c.mode}, "gcc", "-c", "a.c")
		s.settle(c.kept)
		if kept = len(s.kept()); kept != c.kept {
			t.Errorf("%d, %s: %d results are kept, want %d", i, c.mode, kept, c.kept)
		}
	}
	if got := s.run([]string{"RDISTCC_CACHE=yes"}, "gcc", "-c", "a.c"); got.where != "cached:manager" || !strings.Contains(got.out, "RDISTCC_CACHE=yes is taken as on") {
		t.Errorf("%+v", got)
	}
}

// slow returns a source that takes a compiler two seconds for each of n, and has little output.
func slow(n int) string {
	return fmt.Sprintf("constexpr unsigned f(unsigned n) { unsigned x = n; for (unsigned i = 0; i < 400000; i++) x = x * 1664525 + 1013904223; return x; }\n"+
		"template <unsigned N> struct S { static constexpr unsigned v = f(N) + S<N - 1>::v; };\ntemplate <> struct S<0> { static constexpr unsigned v = 0; };\nunsigned x = S<%d>::v;\n", n)
}

// TestJoined: equal jobs at the same time share one compile. If the first one is interrupted, the others get theirs.
func TestJoined(t *testing.T) {
	s := start(t, "")
	s.write("slow.cc", slow(3))
	args := []string{"g++", "-fconstexpr-ops-limit=1000000000", "-fconstexpr-loop-limit=10000000", "-c", "slow.cc"}
	for _, interrupt := range []bool{false, true} {
		before := s.jobs()
		first, _ := s.command(true, nil, args...)
		if err := first.Start(); err != nil {
			t.Fatal(err)
		}
		s.wait("the compile to begin", func() bool { return s.metric(s.Daemons[0], "rdistccd_jobs_running ") == 1 })
		done := make(chan ran, 3)
		for range cap(done) {
			go func() { done <- s.run(nil, args...) }()
		}
		s.wait("the others to wait", func() bool {
			return s.metric(s.Manager, "rdistcc_cm_slots{state=\"leased\"}") >= 0 && s.underway() == 4
		})
		if interrupt {
			if err := first.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
		err := first.Wait()
		if (err != nil) != interrupt {
			t.Errorf("interrupted %v: the first one: %v", interrupt, err)
		}
		var where []string
		for range cap(done) {
			got := <-done
			if got.status != 0 {
				t.Errorf("interrupted %v: %+v", interrupt, got)
			}
			kind, _, _ := strings.Cut(got.where, ":")
			where = append(where, kind)
		}
		slices.Sort(where)
		want, compiles := []string{"cached", "cached", "cached"}, 1.0
		if interrupt {
			want, compiles = []string{"cached", "cached", "remote"}, 2
		}
		if !slices.Equal(where, want) {
			t.Errorf("interrupted %v: %v, want %v", interrupt, where, want)
		}
		s.wait("the compiles to end", func() bool { return s.metric(s.Daemons[0], "rdistccd_jobs_running ") == 0 })
		if n := s.jobs() - before; n > compiles {
			t.Errorf("interrupted %v: %v compiles, want %v", interrupt, n, compiles)
		}
		s.write("slow.cc", slow(2))
	}
	if n := s.metric(s.Manager, `rdistcc_cm_cache_total{result="joined",tier="manager"}`); n != 5 {
		t.Errorf("%v jobs joined another one, want 5", n)
	}
}

// underway returns how many commands the manager serves.
func (s *site) underway() int {
	s.Helper()
	page, err := s.Manager.Get(s.ctx, "/status.json")
	if err != nil {
		s.Fatal(err)
	}
	return strings.Count(string(page), `"phase":`) - strings.Count(string(page), `"p50_us"`)
}
