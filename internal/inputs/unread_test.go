package inputs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// place is a directory with files.
type place struct {
	*testing.T
	dir string
	tab *Table
	q   Query
}

func newPlace(t *testing.T, files map[string]string) *place {
	t.Helper()
	p := &place{T: t, dir: filepath.Join(t.TempDir(), "w"), tab: New(Options{})}
	for name, text := range files {
		p.write(name, text)
	}
	p.q = Query{Key: p.dir, Source: "x.c", Cwd: p.dir, Angle: []string{"inc", "late"}, GCC: true}
	return p
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *place) write(name, text string) {
	p.Helper()
	name = p.path(name)
	old := time.Now().Add(-time.Hour)
	p.must(os.MkdirAll(filepath.Dir(name), 0o777))
	p.must(os.WriteFile(name, []byte(text), 0o666))
	p.must(os.Chtimes(name, old, old))
}

func (p *place) set() *Set {
	p.Helper()
	s, err := p.tab.Resolve(&p.q)
	p.must(err)
	return s
}

// in returns the names of the files in u, below the directory.
func (p *place) in(s *Set, u Unread) (names []string) {
	for i, f := range s.Files {
		if u != nil && u.Has(i) {
			names = append(names, strings.TrimPrefix(f.Name, p.dir+"/"))
		}
	}
	return names
}

// TestSpare: only what the preprocessor alone may read can be unread.
func TestSpare(t *testing.T) {
	for _, c := range []struct {
		what, text, want string
		change           func(q *Query)
	}{
		{"the source alone", "int x;\n", "", nil},
		{"headers", "#include \"a.h\"\n#if 0\n#import <b.h>\n#endif\n#include_next <c.h>\n", "inc/a.h late/b.h late/c.h", nil},
		{"a system header", "#include \"a.h\"\n#include <stddef.h>\n", "inc/a.h", func(q *Query) { q.Own = []string{"/usr/include/linux"} }},
		{"in a directory of system headers", "#include \"a.h\"\n#include <b.h>\n", "late/b.h", func(q *Query) { q.Angle, q.System = []string{"late"}, []string{"inc"} }},
		{"below a directory of system headers", "#include \"s.h\"\n#include <a.h>\n", "inc/a.h", func(q *Query) { q.System, q.Angle = []string{"sys"}, []string{"inc", "sys/below"} }},
		{"a system header includes it through ..", "#include <t.h>\n#include <a.h>\n#include <b.h>\n", "late/b.h", func(q *Query) { q.System = []string{"sys"} }},
		{"asked for", "#include \"a.h\"\n#if __has_include(<b.h>)\n#endif\n", "inc/a.h late/b.h", nil},
		{"a macro names it", "#define H \"a.h\"\n#include H\n", "inc/a.h", nil},
		{"included by the command", "#include \"a.h\"\n#include <b.h>\n", "late/b.h", func(q *Query) { q.Forced = []string{"inc/a.h"} }},
		{"read by the command", "#include \"a.h\"\n#include <b.h>\n", "late/b.h", func(q *Query) { q.More = []string{"inc/a.h"} }},
		{"in the place of a directory", "#include \"a.h\"\n#include <b.h>\n", "late/b.h", func(q *Query) { q.Angle = append(q.Angle, "inc/a.h") }},
		{"the assembler's data", "#include \"a.h\"\n#include <b.h>\nasm(\".incbin \\\"inc/a.h\\\"\");\n", "late/b.h", nil},
		{"the assembler's", "#include \"a.h\"\n#include <b.h>\nasm(\".include \\\"inc/a.h\\\"\");\n", "late/b.h", nil},
		{"data", "#include \"a.h\"\n#include <b.h>\n#embed <a.h>\n", "late/b.h", nil},
		{"quoted by messages", "#include \"a.h\"\n#include <b.h>\n#line 7 \"inc/a.h\"\n", "late/b.h", nil},
		{"quoted by messages under another name", "#include \"a.h\"\n#include <b.h>\n#line 7 \"late/../inc/a.h\"\n", "late/b.h", nil},
		{"quoted by messages, perhaps", "#define F \"inc/a.h\"\n#include \"a.h\"\n#line 7 F\n", "", nil},
		{"a clock", "#include \"a.h\"\n#include <b.h>\nconst char *s = __TIME__;\n", "inc/a.h late/b.h", func(q *Query) { q.Clock[0] = true }},
	} {
		p := newPlace(t, map[string]string{"x.c": c.text, "inc/a.h": "int a;\n", "late/b.h": "int b;\n", "late/c.h": "int c;\n",
			"sys/below/s.h": "int s;\n", "sys/t.h": "#include \"../inc/a.h\"\n"})
		if c.change != nil {
			c.change(&p.q)
		}
		s := p.set()
		if got := strings.Join(p.in(s, s.spare), " "); got != c.want || s.Spare() != (c.want != "") {
			t.Errorf("%s: %q may be unread, want %q", c.what, got, c.want)
		}
	}
}

