package modules

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

func TestScan(t *testing.T) {
	for _, c := range []struct {
		text, module string
		writes       bool
		imports      string
		unsure       bool
	}{
		{"int x;\n", "", false, "", false},
		{"export module a.b;\nimport c;\nexport import d;\n", "a.b", true, "c d", false},
		{"module;\n#include <x.h>\nexport module a:p;\nimport :q;\n", "a:p", true, "a:q", false},
		{"module a : p;\n", "a:p", true, "", false},
		{"module a;\nimport :q;\nimport b;\nimport b;\n", "a", false, "a a:q b", false},
		{"/* module x;\nimport y; */ import z;\n// import w;\n", "", false, "z", false},
		{"  import /* why */ a /**/ ;\nimport\\\n b;", "", false, "a b", false},
		{"auto s = R\"(\nimport a;\n)\";\nauto t = \"\\\nimport b;\\\n\";\nint n = 1'000;\nimport c;\n", "", false, "c", false},
		{"import ::f;\nimport(x);\nmodule = 3;\nimport a b;\nexport int import;\nmodule :private;\nexport {\n}\n", "", false, "", false},
		{"#ifdef X\nexport module a;\n#else\nexport module b;\n#endif\n", "b", true, "", true},
		{"#ifdef X\nexport\n#endif\nmodule a;\n", "a", false, "a", false},
		{"export module a [[x]];\nimport b [[y]];\n", "a", true, "b", false},
		{"import", "", false, "", false},
		{"\"open\nimport a;", "", false, "a", false},
	} {
		u := Scan(c.text)
		if got := strings.Join(u.Imports, " "); u.Module != c.module || u.Writes != c.writes || got != c.imports || u.Unsure != c.unsure {
			t.Errorf("%q: %+v", c.text, u)
		}
	}
	u := Scan("import <vector>;\nexport import \"x y.h\";\nimport <a;\n")
	if want := []Header{{"vector", false}, {"x y.h", true}}; !slices.Equal(u.Headers, want) {
		t.Errorf("headers %v, want %v", u.Headers, want)
	}
}

// TestHeaderName: a header has the names that gcc gives it, and its compiled module.
func TestHeaderName(t *testing.T) {
	for file, want := range map[string][2]string{
		"x.h": {"./x.h", "gcm.cache/,/x.h.gcm"}, "./x.h": {"./x.h", "gcm.cache/,/x.h.gcm"}, "././x.h": {"././x.h", "gcm.cache/,/./x.h.gcm"},
		".//x.h": {".//x.h", "gcm.cache/,//x.h.gcm"}, "d/../x.h": {"./d/../x.h", "gcm.cache/,/d/,,/x.h.gcm"}, "../x.h": {"./../x.h", "gcm.cache/,/,,/x.h.gcm"},
		"/d/../x": {"/d/../x", "gcm.cache/./d/,,/x.gcm"},
	} {
		name := HeaderName(file)
		if got, ok := Default().File(name); name != want[0] || !ok || got != want[1] {
			t.Errorf("%s: %s in %s, want %s", file, name, got, want)
		}
	}
}

