package sources

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTokensAreFound: at every offset from a multiple of four, and at the ends.
func TestTokensAreFound(t *testing.T) {
	var f finder
	f.init()
	for tok := range numTokens {
		word := tokenWords[tok].text
		for before := range 9 {
			for after := range 9 {
				text := strings.Repeat(" ", before) + word + strings.Repeat(" ", after)
				found := false
				f.find([]byte(text), func(got token, at int) bool {
					found = found || got == tok && at == before
					return true
				})
				if !found {
					t.Errorf("%q is not found", text)
				}
			}
		}
		f.find([]byte(strings.Repeat("x", 100)+word[:len(word)-1]), func(got token, at int) bool {
			t.Errorf("%q is found in a part of it", word)
			return false
		})
	}
}

// packed makes a Pack of dir/x.c with the given text, in a directory of its own that is the
// working directory; extra files are there, and not in the list.
func packed(t *testing.T, text string, change func(o *Options), extra ...string) (*Pack, error) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range extra {
		write(t, name, "content of "+name)
	}
	write(t, "x.c", text)
	const size = 4 << 20
	o := &Options{
		FD: memfd(t, size), Off: 4096, Max: size, Names: []string{"x.c"}, Dirs: []string{"inc", "."}, Own: func() []string { return []string{"/own"} },
		Cwd: dir, Since: future,
	}
	if change != nil {
		change(o)
	}
	return Make(o)
}

func names(p *Pack) string {
	var s []string
	for i := range p.Files {
		s = append(s, fmt.Sprintf("%s=%d", p.Files[i].Name, p.Files[i].Len))
	}
	return strings.Join(s[1:], " ")
}

