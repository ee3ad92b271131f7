package worker

import (
	"regexp"
	"strings"
	"testing"
)

// temporaryName matches the driver's name for the file between cc1 and as, which differs each time.
var temporaryName = regexp.MustCompile(`/tmp/cc\w{6}\.s`)

// TestAssemblerBesideCompiler: if cc1 and as run at the same time, their messages and the order of these are
// as if they ran one after the other, and an assembler whose compiler fails leaves nothing.
func TestAssemblerBesideCompiler(t *testing.T) {
	ts, c := startTrees(t, nil)
	flood := ".rept 20000\\n.print \\\"flood\\\"\\n.endr"
	p := newProject(t, "gcc", map[string]string{
		"warns.c":  "int f(void) { __asm__(\".warning \\\"as warns\\\"\"); int unused; return 1.5; }\nint g(void) { int unused; }\n",
		"prints.c": "__asm__(\".print \\\"as prints\\\"\");\nint f(void) { int unused; return 0; }\n",
		"wrong.c":  "__asm__(\"no such instruction\");\nint f(void) { int unused; return 0; }\n",
		"both.c":   "__asm__(\"no such instruction\");\nint f(void) { return 0; }\nint g(void) { return x; }\n",
		"many.c":   "__asm__(\"" + flood + "\");\nint f(void) { int unused; return 0; }\n",
		"error.c":  "int f(void) { return 0; }\n#error no\n",
	})
	id := ts.tool("gcc")
	p.write("first.c", "int x;\n")
	p.compare(c, id, []string{"-c", "-O1", "-Wall", "first.c", "-o", "x.o"}) // the next ones go without the driver
	for name, test := range map[string]struct {
		exit, apart int
		says        string
	}{
		"warns.c": {0, 0, "as warns"}, "prints.c": {0, 0, "unused"}, "wrong.c": {1, 0, "no such instruction"}, "both.c": {1, 0, "undeclared"},
		"many.c": {0, 1, "unused"}, "error.c": {1, 0, "#error no"},
	} {
		args := []string{"-c", "-O1", "-Wall", name, "-o", "x.o"}
		p.names = []string{name}
		p.prepare(args, nil)
		want := p.here(args)
		want.stderr = temporaryName.ReplaceAllString(want.stderr, "TEMP")
		if want.exit != test.exit || !strings.Contains(want.stderr, test.says) {
			t.Errorf("%s here: %+v", name, want)
		}
		got := p.there(c, id)
		got.stderr = temporaryName.ReplaceAllString(got.stderr, "TEMP")
		p.same(got, want)
		if n := ts.places.RanAgain(id); n != test.apart {
			t.Errorf("%s: ran again %d times in a row, want %d", name, n, test.apart)
		}
	}
}
