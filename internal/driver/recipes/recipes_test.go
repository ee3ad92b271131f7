package recipes

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestRunWithoutDriver: cc1 and as run by recipe write the driver's own object,
// and cc1 -E its own text and dependency file.
func TestRunWithoutDriver(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of compiles")
	}
	part.Skip(t)
	for _, lang := range []struct{ cc, ext, x, text string }{
		{"gcc", ".c", "c", "#include <stdio.h>\n#define P(x) printf(\"%d\\n\", x)\nint main(void) { P(A); return __LINE__; }\n"},
		{"g++", ".cc", "c++", "#include <vector>\nint f(std::vector<int> &v) { v.push_back(A); return v.size(); }\n"},
	} {
		cc, err := exec.LookPath(lang.cc)
		if err != nil {
			need.Skipf(t, need.Tools, "%s is not installed", lang.cc)
		}
		for _, opts := range [][]string{{"-O2"}, {"-g", "-O0"}, {"-O2", "-fPIC", "-Wall", "-Wextra"}, {"-g3", "-gdwarf-4"}, {"-O2", "-flto", "-frandom-seed=1"}, {"-O1", "-fsanitize=address,undefined"}} {
			dir := t.TempDir()
			src := filepath.Join(dir, "in put"+lang.ext)
			write(t, src, lang.text)

			pre := append([]string{"-E", "-fdirectives-only", "-DA=(1 + 2)", "-MD", "-MF", driver.Deps, "-MT", driver.Target}, opts...)
			r, err := Expand(t.Context(), cc, append(pre, "-x", lang.x, driver.Source), nil, dir)
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
			r, err = Expand(t.Context(), cc, obj, nil, dir)
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

// TestCacheAsksAtTheSecondTime: a set of options that occurs once is not worth a question; one that occurs
// again is asked about once, and again when the compiler was replaced.
func TestCacheAsksAtTheSecondTime(t *testing.T) {
	dir := t.TempDir()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		need.Skipf(t, need.Tools, "gcc is not installed")
	}
	script := filepath.Join(dir, "cc")
	write(t, script, "#!/bin/sh\n>"+dir+"/ran\nexec "+gcc+" \"$@\"\n")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	var c Cache
	args := []string{"-E", "-x", "c", driver.Source}
	var first *driver.Recipe
	for i, want := range []bool{false, true, true, true} {
		r := c.Get(t.Context(), "a", gcc, args, os.Environ(), dir)
		if (r != nil) != want {
			t.Errorf("time %d: recipe %v, want %v", i+1, r != nil, want)
		}
		if i == 1 {
			first = r
		} else if i > 1 && r != first {
			t.Error("the driver was asked again")
		}
		if c.Get(t.Context(), "s", script, args, os.Environ(), dir) != nil {
			t.Error("a script's recipe was used")
		}
	}
	if _, err := os.Stat(dir + "/ran"); err == nil {
		t.Error("a script was asked")
	}
	if r := c.Get(t.Context(), "b", gcc, args, os.Environ(), dir); r != nil {
		t.Error("another compiler's recipe was found")
	}
}

// TestCacheIsBounded: any number of option sets, each twice, keeps the bounds.
func TestCacheIsBounded(t *testing.T) {
	var c Cache
	for i := range maxSeen + maxRecipes {
		key := strconv.Itoa(i)
		if !c.isNew(key) || c.isNew(key) {
			t.Fatal("a set is known at the first time, or not at the second")
		}
		c.recipes.get(key, maxRecipes, func() *driver.Recipe { return nil })
		if len(c.seen) > maxSeen || c.Len() > maxRecipes {
			t.Fatalf("%d seen, %d recipes", len(c.seen), c.Len())
		}
	}
}

// TestMemoAsksOnce: however many want to know.
func TestMemoAsksOnce(t *testing.T) {
	var m memo[int]
	if _, asked := m.known("a"); asked {
		t.Error("an answer before any question")
	}
	asks := 0
	begun, tell := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if v := m.get("a", 2, func() int { asks++; close(begun); <-tell; return 7 }); v != 7 {
				t.Errorf("got %d", v)
			}
		})
	}
	<-begun
	if v, asked := m.known("a"); v != 0 || !asked {
		t.Errorf("while it is asked: %d, %v", v, asked)
	}
	close(tell)
	all.Wait()
	if v, asked := m.known("a"); v != 7 || !asked || asks != 1 {
		t.Errorf("got %d, %v after %d questions", v, asked, asks)
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

// TestSearchIsAskedOnce: nothing is known until the first request with ask, then it is kept, for each language.
func TestSearchIsAskedOnce(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		need.Skipf(t, need.Tools, "gcc is not installed")
	}
	var c SearchCache
	env := []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
	if dirs := c.Get(t.Context(), "id", cc, "c", nil, env, false).Dirs; dirs != nil {
		t.Errorf("known before anybody asked: %q", dirs)
	}
	asked := c.Get(t.Context(), "id", cc, "c", nil, env, true).Dirs
	if len(asked) == 0 {
		t.Fatal("gcc does not say where it looks for headers")
	}
	if dirs := c.Get(t.Context(), "id", cc, "c", nil, env, false).Dirs; len(dirs) != len(asked) {
		t.Errorf("%q is not kept: %q", asked, dirs)
	}
	if dirs := c.Get(t.Context(), "id", cc, "c++", nil, env, false).Dirs; dirs != nil {
		t.Errorf("the answer for C serves C++: %q", dirs)
	}
}
