package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// imageBody is the body of a command that makes a precompiled header, as our own manager makes it.
func imageBody(tc Compiler, args ...string) *job.Body {
	d, _ := compile.DriverOf(tc.Exec, tc.Path)
	p := compile.Parse(args, d, nil)
	b := &job.Body{Argv0: tc.Exec, Compiler: tc.Path, Args: args, Language: "c", Name: "h.h", Cwd: "/src", Files: []unit.File{{Name: "h.h", Len: 3}}}
	if p.Makes != nil {
		b.Outputs = p.Makes.Outputs
	}
	return b
}

// TestImage: a host makes a precompiled header only by a command that makes one, and that would be taken otherwise.
func TestImage(t *testing.T) {
	for _, tc := range treeTools {
		if err := Image(imageBody(tc, "-O2", "-x", "c-header", "h.h", "-o", "h.h.gch"), tc, [][]byte{three}); err != nil {
			t.Errorf("%s: %v", tc.Family, err)
		}
		for _, args := range []string{
			"-c h.c -o h.o", "-x c-header h.h -o h.h.gch -fplugin=x.so", "-x c-header h.h -o h.h.gch -B.", "-x c-header h.h -o h.h.gch @x", "-x c-header h.h -o h.h.gch -specs=x",
			"-E -x c-header h.h -o h.h.gch", "-S -x c-header h.h -o h.h.gch", "-x c-header h.h -o h.h.gch -Xclang -load -Xclang x.so", "-x c-header h.h -o h.h.gch -include-pch x.pch", "-x c-header h.h -o /dev/null",
		} {
			b := imageBody(tc, strings.Fields(args)...)
			if b.Outputs == nil {
				b.Outputs = []unit.Output{{Name: "h.h.gch"}}
			}
			if err := Image(b, tc, [][]byte{three}); err == nil {
				t.Errorf("%s makes a precompiled header by %s", tc.Family, args)
			}
		}
		for what, change := range map[string]func(b *job.Body){
			"another output":           func(b *job.Body) { b.Outputs = []unit.Output{{Name: "/usr/bin/as"}} },
			"one that is brought":      func(b *job.Body) { b.Files[0].Name = "x.gch" },
			"a directory of them":      func(b *job.Body) { b.Dirs = []string{"x.pch"} },
			"another compiler's path":  func(b *job.Body) { b.Compiler = "/x/gcc" },
			"a directory without root": func(b *job.Body) { b.Cwd = "src" },
		} {
			b := imageBody(tc, "-x", "c-header", "h.h", "-o", "h.h.gch")
			b.Outputs = slices.Clone(b.Outputs)
			if change(b); Image(b, tc, [][]byte{three}) == nil {
				t.Errorf("%s takes %s", tc.Family, what)
			}
		}
	}
}

// TestNamedImage: a command names only precompiled headers that the host makes for it.
func TestNamedImage(t *testing.T) {
	tc := treeTools[1]
	made := *imageBody(tc, "-x", "c-header", "h.h", "-o", "p/../h.pch")
	for _, c := range []struct {
		args string
		ok   bool
	}{
		{"-include-pch h.pch -c a.c", true},
		{"-include-pch /src/./h.pch -c a.c", true},
		{"-Xclang -include-pch -Xclang h.pch -c a.c", true},
		{"-include-pch a.c -c a.c", false},
		{"-include-pch h.pch -Xclang -include-pch -Xclang x.h -c a.c", false},
		{"-include-pch /h.pch -c a.c", false},
	} {
		b := sourcesBody(tc, strings.Fields(c.args)...)
		b.Images = []job.Body{made}
		if err := checked(b, tc, three); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.args, err)
		}
		b.Images = nil
		if checked(b, tc, three) == nil {
			t.Errorf("%s is taken without a precompiled header", c.args)
		}
	}
}
