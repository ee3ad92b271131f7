package privatetree

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// newTree makes a tree that ends with the test.
func newTree(t testing.TB, s Spec) *Tree {
	t.Helper()
	tr, err := New(t.Context(), s)
	if errors.Is(err, ErrNoRight) || errors.Is(err, ErrUnanswered) {
		need.Skipf(t, need.Sandbox, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

// runIn runs a command, and returns what it wrote to its standard output and error.
func runIn(t testing.TB, tr *Tree, dir string, argv ...string) (Outcome, string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r, err := tr.Start(&Command{
		Argv: argv, Env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TMPDIR=" + tr.Path("/tmp")}, Dir: dir,
		Stdin: int(in.Fd()), Stdout: int(out.Fd()), Stderr: int(out.Fd()),
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := r.Wait()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return o, string(b)
}

func null(t testing.TB) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// content reads a file of the tree.
func content(t testing.TB, tr *Tree, name string) string {
	t.Helper()
	f, err := tr.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(f.FD)
	b := make([]byte, f.Size)
	if _, err := unix.Pread(f.FD, b, 0); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var when = time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC).UnixNano()

// TestCompilers compiles with debug information, warnings and a dependency file, here and in a tree that
// has what the compiler's own list of dependencies names, and compares all that comes out.
func TestCompilers(t *testing.T) {
	compilers := []string{"gcc", "clang", "g++", "clang++"}
	if testing.Short() {
		compilers = compilers[:2]
	}
	for _, cc := range compilers {
		t.Run(cc, func(t *testing.T) {
			part.SkipCase(t)
			tools := toolchain(t, cc)
			tr := newTree(t, Spec{Files: tools})
			p := project(t, cc)
			args := []string{"-g", "-O2", "-Wall", "-I", "../inc", "-MD", "-MF", "a.d", "-c", "../src/" + p.source, "-o", "a.o"}
			here := func(args ...string) string {
				cmd := exec.Command(tools[0], args...)
				cmd.Dir, cmd.Env = p.build, []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				return string(out)
			}
			messages := here(args...)
			list := here("-M", "-MT", "x", "-O2", "-I", "../inc", "../src/"+p.source)
			for range 2 {
				must(t, tr.Mkdirs("/usr/include"))
				must(t, tr.Mkdirs(p.build))
				for _, name := range strings.Fields(strings.ReplaceAll(list, "\\\n", ""))[1:] {
					abs := name
					if abs[0] != '/' {
						abs = p.build + "/" + name
					}
					text, err := os.ReadFile(abs)
					must(t, err)
					st, err := os.Stat(abs)
					must(t, err)
					must(t, tr.Write(abs, text, st.ModTime().UnixNano(), false))
				}
				o, out := runIn(t, tr, p.build, append([]string{tools[0]}, args...)...)
				if o.Exit != 0 || o.Signal != 0 || out != messages || !strings.Contains(out, "unused") {
					t.Fatalf("got %+v, %q; want %q", o, out, messages)
				}
				for _, name := range []string{"a.o", "a.d"} {
					want, err := os.ReadFile(p.build + "/" + name)
					must(t, err)
					if got := content(t, tr, p.build+"/"+name); got != string(want) {
						t.Errorf("%s differs: %d bytes, here %d", name, len(got), len(want))
					}
				}
				if left, err := tr.Unexpected(anyTime); err != nil || len(left) != 0 {
					t.Errorf("unexpected: %q, %v", left, err)
				}
				must(t, tr.Clean())
			}
		})
	}
}

// sources is a source with a header of its own and some of the system's.
type sources struct{ build, source string }

func project(t *testing.T, cc string) sources {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	p := sources{build: dir + "/build", source: "a.c"}
	text := "#include <stdio.h>\n#include <assert.h>\n"
	if strings.HasSuffix(cc, "++") {
		p.source = "a.cc"
		text = "#include <vector>\n#include <string>\n#include <cassert>\nstd::vector<std::string> v;\n"
	}
	text += `#include "a.h"
const char *where = __FILE__ __TIMESTAMP__;
static void unused(void) {}
int f(int n) { assert(n > A(0)); return A(n); }
`
	for name, text := range map[string]string{"src/" + p.source: text, "inc/a.h": "#define A(n) \\\n  ((n) + 1)\n", "build/x": ""} {
		must(t, os.MkdirAll(filepath.Dir(dir+"/"+name), 0o700))
		must(t, os.WriteFile(dir+"/"+name, []byte(text), 0o600))
		must(t, os.Chtimes(dir+"/"+name, time.Time{}, time.Unix(0, when)))
	}
	return p
}
