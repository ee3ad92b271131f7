package compile

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/driver/recipes"
	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// wholeLines are commands in a directory with a.c, b.c.c, a.cc, s/x.c, a.txt and a
// directory o.
var wholeLines = []string{
	"-c a.c", "-c a.c -o o/a.o", "-c s/x.c", "-c s/x.c -o x.o", "-c ./s/x.c -o ./o/y.o", "-c s/../a.c -o o/../z.o",
	"-c b.c.c", "-c b.c.c -o o/b.c.c.o", "-O2 -c a.c -o a.c.o", "-S a.c", "-S s/x.c -o o/x.s", "-S -O2 -fverbose-asm a.c -o a.s",
	"-g -c a.c", "-g3 -O1 -c s/x.c -o o/x.o", "-ggdb -gdwarf-4 -c a.c -o o/a.o", "-gstabs -c a.c", "-g -gz -c a.c",
	"-g -gsplit-dwarf -c a.c -o o/a.o", "-gsplit-dwarf -c s/x.c", "-g -gsplit-dwarf -c a.c -o o/other.name.o", "-g -gpubnames -c a.c",
	"-fstack-usage -c a.c -o o/a.o", "-fstack-usage -c s/x.c", "-fstack-usage -g -gsplit-dwarf -c b.c.c -o o/b.o",
	"-MD -c a.c", "-MMD -MP -c a.c -o o/a.o", "-MD -MF o/q.d -c a.c", "-MD -MT t -c a.c -o o/a.o", "-MD -MQ a$b -MF q.d -c s/x.c",
	"-MMD -MT o/a.o -MF o/.a.Tpo -c a.c -o o/a.o", "-MD -S a.c -o o/a.s", "-Wp,-MD,o/wp.d -c a.c",
	"-frandom-seed=1 -ftest-coverage -fprofile-arcs -c a.c -o o/a.o", "--coverage -frandom-seed=1 -c s/x.c", "--coverage -frandom-seed=1 -O0 -c b.c.c -o o/b.c.o",
	"-O2 -flto -frandom-seed=1 -c a.c", "-flto -ffat-lto-objects -frandom-seed=x -c a.c -o o/a.o", "-O3 -ftree-vectorize -march=x86-64-v2 -c a.c",
	"-fPIC -DPIC -c a.c -o o/a.o", "-fpie -fno-plt -c a.c", "-mno-sse3 -mtune=generic -c a.c", "-m32 -c m.c", "-pthread -c a.c",
	"-std=gnu99 -pedantic -Wall -Wextra -c a.c", "-DX='1' -DY=(2) -UZ -Io -I s -isystem s -c a.c", "-include s/x.c -c a.c",
	"-Wa,--noexecstack,-mrelax-relocations=no -c a.c", "-Xassembler --noexecstack -c a.c", "-fsanitize=address,undefined -c a.c", "-fno-exceptions -c a.cc -o o/a.o",
	"-std=c++17 -g -O2 -c a.cc", "-fno-rtti -MD -fstack-usage -c a.cc", "-x c -c a.txt -o o/t.o", "-x c++ -c a.c -o o/t.o",
	"-frecord-gcc-switches -c a.c", "-ffile-prefix-map=o=p -g -c a.c", "-fdebug-prefix-map=/=x -g -c s/x.c -o o/x.o", "-no-pie -fcf-protection -c a.c",
	"-fno-asynchronous-unwind-tables -c a.c", "-fcallgraph-info -c a.c -o o/a.o", "-frandom-seed=1 -fprofile-generate -c a.c", "-fpatchable-function-entry=4 -c a.c", "-c -O2 -- a.c",
	"-fopt-info-all=o/i -O2 -c a.c", "-l m -L o -c a.c",
}

