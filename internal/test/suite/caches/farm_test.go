package caches

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// forget ends the manager and starts another one that has no results of its own, as on another machine.
func (s *site) forget() {
	s.Helper()
	if err := s.Manager.Stop(); err != nil {
		s.Fatal(err)
	}
	if err := os.RemoveAll(s.results); err != nil {
		s.Fatal(err)
	}
	s.startManager()
	s.wait("the results of the hosts to be known", func() bool { // a look that comes earlier may find nothing
		cmd, _ := s.command(false, nil, s.Wrapper, "hosts", "--json")
		out, err := cmd.Output()
		var hosts []report.HostStatus
		if err = errors.Join(err, json.Unmarshal(out, &hosts)); err != nil {
			s.Fatalf("rdistcc hosts --json: %v\n%s", err, out)
		}
		up := 0
		for i := range hosts {
			if h := &hosts[i]; h.State == "up" {
				if up++; !h.ResultsKnown {
					return false
				}
			}
		}
		return up == s.running()
	})
}

// running returns how many daemons run.
func (s *site) running() (n int) {
	for _, d := range s.Daemons {
		if d.Running() {
			n++
		}
	}
	return n
}

// TestFarmTier: what one manager had compiled, another one reads in the memory of the host that has compiled it, and
// nothing is compiled. It has a copy then. What is not there is compiled as always.
func TestFarmTier(t *testing.T) {
	s := start(t, "cache: {farm: true}\n")
	s.write("a.c", "#include \"a.h\"\nint f(void) { int unused; return A; }\n")
	s.write("a.h", "#define A 1\n")
	cmd := []string{"gcc", "-O2", "-g", "-Wall", "-MD", "-fstack-usage", "-c", "a.c", "-o", "a.o"}
	big := []string{"gcc", "-g", "-c", "big.c"}
	s.write("big.c", "int big[] = {"+strings.Repeat("1,", 100_000)+"};\n")
	s.compiles("remote", cmd...)
	s.compiles("remote", big...)
	s.settle(2)

	s.forget()
	s.compiles("cached:farm", cmd...)
	s.compiles("cached:farm", big...)
	s.settle(2)
	s.compiles("cached:manager", cmd...)
	s.write("a.h", "#define A 2\n")
	s.compiles("remote", cmd...)
	if n := s.jobs(); n != 3 {
		t.Errorf("%v compiles, want 3", n)
	}
	s.write("a.h", "#define A 1\n")

	s.forget()
	s.compilesWith("remote", []string{"RDISTCC_CACHE=off"}, cmd...)
	s.compilesWith("remote", []string{"RDISTCC_CACHE=refresh"}, cmd...)
	s.compilesWith("cached:manager", []string{"RDISTCC_CACHE=read"}, cmd...)
	s.forget()
	s.compilesWith("cached:farm", []string{"RDISTCC_CACHE=read"}, cmd...)
	if n := s.metric(s.Manager, `rdistcc_cm_cache_total{result="hit",tier="farm"}`); n != 1 {
		t.Errorf("%v hits counted", n)
	}
	// A manager that hears of the host by this command looks once more when it is connected.
	if err := errors.Join(s.Manager.Stop(), os.RemoveAll(s.results), s.StartManager(s.ctx)); err != nil {
		t.Fatal(err)
	}
	s.compilesWith("cached:farm", []string{"RDISTCC_HOSTS=" + s.Daemons[0].Addr}, cmd...)
	if n := s.metric(s.Manager, `rdistcc_cm_cache_total{result="hit",tier="farm"}`); n != 1 {
		t.Errorf("%v hits counted", n)
	}
	for name, want := range map[string]float64{"rdistccd_results_entries": 4, "rdistccd_results_kept_total": 4, "rdistccd_results_evictions_total": 0} {
		if n := s.metric(s.Daemons[0], name); n != want {
			t.Errorf("%s is %v, want %v", name, n, want)
		}
	}

	// A daemon that starts anew has nothing.
	if err := errors.Join(s.Daemons[0].Stop(), s.StartDaemonAgain(s.ctx, 0)); err != nil {
		t.Fatal(err)
	}
	s.forget()
	s.compiles("remote", cmd...)
}

// TestTwoManagers: two managers at the same time, with directories of their own, have each other's results from the host,
// those too that were made after they had connected.
func TestTwoManagers(t *testing.T) {
	s := start(t, "cache: {farm: true}\n")
	first := s.Manager
	t.Cleanup(func() {
		if err := first.Stop(); err != nil {
			t.Error(err)
		}
	})
	own := filepath.Join(s.Dir, "colleague")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	vars := [2][]string{1: {"RDISTCC_DIR=" + own, "XDG_STATE_HOME=" + own, "XDG_CACHE_HOME=" + own}}
	before := s.Vars
	s.Vars = append(slices.Clone(before), vars[1]...)
	s.startManager()
	s.Vars = before
	compile := func(i int, want, file string) {
		t.Helper()
		s.compilesWith(want, vars[i], "gcc", "-O2", "-c", file)
	}
	for i, file := range []string{"a.c", "b.c", "c.c", "d.c"} {
		s.write(file, "int f"+file[:1]+"(int x) { return x; }\n")
		compile(i%2, "remote", file)
		// The other one learns of it in a while, without any message.
		s.wait("the other manager to know", func() bool { return s.known(vars[(i+1)%2], file) })
		s.wait("its copy", func() bool {
			got := s.run(append([]string{"RDISTCC_CACHE=read"}, vars[(i+1)%2]...), "gcc", "-O2", "-c", file)
			return got.where == "cached:manager"
		})
		compile((i+1)%2, "cached:manager", file)
	}
}

// known makes one of two managers look for the result of a compile without having it compiled or keeping it, and reports
// whether it has found it.
func (s *site) known(vars []string, file string) bool {
	s.Helper()
	got := s.run(append([]string{"RDISTCC_CACHE=read"}, vars...), "gcc", "-O2", "-c", file)
	return got.where == "cached:farm"
}
