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
)

// TestSharedIsPreprocess: the programs that the shared words stand for write the
// same text and dependency file as the local half does by the driver.
func TestSharedIsPreprocess(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.c": "#include <stdio.h>\n#include \"b c.h\"\nint x = B;\n", "b c.h": "#define B 3\n", "a.cc": "#include \"b c.h\"\nint y = B;\n", "a.txt": "int z;\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"-c a.c",
		"-O2 -Wall -g -c a.c -o sub/a.o",
		"-MD -c a.c",
		"-MMD -MP -c a.c -o sub/a.o",
		"-MD -MF x.d -c a.c -o a.o",
		"-MD -MFx.d -MQ a$b -c ./a.c",
		"-MT t.o -MD -MF sub/t.Tpo -c a.c -fPIC -o t.o",
		"-DX='1;2' -I. -isystem sub -include stdlib.h -c a.c",
		"-c a.cc -std=c++17",
		"-x c -c a.txt -o t.o",
	} {
		p := Parse(strings.Fields(line), Driver{}, nil)
		words, n, ok := p.Shared(12)
		if p.Local || !ok {
			t.Errorf("%s: local %q, shared %v", line, p.Reason, ok)
			continue
		}
		r, err := recipes.Expand(t.Context(), cc, words, os.Environ(), dir)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		want := snapshot(t, dir, append([]string{cc}, p.Preprocess(12)...))
		got := snapshot(t, dir, driver.Fill(r.Words(0), n))
		for name := range want {
			if !bytes.Equal(got[name], want[name]) {
				t.Errorf("%s: %s differs:\n%s\nwant\n%s", line, name, got[name], want[name])
			}
		}
		if len(got) != len(want) || len(want["stdout"]) == 0 {
			t.Errorf("%s: wrote %d files, want %d", line, len(got), len(want))
		}
	}
}

// TestSharedServesManySources: other names do not make other words.
func TestSharedServesManySources(t *testing.T) {
	words := func(line string) string {
		p := Parse(strings.Fields(line), Driver{}, nil)
		w, _, ok := p.Shared(12)
		if !ok {
			t.Fatalf("%s: not shared", line)
		}
		return strings.Join(w, " ")
	}
	a := words("-O2 -MD -MF .deps/a.Tpo -MT a.o -c -o a.o src/a.c")
	if b := words("-O2 -MD -MF .deps/b.Tpo -MT b.o -c -o b.o src/b.c"); a != b {
		t.Errorf("words differ:\n%s\n%s", a, b)
	}
	if c := words("-O3 -MD -MF .deps/b.Tpo -MT b.o -c -o b.o src/b.c"); a == c {
		t.Error("other options gave the same words")
	}
}

// TestNotShared: names in other words, and two of a kind, need the driver.
func TestNotShared(t *testing.T) {
	for _, line := range []string{
		"-Wp,-MD,x.d -c a.c", "-MT a -MT b -MD -c a.c", "-MD -MF a -MF b -c a.c", "-c a.i", "-c a.c -c b.c",
	} {
		p := Parse(strings.Fields(line), Driver{}, nil)
		if w, _, ok := p.Shared(12); ok {
			t.Errorf("%s: shared as %q", line, w)
		}
	}
}

// snapshot runs words in dir and returns what they wrote: standard output and
// new files, which it removes.
func snapshot(t *testing.T, dir string, words []string) map[string][]byte {
	t.Helper()
	before := list(t, dir)
	c := exec.Command(words[0], words[1:]...)
	c.Dir = dir
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%q: %v", words, err)
	}
	files := map[string][]byte{"stdout": out}
	for name := range list(t, dir) {
		if before[name] {
			continue
		}
		if files[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func list(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names[path] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
