package policy

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/honest"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// TestHonestLists: what real builds ask for is taken, in each form that the wrapper
// would send it in, and what stays at home does so for a reason that docs/sandbox.md lists.
func TestHonestLists(t *testing.T) {
	lists, err := honest.All()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/sandbox.md")
	if err != nil {
		t.Fatal(err)
	}
	atHome := honest.AtHome(string(page))
	seen, shapes, packages, home := map[string]bool{}, map[string]bool{}, map[string]int{}, map[string]int{}
	texts, wholes := 0, 0
	for _, list := range lists {
		name, args, line := list.Words[0], list.Expanded()[1:], list.String()
		if seen[line] {
			t.Errorf("twice: %s", line)
		}
		seen[line], shapes[list.Shape()] = true, true
		packages[list.Package]++
		tc := Compiler{Family: "gcc", Major: 12, Exec: "/usr/bin/" + name, Path: "/usr/bin/x86_64-linux-gnu-" + strings.TrimPrefix(name, "x86_64-linux-gnu-") + "-12"}
		if strings.HasPrefix(name, "clang") {
			tc = Compiler{Family: "clang", Major: 14, Exec: "/usr/bin/" + name, Path: "/usr/lib/llvm-14/bin/clang"}
		}
		d, ok := compile.DriverOf(tc.Exec, tc.Path)
		if !ok {
			t.Errorf("no compiler: %s", line)
			continue
		}
		commands := [][]string{args}
		if compile.Parse(args, d, nil).Several {
			if s := compile.Split(args, d); s != nil {
				commands = nil
				for i := range s.Sources {
					commands = append(commands, s.Unit(i, "/a.o"))
				}
			}
		}
		for _, args := range commands {
			p := compile.Parse(args, d, nil)
			if p.Local {
				home[p.Reason]++
				if !atHome[p.Reason] {
					t.Errorf("stays here (%s): %s: %s", p.Reason, list.Package, line)
				}
				break
			}
			if p.Text == "" {
				b := &job.Body{Name: "a" + p.Source[strings.LastIndexByte(p.Source, '.'):], Outputs: slices.DeleteFunc(slices.Clone(p.Outputs), func(o unit.Output) bool {
					return o.Kind == unit.OutputDependency || o.Kind == unit.OutputSide
				})}
				b.Args, b.Language = p.Remote(tc.Major, "/home/user/src")
				if err := Text(b, tc, nil); err != nil {
					t.Errorf("text: %v: %s", err, line)
				}
				texts++
			}
			if p.Sources == "" {
				b := &job.Body{
					Argv0: tc.Exec, Compiler: tc.Path, Args: args, Language: p.Language, Name: "a", Cwd: "/src", Outputs: p.Outputs,
					Files: []unit.File{{Name: p.Source, Len: 3}},
				}
				if err := checked(b, tc, three); err != nil {
					t.Errorf("sources: %v: %s", err, line)
				}
				wholes++
			}
		}
	}
	byHand := packages[""]
	delete(packages, "")
	const want = 1000
	if recorded := len(seen) - byHand; len(packages) < 50 || recorded < 2*want || texts < want || wholes < want {
		t.Errorf("%d recorded lists, %d packages; %d as text, %d as sources; want %d and 50 packages, and %d of each form, at least",
			recorded, len(packages), texts, wholes, 2*want, want)
	}
	t.Logf("%d lists of %d shapes, %d of them by hand, the others of %d packages: %d as text, %d as sources; at home: %v",
		len(seen), len(shapes), byHand, len(packages), texts, wholes, home)
}