// TestScan: what a text has that the compiler's list has not.
func TestScan(t *testing.T) {
	long := strings.Repeat("int filler;\n", 30000)
	for _, c := range []struct {
		text   string
		files  string // beside the source, with their lengths
		reason error
	}{
		{"int x;\n", "", nil},
		{"#if __has_include(\"h.h\")\n#endif\n", "h.h=0", nil},
		{"#if __has_include(<h.h>)\n#endif\n", "./h.h=0", nil},
		{"#if __has_include(<in.h>) || __has_include_next ( \"in.h\" )\n#endif\n", "inc/in.h=0", nil},
		{"#if __has_include(<none.h>)\n#endif\n", "", nil},
		{"#if __has_include \\\n (<h.h>)\n#endif\n", "./h.h=0", nil},
		{"#ifdef __has_include\n#if defined(__has_include)\n#endif\n#endif\n", "", nil},
		{"#ifndef __has_include\n#define __has_include(x) 0\n#endif\n", "", nil},
		{"#if __has_include(HEADER)\n#endif\n", "", ErrHasInclude},
		{"// __has_include(HEADER)\n/* __has_include(X) */\n", "", nil},
		{"#define HAS(x) __has_include(<x>)\n", "", ErrHasInclude},
		{"#define HAS __has_include\n#if HAS(<h.h>)\n#endif\n", "./h.h=0", nil},
		{"#if HAS(<h.h>)\n#endif\n#define HAS(x) __has_include ( x )\n", "./h.h=0", nil}, // as if of another file
		{"#define HAS(x) __has_include(x)\n#define HAVE(y) HAS(y)\n#if HAVE(\"h.h\") && HAS(<none.h>)\n#endif\n", "h.h=0", nil},
		{"#define HAS __has_include\n#ifdef HAS\n#endif\n#undef HAS\n#define HAS(x) 0\n// HAS(X)\n", "", nil},
		{"#define HAS __has_include\n#if HAS(HEADER)\n#endif\n", "", ErrHasInclude},
		{"#define HAS(x, y) __has_include(y)\n", "", ErrHasInclude},
		{"#define HAS(...) __has_include(__VA_ARGS__)\n#if HAS(<h.h>)\n#endif\n", "./h.h=0", nil},
		{"#define HAS(x) (defined(__has_include) && __has_include(x))\n#if HAS(<h.h>)\n#endif\n", "./h.h=0", nil},
		{"#define HAS(x) undefined(__has_include)\n", "", ErrHasInclude},
		{"#define HAS() __has_include(<h.h>)\n", "./h.h=0", nil},
		{"#define HAS(x) __has_include(\"h.h\")\n", "", ErrHasInclude},
		{"#define YES __has_include(\"h.h\")\n", "", ErrHasInclude}, // beside the file that uses it
		{"#define HAS(h) __has_include(<h.h>)\n", "", ErrHasInclude},
		{"#define HAS __has_include\n#if H\\\nAS(HEADER)\n#endif\n", "", ErrHasInclude},
		{"#define HAS(x) __has_embed(x)\n", "", ErrHasInclude},
		{long + "#define HAS __has_include\n#if HAS(<h.h>)\n#endif\n", "./h.h=0", nil},
		{"#define YES __has_include(<h.h>)\n", "./h.h=0", nil},
		{"int my__has_include_x;\n", "", nil},
		// Each of these was taken for a string or a comment.
		{"char *s = R\"(\";\n#if __has_include(HEADER)\n#endif\n//)\"", "", ErrHasInclude},
		{"#error don't /*\n#if __has_include(HEADER)\n#endif\n/**/", "", ErrHasInclude},
		{"#define R\nchar *s = R\"(/*\";\n#define HAS __has_include\n#if HAS(<h.h>)\n#endif\n/*)\"*/\n", "./h.h=0", nil},
		{"/*\n*/ #define HAS __has_include\n#if HAS(<h.h>)\n#endif\n", "./h.h=0", nil},
		{"%:define HAS __has_include\n#if HAS(<h.h>)\n#endif\n", "./h.h=0", nil},
		{"?" + "?=define HAS __has_include\n#if HAS(<h.h>)\n#endif\n", "./h.h=0", nil},
		{"#if __has_embed(\"h.h\")\n#endif\n", "h.h=14", nil},
		{"#embed \"h.h\"\n", "h.h=14", nil},

		{"asm(\".incbin \\\"h.h\\\"\");\n", "h.h=14", nil},
		{"asm(\".incbin \\\"in.h\\\"\");\n", "inc/in.h=19", nil},
		{"asm(\".incbin \\\"none\\\"\");\n", "", nil},
		{"asm(\".incbin \" \"\\\"h.h\\\"\");\n", "", ErrIncbin},
		{"asm(\".incbin \\\"\" FILE \"\\\"\");\n", "", ErrIncbin},
		{"#define INCBIN(f) asm(\".incbin \" #f)\n", "", ErrIncbin},
		{"asm(R\"(.incbin \"h.h\")\");\n", "h.h=14", nil},
		{"asm(\".include \\\"h.h\\\"\");\n", "h.h=14", nil},
		{"struct s x = { .include = 1, .incbins = 2 };\n", "", nil},
		{"// .incbin FILE\n", "", nil},

		{"#define S(x) #x\n#define T(x) S(x)\n#define F \"h.h\"\nasm(T(.incbin F));\n", "", ErrIncbin},
		{"#define S(x) #x\n#define T(x) S(x)\n#define F \"h.h\"\nasm(T(.include /* */\n F));\n", "", ErrIncbin},
		{"char *s = R\"(\";\nasm(\".incbin \" FILE);\n//)\"", "", ErrIncbin},
		{"// R\"(\nasm(\".incbin \"FILE\")\");\n", "", ErrIncbin},
		{"int n = x.incbin * y.include;\n", "", nil},

		{"#line 3 \"h.h\"\nint x;\n", "h.h=14", nil},
		{"# 3 \"h.h\" 2\nint x;\n", "h.h=14", nil},
		{"#line 3\n#line 4 \"none\"\n", "", nil},
		{"/*\n * bug # 3 \"h.h\"\n */\n", "", nil},

		{"const char *t = __TIME__;\n", "", ErrTime},
		{"const char *t = __DATE__;\n", "", ErrTime},
		{"const char *t = __TIMESTAMP__;\n", "", ErrTime},
		{"const char *t = \"__TIME__\"; // __DATE__\n", "", nil},
		{"#define __TIME__ \"x\"\nconst char *t = __TIME__;\n", "", nil},
		{"const char *t = __TI\\\nME__;\n", "", ErrTime},
		{"const char *t = __TI\\ \t\r\nME\\\n\\\n__;\n", "", ErrTime},
		{"const char *t = \"__TI\\\nME__\"; // __DA\\\nTE__\n", "", nil},
		{"const char *t = __TI \\\nME__, *u = __DATE\\\nS__;\n", "", nil},
		{"#if __has_inc\\\nlude(MACRO)\n#endif\n", "", ErrHasInclude},
		{"#pragma push_macro(\"__TIME__\")\n#define __TIME__ \"x\"\n#pragma pop_macro(\"__TIME__\")\nconst char *t = __TIME__;\n", "", ErrTime},
		{"_Pragma(\"push_macro(\\\"__DATE__\\\")\")\nint x;\n", "", ErrTime},
		{"// push_macro(\"__TIME__\")\nint x;\n", "", nil},
		{"#define __TIME__ \"x\"\n#undef __TIME__\nconst char *t = __TIME__;\n", "", ErrTime},
		{"int a__TIME__, __TIME__b;\n", "", nil},
		{"char c = '\"'; int n = 1'000; /* \" */ const char *t = __TIME__;\n", "", ErrTime},
		{"const char *r = R\"x(\" )\" __TIME__ )x\";\n", "", nil},
		{"#error don't\nconst char *t = \"a\\\n__TIME__\";\n", "", nil},
		{long + "const char *t = __TIME__;\n", "", ErrTime},
		{"char *s = R\"(\";\nconst char *t = __TIME__;\n//)\"", "", ErrTime},
		{"#error don't /*\nconst char *t = __TIME__;\n/**/", "", ErrTime},
		{"int n = 1'000; char *s = R\"(\n/* )\";\nconst char *t = __TIME__;\n/**/", "", ErrTime},
		{"// we cannot define __TIME__\nconst char *t = __TIME__;\n", "", ErrTime},
		{"#if 0\n#define __TIME__ \"x\"\n#endif\nconst char *t = __TIME__;\n", "", ErrTime},
		{"# define __TIME__ \"x\"\nconst char *t = __TIME__;\n", "", nil},

		{"#pragma GCC dependency \"h.h\"\n", "", ErrPragma},
		{"_Pragma(\"GCC dependency \\\"h.h\\\"\")\n", "", ErrPragma},
		{"// the dependency\n", "", nil},
		{"#pragma GCC pch_preprocess \"x.gch\"\n", "", ErrPragma},
	} {
		p, err := packed(t, c.text, nil, "h.h", "inc/in.h")
		if !errors.Is(err, c.reason) {
			t.Errorf("%.80q: %v, want %v", c.text, err, c.reason)
		} else if err == nil && names(p) != c.files {
			t.Errorf("%.80q: packs %q, want %q", c.text, names(p), c.files)
		}
	}
}

