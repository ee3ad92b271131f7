package caches

import (
	"fmt"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"strings"
	"testing"
)

// TestReplicas: with two hosts for each result, what a host had compiled is still there when that host is gone: another
// build host, which has no results of its own, reads it on the other one, and nothing is compiled. Without replicas, it is
// compiled. Objects are the same in any case. One host has its results on disk and the other one in memory.
func TestReplicas(t *testing.T) {
	part.Skip(t)
	for _, replicas := range []int{1, 2} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			_, settings := resultsDir(t)
			s := startWith(t, fmt.Sprintf("cache: {farm: true, replicas: %d}\n", replicas), settings)
			if _, err := s.StartDaemon(s.ctx, "second", "--jobs", "2"); err != nil { // in the same directory: in memory
				t.Fatal(err)
			}
			all := func(name string) float64 { return s.metric(s.Daemons[0], name) + s.metric(s.Daemons[1], name) }
			restart := func() {
				t.Helper()
				s.hosts = s.Daemons[0].Addr + " " + s.Daemons[1].Addr
				s.forget()
			}
			restart()
			s.write("warm.c", "int warm;\n")
			s.compilesWith("remote", []string{"RDISTCC_CACHE=off"}, "gcc", "-c", "warm.c")
			s.wait("both hosts to be connected", func() bool {
				return s.metric(s.Manager, "rdistcc_cm_connections{") >= 2 && all("rdistccd_results_entries") == 0
			})

			const n = 6
			compile := func(want string, i int) {
				t.Helper()
				s.compilesWith(want, nil, "gcc", "-O2", "-g", "-MD", "-c", fmt.Sprintf("f%d.c", i))
			}
			for i := range n {
				s.write(fmt.Sprintf("f%d.c", i), fmt.Sprintf("#include <stdio.h>\nint f%d(int x) { return printf(\"%%d\", x); }\n", i))
				compile("remote", i)
			}
			s.wait("the results", func() bool { return all("rdistccd_results_entries") == float64(n*replicas) })
			if kept, sent := all(`rdistccd_copies_total{result="kept"}`), s.metric(s.Manager, `rdistcc_cm_copies_total{result="sent"}`); kept != float64(n*(replicas-1)) || sent != kept {
				t.Errorf("%v copies kept, %v sent", kept, sent)
			}

			gone := 0 // it has compiled something
			if s.metric(s.Daemons[1], `rdistccd_jobs_total{`) > s.metric(s.Daemons[0], `rdistccd_jobs_total{`) {
				gone = 1
			}
			lost := s.metric(s.Daemons[gone], "rdistccd_results_kept_total") - s.metric(s.Daemons[gone], `rdistccd_copies_total{result="kept"}`)
			left := s.Daemons[1-gone]
			before := s.metric(left, "rdistccd_jobs_total{")
			s.Daemons[gone].Kill()
			restart()
			hits := 0
			for i := range n {
				got := s.run([]string{"RDISTCC_CACHE=read"}, "gcc", "-O2", "-g", "-MD", "-c", fmt.Sprintf("f%d.c", i))
				if got.where == "cached:farm" || strings.HasPrefix(got.where, "cached:manager") {
					hits++
				}
			}
			compiled := s.metric(left, "rdistccd_jobs_total{") - before
			if replicas == 2 && (hits != n || compiled != 0) || replicas == 1 && (float64(n-hits) != lost || compiled != lost || lost == 0) {
				t.Errorf("%d hits, %v compiles; %v were compiled by the host that is gone", hits, compiled, lost)
			}
			restart()
			for i := range n {
				if replicas == 2 {
					compile("cached:farm", i)
				}
			}
		})
	}
}
