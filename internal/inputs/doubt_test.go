package inputs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestDoubts: what cannot be known for certain is reported, with the reason.
func TestDoubts(t *testing.T) {
	c := newCompiler(t, "gcc", "c")
	for _, x := range []struct {
		text, want string
		change     func(q *Query, dir string)
	}{
		{text: "int x;\n"},
		{text: "#define H(x, y) #y\n#include H(x, h.h)\n", want: DoubtComputed},
		{text: "#include H(x)\n"}, // an error
		{text: "#pragma include_alias(\"a.h\", \"h.h\")\n", want: DoubtSpelling},
		{text: "#ifdef H\n#include H\n#endif\n"},
		{text: "#define H <stdio.h>\n#include H\n"},
		{text: "#ifdef A\n#define H <assert.h>\n#else\n#define H \"h.h\"\n#endif\n#include H\n"},
		{text: "#include \"d.h\"\n#include H\n", change: func(_ *Query, dir string) {
			put(t, dir+"/d.h", "#define H \"e.h\"\n")
			put(t, dir+"/e.h", "#define G <h.h>\n#include G\n")
		}},
		{text: "#include \"d.h\"\n#include H\n", want: DoubtComputed, change: func(_ *Query, dir string) {
			put(t, dir+"/d.h", "#define H \"e.h\"\n")
			put(t, dir+"/e.h", "#undef H\n#define H <h.h\n")
		}},
		{text: "#define H <a b.h>\n#include H\n", want: DoubtComputed},
		{text: "#define H <sys/linux/h.h>\n#include H\n", want: DoubtComputed},
		{text: "#define H <h.h>\n#define h 1\n#include H\n", want: DoubtComputed},
		{text: "#define H <h.h>\n#define h <h.h>\n#include H\n", want: DoubtComputed},
		{text: "#define H <h.h>\n#define h(x) 1\n#include H\n"},
		{text: "#define H <h.h>\n#include H\n", want: DoubtComputed, change: func(q *Query, _ string) { q.Words = []string{"-Dh=1"} }},
		{text: "#define H <h.h>\n#include H\n", want: DoubtComputed, change: func(q *Query, _ string) { q.Words = []string{"-Wp,-Dx,-Dh"} }},
		{text: "#define HH <h.h>\n#include HH\n", change: func(q *Query, _ string) { q.Words = []string{"-Dhh", "-O2", "-fother"} }},
		{text: "#define HH \"h.h\"\n#include HH\n", want: DoubtComputed, change: func(q *Query, _ string) { q.Words = []string{"-traditional-cpp"} }},
		{text: "#include HH\n", want: DoubtComputed, change: func(q *Query, _ string) { q.Words = []string{"-DHH"} }},
		{text: "#include HH\n", want: DoubtComputed, change: func(q *Query, _ string) { q.Words = []string{"-DHH=h.h"} }},
		{text: "#include HH\n", change: func(q *Query, _ string) { q.Words = []string{`-DHH="h.h"`, "-D", "HH=<h.h>"} }},
		{text: "#include __FILE__\n", want: DoubtComputed},
		{text: "#include _H\n", want: DoubtComputed},
		{text: "#def\\\nine H <stdio.h>\n#include H\n", want: DoubtComputed},
		{text: "#define H\\\nH <stdio.h>\n#include H\n", want: DoubtComputed},
		{text: "#include MACRO\n#define MACRO \"h.h\"\n", want: DoubtPCH, change: func(_ *Query, dir string) { put(t, dir+"/h.h.gch", "") }},
		{text: "#inc\\\nlude <stdio.h>\n", want: DoubtSpelling},
		{text: "char *s = __TIME__;\n", want: DoubtClock},
		{text: "char *s = __TIME__;\n", change: func(q *Query, _ string) { q.Clock[0] = true }},
		{text: "#define HAS(x) __has_include(x)\n#if HAS(<h.h>) || HAS(\"none.h\")\n#endif\n"},
		{text: "#if HAS(<h.h>)\n#endif\n#include \"d.h\"\n", change: func(_ *Query, dir string) { put(t, dir+"/d.h", "#define HAS(x) __has_include(x)\n") }},
		{text: "#define HAS(x) __has_include(x)\n#define HAVE HAS\n#include \"d.h\"\n", want: DoubtHasInclude, change: func(_ *Query, dir string) { put(t, dir+"/d.h", "#if HAVE(H)\n#endif\n") }},
		{text: "#define HAS(x) __has_include(x)\n#if H\\\nAS(H)\n#endif\n", want: DoubtHasInclude},
		{text: "#define HAS(x) __has_include(<x>)\n", want: DoubtHasInclude},
		{text: "#include \"/sys/kernel/profiling\"\n", want: DoubtFileSystem}, // as a network file system's, its times tell nothing
		{text: "#include \"/proc/version\"\n", want: DoubtPaths},
		{text: "#include \"/dev/null\"\n", want: DoubtFile},
		{text: "#include \"pipe.h\"\n", want: DoubtPipe, change: func(_ *Query, dir string) {
			if err := unix.Mkfifo(dir+"/pipe.h", 0o666); err != nil {
				t.Fatal(err)
			}
		}},
		{text: "#include \"h.h\"\n", want: DoubtPCH, change: func(_ *Query, dir string) { put(t, dir+"/h.h.gch", "") }},
		// gcc looks for it in each directory until it finds the header.
		{text: "#include <h.h>\n", want: DoubtPCH, change: inDirs(t, "a/h.h.gch", "b/h.h")},
		{text: "#include <h.h>\n", want: DoubtPCH, change: inDirs(t, "b/h.h.gch", "b/h.h")},
		{text: "#include <h.h>\n", change: inDirs(t, "a/h.h", "b/h.h.gch")},
		{text: "#include <h.h>\n", change: inDirs(t, "h.h.gch", "b/h.h")},
		{text: "#include \"h.h\"\n", change: inDirs(t, "a/h.h.gch", "b/h.h")},
		{text: "#include \"g.h\"\n", want: DoubtPCH, change: inDirs(t, "a/g.h.gch", "b/g.h")},
		{text: "#include \"g.h\"\n", want: DoubtPCH, change: inDirs(t, "g.h.gch", "b/g.h")},
		// A compiler reports such a name, and does not look in the next directory.
		{text: "#include <h.h>\n", want: DoubtFile, change: circle("a/h.h")},
		{text: "#include <s/h.h>\n", want: DoubtFile, change: circle("a/s")},
		{text: "#include <h.h>\n", change: circle("a/g.h")},
		{text: "int x;\n", want: DoubtFile, change: func(q *Query, dir string) {
			circle("l")(q, dir)
			q.Angle = append(q.Angle, dir+"/l")
		}},
		{text: "int x;\n", want: DoubtSearch, change: func(q *Query, dir string) { q.Missing = []string{dir} }},
	} {
		dir := t.TempDir()
		put(t, dir+"/x.c", x.text)
		put(t, dir+"/h.h", "")
		q := c.query(dir, "x.c")
		if x.change != nil {
			x.change(q, dir)
		}
		_, err := New(Options{}).Resolve(q)
		var d *Doubt
		if errors.As(err, &d); x.want == "" && err != nil || x.want != "" && (d == nil || d.Why != x.want) {
			t.Errorf("%q: %v, want %q", x.text, err, x.want)
		}
	}
}

