package distcc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/distcc/proto"
	"github.com/rdistcc/rdistcc/pkg/worker/policy"
)

var (
	gcc   = toolchain.Toolchain{Family: "gcc", Major: 12, Exec: "/usr/bin/gcc", Path: "/usr/bin/x86_64-linux-gnu-gcc-12"}
	clang = toolchain.Toolchain{Family: "clang", Major: 14, Exec: "/usr/bin/clang", Path: "/usr/lib/llvm-14/bin/clang"}
)

// TestTextBody: what a client sends is what our own wrapper would, so that the policy takes it.
func TestTextBody(t *testing.T) {
	for _, c := range []struct {
		tc                     *toolchain.Toolchain
		command                string
		words, language, named string
		kind                   unit.OutputKind
	}{
		{&gcc, "gcc -O2 -g -Wall -c a.c -o a.o", "-O2 -g -Wall", "cpp-output", "a.c.i", unit.OutputObject},
		{&gcc, "/usr/bin/gcc -S -O1 -o x/a.s src/a.c", "-O1", "cpp-output", "a.c.i", unit.OutputAssembly},
		{&gcc, "gcc -x c -c a.txt -o a.o -fdebug-prefix-map=/a=/b", "-fdebug-prefix-map=/a=/b", "cpp-output", "a.txt.i", unit.OutputObject},
		{&gcc, "gcc -iquote inc -c a.i -o a.o", "", "cpp-output", "a.i", unit.OutputObject},
		{&gcc, "gcc -c a.m -o a.o", "", "objective-c-cpp-output", "a.m.i", unit.OutputObject},
		{&clang, "clang -g -c a.c -o a.o", "-g -fdebug-compilation-dir=/", "cpp-output", "a.c.i", unit.OutputObject},
		{&clang, "clang -c a.cc -o a.o", "", "c++-cpp-output", "a.cc.i", unit.OutputObject},
	} {
		b, err := textBody(&proto.Request{Args: strings.Fields(c.command)}, c.tc)
		if err != nil {
			t.Errorf("%s: %v", c.command, err)
			continue
		}
		if got := strings.Join(b.Args, " "); got != c.words || b.Language != c.language || b.Name != c.named || len(b.Outputs) != 1 || b.Outputs[0].Kind != c.kind {
			t.Errorf("%s: %q, %+v", c.command, got, b)
		}
		if err := policy.Text(b, policy.Compiler{Family: c.tc.Family, Major: c.tc.Major, Exec: c.tc.Exec, Path: c.tc.Path}, []byte("int x;\n")); err != nil {
			t.Errorf("%s: the policy: %v", c.command, err)
		}
	}
	for _, command := range []string{
		"gcc a.c", "gcc -E -c a.c", "gcc -c a.c b.c", "gcc -fsyntax-only -c a.c", "gcc -M -c a.c", "gcc -c -fstack-usage a.c", "gcc -gsplit-dwarf -g -c a.c", "gcc --coverage -c a.c",
		"gcc -c -march=native a.c", "gcc -c @x", "gcc -B/x -c a.c", "gcc -fplugin=x -c a.c", "gcc -wrapper x -c a.c", "gcc -c -", "gcc -c a.s", "gcc -save-temps -c a.c", "gcc", "g++ -c",
	} {
		if b, err := textBody(&proto.Request{Args: strings.Fields(command)}, &gcc); err == nil {
			t.Errorf("%s is taken: %+v", command, b)
		}
	}
}

