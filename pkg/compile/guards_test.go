package compile

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// guardCases: statements, and whether gcc warns of misleading indentation and
// clang of an empty body. "?" where we may find more than they do.
var guardCases = []struct{ code, gcc, clang string }{
	{"if (a) a++;\n\ta--;", "", ""},
	{"if (a)\n\t\ta++;\n\t\ta--;", "y", ""},
	{"if (a)\n\t\ta++;\n\ta--;", "", ""},
	{"if (a)\n\t\ta++;\n        a--;", "", ""},
	{"if (a)\n\t\ta++;\n                a--;", "y", ""},
	{"if (a)\n\t\ta++;\n\telse\n\t\ta--;\n\t\ta--;", "y", ""},
	{"if (a)\n\t\ta++;\n\telse\n\t\ta--;\n\ta--;", "", ""},
	{"if (a)\n\t\tfor (;;)\n\t\t\ta++;\n\t\ta--;", "y", ""},
	{"if (a)\n\t\tfor (;;) {\n\t\t\ta++;\n\t\t}\n\t\ta--;", "y", ""},
	{"if (a)\n\t\tdo { a++; } while (a < 3);\n\t\ta--;", "y", ""},
	{"if (a)\n\t\tif (b)\n\t\t\ta++;\n\t\telse\n\t\t\ta--;\n\tb--;", "", ""},
	{"if (a)\n\t\tif (b)\n\t\t\ta++;\n\t\telse\n\t\t\ta--;\n\t\tb--;", "y", ""},
	{"if (a) { a++; }\n\ta--;", "", ""},
	{"if (a) {\n\t\ta++; } a--;", "", ""},
	{"for (;;) a++; a--;", "y", ""},
	{"while (a) a--; b++;", "y", ""},
	{"switch (a) { case 1: if (b) a++; break; }", "", ""},
	{"if (a)\n\t\ta = f(\n\t\tb);\n\ta--;", "", ""},
	{"if (a)\n\t\t// x ; }\n\t\ta = '{' + \"};\"[0];\n\ta--;", "", ""},
	{"if (a)\n\t\ta++;\n#define Z\n\t\ta--;", "?", ""},
	{"do\n\t\ta++;\n\twhile (a < 3);\n\ta--;", "", ""},
	{"do a++; while (a < 3);\n\t\ta--;", "", ""},
	{"if (a);\n\ta--;", "", "y"},
	{"if (a);\n\t\ta--;", "y", "y"},
	{"if (a)\n\t\t;\n\ta--;", "", ""},
	{"if (a) ; else a--;", "", ""},
	{"if (a) a--; else;", "", ""},
	{"for (;a;);\n\ta--;", "", ""},
	{"for (;a;);\n\t{ a--; }", "y", "y"},
	{"while (a);\n\t\ta--;", "y", "y"},
	{"while (a++);\n\ta--;", "", ""},
	{"switch (a);\n\ta--;", "", "y"},
	{"goto x; x: if (a)\n\t\ta++;\n\t\ta--;", "y", ""},
	{"if (a)\n\t\tMACRO(a)\n\t\ta--;", "?", ""},
	{"if (a)\n\ta++;\n\ta--;", "", ""},
}

// TestSuspicious compares with the compilers themselves: what they warn of is
// found, and, but for the cases marked, nothing else.
func TestSuspicious(t *testing.T) {
	today := turns.Of(t)
	for _, cc := range []struct {
		name, warning string
		f             Family
	}{{"gcc", "misleading-indentation", GCC}, {"clang", "empty-body", Clang}} {
		path, err := exec.LookPath(cc.name)
		for _, c := range guardCases {
			want := c.gcc
			if cc.f == Clang {
				want = c.clang
			}
			source := "#define MACRO(x) x++;\nint f(int);\nint g(int a, int b)\n{\n\t" + c.code + "\n\treturn a + b + f(a);\n}\n"
			if got := suspicious([]byte(source), cc.f); want != "?" && got != (want == "y") {
				t.Errorf("%s: %q: got %v, want %q", cc.name, c.code, got, want)
			}
			if err != nil || !today.Has(cc.name+c.code) {
				continue
			}
			cmd := exec.Command(path, "-w", "-fsyntax-only", "a.c")
			if cc.f == GCC {
				cmd.Args[1] = "-W" + cc.warning
			} else {
				cmd.Args[1] = "-Wno-everything"
				cmd.Args = append(cmd.Args, "-W"+cc.warning)
			}
			cmd.Dir = t.TempDir()
			must(t, os.WriteFile(cmd.Dir+"/a.c", []byte(source), 0o666))
			out, _ := cmd.CombinedOutput()
			if warns := strings.Contains(string(out), "[-W"+cc.warning+"]"); warns != (want == "y") && want != "?" {
				t.Errorf("%s itself: %q: warns %v, want %q\n%s", cc.name, c.code, warns, want, out)
			}
		}
	}
}

