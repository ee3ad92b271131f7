package compile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

func TestLoadsHeader(t *testing.T) {
	for _, text := range []string{
		"#pragma GCC pch_preprocess \"x\"\n", "# pragma GCC pch_pre\\\nprocess \"x\"", "p\\\nch_preprocess", "pch_\\ \t\npreprocess", "pch_\\\r\npreprocess",
		"p\\\nc\\\nh\\\n_\\\np\\\nr\\\ne\\\np\\\nr\\\no\\\nc\\\ne\\\ns\\\ns", "pch_??/\npreprocess", "pch_preproces\\\n\\\ns", "ppch_\\\npreprocess",
		"_Pragma(\"GCC pch_preprocess \\\"x\\\"\")",
	} {
		if !LoadsHeader([]byte(text)) {
			t.Errorf("%q loads nothing", text)
		}
	}
	for _, text := range []string{"", "\n", "\\\n", "pch_\npreprocess", "pch_\\\n\npreprocess", "pch_preproces\\\n", "pch\\\n preprocess", "#pragma GCC poison x\n", "p\\", "??/\n"} {
		if LoadsHeader([]byte(text)) {
			t.Errorf("%q loads a header", text)
		}
	}
}

// TestUnasked: names count wherever a job says them, and as they are spelled.
func TestUnasked(t *testing.T) {
	honest := func() *job.Body {
		return &job.Body{
			Cwd: "/src/specs", Files: []unit.File{{Name: "a.c"}, {Name: "specs.h"}, {Name: "/usr/include/c++/12/bits/stdc++.h"}, {Name: "clang.cfg.h"}, {Name: "x.gch.h"}},
			Dirs: []string{"specs", "x.cfg"}, Links: []unit.Link{{Name: "/l", Target: "/src/specs/dir"}}, Outputs: []unit.Output{{Name: "x.o"}, {Name: "specs"}},
		}
	}
	for _, f := range []Family{GCC, Clang} {
		if name, what := Unasked(f, honest()); what != "" {
			t.Errorf("%q: %s", name, what)
		}
	}
	for _, test := range []struct {
		name, gcc, clang string
	}{
		{"h.gch", "pch", "pch"}, {"/x/h.pch", "pch", "pch"}, {"h.gch/c", "pch", "pch"}, {"h.pch/../c", "pch", "pch"},
		{"specs", "specs", ""}, {"/usr/lib/gcc/x/specs", "specs", ""}, {"d/../specs", "specs", ""},
		{"clang.cfg", "", "specs"}, {"/usr/bin/x-clang++.cfg", "", "specs"}, {".cfg", "", "specs"},
	} {
		for _, f := range []Family{GCC, Clang} {
			want := test.gcc
			if f == Clang {
				want = test.clang
			}
			for where, put := range map[string]func(*job.Body){
				"file":   func(b *job.Body) { b.Files = append(b.Files, unit.File{Name: test.name}) },
				"link":   func(b *job.Body) { b.Links = append(b.Links, unit.Link{Name: test.name, Target: "/x"}) },
				"target": func(b *job.Body) { b.Links = append(b.Links, unit.Link{Name: "/x", Target: test.name}) },
			} {
				b := honest()
				put(b)
				if _, what := Unasked(f, b); what != want {
					t.Errorf("family %d, %s %q: %q, want %q", f, where, test.name, what, want)
				}
			}
			if want != "pch" {
				continue
			}
			for where, put := range map[string]func(*job.Body){
				"directory":         func(b *job.Body) { b.Dirs = append(b.Dirs, test.name) },
				"working directory": func(b *job.Body) { b.Cwd = "/x/" + test.name },
				"output's":          func(b *job.Body) { b.Outputs = append(b.Outputs, unit.Output{Name: test.name + "/x.d"}) },
			} {
				b := honest()
				put(b)
				if _, what := Unasked(f, b); what != want {
					t.Errorf("family %d, %s %q: %q, want %q", f, where, test.name, what, want)
				}
			}
		}
	}
}

// TestGccLoadsSpliced: gcc does put the word together in the text that keeps its macros,
// so looking for it whole is not enough.
func TestGccLoadsSpliced(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc here")
	}
	dir := t.TempDir()
	for _, text := range []string{"#pragma GCC pch_preprocess \"none\"\n", "#pragma GCC pch_\\\npre\\ \nprocess \"none\"\n"} {
		if !LoadsHeader([]byte(text)) {
			t.Errorf("%q loads nothing", text)
		}
		must(t, os.WriteFile(filepath.Join(dir, "a.i"), []byte(text), 0o666))
		cmd := exec.Command(gcc, "-fpreprocessed", "-fdirectives-only", "-x", "c", "-c", "a.i")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "none: ") {
			t.Errorf("gcc on %q: %v: %s; want that it looks for the file", text, err, out)
		}
	}
}

func FuzzLoadsHeader(f *testing.F) {
	f.Add([]byte("pch_\\\npreprocess"))
	f.Fuzz(func(t *testing.T, text []byte) {
		joined := strings.ReplaceAll(string(text), "\\\n", "")
		if strings.Contains(joined, loader) && !LoadsHeader(text) {
			t.Errorf("%q loads nothing", text)
		}
	})
}