// inDirs makes files, and has headers be looked for in the directories a and b.
func inDirs(t *testing.T, names ...string) func(q *Query, dir string) {
	return func(q *Query, dir string) {
		for _, sub := range []string{"/a", "/b"} {
			if err := os.Mkdir(dir+sub, 0o777); err != nil {
				t.Fatal(err)
			}
			q.Angle = append(q.Angle, dir+sub)
		}
		for _, name := range names {
			put(t, dir+"/"+name, "")
		}
	}
}

// circle makes a link to itself, and has headers be looked for in the directories a and b.
func circle(name string) func(q *Query, dir string) {
	return func(q *Query, dir string) {
		for _, sub := range []string{"/a", "/b", "/b/s"} {
			os.Mkdir(dir+sub, 0o777)
		}
		os.WriteFile(dir+"/b/h.h", nil, 0o666)
		os.WriteFile(dir+"/b/s/h.h", nil, 0o666)
		os.Symlink(filepath.Base(name), dir+"/"+name)
		q.Angle = append(q.Angle, dir+"/a", dir+"/b")
	}
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestManyHeaders: a unit may read more headers than it has any need to.
func TestManyHeaders(t *testing.T) {
	part.Skip(t)
	dir := t.TempDir()
	var text strings.Builder
	for i := range 20_100 {
		put(t, fmt.Sprintf("%s/h%d.h", dir, i), "")
		fmt.Fprintf(&text, "#include \"h%d.h\"\n", i)
	}
	put(t, dir+"/x.c", text.String())
	s, err := New(Options{}).Resolve(&Query{Key: "x", Source: "x.c", Cwd: dir, GCC: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Files) != 20_101 {
		t.Errorf("%d files", len(s.Files))
	}
}
