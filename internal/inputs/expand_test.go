package inputs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/sources"
)

// TestExpand: of includes by macros with parameters, or made of others, all files are found that could be meant, or there is a doubt.
func TestExpand(t *testing.T) {
	const (
		join = "#define CAT(a, b) CAT_I(a, b)\n#define CAT_I(a, b) a ## b\n"
		str  = "#define STR(x) STR_I(x)\n#define STR_I(x) #x\n"
	)
	c := newCompiler(t, "gcc", "c")
	for _, x := range []struct {
		text, want string // want: files in the set, of those below; "?": a doubt
		words      []string
	}{
		// Aliases.
		{text: "#define A B\n#define B \"a.h\"\n#include A\n", want: "a.h"},
		{text: "#define A B\n#ifdef X\n#define B \"a.h\"\n#else\n#define B C\n#define C <d/b.h>\n#endif\n#include A\n", want: "a.h d/b.h"},
		{text: "#define A B\n#define B A\n#include A\n", want: "?"},
		{text: "#define A B\n#include A\n", want: "?", words: []string{"-DB=\"a.h\""}},
		{text: "#define A B\n#include A\n", want: "?", words: []string{"--define-macro=B=\"a.h\""}},
		{text: "#define A __FILE__\n#include A\n", want: "?"},
		{text: "#define A B\n#def\\\nine B \"a.h\"\n#include A\n", want: "?"},
		{text: "#define A B\n#define B\\\n \"a.h\"\n#include A\n", want: "a.h"},
		{text: "#define A B\n#define B \"a.h\" // \"d/b.h\"\n#include A\n", want: "?"},
		{text: "#define A B\n#define B R\"(a.h)\"\n#include A\n", want: "?"},
		{text: "#define A LT a.h>\n#define LT <\n#include A\n", want: "?"},
		{text: "#define A <a.h GT\n#define GT >\n#include A\n", want: "?"},
		{text: "#define A <a.h>\n#define a d/b\n#include A\n", want: "?"},
		{text: "#define A E <a.h>\n#define E\n#include A\n", want: "a.h"},

		{text: "#define A 1\n#if X\n#include A\n#endif\n#define B", want: ""},

		// Parameters.
		{text: "#define F() \"a.h\"\n#include F()\n", want: "a.h"},
		{text: "#define F(x) x\n#include F(<d/b.h>)\n", want: "d/b.h"},
		{text: "#define F(x) <d/x.h>\n#include F(b)\n", want: "?"},
		{text: "#define F(i, t) G t\n#define G(a, b) b\n#define T (1, (2, \"a.h\"))\n#define H(x, y) y\n#include F(1, T)\n", want: "a.h"},
		{text: "#define F(...) __VA_ARGS__\n#include F(\"a.h\")\n", want: "a.h"},
		{text: "#define F(...) \"a.h\" __VA_OPT__(x)\n#include F(1)\n", want: "a.h"},
		{text: "#define F __VA_ARGS__\n#include F(1)\n", want: "?"},
		{text: "#define F(x) _Pragma(\"x\") x\n#include F(\"a.h\")\n", want: "?"},

		// Names that are joined.
		{text: join + "#define N1 \"a.h\"\n#define N2 <d/b.h>\n#define N3 <d/c.h>\n#define I 1\n#undef I\n#define I 2\n#include CAT(N, I)\n", want: "a.h d/b.h"},
		{text: join + "#define N1 N2\n#define N2 <d/b.h>\n#include CAT(CAT(N, ), 1)\n", want: "d/b.h"},
		{text: "#define CAT(a, b) a%:%:b\n#define N1 \"a.h\"\n#include CAT(N, 1)\n", want: "a.h"},
		{text: join + "#define IND(x) CAT(x, E)\n#define NAME \"a.h\"\n#define N N\n#include IND(NAM)\n", want: "a.h"},
		{text: join + "#include CAT(N, 1)\n", want: "?", words: []string{"-DN1=<a.h>"}},
		{text: join + "#include CAT(_, CAT(_FI, LE__))\n", want: "?"},
		{text: join + "#define F(x) <d ## x>\n#include CAT(F, )(/b.h)\n", want: "?"},

		// Strings that are made.
		{text: str + "#include STR(a.h)\n", want: "a.h"},
		{text: str + "#define D d\n#define H b.h\n#ifdef X\n#define H c.h\n#endif\n#include STR(D/H)\n", want: "d/b.h d/c.h"},
		{text: str + join + "#define N 1\n#include STR(d/CAT(n, N).h)\n", want: "d/n1.h"},
		{text: str + join + "#define N 1\n#define n1 b\n#include STR(d/CAT(n, N).h)\n", want: "?"},
		{text: str + "#define D d /**/\n#define H b.h\n#include STR(D/H)\n", want: "d/b.h"},
		{text: str + "#define D d\n#define H x b.h\n#include STR(D/H)\n", want: "?"},
		{text: str + "#define D(x) d\n#include STR(D(1)/b.h)\n", want: "?"},
		{text: str + "#include STR(unix/b.h)\n", want: "?"},
		{text: str + "#include STR(d/b.h)\n", want: "?", words: []string{"-Wp,-Db=c"}},
		{text: "#define STR(x) S_ ## x\n#define S_(x) #x\n#define S_d <a.h>\n#include STR(d/b.h)\n", want: "?"},
		{text: "#define STR(x) #x\n#undef STR\n#define STR(x) <x>\n#include STR(a.h)\n", want: "?"},
		{text: "#define STR(x) STR_I((x))\n#define STR_I(x) #x\n#include STR(a.h)\n", want: "(a.h)"},
	} {
		dir := t.TempDir()
		put(t, dir+"/x.c", x.text)
		if err := os.Mkdir(dir+"/d", 0o777); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a.h", "(a.h)", "d/b.h", "d/c.h", "d/n1.h"} {
			put(t, dir+"/"+name, "")
		}
		q := c.query(dir, "x.c")
		q.Angle, q.Words = []string{"."}, x.words
		got := []string{}
		s, err := New(Options{}).Resolve(q)
		if err != nil {
			got = append(got, "?")
		} else {
			for _, f := range s.Files[1:] {
				if name, err := filepath.Rel(dir, f.Name); err == nil && !strings.HasPrefix(name, "..") {
					got = append(got, name)
				}
			}
			if names, err := c.list(dir, "x.c", append([]string{"-I."}, x.words...)...); err == nil {
				if lost := missing(t, s, dir, names); lost != nil {
					t.Errorf("%q: the set lacks %v", x.text, lost)
				}
			}
		}
		if want := strings.Fields(x.want); !slices.Equal(got, want) && !(strings.HasPrefix(x.want, "(") && slices.Contains(got, x.want)) {
			t.Errorf("%q: got %q, want %q", x.text, got, want)
		}
	}
}

