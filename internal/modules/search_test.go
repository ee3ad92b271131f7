package modules

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestSearch: a compiled module that a compiler with other directories for headers has made is told from one that the
// compiler here would have made, and so is what is no compiled module at all.
func TestSearch(t *testing.T) {
	for _, cxx := range []string{"clang++-16", "clang++-19"} {
		if _, err := exec.LookPath(cxx); err != nil {
			need.Skipf(t, need.Tools, "no %s", cxx)
		}
		said, err := exec.Command(cxx, "-x", "c++", "-v", "-E", "/dev/null").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cxx, err, said)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.cppm"), []byte("export module a;\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		made := func(words ...string) []byte {
			cmd := exec.Command(cxx, append([]string{"-std=c++20", "-c", "a.cppm", "-fmodule-output=a.pcm"}, words...)...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", cxx, err, out)
			}
			b, err := os.ReadFile(filepath.Join(dir, "a.pcm"))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		s := Search{Own: driver.ParseSearch(string(said)), Missing: driver.ParseMissing(string(said))}
		more, less := s, s
		more.Given, less.Own = 2, s.Own[1:]
		plain, given, none := made(), made("-I.", "-isystem", "none"), made("-nostdinc")
		for _, c := range []struct {
			name string
			s    Search
			b    []byte
			ok   bool
		}{
			{"as here", s, plain, true},
			{"as here, with more", more, given, true},
			{"more than here", s, given, false},
			{"less than here", more, plain, false},
			{"one less", s, made("-nostdinc++"), false},
			{"none", s, none, false},
			{"none here", less, plain, false},
			{"as here, none", Search{}, none, true},
			{"half", s, plain[:len(plain)/8*4], false},
			{"empty", s, nil, false},
			{"text", s, bytes.Repeat([]byte("text"), 99), false},
		} {
			if what := c.s.Differs(c.b); (what == "") != c.ok {
				t.Errorf("%s: %s: %q", cxx, c.name, what)
			}
		}
	}
}
