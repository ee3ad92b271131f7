package trial

import (
	"errors"
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
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
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
			part.SkipCase(t)
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
	s := &site{t, dir}
	if err := errors.Join(os.Chmod(s.write("bin/ccache", ""), 0o755), os.Symlink("bin/ccache", link)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+filepath.Dir(gcc))
	s.write("used.h.gch", "")
	s.write("sub/words", "-O2 '-DA=b c'\n@more -l m")
	s.write("sub/more", "-I.. -c a.c")
	for words, want := range map[string]string{
		"":                           "the command names no compiler",
		"rdistcc":                    "the command names no compiler",
		"gcc a.c":                    "its command is no compile (-c) of a source",
		"gcc -c":                     "its command is no compile (-c) of a source",
		"gcc -c a.c b.c":             "its command names two files, a.c and b.c",
		"gcc -c a.c -o":              "the command ends after -o",
		"gcc -c a.s":                 "it is neither C nor C++",
		"gcc -c -include used.h a.c": "its command takes a precompiled header already (used.h.gch)",
		"gcc -c a.c -Xclang -include-pch -Xclang x.pch": "its command takes a precompiled header already (-include-pch)",
		"gcc -c a.c -Xclang -load":                      "what -Xclang -load does is not known here",
		"gcc -c a.c @more":                              "its command is in a file that cannot be read (@more)",
		"gcc -c -E a.c":                                 "its command is no compile (-c) of a source",
		"gcc -c a.c -aux-info x":                        "what -aux-info does is not known here",
		"gcc -c a.c -Wp,-DA,-MD,x":                      "what -Wp,-DA,-MD,x does is not known here",
		"gcc -c a.c -Wa,-a=x":                           "what -Wa,-a=x does is not known here",
		"no-such-compiler-here -c a.c":                  "no-such-compiler-here: no such compiler here",
	} {
		if _, err := commandOf(Unit{dir, strings.Fields(words)}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", words, err, want)
		}
	}
	for _, x := range []struct{ dir, words, flags, language, source string }{
		{dir, "ccache gcc -O2 -Wp,-MD,x.d -MT x -Wp,-D_FORTIFY_SOURCE=2 -fdump-tree-all -x c -c a.h -o x.o", "-O2 -Wp,-D_FORTIFY_SOURCE=2 -x c", "c-header", "a.h"},
		{dir, "env LC_ALL=C CCACHE_DIR=x rdistcc ccache gcc -specs=/x -Wl,-z,now -Wa,--noexecstack -L/x -lm -pthread -oa.o -c -- a.c", "-specs=/x -Wa,--noexecstack -pthread", "c-header", "a.c"},
		{dir, link + " --sysroot /x -isystem/y -isystem z -mllvm x -imacros m.h -c a.cc", "--sysroot /x -isystem/y -isystem z -mllvm x -imacros m.h", "c++-header", "a.cc"},
		{filepath.Join(dir, "sub"), "gcc @words", "-O2 -DA=b c -I..", "c-header", "sub/a.c"},
	} {
		c, err := commandOf(Unit{x.dir, strings.Fields(x.words)})
		if err != nil {
			t.Errorf("%s: %v", x.words, err)
			continue
		}
		if got := strings.Join(c.flags, " "); got != x.flags || c.language != x.language || c.source != filepath.Join(dir, x.source) || c.compiler != gcc {
			t.Errorf("%s: %q, %+v", x.words, got, c)
		}
	}
}

// TestNeeded: a header that says what an earlier one tells it is precompiled with that one, what the command includes stands in front,
// and what is the system's stays so.
func TestNeeded(t *testing.T) {
	for _, cc := range []string{"gcc", "clang"} {
		t.Run(cc, func(t *testing.T) {
			part.SkipCase(t)
			if _, err := exec.LookPath(cc); err != nil {
				need.Skipf(t, need.Tools, "no %s", cc)
			}
			s := &site{t, t.TempDir()}
			s.write("config.h", "#define TUNED 1\n") // without a guard
			s.write("first.h", "#ifndef FIRST\n#define FIRST\ntypedef int number;\n#define WIDE 1\n#endif\n")
			s.write("asks.h", "#ifndef ASKS\n#define ASKS\n#ifdef WIDE\nlong wide;\n#else\nint narrow;\n#endif\n#ifdef TUNED\nint tuned;\n#endif\n#endif\n")
			s.write("lacks.h", "#ifndef LACKS\n#define LACKS\nnumber lacks(void);\n#endif\n")
			s.write("alone.h", "#ifndef ALONE\n#define ALONE\nint alone(void);\n#endif\n")
			s.write("system/warns.h", "#ifndef WARNS\n#define WARNS\nstatic inline int warns(int unused) { int x; return 0; }\n#endif\n")
			s.write("a.c", "#include \"first.h\"\n#include \"alone.h\"\n#include \"asks.h\"\n#include \"lacks.h\"\n#include \"warns.h\"\nlong f(void) { return wide + tuned; }\n")
			before := s.files()
			words := strings.Fields(cc + " -Wall -Wextra -Werror -include config.h -isystem system -MD -c a.c -o a.o")
			each := map[string]time.Duration{filepath.Join(s.dir, "asks.h"): time.Second}
			for _, x := range []struct {
				n    int
				want string
			}{{10, `"alone.h" "asks.h" "first.h" "lacks.h" "warns.h" -include config.h`}, {2, `"asks.h" "first.h" -include config.h`}} {
				r, err := Try(t.Context(), Unit{s.dir, words}, x.n, each)
				var names []string
				for _, h := range r.Headers {
					names = append(names, h.Name)
				}
				slices.Sort(names)
				if got := strings.Join(names, " "); err != nil || got != x.want || r.Times < 3 {
					t.Errorf("%d headers: %s, want %s; %v, %+v", x.n, got, x.want, err, r.Left)
				}
			}
			if after := s.files(); !slices.Equal(before, after) {
				t.Errorf("the tree was\n%s\nand is\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
		})
	}
}
