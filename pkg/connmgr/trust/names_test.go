package trust

import (
	"errors"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/modules"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestNamesMean: a dependency file may name a file that the job brought by any path that leads to it, and no
// other file.
func TestNamesMean(t *testing.T) {
	b := &job.Body{
		Cwd: "/w/o", Name: "q.c",
		Outputs: []unit.Output{{Name: "q.o"}},
		Files:   []unit.File{{Name: "../s/q.c"}, {Name: "../x.h"}, {Name: "../l/../v.h"}, {Name: "/w/real.h"}, {Name: "a b.h"}},
		Dirs:    []string{"../s/../", "../inc"},
		Links:   []unit.Link{{Name: "/w/l", Target: "/w/z/y"}, {Name: "/w/s/link.h", Target: "/w/real.h"}, {Name: "/w/gone.h", Target: "/w/elsewhere.h"}},
	}
	for name, want := range map[string]bool{
		"../s/q.c": true, "/w/s/q.c": true, "../x.h": true, "../s/../x.h": true, "./../x.h": true, "..//x.h": true, "../../w/x.h": true,
		"../l/../v.h": true, "/w/l/../v.h": true, "../z/y/../v.h": true,
		"../v.h":      false, // what ../l/../v.h would be if l were a directory
		"../l/v.h":    false,
		"../s/link.h": true, "../real.h": true, "../s/../s/link.h": true,
		"../gone.h": false, // the job did not bring its target
		"x.h":       false, "../o/x.h": false, "../s/x.h": false, "../s": false, "../s/..": false,
		"../nowhere/../x.h": false, // make would look for a directory that does not exist
		"../inc/../x.h":     true,
		"/../../w/x.h":      true, // the root's parent is the root
		`a\ b.h`:            true,
		"a":                 false,
	} {
		err := rules([]byte("q.o: "+name+"\n"), b, modules.Rules{})
		if (err == nil) != want || err != nil && !errors.Is(err, outputs.ErrDoubt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := rules([]byte("q.o: ../s/q.c \\\n ../s/../x.h\n../s/../x.h:\n"), b, modules.Rules{}); err != nil {
		t.Errorf("a rule of -MP for a second spelling: %v", err)
	}
}

// TestNamesOfNonsense: a wrapper may send anything. Nonsense only makes the result of its own user doubtful.
func TestNamesOfNonsense(t *testing.T) {
	for _, b := range []*job.Body{
		{Links: []unit.Link{{Name: "", Target: ""}, {Name: "x", Target: "/w"}, {Name: "/w", Target: "/w"}}, Files: []unit.File{{Name: ""}, {Name: "/w/.."}}, Dirs: []string{"", "/", "../.."}},
		{},
	} {
		b.Outputs = []unit.Output{{Name: "q.o"}}
		for _, name := range []string{"w/w/w", "/w/../w", "x/../../y"} {
			if err := rules([]byte("q.o: "+name+"\n"), b, modules.Rules{}); err == nil {
				t.Errorf("%s is taken with %+v", name, b)
			}
		}
	}
}