// TestUnread: rules for make say what was read, whatever the spelling, or it is not certain.
func TestUnread(t *testing.T) {
	p := newPlace(t, map[string]string{
		"x.c": "#include \"a.h\"\n#include <b.h>\n#include <link.h>\n#include <dir/c.h>\n#include <d e$#.h>\n", "inc/a.h": "int a;\n", "late/b.h": "int b;\n", "else/link.h": "int link;\n",
		"else/sub/c.h": "int c;\n", "inc/d e$#.h": "int d;\n", "inc/empty.h": "",
	})
	p.must(os.Symlink("../else/link.h", p.path("inc/link.h")))
	p.must(os.Symlink("../else/sub", p.path("inc/dir")))
	s := p.set()
	const all = "else/link.h else/sub/c.h inc/a.h inc/d e$#.h late/b.h"
	without := func(names ...string) string {
		words := strings.Split(strings.ReplaceAll(all, "d e", "d_e"), " ")
		words = slices.DeleteFunc(words, func(w string) bool { return slices.Contains(names, w) })
		return strings.ReplaceAll(strings.Join(words, " "), "d_e", "d e")
	}
	for _, c := range []struct{ rules, want string }{
		{"x.o: x.c\n", all},
		{"x.o: ./x.c inc/a.h\n", without("inc/a.h")},
		{"x.o y.o: " + p.path("x.c") + " \\\n late/../inc//a.h \\\n  " + p.path("late/b.h") + "\n", without("inc/a.h", "late/b.h")},
		{"x.o: x.c inc/link.h\n", without("else/link.h")},
		{"x.o: x.c inc/dir/c.h\n", without("else/sub/c.h")},
		{"x.o: x.c inc/dir/../link.h\n", without("else/link.h")}, // it leaves the directory that the link leads to
		{"x.o: x.c inc/d\\ e$$\\#.h\n", without("inc/d_e$#.h")},
		{"x.o: x.c inc/a.h\n\ninc/a.h:\n", without("inc/a.h")}, // -MP
		{"x.o: x.c inc/a.h\ninc/a.h:\n\nlate/b.h:\n", without("inc/a.h")},
		{"x.o: x.c else/link.h else/sub/c.h inc/a.h inc/d\\ e$$\\#.h late/b.h\n", ""}, // all of them
		{"x.o: inc/a.h x.c\n", ""},                                                    // another source comes first
		{"x.o: x.c inc/unknown.h\n", ""},                                              // not a file of the set
		{"x.o: x.c inc/dir/../a.h\n", ""},                                             // nor this
		{"x.o: x.c inc/a.h", ""},                                                      // cut short
		{"x.o: x.c inc/a.h\nmore\n", ""},                                              // perhaps the rest of a name
		{"x.o: x.c inc/a.h\nmore.h: y\n", ""},
		{"x.o: x.c inc/a.h\nmore.h:", ""},
		{"x.o: x.c \"inc/a.h\"\n", ""}, // another make's
		{"x.o:\n", ""},
		{"x.o", ""},
		{"", ""},
	} {
		u, ok := s.Unread(p.dir, []byte(c.rules), true)
		if got := strings.Join(p.in(s, u), " "); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%q: %q, %v, want %q", c.rules, got, ok, c.want)
		}
	}

	// Twins count as read, and so does everything if a rule cannot name a file.
	p.write("late/b.h", "int a;\n")
	s = p.set()
	if u, ok := s.Unread(p.dir, []byte("x.o: x.c\n"), true); !ok || strings.Join(p.in(s, u), " ") != without("inc/a.h", "late/b.h") {
		t.Errorf("twins: %v, %v", p.in(s, u), ok)
	}
	p.write("x.c", "#include \"a\\\\b.h\"\n#include <a.h>\n")
	p.write("inc/a\\\\b.h", "")
	s = p.set()
	if u, ok := s.Unread(p.dir, []byte("x.o: x.c\n"), true); ok {
		t.Errorf("with a name that no rule can have: %v", p.in(s, u))
	}
}