// TestWhatTheCommandSettles: macros that it defines, dates that the environment fixes, directories for the
// assembler, an unknown search list.
func TestWhatTheCommandSettles(t *testing.T) {
	if _, err := packed(t, "char *t = __TIME__;", func(o *Options) { o.Clock[tokTime] = true }); err != nil {
		t.Error(err)
	}
	if _, err := packed(t, "char *t = __DATE__;", func(o *Options) { o.Clock[tokTime] = true }); err != ErrTime {
		t.Error(err)
	}
	if _, err := packed(t, "asm(\".incbin \\\"h\\\"\");", func(o *Options) { o.AsmDirs = []string{"nowhere"} }); err != nil {
		t.Error(err)
	}
	if _, err := packed(t, "#if __has_include(<h>)\n#endif", func(o *Options) { o.Own = func() []string { return nil } }); err != ErrHasInclude {
		t.Error(err)
	}
	p, err := packed(t, "# .incbin in a comment\n.include \"h.h\"\n", func(o *Options) { o.Asm = true }, "h.h")
	if err != ErrIncbin {
		t.Error(p, err)
	}
	p, err = packed(t, ".include \"a.inc\"\n", func(o *Options) {
		o.Asm = true
		write(t, "a.inc", ".incbin \"h.h\"\n")
	}, "h.h")
	if err != nil || names(p) != "a.inc=14 h.h=14" {
		t.Error(err)
	}
}

// TestLineOfAMacro: it is unknown then which file is quoted.
func TestLineOfAMacro(t *testing.T) {
	for text, unsure := range map[string]bool{
		"#line LINE FILE\n": true, "#line 3 FILE\n": true, "#line 3 \"x.c\"\n": false, "#define S(line) #line\n": false, "#line 7\n": false,
		"/**/ # 1 \"y.c\" 3\n": true, "%: 1 \"y.c\" 3\n": true, "%:line 1 \"y.c\"\n": true, "??=1 \"y.c\"\n": true, "#/**/1 \"y.c\" 3\n": true, "# \\\n1 \"y.c\" 3\n": true,
		"\f# 1 \"y.c\" 3\n": true, "#\v1 \"y.c\" 3\n": true, "#li\\\nne 1 \"y.c\"\n": true, "# 1\f\"y.c\"\n": true, "#line\f1 \"y.c\"\n": true, "/**/#embed <y>\n": true,
		"char *s = \"#1\";\n": false, "#define S(e) #e /* # 1 \"y.c\" */\n": false, "%:include_next\n": false, "// #/**/line 1 \"y.c\"\n": false, "#lines\n#elif 1\n#else\n#endif\n": false,
	} {
		p, err := packed(t, text, nil)
		if err != nil || p.Unsure != unsure {
			t.Errorf("%q: unsure %v, %v", text, p != nil && p.Unsure, err)
		}
	}
}

// TestSystemHeaders: those of the C and C++ libraries keep no compile here.
func TestSystemHeaders(t *testing.T) {
	n := 0
	for _, pattern := range []string{"/usr/include/*.h", "/usr/include/c++/*/*", "/usr/include/c++/*/*/*", "/usr/lib/gcc/*/*/include/*.h", "/usr/lib/llvm-*/lib/clang/*/include/*.h", "/usr/include/*-linux-gnu/*/*.h", "/usr/lib/llvm-*/include/c++/v1/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				continue // a directory
			}
			p := &pack{o: &Options{Own: func() []string { return []string{"/usr/include"} }}, names: map[string]struct{}{}, asked: map[string]struct{}{}}
			p.finder.init()
			if err := p.scan(name, name, text); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			n++
		}
	}
	t.Logf("%d headers", n)
}
