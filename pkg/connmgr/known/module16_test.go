package known

import (
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// TestWholeLibrary: with modules, gcc 16 opens a header that no source names.
func TestWholeLibrary(t *testing.T) {
	for _, c := range []struct {
		family compile.Family
		major  int
		word   string
		want   bool
	}{
		{compile.GCC, 16, "-fmodules-ts", true},
		{compile.GCC, 17, "-fmodules", true},
		{compile.GCC, 15, "-fmodules-ts", false},
		{compile.GCC, 16, "-g", false},
	} {
		plan := compile.Parse([]string{c.word, "-c", "a.cc"}, compile.Driver{Family: c.family, CXX: true}, nil)
		lease := &ipc.Lease{Cwd: "/", Command: &ipc.Command{}}
		q, _, ok := query(&Command{Lease: lease, Compiler: &compilers.Compiler{Toolchain: toolchain.Toolchain{Major: c.major}}}, &plan)
		if !ok {
			t.Fatalf("%s: no query: %s", c.word, plan.Reason)
		}
		if got := slices.Contains(q.Imported, sources.Include{Name: "bits/stdc++.h"}); got != c.want {
			t.Errorf("gcc %d %s: %v, want %v", c.major, c.word, got, c.want)
		}
	}
}
