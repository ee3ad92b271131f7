package policy

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// honestLists reads the argument lists of testdata/honest.txt: the first word is the
// compiler, \x20 is a blank in a word.
func honestLists(t *testing.T) [][]string {
	t.Helper()
	f, err := os.Open("testdata/honest.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lists [][]string
	s := bufio.NewScanner(f)
	for s.Buffer(nil, 1<<20); s.Scan(); {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		words := strings.Fields(s.Text())
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], `\x20`, " ")
		}
		lists = append(lists, words)
	}
	return lists
}

// TestHonestLists: what real builds ask for is taken, in each form that the wrapper
// would send it in.
func TestHonestLists(t *testing.T) {
	seen := map[string]bool{}
	texts, wholes := 0, 0
	for _, list := range honestLists(t) {
		name, args := list[0], list[1:]
		line := strings.Join(list, " ")
		if seen[line] {
			t.Errorf("twice: %s", line)
		}
		seen[line] = true
		tc := Compiler{Family: "gcc", Major: 12, Exec: "/usr/bin/" + name, Path: "/usr/bin/x86_64-linux-gnu-" + name + "-12"}
		if strings.HasPrefix(name, "clang") {
			tc = Compiler{Family: "clang", Major: 14, Exec: "/usr/bin/" + name, Path: "/usr/lib/llvm-14/bin/clang"}
		}
		d, ok := compile.DriverOf(tc.Exec, tc.Path)
		if !ok {
			t.Errorf("no compiler: %s", line)
			continue
		}
		p := compile.Parse(args, d, nil)
		if p.Local {
			t.Errorf("stays here (%s): %s", p.Reason, line)
			continue
		}
		if p.Text == "" {
			b := &job.Body{Name: "a" + p.Source[strings.LastIndexByte(p.Source, '.'):], Outputs: slices.DeleteFunc(slices.Clone(p.Outputs), func(o job.Output) bool {
				return o.Kind == job.OutputDependency || o.Kind == job.OutputSide
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
				Files: []job.SourceFile{{Name: p.Source, Len: 3}},
			}
			if err := checked(b, tc, three); err != nil {
				t.Errorf("sources: %v: %s", err, line)
			}
			wholes++
		}
	}
	if len(seen) < 500 || texts < 500 || wholes < 500 {
		t.Errorf("%d lists: %d as text, %d as sources; want 500 of each at least", len(seen), texts, wholes)
	}
	t.Logf("%d lists: %d as text, %d as sources", len(seen), texts, wholes)
}