// TestSharedWholeIsWhole: the programs that the shared words of a whole command
// stand for write what the driver would have written, side files included.
func TestSharedWholeIsWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of compiles")
	}
	for _, name := range []string{"gcc-11", "gcc-12"} {
		t.Run(name, func(t *testing.T) {
			turns.SkipCase(t)
			t.Parallel()
			cc, err := exec.LookPath(name)
			if err != nil {
				t.Skip(name + " is not installed")
			}
			dir := t.TempDir()
			for name, text := range map[string]string{
				"a.c":     "#include <stddef.h>\nint f(int x) { return x > 3 ? f(x - 1) : 1; }\nint main(void) { return f(5); }\n",
				"b.c.c":   "int g(int *p, int n) { int s = 0; while (n--) s += p[n]; return s; }\n",
				"a.cc":    "template <class T> T h(T x) { return x + 1; }\nint i(int x) { return h(x); }\n",
				"s/x.c":   "#include \"y.h\"\nint x = Y;\n",
				"s/y.h":   "#define Y __LINE__\n",
				"a.txt":   "int z(void) { return 0; }\n",
				"m.c":     "int m(int a) { return a * 3; }\n",
				"o/empty": "",
			} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			run := 0
			for _, line := range wholeLines {
				p := Parse(strings.Fields(line), Driver{}, nil)
				if p.Local {
					continue // other tests say why
				}
				words, n, ok := p.SharedWhole()
				if !ok {
					t.Errorf("%s: not shared", line)
					continue
				}
				r, err := recipes.Expand(t.Context(), cc, words, os.Environ(), dir)
				if err != nil {
					t.Logf("%s: %v", line, err)
					continue
				}
				run++
				n.Temp = filepath.Join(dir, "temp.s")
				want := snapshot(t, dir, append([]string{cc}, p.Whole()...))
				got := snapshotAll(t, dir, r, n)
				for name := range want {
					if !bytes.Equal(got[name], want[name]) {
						t.Errorf("%s: %s differs", line, name)
					}
				}
				if len(got) != len(want) || len(want) < 2 {
					t.Errorf("%s: wrote %d files, want %d", line, len(got), len(want))
				}
			}
			if run < 60 {
				t.Errorf("%d commands were run without the driver, of %d", run, len(wholeLines))
			}
		})
	}
}

// snapshotAll is snapshot for all steps of a recipe.
func snapshotAll(t *testing.T, dir string, r *driver.Recipe, n driver.Names) map[string][]byte {
	t.Helper()
	var script strings.Builder
	for i := range r.Steps() {
		for _, w := range r.Step(i, n) {
			script.WriteString("'" + strings.ReplaceAll(w, "'", `'\''`) + "' ")
		}
		script.WriteString("&& ")
	}
	script.WriteString("rm -f '" + n.Temp + "'")
	return snapshot(t, dir, []string{"sh", "-c", script.String()})
}

// TestSharedWholeServesManySources: other names do not make other words.
func TestSharedWholeServesManySources(t *testing.T) {
	whole := func(line string) string {
		p := Parse(strings.Fields(line), Driver{}, nil)
		w, _, ok := p.SharedWhole()
		if !ok {
			t.Fatalf("%s: not shared", line)
		}
		return strings.Join(w, " ")
	}
	a := whole("-O2 -MD -MF .deps/a.Tpo -MT a.o -c -o a.o src/a.c")
	if b := whole("-O2 -MD -MF .deps/b.Tpo -MT b.o -c -o sub/b.o src/b.c"); a != b {
		t.Errorf("words differ:\n%s\n%s", a, b)
	}
	for _, line := range []string{"-c a.c -x c++", "-c a.c -o a.lo", "-c a.c -o a", "-S a.c -o a.o", "-x c -c a", "-c -MT a -MT b -MD a.c", "-c a.c -o .o"} {
		p := Parse(strings.Fields(line), Driver{}, nil)
		if w, _, ok := p.SharedWhole(); ok {
			t.Errorf("%s: shared as %q", line, w)
		}
	}
}