// TestBlurred: rules for make without system headers are of no use where it is not certain which these are.
func TestBlurred(t *testing.T) {
	for what, c := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"plain":                                   {map[string]string{"x.c": "#include \"a.h\"\n", "inc/a.h": "int a;\n"}, false},
		"of the system":                           {map[string]string{"x.c": "#include <s.h>\n#include <a.h>\n", "inc/a.h": "int a;\n", "sys/s.h": "#include \"s2.h\"\n", "sys/s2.h": ""}, false},
		"a system header includes it":             {map[string]string{"x.c": "#include <s.h>\n#include <a.h>\n", "inc/a.h": "int a;\n", "sys/s.h": "#include <a.h>\n"}, true},
		"a system header includes it by a macro":  {map[string]string{"x.c": "#include <s.h>\n#include <a.h>\n", "inc/a.h": "int a;\n", "sys/s.h": "#define A <a.h>\n#include A\n"}, true},
		"a header calls itself a system header":   {map[string]string{"x.c": "#include <a.h>\n", "inc/a.h": "#pragma GCC system_header\n"}, true},
		"clang's word for that":                   {map[string]string{"x.c": "#include <a.h>\n", "inc/a.h": "#pragma clang system_header\n"}, true},
		"that in two lines":                       {map[string]string{"x.c": "#include <a.h>\n", "inc/a.h": "#pragma GCC system_\\\nheader\n"}, true},
		"a line has a flag":                       {map[string]string{"x.c": "#include <a.h>\n# 1 \"y.c\" 3\n", "inc/a.h": "int a;\n"}, true},
		"a name leads out of the system's":        {map[string]string{"x.c": "#include <t/../../out/o.h>\n#include <a.h>\n", "inc/a.h": "int a;\n", "out/o.h": "#include \"p.h\"\n", "out/p.h": "", "sys/t/s.h": ""}, false},
		"a linked directory of system headers":    {map[string]string{"x.c": "#include <s.h>\n#include <a.h>\n", "inc/a.h": "int a;\n", "sys/s.h": "#include <t/t.h>\n", "sys/t/t.h": ""}, false},
		"a header of the system's that is a link": {map[string]string{"x.c": "#include <l.h>\n#include <a.h>\n", "inc/a.h": "int a;\n", "sys/s.h": ""}, false},
	} {
		p := newPlace(t, c.files)
		p.q.System = []string{"sys"}
		if strings.Contains(what, "that is a link") {
			p.write("real/l.h", "#include <a.h>\n")
			p.must(os.Symlink("../real/l.h", p.path("sys/l.h")))
			c.want = true
		}
		s := p.set()
		rules := []byte("x.o: x.c\n")
		if _, all := s.Unread(p.dir, rules, true); !all || s.blurred != c.want {
			t.Errorf("%s: blurred is %v, with all headers named %v", what, s.blurred, all)
		}
		if u, ok := s.Unread(p.dir, rules, false); ok == c.want {
			t.Errorf("%s: %v, %v", what, p.in(s, u), ok)
		}
		for _, name := range p.in(s, s.spare) {
			if name != "inc/a.h" {
				t.Errorf("%s: %s may be unread", what, name)
			}
		}
	}
}

