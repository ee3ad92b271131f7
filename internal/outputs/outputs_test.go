package outputs

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/modules"
)

// elf is the head of an ELF file.
func elf(class, data byte, kind, machine byte) []byte {
	h := append([]byte("\x7fELF"), class, data, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	if data == 2 {
		return append(h, 0, kind, 0, machine)
	}
	return append(h, kind, 0, machine, 0)
}

func TestCheckObject(t *testing.T) {
	amd64 := Object{Format: ELF, Class: 2, Data: 1, Machine: 62}
	for _, c := range []struct {
		name string
		head []byte
		want Object
		ok   bool
		err  error
	}{
		{"what is made here", elf(2, 1, 1, 62), amd64, true, nil},
		{"not known what is made here", elf(2, 1, 1, 62), Object{}, false, nil},
		{"big-endian", elf(2, 2, 1, 22), Object{Format: ELF, Class: 2, Data: 2, Machine: 22}, true, nil},
		{"32 bits", elf(1, 1, 1, 3), amd64, true, ErrForged},
		{"another byte order", elf(2, 2, 1, 62), amd64, true, ErrForged},
		{"another machine", elf(2, 1, 1, 183), amd64, true, ErrForged},
		{"a program", elf(2, 1, 2, 62), amd64, true, ErrForged},
		{"a library", elf(2, 1, 3, 62), amd64, true, ErrForged},
		{"a core dump, and nothing known", elf(2, 1, 4, 62), Object{}, false, ErrForged},
		{"half a head", elf(2, 1, 1, 62)[:12], amd64, true, ErrForged},
		{"a script", []byte("#!/bin/sh\nexit 0\n12345"), amd64, true, ErrForged},
		{"a script, where objects have no known format", []byte("#!/bin/sh\n"), Object{}, true, ErrForged},
		{"bitcode where ELF is made", []byte("BC\xc0\xde0123456789012345"), amd64, true, ErrForged},
		{"bitcode", []byte("BC\xc0\xde0123456789012345"), Object{Format: Bitcode}, true, nil},
		{"bitcode in its wrapper", []byte("\xde\xc0\x17\x0b0123456789012345"), Object{Format: Bitcode}, true, nil},
		{"ELF where bitcode is made", elf(2, 1, 1, 62), Object{Format: Bitcode}, true, ErrForged},
		{"anything", []byte("this is no object at all"), amd64, true, ErrForged},
		{"anything, and nothing known", []byte("this is no object at all"), Object{}, false, ErrDoubt},
		{"a stand-in's, as made here", []byte("stand-in object 12345678"), Object{}, true, nil},
		{"nothing", nil, amd64, true, ErrForged},
	} {
		if err := CheckObject(c.head, c.want, c.ok); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
	}
}

func TestModeWords(t *testing.T) {
	for _, c := range []struct {
		args, want string
		exact      bool
	}{
		{"-O2 -g -c x.c -o x.o", "", true},
		{"-m32 -march=i686 -MD -MF x.d -c x.c", "-m32 -march=i686", true},
		{"-flto=auto -ffat-lto-objects -c x.c", "-flto=auto -ffat-lto-objects", true},
		{"--target=arm-linux-gnueabihf -c x.c", "--target=arm-linux-gnueabihf", true},
		{"-target arm64-linux -mllvm -x86-asm -c x.c", "-target arm64-linux", true},
		{"-x c++ -c x", "", true},
		{"--target=x86_64-linux -fthinlto-index=x.1.2.thinlto.bc -c x.o", "--target=x86_64-linux", true},
		{"-Wa,--32 -c x.c", "", false},
		{"-Xclang -emit-llvm-bc -c x.c", "", false},
	} {
		words, exact := ModeWords(strings.Fields(c.args))
		if got := strings.Join(words, " "); got != c.want || exact != c.exact {
			t.Errorf("%s: %q %v, want %q %v", c.args, got, exact, c.want, c.exact)
		}
	}
}

func TestCheckRules(t *testing.T) {
	target := func(w string) bool { return slices.Contains([]string{"x.o", "$(OBJ)/x.o"}, w) }
	file := func(w string) bool { return slices.Contains([]string{"x.c", "a b.h", "x.h", "c:d.h", "$.h"}, w) }
	for text, want := range map[string]error{
		"x.o: x.c x.h\n":                              nil,
		"x.o: x.c \\\n x.h\n":                         nil,
		"x.o: x.c x.h\nx.h:\n":                        nil,
		"x.o: x.c \\\n a\\ b.h c\\:d.h $$.h\n\n":      nil,
		"$(OBJ)/x.o: x.c\n":                           nil,
		"x.o: x.c\n\trm -rf /\n":                      ErrForged,
		"\trm -rf /\n":                                ErrForged,
		"x.o: x.c; rm -rf /\n":                        ErrDoubt,
		"x.o: x.c $(shell rm -rf /)\n":                ErrForged,
		"$(shell rm -rf /): x.c\n":                    ErrDoubt,
		"x.o: x.c\nSHELL := /tmp/evil\n":              ErrDoubt,
		"CFLAGS += -fplugin=x\n":                      ErrDoubt,
		"include /tmp/evil\n":                         ErrForged,
		"-include /tmp/evil: x.c\n":                   ErrDoubt,
		"define x\nendef\n":                           ErrForged,
		"all: x.c\n":                                  ErrDoubt,
		"x.o: clean\nclean:\n":                        ErrDoubt,
		"x.o: x.c\nclean:\n":                          ErrDoubt,
		"x.o: x.c\n.PHONY: x.c\n":                     ErrDoubt,
		"x.o: x.c\n.DEFAULT:\n":                       ErrDoubt,
		"%.o: x.c\n":                                  ErrDoubt,
		"x.o:: x.c\n":                                 ErrDoubt,
		"x.o: x.c | x.h\n":                            ErrDoubt,
		": x.c\n":                                     ErrForged,
		"x.o: x.c \\\n\t$(shell evil)\n":              ErrDoubt,
		"x.o: x.c\\\\\\\nx.h:\n":                      ErrDoubt,
		"ifeq (a,b)\n":                                ErrForged,
		"x.o: x.c\nexport PATH\n":                     ErrForged,
		"x.o: x.c\\\n\n\tevil\n":                      ErrForged,
		"x.o: x.c # \\\n\tevil\n":                     ErrDoubt,
		"x.o: private SHELL=/tmp/evil\n":              ErrDoubt,
		"x.o: x.c `evil`\n":                           ErrDoubt,
		"x.o: x.c\r\n":                                ErrDoubt,
		"x.o: x.c\n" + strings.Repeat("x.h:\n", 1000): ErrDoubt, // nothing depends on it
	} {
		if err := CheckRules(text, modules.Rules{}, target, file); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

// TestTargets: by default, rules are for the output, or for an object that is named after the source.
func TestTargets(t *testing.T) {
	for _, c := range []struct{ args, output, source, want string }{
		{"-c", "sub/x.o", "/w/x.cc", "sub/x.o x.o"},
		{"-S", "x.s", "x.c", "x.o x.s"},
		{"-fsyntax-only", "", "a.b.c", "a.b.o"},
		{"-c -Wp,-MD,x.d,-MT,all -Xpreprocessor -MQ -Xpreprocessor b -Xpreprocessor", "o", "x", "all b o o.o x.o"},
		{"-c -MT all -MQ$z", "o", "x", "$$z $z all o o.o x.o"},
	} {
		got := Targets(strings.Fields(c.args), c.output, c.source)
		if words := strings.Join(slices.Sorted(maps.Keys(got)), " "); words != c.want {
			t.Errorf("%s: %s, want %s", c.args, words, c.want)
		}
	}
}

// TestCompilersRules: what gcc and clang write is taken.
func TestCompilersRules(t *testing.T) {
	for _, cc := range []string{"gcc", "clang", "g++", "clang++"} {
		path, err := exec.LookPath(cc)
		if err != nil {
			t.Logf("no %s", cc)
			continue
		}
		for _, args := range []string{
			"-MD", "-MMD", "-MD -MP", "-MMD -MP -MF other.d", "-MD -MT target.o", "-MD -MQ $(OBJ)/x.o -MT b.o", "-MD -o sub/y.o", "-MD -MP -o sub/y.o -MT sub/y.o -MT sub/y.d",
			"-MD -o 100%.o",
		} {
			dir := t.TempDir()
			write := func(name, text string) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			write("x.c", "#include \"a b.h\"\n#include \"sub/../x.h\"\n#include \"h#h.h\"\n#include \"d$d.h\"\n#include <stddef.h>\nint x;\n")
			for _, h := range []string{"a b.h", "x.h", "h#h.h", "d$d.h"} {
				write(h, "\n")
			}
			words := strings.Fields(args)
			cmd := exec.Command(path, append(words, "-c", "x.c")...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s %s: %v\n%s", cc, args, err, out)
			}
			var rules []byte
			for _, name := range []string{"x.d", "other.d", "sub/y.d", "100%.d"} {
				if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
					rules = b
				}
			}
			if len(rules) == 0 {
				t.Fatalf("%s %s: no rules", cc, args)
			}
			output := "x.o"
			if i := slices.Index(words, "-o"); i >= 0 {
				output = words[i+1]
			}
			targets := Targets(words, output, "x.c")
			err := CheckRules(string(rules), modules.Rules{}, func(w string) bool { return targets[w] }, func(name string) bool {
				_, err := os.Stat(filepath.Join(dir, name))
				if filepath.IsAbs(name) {
					_, err = os.Stat(name)
				}
				return err == nil
			})
			if err != nil {
				t.Errorf("%s %s: %v\n%s", cc, args, err, rules)
			}
		}
	}
}

func TestCheckWords(t *testing.T) {
	plain, colours, all := Style{}, Style{Colours: true}, Style{Colours: true, Links: true}
	const link = "\x1b]8;;https://gcc.gnu.org/onlinedocs/x\x1b\\-Wall\x1b]8;;\x1b\\"
	for _, c := range []struct {
		words string
		style Style
		good  bool
	}{
		{"x.c:1:2: error: ‘x’ undeclared\n    1 | \tx\n      | ^\n", plain, true},
		{"", plain, true},
		{"latin-1 \xe4\xf6 in a source\n", plain, true},
		{"a source with these\r\nline ends\r\n", plain, true},
		{"\x1b[01m\x1b[Kx.c:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror\x1b[m\x1b[K\n", colours, true},
		{"\x1b[38;5;208mx\x1b[0m\n", colours, true},
		{"\x1b[01mx.c\x1b[m\n", plain, false},
		{link, all, true},
		{strings.ReplaceAll(link, "\x1b\\", "\a"), all, true},
		{link, colours, false},
		{"\x1b]8;;file:///etc/passwd\x1b\\x\x1b]8;;\x1b\\", all, false},
		{"\x1b]8;;https://x\x1b[2J", all, false},
		{"\x1b]8;;https://x", all, false},
		{"\x1b]0;title\a", all, false},
		{"\x1b]52;c;ZXZpbA==\a", all, false},
		{"\x1b[2J", all, false},
		{"\x1b[2K", all, false},
		{"\x1b[8mhidden\x1b[m", all, false},
		{"\x1b[1;08mhidden\x1b[m", all, false},
		{"\x1bP+q\x1b\\", all, false},
		{"\x1b", all, false},
		{"\x1b[", all, false},
		{"\x1b[1;1", all, false},
		{"overwritten\rx", all, false},
		{"over\bx", all, false},
		{"bell\a", all, false},
		{"\x9b2J", all, false},
		{"\u009b2J", all, false},
		{"\u0085", all, false},
		{"\u202egnirts\u202c", all, false},
		{"\u2066x", all, false},
		{"a\x00b", all, false},
		{"\x7f", all, false},
		{"\v\f", all, false},
	} {
		if err := CheckWords([]byte(c.words), c.style); err == nil != c.good || err != nil && !errors.Is(err, ErrDoubt) {
			t.Errorf("%q with %+v: %v", c.words, c.style, err)
		}
	}
}

// TestCompilersColours: what gcc and clang put between their words is taken, if the
// command asked for it.
func TestCompilersColours(t *testing.T) {
	src := filepath.Join(t.TempDir(), "x.c")
	if err := os.WriteFile(src, []byte("int f(void) { int unused; return y + 1; }\nint g(int *p) { return p == 1.5; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for cc, args := range map[string]string{
		"gcc":   "-Wall -fdiagnostics-color=always -fdiagnostics-urls=always",
		"clang": "-Wall -fcolor-diagnostics",
	} {
		path, err := exec.LookPath(cc)
		if err != nil {
			t.Logf("no %s", cc)
			continue
		}
		words := strings.Fields(args)
		out, err := exec.Command(path, append(words, "-c", src, "-o", "/dev/null")...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "\x1b[") {
			t.Fatalf("%s: %v, %q", cc, err, out)
		}
		if err := CheckWords(out, StyleOf(words)); err != nil {
			t.Errorf("%s: %v in %q", cc, err, out)
		}
		if err := CheckWords(out, Style{}); err == nil {
			t.Errorf("%s: colours are taken that were not asked for", cc)
		}
	}
}

func FuzzChecks(f *testing.F) {
	f.Add([]byte("x.o: x.c \\\n x.h\nx.h:\n"))
	f.Add([]byte("\x1b[01m\x1b[Kx\x1b]8;;https://x\a"))
	f.Add(elf(2, 1, 1, 62))
	f.Add([]byte("x.o B.gcm: x.cc\nx.o B.gcm: A.c++m\nB.c++m: B.gcm\n.PHONY: B.c++m\nB.gcm:| x.o\nCXX_IMPORTS += A.c++m\n"))
	named := modules.Rules{Module: "B", File: "B.gcm", Imports: []string{"A", "./$ #.h"}}
	any := func(string) bool { return true }
	f.Fuzz(func(t *testing.T, b []byte) {
		// Whatever is taken has no line that make would hand to a shell.
		if CheckRules(string(b), modules.Rules{}, any, any) == nil {
			for line := range strings.Lines(string(b)) {
				if strings.HasPrefix(line, "\t") {
					t.Errorf("a recipe in %q", b)
				}
			}
		}
		// Names of modules change nothing for other lines, and allow only gcc's.
		xo, source := func(w string) bool { return w == "x.o" }, func(w string) bool { return w == "x.cc" }
		if CheckRules(string(b), named, xo, source) == nil {
			for rest, line := string(b), ""; rest != ""; {
				line, rest = logicalLine(rest)
				if words := strings.Fields(line); len(words) > 0 && !slices.Contains([]string{"x.o", "x.cc", "B.c++m", ".PHONY", "B.gcm:|", "CXX_IMPORTS"}, strings.TrimSuffix(words[0], ":")) ||
					strings.Contains(strings.ReplaceAll(line, "$$", ""), "$") || strings.ContainsAny(line, ";\t") || strings.Count(line, "=") != strings.Count(line, "CXX_IMPORTS += ") {
					t.Errorf("%q in %q", line, b)
				}
			}
		}
		if !SameRules(b, b) {
			t.Errorf("%q is not the same as itself", b)
		}
		if CheckWords(b, Style{}) == nil && strings.ContainsAny(string(b), "\x1b\a\b\x00") {
			t.Errorf("control characters in %q", b)
		}
		_ = CheckObject(b, Object{Format: ELF}, true)
		_ = CheckText(b)
	})
}

// TestUnquote: names as gcc quotes them for make.
func TestUnquote(t *testing.T) {
	for word, want := range map[string]string{
		`a.h`: `a.h`, `a\ b.h`: `a b.h`, `x\\\ y.h`: `x\ y.h`, `x\y.h`: `x\y.h`, `x\\y.h`: `x\\y.h`, `a\#b`: `a#b`, `c\:d`: `c:d`,
		`$$x`: `$x`, `$`: `$`, `$(X)`: `$(X)`, `end\`: `end\`, `\\\`: `\\\`,
	} {
		if got := unquote(word); got != want {
			t.Errorf("%s: %s, want %s", word, got, want)
		}
	}
}