func TestMapper(t *testing.T) {
	m := ParseMapper("$root bmi\nA a.gcm\nA b.gcm\nB:p\n/usr/x.h\n./y.h /abs/y.gcm\n\n", "")
	for name, want := range map[string]string{"A": "bmi/a.gcm", "B:p": "bmi/B-p.gcm", "C": "", "/usr/x.h": "bmi/./usr/x.h.gcm", "./y.h": "/abs/y.gcm", "": ""} {
		if got, ok := m.File(name); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := slices.Sorted(slices.Values(m.Named())); !slices.Equal(got, []string{"/abs/y.gcm", "bmi/./usr/x.h.gcm"}) {
		t.Errorf("headers %v", got)
	}
	for _, root := range []string{".", "./"} { // as CMake writes it
		if got, ok := ParseMapper("$root "+root+"\nA d/a.gcm\n", "").File("A"); got != "d/a.gcm" || !ok {
			t.Errorf("with root %s: %s", root, got)
		}
	}
	if got, ok := ParseMapper("@A no.gcm\n@ A a.gcm\nB b.gcm\n", "@").File("A"); got != "a.gcm" || !ok {
		t.Errorf("with a prefix: %s", got)
	}
	for name, want := range map[string]string{"A": "gcm.cache/A.gcm", "a.b:p": "gcm.cache/a.b-p.gcm", "./x.h": "gcm.cache/,/x.h.gcm", "../x/../y.h": "gcm.cache/,,/x/,,/y.h.gcm"} {
		if got, ok := Default().File(name); got != want || !ok {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestHeaders: what headers have been compiled to tells their names.
func TestHeaders(t *testing.T) {
	names := []string{"./x.h", "../x.h", "./a/../b.h", "/usr/x.h", "./,/b.h", "/,,x/y.h"}
	var files []string
	for _, name := range names {
		file, _ := Default().File(name)
		files = append(files, strings.Replace(file, "/./", "/", 1)) // as they are found
	}
	if got := Default().Headers(files); !slices.Equal(got, names) {
		t.Errorf("%q, want %q", got, names)
	}
	got := ParseMapper("A a.gcm\n./y.h y.gcm\n/z.h\n", "").Headers(files)
	if slices.Sort(got); !slices.Equal(got, []string{"./y.h", "/z.h"}) {
		t.Errorf("of a mapping: %q", got)
	}
}

// TestCompiled: what gcc has compiled tells what it imports, under the names that gcc opens.
func TestCompiled(t *testing.T) {
	for _, cxx := range []string{"g++-11", "g++-12"} {
		if _, err := exec.LookPath(cxx); err != nil {
			need.Skipf(t, need.Tools, "no %s", cxx)
		}
		dir := t.TempDir()
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("p.cc", "export module a:p;\nexport int p();\n")
		write("q.cc", "module a:q;\n")
		write("a.cc", "export module a;\nexport import :p;\nimport :q;\n")
		run := func(args ...string) {
			cmd := exec.Command(cxx, append([]string{"-std=c++20", "-fmodules-ts"}, args...)...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s %v: %v\n%s", cxx, args, err, out)
			}
		}
		run("-c", "p.cc")
		run("-c", "q.cc")
		run("-c", "a.cc")
		m := Default()
		name, _ := m.File("a")
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		readme, ok := Readme(readAt(b))
		if want := []string{"gcm.cache/a-p.gcm", "gcm.cache/a-q.gcm"}; !ok || !slices.Equal(slices.Sorted(slices.Values(m.Imports(readme))), want) {
			t.Errorf("%s: imports %v, want %v", cxx, m.Imports(readme), want)
		}
		if files := ParseMapper("a:p elsewhere.gcm\n", "").Imports(readme); !slices.Contains(files, "elsewhere.gcm") {
			t.Errorf("%s: imports %v, without what the mapping says", cxx, files)
		}
		for n := range b { // cut short, it is none
			if _, ok := Readme(readAt(b[:n])); ok {
				t.Errorf("%s: the first %d of %d bytes are a module", cxx, n, len(b))
				break
			}
		}
	}
	for _, content := range []string{"", "\x7fELF no module", "\x7fELF\x01" + strings.Repeat("\xff", 100)} {
		if _, ok := Readme(readAt([]byte(content))); ok {
			t.Errorf("took %q for a module", content)
		}
	}
}

// readAt reads as Readme wants it.
func readAt(content []byte) func(b []byte, off int64) bool {
	return func(b []byte, off int64) bool {
		n, _ := bytes.NewReader(content).ReadAt(b, off)
		return n == len(b)
	}
}

// FuzzReadme: no file makes Readme panic.
func FuzzReadme(f *testing.F) {
	f.Add([]byte("\x7fELF\x01"))
	f.Fuzz(func(_ *testing.T, content []byte) { Readme(readAt(content)) })
}

func FuzzModules(f *testing.F) {
	f.Add("export module a:b;\nimport <x>;\n", "$root x\na b\n")
	f.Add("GNU C++ module\x00import: a b.gcm\x00\x00", "\n")
	f.Fuzz(func(t *testing.T, text, more string) {
		u := Scan(text)
		m := ParseMapper(more, "")
		for _, name := range u.Imports {
			if file, ok := m.File(name); ok && file == "" {
				t.Errorf("no name for %q", name)
			}
		}
		m.Imports(text)
	})
}