// TestSumRead: the sums of the second step change with everything that a compile can see without reading the unread files, and
// with nothing else.
func TestSumRead(t *testing.T) {
	p := newPlace(t, map[string]string{
		"x.c": "#include \"a.h\"\n#include <b.h>\n#include <c.h>\n#if __has_include(<d.h>)\n#endif\n", "inc/a.h": "int a;\n", "late/b.h": "int b;\n", "late/c.h": "int c;\n",
	})
	first := p.set()
	u, ok := first.Unread(p.dir, []byte("x.o: x.c inc/a.h\n"), true)
	if !ok || strings.Join(p.in(first, u), " ") != "late/b.h late/c.h" {
		t.Fatalf("%v, %v", p.in(first, u), ok)
	}
	sum, ok := first.SumRead(u)
	if !ok || sum == first.SumSpare() || sum == first.Sum() {
		t.Fatal("no sum, or that of something else")
	}
	// check compares with the first Set: names says whether the names are the same, read whether all that was read is, too.
	check := func(what string, names, read bool) {
		t.Helper()
		s := p.set()
		if s.Sum() == first.Sum() {
			t.Errorf("%s: nothing has changed", what)
		}
		if same := s.SumSpare() == first.SumSpare(); same != names {
			t.Errorf("%s: the same names: %v", what, same)
		}
		got, ok := s.SumRead(u)
		if same := ok && got == sum; same != read {
			t.Errorf("%s: the same was read: %v", what, same)
		}
	}
	back := func() {
		t.Helper()
		if p.set().Sum() != first.Sum() {
			t.Error("another state than the first")
		}
	}
	p.write("late/b.h", "int b2;\n")
	check("an unread file", true, true)
	p.write("late/c.h", "int c2;\n")
	check("two unread files", true, true)
	p.write("late/c.h", "int c;\n")
	p.write("inc/a.h", "int a2;\n")
	check("an unread file and one that was read", true, false)
	p.write("inc/a.h", "int a;\n")
	p.write("late/b.h", "#include \"a.h\"\n")
	check("an unread file includes what is there", true, true)
	p.write("late/b.h", "#include \"new.h\"\n")
	p.write("late/new.h", "\n")
	check("an unread file includes another one", false, false)
	p.must(os.Remove(p.path("late/new.h")))
	p.write("late/b.h", "int b;\n")
	back()
	p.write("x.c", "#include \"a.h\"\n#include <b.h>\n#include <c.h>\n#if __has_include(<d.h>)\n#endif\nint x;\n")
	check("the source", false, false)
	p.write("x.c", "#include \"a.h\"\n#include <b.h>\n#include <c.h>\n#if __has_include(<d.h>)\n#endif\n")
	back()
	p.write("inc/b.h", "int b;\n")
	check("a file that comes first", false, false)
	p.must(os.Remove(p.path("inc/b.h")))
	p.write("late/d.h", "int d;\n")
	check("a file that is asked for", false, false)
	p.must(os.Rename(p.path("late/d.h"), p.path("inc/d.h")))
	check("it is elsewhere", false, false)
	p.must(os.Remove(p.path("inc/d.h")))
	p.must(os.Rename(p.path("late/c.h"), p.path("late/d.h")))
	check("one unread file instead of another", false, false)
	p.must(os.Rename(p.path("late/d.h"), p.path("late/c.h")))
	p.must(os.Chmod(p.path("late/b.h"), 0o777))
	check("an unread file that may be executed", false, false)
	p.must(os.Chmod(p.path("late/b.h"), 0o666))
	p.must(os.Rename(p.path("late/b.h"), p.path("late/e.h")))
	p.must(os.Symlink("e.h", p.path("late/b.h")))
	check("an unread file that is a link", false, false)
	p.must(os.Remove(p.path("late/b.h")))
	p.must(os.Rename(p.path("late/e.h"), p.path("late/b.h")))
	p.must(os.Rename(p.path("late"), p.path("later")))
	p.must(os.Symlink("later", p.path("late")))
	p.tab = New(Options{}) // a Table does not notice that a directory is reached by a link from now on
	check("a directory that is a link", false, false)
	p.tab = New(Options{})
	p.must(os.Remove(p.path("late")))
	p.must(os.Rename(p.path("later"), p.path("late")))
	back()
	p.write("late/b.h", "int a;\n")
	check("an unread file is a twin of one that was read", true, false)
	p.write("late/b.h", "\xef\xbb\xbfint a;\n")
	check("such a twin has a byte order mark", true, false)
	p.write("late/b.h", "int c;\n")
	check("two unread files are twins", true, false)
	p.must(os.Remove(p.path("late/b.h")))
	p.must(os.Link(p.path("late/c.h"), p.path("late/b.h")))
	check("two unread files are one", false, false)
	p.must(os.Remove(p.path("late/b.h")))
	p.write("late/b.h", "int b;\n")
	back()

	for _, odd := range []Unread{nil, {}, {0}, {1}, {0xff}, {u[0] | 2}, append(slices.Clone(u), 0)} {
		if got, ok := first.SumRead(odd); ok && (got == sum || odd[0]&^first.spare[0] != 0) {
			t.Errorf("%08b is taken as unread", odd)
		}
	}
}

