package main

import (
	"maps"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
)

// TestReportOfLocalJobs: jobs that were compiled here fail the demo, unless they were so by the rules for hosts
// without private trees and the hosts have none; then the demo says which right is missing. Objects are equal in
// any case, and some job ran on a host.
func TestReportOfLocalJobs(t *testing.T) {
	f := &farm.Farm{Daemons: []farm.Process{{Addr: "a:1"}}}
	const right = "user namespaces are forbidden; remedy: permit them"
	for _, test := range []struct {
		name, noTree string
		fallbacks    map[string]int
		hosts        map[string]int
		differing    []string
		want         string // of the error
	}{
		{"all on hosts", "", nil, map[string]int{"a:1": 3}, nil, ""},
		{"by rule, with trees", "", map[string]int{"not-reproducible:pragma": 2}, map[string]int{"a:1": 1}, nil, "2 jobs were compiled here"},
		{"by rule, without trees", right, map[string]int{"not-reproducible:pragma": 1, "diagnostics": 1}, map[string]int{"a:1": 1}, nil, ""},
		{"trouble, without trees", right, map[string]int{"not-reproducible:pragma": 1, "host-lost": 1}, map[string]int{"a:1": 1}, nil, "2 jobs were compiled here"},
		{"none on a host", right, map[string]int{"not-reproducible:pragma": 3}, nil, nil, "no job was compiled on a host"},
		{"different", right, map[string]int{"not-reproducible:pragma": 1}, map[string]int{"a:1": 2}, []string{"x.c"}, "differ from the local compiler's: x.c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := result{name: "x", units: 3, hosts: maps.Clone(test.hosts), fallbacks: maps.Clone(test.fallbacks), differing: test.differing}
			var out strings.Builder
			err := report(&out, f, []result{r}, test.noTree, false)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err == nil && test.noTree != "" && !strings.Contains(out.String(), right) {
				t.Errorf("the missing right is not named:\n%s", out.String())
			}
		})
	}
}
