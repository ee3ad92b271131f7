package modules

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestClang: what clang has compiled tells what it was made of, and what it imports. A compiled header has the name by which it was found.
func TestClang(t *testing.T) {
	for _, v := range []struct {
		cxx     string
		imports bool // are told with the names of files
	}{{"clang++-16", true}, {"clang++-19", false}} {
		if _, err := exec.LookPath(v.cxx); err != nil {
			need.Skipf(t, need.Tools, "no %s", v.cxx)
		}
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run := func(args ...string) {
			cmd := exec.Command(v.cxx, append([]string{"-std=c++20"}, args...)...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s %v: %v\n%s", v.cxx, args, err, out)
			}
		}
		write("x.h", "inline int x() { return 1; }\n")
		write("p.cppm", "module;\n#include \"x.h\"\nexport module a:p;\nexport int p() { return x(); }\n")
		write("q.cppm", "module a:q;\nint q();\n")
		write("a.cppm", "export module a;\nexport import :p;\nimport :q;\n")
		write("h.cppm", "export module h;\nimport \"x.h\";\n")
		run("--precompile", "p.cppm", "-o", "a-p.pcm")
		run("--precompile", "q.cppm", "-o", "a-q.pcm")
		run("--precompile", "a.cppm", "-fprebuilt-module-path=.", "-o", "a.pcm")
		run("-fmodule-header=user", "x.h", "-o", "x.pcm")
		run("--precompile", "h.cppm", "-fmodule-file=x.pcm", "-o", "h.pcm")
		if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
			t.Fatal(err)
		}
		write("d/y.h", "import \"x.h\";\ninline int y() { return x(); }\n")
		write("i.cppm", "export module i;\nimport \"d/y.h\";\nimport \"x.h\";\n")
		run("-fmodule-header=system", "-I.", "-Id", "y.h", "-fmodule-file=x.pcm", "-o", "y.pcm")
		run("--precompile", "i.cppm", "-fmodule-file=y.pcm", "-fmodule-file=x.pcm", "-o", "i.pcm")
		in := func(names ...string) (all []string) {
			for _, name := range names {
				all = append(all, filepath.Join(dir, name))
			}
			return all
		}
		for _, c := range []struct {
			name           string
			ok             bool
			files, imports []string
			header         string
		}{
			{"a-p.pcm", true, in("p.cppm", "x.h"), nil, ""},
			{"a-q.pcm", true, in("q.cppm"), nil, ""},
			{"a.pcm", true, in("a.cppm"), in("a-p.pcm", "a-q.pcm"), ""},
			{"x.pcm", true, in("x.h"), nil, "./x.h"},
			{"y.pcm", true, in("d/y.h"), in("x.pcm"), "d/y.h"},
			{"i.pcm", true, in("i.cppm"), in("x.pcm", "y.pcm"), ""},
			{"h.pcm", true, in("h.cppm"), in("x.pcm"), ""},
		} {
			b, err := os.ReadFile(filepath.Join(dir, c.name))
			if err != nil {
				t.Fatal(err)
			}
			got, ok := Clang(readAt(b), int64(len(b)))
			if ok != c.ok || got.Header != c.header || ok && !slices.Equal(slices.Sorted(slices.Values(got.Files)), c.files) {
				t.Errorf("%s: %s: %v %v, want %v %v", v.cxx, c.name, got, ok, c, c.ok)
			}
			if want := c.imports; ok && (v.imports || c.name != "a.pcm") && !slices.Equal(slices.Sorted(slices.Values(got.Imports)), want) {
				t.Errorf("%s: %s imports %v, want %v", v.cxx, c.name, got.Imports, want)
			}
			for n := 0; n < len(b); n += 92 { // cut short, it is none, unless all that counts is there
				if cut, ok := Clang(readAt(b[:n]), int64(n)); ok && (!slices.Equal(cut.Files, got.Files) || !slices.Equal(cut.Imports, got.Imports)) {
					t.Errorf("%s: the first %d of %d bytes of %s: %v", v.cxx, n, len(b), c.name, cut)
					break
				}
			}
		}
	}
}

// FuzzClang: no file makes Clang panic.
func FuzzClang(f *testing.F) {
	f.Add([]byte("CPCH\x01\x0c\x00\x00"))
	f.Fuzz(func(_ *testing.T, content []byte) { Clang(readAt(content), int64(len(content))) })
}