// TestUnreadByCompilers: gcc and clang name exactly what they read, under odd names and through links.
func TestUnreadByCompilers(t *testing.T) {
	part.Skip(t)
	for _, cc := range []string{"gcc", "clang"} {
		path, err := exec.LookPath(cc)
		if err != nil {
			t.Logf("no %s", cc)
			continue
		}
		own := newCompiler(t, cc, "c").own
		for _, words := range []string{"-MD", "-MMD", "-MD -MP", "-Wp,-MMD,x.d", "-MD -MT x\\ y:z -MQ $(A)/b", "-MMD -MP -MF x.d -o sub/x.o"} {
			odd := []string{"a.h", "b c.h", "d$e.h", "f#g.h", "link.h", "dir/h.h", "dir/../i.h", "ä:ö.h", "..j.h"}
			for read := range len(odd) + 1 {
				files := map[string]string{"inc/a.h": "", "inc/b c.h": "", "inc/d$e.h": "", "inc/f#g.h": "", "real/link.h": "", "real/sub/h.h": "", "real/i.h": "", "inc/ä:ö.h": "", "inc/..j.h": "", "sub/.keep": ""}
				n := 0
				for name := range files {
					n++
					files[name] = fmt.Sprintf("int n%d;\n", n) // no twins
				}
				for i, name := range odd {
					if i == read {
						files["x.c"] += "#if 0\n"
					}
					files["x.c"] += "#include \"" + name + "\"\n"
				}
				if read < len(odd) {
					files["x.c"] += "#endif\n"
				}
				p := newPlace(t, files)
				p.q.GCC, p.q.Own = cc == "gcc", own
				p.must(os.Symlink("../real/link.h", p.path("inc/link.h")))
				p.must(os.Symlink(p.path("real/sub"), p.path("inc/dir")))
				cmd := exec.Command(path, append(strings.Fields(strings.ReplaceAll(words, "x\\ y:z", "x:z")), "-Iinc", "-Ilate", "-c", "x.c")...)
				cmd.Dir = p.dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", cmd, err, out)
				}
				rules, err := os.ReadFile(p.path("x.d"))
				p.must(err)
				s := p.set()
				u, ok := s.Unread(p.dir, rules, !strings.Contains(words, "MMD"))
				if got := len(p.in(s, u)); ok != (read < len(odd)) || ok && got != len(odd)-read {
					t.Fatalf("%s, %d read: %v, %v\n%s", cmd, read, p.in(s, u), ok, rules)
				}
			}
		}
	}
}

// BenchmarkSums is what the second step adds to a look that finds nothing, and to one that finds a manifest.
func BenchmarkSums(b *testing.B) {
	c := newCompiler(b, "g++", "c++")
	dir := b.TempDir()
	for name, text := range map[string]string{"x.cc": manyHeaders + "#ifdef NO\n#include \"x.h\"\n#endif\n", "x.h": "int x;\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			b.Fatal(err)
		}
	}
	s, err := New(Options{}).Resolve(c.query(dir, "x.cc"))
	if err != nil {
		b.Fatal(err)
	}
	none := func(int) bool { return false }
	name := func(name string) string { return name }
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			s.sumOf(name, none)
		}
	})
	b.Run("spare", func(b *testing.B) {
		for b.Loop() {
			s.sumOf(name, func(i int) bool { return i > 0 })
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, ok := s.SumRead(s.spare); !ok {
				b.Fatal("no sum")
			}
		}
	})
}