// TestSuspiciousText: markers, system headers, raw strings and broken text.
func TestSuspiciousText(t *testing.T) {
	bad := "if (a)\n  b();\n  c();\nd();\n"
	for text, want := range map[string]bool{
		"# 1 \"a.c\"\n" + bad: true,
		"# 1 \"a.h\" 1 3 4\n" + bad + "# 2 \"a.c\" 2\nint x;\n": false,
		"# 1 \"a.h\" 1 3 4\n" + bad + "# 2 \"a.c\" 2\n" + bad:   true,
		"# 1 \"a.h\" 1 3 4\n" + bad + "# 9 \"a.h\" 3 4\n" + bad: false,
		"char *s = R\"x(" + bad + ")x\"; int y;":                false,
		"char *s = R\"x(if)y\")x\";" + bad:                      true,
		"int n = 1'000'000; " + bad:                             true,
		"#define X \\\n" + bad:                                  false,
		"/* " + bad + " */ // " + "if (a)\n":                    false,
		"if (a":                                                 false,
		"if (a) b":                                              false,
		"else":                                                  false,
		"do":                                                    false,
		"do do do while":                                        false,
		"if (a) \"":                                             false,
		"'\\":                                                   false,
		"\"\\":                                                  false,
		"R\"":                                                   false,
		"/*":                                                    false,
		"# 1 \"x\" 3":                                           false,
		"if (x) for_each(y) { z; }\n  a();\nb();": false,
	} {
		if got := suspicious([]byte(text), GCC); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// TestWarningsWanted: which commands ask for the warnings.
func TestWarningsWanted(t *testing.T) {
	bad := []byte("int f(int a) { if (a)\n    a++;\n    a--;\n  while (a);\n  {}\n return a; }\n")
	for args, want := range map[string][2]string{
		"": {"", "diagnostics"}, "-Wall": {"diagnostics", "diagnostics"}, "-Wall -w": {"", ""}, "-Wextra": {"", "diagnostics"},
		"-Wmisleading-indentation": {"diagnostics", "diagnostics"}, "-Wno-misleading-indentation -Wall": {"", "diagnostics"},
		"-Wall -Wno-misleading-indentation": {"", "diagnostics"}, "-Werror=misleading-indentation": {"diagnostics", "diagnostics"},
		"-Wno-empty-body": {"", ""}, "-Wno-everything -Wempty-body": {"", "diagnostics"},
	} {
		for i, cc := range []string{"gcc", "clang"} {
			p := Parse(append(strings.Fields(args), "-c", "a.c"), testDriver(t, cc), nil)
			if got := p.ScanText(bad, "/"); got != want[i] {
				t.Errorf("%s %s: %q, want %q", cc, args, got, want[i])
			}
		}
	}
}

func BenchmarkSuspicious(b *testing.B) {
	text := []byte(strings.Repeat("/* a comment of some\n * lines */\nint f(int a, char *b)\n{\n\tif (a > 3)\n\t\ta = strlen(b) + 42; // more\n\telse\n\t\ta--;\n\treturn a;\n}\n\n", 1000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if suspicious(text, GCC) {
			b.Fatal("suspicious")
		}
	}
}

func FuzzSuspicious(f *testing.F) {
	for _, c := range guardCases {
		f.Add([]byte("int f(void) {" + c.code + "}"))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		suspicious(text, GCC)
		suspicious(text, Clang)
	})
}
