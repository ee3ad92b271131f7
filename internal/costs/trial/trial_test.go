package trial

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// site is a source tree in a directory of its own.
type site struct {
	*testing.T
	dir string
}

func (s *site) write(name, text string) string {
	s.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
	return file
}

// files lists what is in the tree, with times.
func (s *site) files() (list []string) {
	s.Helper()
	if err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		list = append(list, fmt.Sprint(path, i.ModTime(), i.Size()))
		return err
	}); err != nil {
		s.Fatal(err)
	}
	return list
}

// TestTry: headers that can be precompiled are, those that should save most first, each of the others is left out for its reason,
// and nothing is written to the tree.
func TestTry(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for seconds")
	}
	for _, cc := range []string{"g++", "clang++"} {
		t.Run(cc, func(t *testing.T) {
			if _, err := exec.LookPath(cc); err != nil {
				need.Skipf(t, need.Tools, "no %s", cc)
			}
			s := &site{t, t.TempDir()}
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			t.Setenv("DEPENDENCIES_OUTPUT", filepath.Join(s.dir, "more.d"))
			s.write("inc/heavy.h", "#pragma once\n#include <regex>\n#include <map>\n")
			s.write("inc/light.h", "#ifndef LIGHT\n#define LIGHT\nint light();\n#endif\n")
			s.write("inc/open.h", "enum open { one };\n")
			s.write("inc/list.h", "int ITEM;\n")
			s.write("inc/asks.h", "#ifndef ASKS\n#define ASKS\n#ifdef TUNED\nint tuned;\n#else\nint plain;\n#endif\n#endif\n")
			s.write("inc/lacks.h", "#ifndef LACKS\n#define LACKS\ntype_of_unit lacks();\n#endif\n")
			s.write("src/own dir/near.h", "#pragma once\nint near_it();\n")
			unit := s.write("src/own dir/a.cc", `#include "near.h"
#include "open.h"
#define TUNED 1
# include "asks.h"
#include <light.h>
typedef int type_of_unit;
#include "lacks.h"
#define BY_MACRO <heavy.h>
#include BY_MACRO
#ifdef NEVER
#include "never.h"
#endif
#include <heavy.h>
#include <vector>
int f() { return tuned; }
`)
			each := map[string]time.Duration{filepath.Join(s.dir, "inc/light.h"): 3 * time.Millisecond, filepath.Join(s.dir, "src/own dir/near.h"): time.Millisecond,
				filepath.Join(s.dir, "inc/asks.h"): 2 * time.Millisecond}
			before := s.files()
			u := Unit{filepath.Join(s.dir, "src"), []string{"rdistcc", cc, "-O1", "-I../inc", "-I", "../inc", "-Wall", "-Werror", "-MD", "-MF", "a.d", "-c", "own dir/a.cc", "-o", "a.o", "-save-temps"}}
			r, err := Try(t.Context(), u, 10, each)
			if err != nil {
				t.Fatalf("%v, %+v", err, r)
			}
			if after := s.files(); !slices.Equal(before, after) {
				t.Errorf("the tree was\n%s\nand is\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
			var headers, left []string
			for _, h := range r.Headers {
				headers = append(headers, h.Name)
			}
			for _, l := range r.Left {
				left = append(left, l.Name+": "+l.Why)
			}
			slices.Sort(left)
			if want := []string{"<light.h>", `"near.h"`, "<vector>"}; !slices.Equal(headers[:2], want[:2]) || !slices.Contains(headers, "<vector>") && cc == "g++" {
				t.Errorf("headers are %q, want %q", headers, want)
			}
			if r.Unit != unit || r.Estimated != 4*time.Millisecond || r.Times < 3 || r.Bytes == 0 || r.Made == 0 {
				t.Errorf("%+v", r)
			}
			for _, want := range []string{`"asks.h": it depends on macros before it: TUNED`, `"lacks.h": it does not compile by itself: `, `"open.h": it has no guard against being read twice`} {
				if !slices.ContainsFunc(left, func(l string) bool { return strings.HasPrefix(l, want) }) {
					t.Errorf("no %q among\n%s", want, strings.Join(left, "\n"))
				}
			}
			// What takes long takes nothing any more.
			s.write("src/own dir/a.cc", "#include <heavy.h>\nint f() { return 1; }\n")
			if r, err = Try(t.Context(), u, 1, nil); err != nil || len(r.Headers) != 1 || r.Without < 2*r.With {
				t.Errorf("%v, %+v", err, r)
			}
			t.Logf("<regex> and <map>: %v without, %v with, made in %v", r.Without, r.With, r.Made)
		})
	}
}

// TestCommands: what is no compile that can be tried is said to be none, in a line.
func TestCommands(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	dir := t.TempDir()
	link := filepath.Join(dir, "gcc")
	if err := os.Symlink("/usr/bin/rdistcc", link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+filepath.Dir(gcc))
	for words, want := range map[string]string{
		"":                             "the command names no compiler",
		"rdistcc":                      "the command names no compiler",
		"gcc a.c":                      "its command is no compile (-c) of a source",
		"gcc -c":                       "its command is no compile (-c) of a source",
		"gcc -c a.c b.c":               "its command names two files, a.c and b.c",
		"gcc -c a.c -o":                "the command ends after -o",
		"gcc -c a.s":                   "it is neither C nor C++",
		"gcc -c -include x.h a.c":      "its command includes files already (-include)",
		"gcc -c a.c @more":             "its command is in a file (@more)",
		"gcc -c a.c -aux-info x":       "what -aux-info does is not known here",
		"gcc -c a.c -Wa,-a=x":          "what -Wa,-a=x does is not known here",
		"no-such-compiler-here -c a.c": "no-such-compiler-here: no such compiler here",
	} {
		if _, err := commandOf(Unit{dir, strings.Fields(words)}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", words, err, want)
		}
	}
	c, err := commandOf(Unit{dir, strings.Fields("ccache gcc -O2 -Wp,-MD,x.d -MT x -Wp,-D_FORTIFY_SOURCE=2 -fdump-tree-all -x c -c a.h -o x.o")})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.flags, " "); got != "-O2 -Wp,-D_FORTIFY_SOURCE=2 -x c" || c.language != "c-header" || c.source != filepath.Join(dir, "a.h") || c.compiler != gcc {
		t.Errorf("%q, %+v", got, c)
	}
}
