package resultcache

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/unit"
)

func someInputs() *Inputs {
	in := func(name string, id, ino byte, sec int64) Input {
		return Input{Name: name, ID: unit.ContentID{id}, MTime: sec * int64(time.Second), Inode: Inode{1, uint64(ino)}}
	}
	return &Inputs{
		Files: []Input{in("/w/x.c", 1, 1, 5), in("/w/a.h", 2, 2, 5), in("/w/b.h", 3, 3, 5), in("/w/c.h", 2, 4, 9)},
		Dirs:  []string{"/w", "/v"}, Links: []unit.Link{{Name: "/l", Target: "/w"}, {Name: "/k", Target: "/v"}},
	}
}

// TestInputs: a sum depends on all that a compile can see, and on nothing else.
func TestInputs(t *testing.T) {
	sum := func(change func(v *Inputs)) [32]byte {
		v := someInputs()
		change(v)
		return v.Sum()
	}
	first := sum(func(*Inputs) {})
	for what, change := range map[string]func(v *Inputs){
		"the order of lists":                 func(v *Inputs) { slices.Reverse(v.Files[1:]); slices.Reverse(v.Dirs); slices.Reverse(v.Links) },
		"times":                              func(v *Inputs) { v.Files[0].MTime++; v.Files[2].MTime = -7 },
		"numbers of inodes":                  func(v *Inputs) { v.Files[3].Inode = Inode{9, 9} },
		"times of twins, which still differ": func(v *Inputs) { v.Files[3].MTime = 77 * int64(time.Second) },
	} {
		if sum(change) != first {
			t.Errorf("%s: another sum", what)
		}
	}
	seen := map[[32]byte]string{first: "nothing"}
	for what, change := range map[string]func(v *Inputs){
		"a name": func(v *Inputs) { v.Files[1].Name = "/w/z.h" }, "a content": func(v *Inputs) { v.Files[1].ID[9] = 1 },
		"an executable file": func(v *Inputs) { v.Files[1].Exec = true }, "two names of one file": func(v *Inputs) { v.Files[3].Inode = v.Files[1].Inode },
		"another source": func(v *Inputs) { v.Files[0], v.Files[1] = v.Files[1], v.Files[0] }, "a file less": func(v *Inputs) { v.Files = v.Files[:3] },
		"twins": func(v *Inputs) { v.Files[3].MTime = v.Files[1].MTime }, "a directory": func(v *Inputs) { v.Dirs[0] = "/u" },
		"a link": func(v *Inputs) { v.Links[0].Target = "/v" }, "a link's name": func(v *Inputs) { v.Links[0].Name = "/j" },
	} {
		s := sum(change)
		if other, known := seen[s]; known {
			t.Errorf("%s: the sum is that of %s", what, other)
		}
		seen[s] = what
	}
}

// TestTwins: two files are twins exactly if gcc's #pragma once takes them for one.
func TestTwins(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"a.h": "#pragma once\nint here;\n", "b.h": "#pragma once\nint here;\n", "x.c": "#include \"a.h\"\n#include \"b.h\"\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range [][2]int64{{1e18, 1e18}, {1e18, 1e18 + 999_999_999}, {1e18 - 1, 1e18}, {1e18, 3e18}, {-1, -1e9}, {-1, 0}, {-1e9, -1e9 - 1}} {
		var in [2]Input
		for i, name := range []string{"a.h", "b.h"} {
			in[i] = Input{ID: unit.ContentID{1}, MTime: at[i]}
			if err := os.Chtimes(filepath.Join(dir, name), time.Unix(0, at[i]), time.Unix(0, at[i])); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("gcc", "-E", "x.c")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if once := strings.Count(string(out), "int here") == 1; once != in[0].Twins(&in[1]) {
			t.Errorf("modified at %d and %d ns: gcc takes them for one: %v, twins: %v", at[0], at[1], once, !once)
		}
	}
}

func BenchmarkSum(b *testing.B) {
	v := &Inputs{}
	for i := range 350 {
		v.Files = append(v.Files, Input{Name: "/usr/include/x86_64-linux-gnu/some/where/header" + string(rune('a'+i%26)) + strings.Repeat("x", i%20) + ".h", ID: unit.ContentID{byte(i), byte(i >> 8)}, Inode: Inode{1, uint64(i)}})
	}
	for b.Loop() {
		c := Inputs{Files: slices.Clone(v.Files)}
		c.Sum()
	}
}