// TestSourcesBody: files keep their names; those of this host's own headers are its own.
func TestSourcesBody(t *testing.T) {
	q := &proto.Request{
		Version: proto.Sources, Cwd: "/home/user/src/", Args: strings.Fields("gcc -MD -Iinc -c a.c -o a.o"),
		Files: []proto.File{
			{Name: "/home/user/src/a.c", Text: []byte("abc")}, {Name: "/usr/include/stdio.h", Text: []byte("stdio")}, {Name: "/usr/include/../include/x", Target: "/etc"},
			{Name: "/home/user/src/inc", Target: "../inc"}, {Name: "/home/user/inc/b.h", Text: []byte("de")}, {Name: "/home/user/inc/b.h", Text: []byte("again")},
		},
	}
	b, text, err := sourcesBody(q, &gcc, []string{"/usr/include"})
	if err != nil {
		t.Fatal(err)
	}
	want := []unit.File{{Name: "/home/user/src/a.c", Len: 3}, {Name: "/home/user/inc/b.h", Len: 2}}
	if string(text) != "abcde" || !slices.Equal(b.Files, want) || !slices.Equal(b.Links, []unit.Link{{Name: "/home/user/src/inc", Target: "../inc"}}) || b.Cwd != "/home/user/src" {
		t.Errorf("%q, %+v", text, b)
	}
	for name, change := range map[string]func(q *proto.Request){
		"no directory":     func(q *proto.Request) { q.Cwd = "src" },
		"a file elsewhere": func(q *proto.Request) { q.Files = []proto.File{{Name: "a.c"}} },
		"side files":       func(q *proto.Request) { q.Args = append(q.Args, "-fstack-usage") },
	} {
		x := *q
		change(&x)
		if b, _, err := sourcesBody(&x, &gcc, nil); err == nil {
			t.Errorf("%s: taken, %+v", name, b)
		}
	}
}

// TestFind: a name means the program that it names in the directories of compilers, and no other.
func TestFind(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	real := filepath.Join(dir, "x86_64-linux-gnu-gcc-12")
	llvm := filepath.Join(outside, "clang")
	for _, name := range []string{real, llvm, filepath.Join(dir, "gcc-11"), filepath.Join(outside, "gcc")} {
		if err := os.WriteFile(name, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"gcc": real, "cc": "gcc", "clang": llvm, "clang++": llvm, "c++": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	list := []toolchain.Toolchain{
		{ID: unit.ToolchainID{1}, Exec: filepath.Join(dir, "gcc"), Path: real}, {ID: unit.ToolchainID{2}, Exec: filepath.Join(dir, "clang"), Path: llvm},
		{ID: unit.ToolchainID{3}, Exec: filepath.Join(dir, "clang++"), Path: llvm}, {ID: unit.ToolchainID{4}, Exec: filepath.Join(dir, "gcc-11"), Path: filepath.Join(dir, "gcc-11"), Root: "/received"},
	}
	for name, want := range map[string]byte{
		"gcc": 1, "cc": 1, "x86_64-linux-gnu-gcc-12": 1, filepath.Join(dir, "gcc"): 1, "clang": 2, "clang++": 3,
		"gcc-11": 0, "c++": 0, "none": 0, filepath.Join(outside, "gcc"): 0, llvm: 0,
	} {
		tc, err := find(name, []string{filepath.Join(dir, "none"), dir}, list)
		if want == 0 && err == nil || want != 0 && (err != nil || tc.ID[0] != want) {
			t.Errorf("%s: %+v, %v; want %d", name, tc, err, want)
		}
	}
	s := New(Options{Toolchains: func() ([]toolchain.Toolchain, bool) { return list, false }, Dirs: func() []string { return []string{dir} }})
	defer s.Close()
	for _, name := range []string{"", ".", "..", "/", "../gcc", "x/gcc", dir + "/../" + filepath.Base(dir) + "/gcc", "g\x00cc", "gcc\n", strings.Repeat("x", 5000)} {
		if tc, err := s.compiler(t.Context(), name); err == nil {
			t.Errorf("%q is %+v", name, tc)
		} else if !strings.Contains(err.Error(), "compiler") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if tc, err := s.compiler(t.Context(), "gcc"); err != nil || tc.ID[0] != 1 {
		t.Errorf("gcc: %+v, %v", tc, err)
	}
}