// TestExpandAcross: a macro with parameters counts in whichever file it is defined, though that may have nothing else.
func TestExpandAcross(t *testing.T) {
	c := newCompiler(t, "gcc", "c")
	dir := t.TempDir()
	put(t, dir+"/x.c", "#include \"f.h\"\n#include \"g.h\"\n#include F(1)\n#include G(1)\n")
	put(t, dir+"/f.h", "#define F(x) \"a.h\"\n")
	put(t, dir+"/g.h", "#define G(x) \"b.h\"\n")
	put(t, dir+"/a.h", "")
	put(t, dir+"/b.h", "")
	s, err := New(Options{}).Resolve(c.query(dir, "x.c"))
	if err != nil {
		t.Fatal(err)
	}
	if lost := missing(t, s, dir, []string{"f.h", "g.h", "a.h", "b.h"}); lost != nil {
		t.Errorf("the set lacks %v", lost)
	}
}

// TestTurns: a walk that is stopped repeatedly has the same result.
func TestTurns(t *testing.T) {
	c := newCompiler(t, "gcc", "c")
	dir := t.TempDir()
	for i := range 2 * mostTurns {
		put(t, fmt.Sprintf("%s/h%d.h", dir, i), fmt.Sprintf("#define F%d(x) \"h%d.h\"\n#include F%d(1)\n", i, i+1, i))
		put(t, fmt.Sprintf("%s/x%d.c", dir, i), fmt.Sprintf("#include \"h%d.h\"\n", 2*mostTurns-1-i))
	}
	whole, broken := New(Options{}), New(Options{})
	broken.turn = 0
	for _, i := range []int{3, 9, 2*mostTurns - 1} {
		q := c.query(dir, fmt.Sprintf("x%d.c", i))
		want, err := whole.Resolve(q)
		if err != nil {
			t.Fatal(err)
		}
		before := broken.gen
		got, err := broken.Resolve(q)
		if err != nil {
			t.Fatal(err)
		}
		if turns := broken.gen - before; turns < 3 || turns > mostTurns {
			t.Errorf("%d turns", turns)
		}
		if len(got.Files) != len(want.Files) || len(got.Files) < i {
			t.Errorf("%d files, want %d", len(got.Files), len(want.Files))
		}
	}
}

// TestExpandSteps: definitions that lead to one another in very many ways are given up.
func TestExpandSteps(t *testing.T) {
	var all strings.Builder
	for i := range 12 {
		for range 100 {
			fmt.Fprintf(&all, "#define M%d M%d\n", i, i+1)
		}
	}
	all.WriteString("#define M12 \"a.h\"\n#define S(x) #x\n")
	for _, line := range []string{"M0", "S(M0)", "S(M0/M0)"} {
		table := tableOf(all.String())
		if x := table.expand(line, 0); x.all {
			t.Errorf("%s: all values are known", line)
		}
		if table.steps > 2*maxSteps {
			t.Errorf("%s: %d steps", line, table.steps)
		}
	}
}

// tableOf is the table of one text.
func tableOf(text string) *macroTable {
	t := &macroTable{macros: make(map[string][]*sources.Macro), sure: true, known: make(map[string]expansion)}
	sources.Macros(sources.NewText("", []byte(text), false), func(m sources.Macro) { t.macros[m.Name] = append(t.macros[m.Name], &m) })
	return t
}

// FuzzExpand: no text makes an expansion fail. What it must find is FuzzScan's matter.
func FuzzExpand(f *testing.F) {
	for _, text := range []string{
		"#define A", "#define A(", "#define A 1\n#include A", "#define A 1.\n#include A\n", "#include 1\n#include (\n#include )\n#include #\n#include '\n#include \"\n#include <\n",
		"#define A(x) #x\n#include A(\n#include A()\n#include A(a/b.h)\n#include A(##)\n#include A(a##)\n",
		"#define C(a,b) a##b\n#define S(x) #x\n#include S(C(a,b)##C(,))\n#include S(C(a)/C((),))\n#include C(A,B) C(",
		"#define A(,) ##\n#define A(...) #__VA_ARGS__\n#include A(A)\n", "#define A B##C\n#define BC A\n#include A x\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		t := tableOf(text)
		sources.Includes(sources.NewText("", []byte(text), false), func(i sources.Include) {
			if i.Computed && i.Macro+i.Line != "" {
				t.expand(i.Macro+i.Line, 0)
			}
		}, func(sources.Define) {})
	})
}
