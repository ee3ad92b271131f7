package move

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// made compiles a source in a directory, and returns the object.
func made(t testing.TB, dir, source, text string, words ...string) []byte {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(source)), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, source), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(words[0], append(words[1:], "-c", source, "-o", "out.o")...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PWD="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", words, err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "out.o"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	plainC  = "#include <stddef.h>\nstruct s { int a; }; static size_t n; size_t f(struct s *p) { return n += p->a; }\n"
	plainCC = "#include <string>\nnamespace { struct s { std::string a; }; }\ntemplate <class T> T twice(T x) { return x + x; }\nstd::string f(int n) { s x; x.a = twice<std::string>(\"x\"); return x.a + std::to_string(n); }\nstatic std::string made = f(1);\n"
)

// assembler reports whether the assembler here lays out all objects as Object knows it: GNU's up to 2.40 does. Later ones lay out some, with
// sections for functions, in another way.
func assembler(t *testing.T) bool {
	t.Helper()
	out, err := exec.Command("as", "--version").Output()
	if err != nil {
		need.Skipf(t, need.Tools, "no as: %v", err)
	}
	var major, minor int
	line, _, _ := strings.Cut(string(out), "\n")
	if _, err := fmt.Sscanf(line[strings.LastIndexByte(line, ' ')+1:], "%d.%d", &major, &minor); err != nil {
		t.Logf("as --version: %q", line)
		return false
	}
	return major == 2 && minor <= 40
}

// TestObject: what gcc writes in one directory, made that of another, is what it writes there, whatever the names are.
func TestObject(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	laid := assembler(t)
	dir := func(i int) string { // of all lengths, so that strings, sections and hashes fall in all ways
		return filepath.Join(root, fmt.Sprintf("d%d", i), strings.Repeat("x", i*i%23)+"w")
	}
	moves := func(t *testing.T, n int, source, text string, words ...string) {
		t.Helper()
		var all [][]byte
		for i := range n {
			all = append(all, made(t, dir(i), source, text, words...))
		}
		for i := range all {
			j := (i + 1) % n
			got, ok := Object(all[i], dir(i), dir(j))
			switch {
			case !ok && !laid: // not shared, which is never wrong
				t.Logf("%v %s: of another layout", words, source)
				return
			case !ok || !bytes.Equal(got, all[j]):
				t.Errorf("%v %s: from %s to %s: %v", words, source, dir(i), dir(j), ok)
			}
		}
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	for i, gcc := range []string{"gcc", "gcc-11", "gcc-13", "gcc-14", "gcc-15", "aarch64-linux-gnu-gcc-12"} {
		if _, err := exec.LookPath(gcc); err != nil {
			continue // one is enough; where there are more, they are tried
		}
		t.Run(gcc, func(t *testing.T) {
			moves(t, 14-min(8*i, 8), "a.c", plainC, gcc, "-g", "-gdwarf-5")
			moves(t, 4, "src/zmalloc.c", plainC, gcc, "-O2", "-g3", "-gdwarf-5", "-ffunction-sections")
		})
	}
	t.Run("c++", func(t *testing.T) {
		if _, err := exec.LookPath("g++"); err != nil {
			need.Skipf(t, need.Tools, "no g++")
		}
		moves(t, 2, "src/odd name.cc", plainCC, "g++", "-O2", "-g", "-gdwarf-5", "-fdata-sections", "-ffunction-sections")
	})
}

// TestObjectRefuses: what names the directory elsewhere, or in a way that is not known, is left alone.
func TestObjectRefuses(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]bool{"gcc -g -gdwarf-5": true, "gcc -gdwarf-4": false, "gcc -g -gz": false, "gcc -g -flto": false, "gcc -g -m32": false, "gcc -O2": false, "clang -g": false} {
		words := strings.Fields(line)
		if _, err := exec.LookPath(words[0]); err != nil {
			continue
		}
		b := made(t, dir, "a.c", "struct s { int a_rather_long_name, "+strings.Repeat("another", 40)+"; } s;\n", words...)
		if _, ok := Object(b, dir, "/somewhere/else"); ok != want {
			t.Errorf("%s: %v", line, ok)
		}
		out := []Output{{unit.OutputObject, b}}
		if got := Base(dir).Outputs(nil, nil, out, dir); got != want && line != "gcc -O2" {
			t.Errorf("%s: shared: %v", line, got)
		}
		if Base(dir).Outputs(nil, nil, []Output{{unit.OutputObject, append(b, dir...)}}, dir) {
			t.Errorf("%s: with the directory behind it", line)
		}
	}
	named := made(t, dir, "b.c", "const char *s = \""+dir+"/b.c\";\n", "gcc", "-g", "-gdwarf-5")
	if Base(dir).Outputs(nil, nil, []Output{{unit.OutputObject, named}}, dir) {
		t.Error("it has the directory among its data, too")
	}
	own, err := exec.Command("gcc", "-print-file-name=include").Output()
	if err != nil {
		t.Fatal(err)
	}
	includes := made(t, dir, "c.c", plainC, "gcc", "-g", "-gdwarf-5")
	if to := strings.TrimSpace(string(own)); bytes.Contains(includes, []byte(to)) {
		if _, ok := Object(includes, dir, to); ok {
			t.Error("it names the other directory already, which the assembler would write once")
		}
	}
}

// FuzzObject: no object makes it panic, or take far more memory than that has.
func FuzzObject(f *testing.F) {
	if _, err := exec.LookPath("gcc"); err == nil {
		dir, err := filepath.EvalSymlinks(f.TempDir())
		if err != nil {
			f.Fatal(err)
		}
		b := made(f, dir, "a.c", plainC, "gcc", "-g", "-gdwarf-5")
		f.Add(bytes.ReplaceAll(b, []byte(dir), []byte("/home/a/"+strings.Repeat("x", len(dir)-8))), len(dir))
	}
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		n = min(max(n, 8), 200)
		from := "/home/a/" + strings.Repeat("x", n-8)
		before := bytes.Clone(b)
		moved, ok := Object(b, from, "/home/elsewhere")
		if !bytes.Equal(b, before) || ok && len(moved) > 3*len(b)+1<<17 {
			t.Errorf("%d bytes became %d", len(b), len(moved))
		}
	})
}
