package recipes

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/driver"
)

// TestRunWithoutDriver: cc1 and as run by recipe write the driver's own object,
// and cc1 -E its own text and dependency file.
func TestRunWithoutDriver(t *testing.T) {
	for _, lang := range []struct{ cc, ext, x, text string }{
		{"gcc", ".c", "c", "#include <stdio.h>\n#define P(x) printf(\"%d\\n\", x)\nint main(void) { P(A); return __LINE__; }\n"},
		{"g++", ".cc", "c++", "#include <vector>\nint f(std::vector<int> &v) { v.push_back(A); return v.size(); }\n"},
	} {
		cc, err := exec.LookPath(lang.cc)
		if err != nil {
			t.Skipf("%s is not installed", lang.cc)
		}
		for _, opts := range [][]string{{"-O2"}, {"-g", "-O0"}, {"-O2", "-fPIC", "-Wall", "-Wextra"}, {"-g3", "-gdwarf-4"}} {
			dir := t.TempDir()
			src := filepath.Join(dir, "in put"+lang.ext)
			write(t, src, lang.text)

			pre := append([]string{"-E", "-fdirectives-only", "-DA=(1 + 2)", "-MD", "-MF", driver.Deps, "-MT", driver.Target}, opts...)
			r, err := Expand(cc, append(pre, "-x", lang.x, driver.Source), nil, dir)
			if err != nil {
				t.Fatal(opts, err)
			}
			var driverOut, direct bytes.Buffer
			n := driver.Names{Source: src, Deps: "direct.d", Target: "t.o"}
			args := driver.Fill(append(pre, "-x", lang.x, driver.Source), driver.Names{Source: src, Deps: "driver.d", Target: "t.o"})
			run(t, dir, &driverOut, append([]string{cc}, args...))
			run(t, dir, &direct, driver.Fill(r.Words(0), n))
			if direct.Len() == 0 || !bytes.Equal(driverOut.Bytes(), direct.Bytes()) {
				t.Errorf("%s %v: preprocessed text differs", lang.cc, opts)
			}
			same(t, filepath.Join(dir, "driver.d"), filepath.Join(dir, "direct.d"))

			text := filepath.Join(dir, "hello"+lang.ext)
			write(t, text, direct.String())
			obj := append(append([]string{}, opts...), "-x", lang.x, "-fpreprocessed", "-fdirectives-only", "-c", "-o", driver.Output, driver.Source)
			r, err = Expand(cc, obj, nil, dir)
			if err != nil {
				t.Fatal(opts, err)
			}
			run(t, dir, nil, append([]string{cc}, driver.Fill(obj, driver.Names{Source: text, Output: "driver.o"})...))
			for i := range r.Steps() {
				run(t, dir, nil, r.Step(i, driver.Names{Source: text, Output: "direct.o", Temp: "x.s"}))
			}
			same(t, filepath.Join(dir, "driver.o"), filepath.Join(dir, "direct.o"))
		}
	}
}

// TestCacheAsksOnce: the same options are asked for once, and a replaced
// compiler anew.
func TestCacheAsksOnce(t *testing.T) {
	dir := t.TempDir()
	fake := filepath.Join(dir, "cc")
	write(t, fake, "#!/bin/sh\necho x >>"+dir+"/log\necho ' /x/cc1 -E \""+driver.Source+"\"' >&2\n")
	if err := os.Chmod(fake, 0o755); err != nil {
		t.Fatal(err)
	}
	var c Cache
	for _, id := range []string{"a", "a", "b"} {
		if _, err := c.Get(id, fake, []string{"-E"}, os.Environ(), dir); err != nil {
			t.Fatal(err)
		}
	}
	if log, _ := os.ReadFile(dir + "/log"); string(log) != "x\nx\n" {
		t.Errorf("the driver was asked %d times, want 2", len(log)/2)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir string, out *bytes.Buffer, words []string) {
	t.Helper()
	c := exec.Command(words[0], words[1:]...)
	c.Dir = dir
	if out != nil {
		c.Stdout = out
	}
	if err := c.Run(); err != nil {
		t.Fatalf("%q: %v", words, err)
	}
}

func same(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(x) == 0 || !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ", a, b)
	}
}
