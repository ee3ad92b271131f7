package inputs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// ways are the compilers that FuzzScan asks. Those of a strict standard know trigraphs.
var ways = [...]struct {
	cc, lang string
	words    []string
}{
	{"gcc", "c", nil},
	{"gcc", "c", []string{"-std=c99"}},
	{"g++", "c++", nil},
	{"g++", "c++", []string{"-std=c++11"}},
	{"clang", "c", nil},
	{"clang", "c", []string{"-std=c99"}},
	{"clang++", "c++", []string{"-std=c++11"}},
}

// pieces are what FuzzScan makes texts of, besides its own ideas.
var pieces = [...]string{
	"\n", "\n", "\r\n", "\n#", "\n#", "\n#include ", "\n#include ", "\n#define ", "\n%:", "\n??=", "#", "##", "%:", "%:%:",
	" ", "\t", "\f", "\v", "\x00", "\r", "\\\n", "\\\r\n", "\\ \n", "??/\n", "\\", "/*", "*/", "/", "*", "/**/", "//", "\xef\xbb\xbf",
	"include", "include_next", "import", "define", "undef", "inc", "lude", "_next", "if", "else", "endif", "if 0\n", "if 1\n", "\n#endif\n", "pragma once\n",
	"\"a.h\"", "\"b.h\"", "<b.h>", "<sub/c.h>", "\"sub/c.h\"", "<a.h>", "\"", "<", ">", "a", "b", "h", "a.h", "b.h", ".", "sub/c.h",
	"\n#define M ", "\n#define N ", "\n#define F(x) ", "\n#define G(x,y) ", "\n#define F(...) ", "\n#define MN ", "\n#include M\n", "\n#include F(N)\n", "\n#include G(M,N)\n",
	"x##y", "#x", "\"a.h\"", "<b.h>", "M", "N", "F(x)", "F(y)",
	"M", "N", "F", "G", "M", "F(x)", "F(M)", "F(", "G(x,y)", "(", ")", ",", "x", "x y", "#x", "x##y", "y", "M##N", "__VA_ARGS__", "(...)", "__FILE__",
	"R\"(", ")\"", "'", "\\\"", "L", "1'0", "_Pragma(\"once\")", "__has_include(", "__has_include(M)", "defined",
	"1", "2.h", "\n#define M 1\n", "\n#define N",
}

// FuzzScan: of a text, however odd, the set has all that a compiler says that it reads, or is in doubt. The text
// is one as it is, and one that each byte of picks gives a piece of.
func FuzzScan(f *testing.F) {
	today := part.Of(f)
	for i, text := range []string{
		"#include \"a.h\"", // no newline at the end
		"\xef\xbb\xbf#include \"a.h\"\r\n#include <b.h>\r\n",
		"#inc\\\nlude \"a.h\"\n#\\\ninclude <b.h>\n#include\\\n <sub/c.h>\n",
		"#include \"\\\na.h\"\n", "#include <b\\\n.h>\n", "#include\\  \n \"a.h\"\n",
		"??=include \"a.h\"\n#inc??/\nlude <b.h>\n", "#include \"a??/\n.h\"\n", "#include <sub??/c.h>\n#define A ??<\n",
		"%:include \"a.h\"\n%: /* c\n */ include <b.h>\n",
		"/* c */ # /* d\n */ include /**/ \"a.h\" /* e\n",
		"#/\\\n* c */include \"a.h\"\n", "/\\\n* #if 0 */\n#include \"a.h\"\n", "//\\\n#if 0\n#include <b.h>\n//\n#endif\n",
		"const char *r = R\"(\n#include \"none.h\"\n)\";\n#include \"a.h\"\n",
		"const char *r = R\"x(/*)x\";\n#include M\n#define M \"a.h\"\n", "const char *s = \"/*\";\n#define M \"a.h\"\n#include M\n//*/\n",
		"#define M \"a.h\"\n#define R\nconst char *s = R\"(\";\n#include M\n//)\"\n",
		"char c = '\"';\n#define M <b.h>\n#include M\n//\"\n", "int n = 1'0;\n#define M <b.h>\n#include M\n//'\n",
		"#include_next <b.h>\n", "#import \"a.h\"\n#import \"a.h\"\n",
		"#define H <b.h>\n#if __has_include(H)\n#include H\n#endif\n",
		"#define H(x) __has_include(x)\n#if H(\"a.h\")\n#include \"a.h\"\n#endif\n",
		"_Pragma(\"once\")\n#include \"a.h\"\n", "#pragma include_alias(\"none.h\", \"a.h\")\n#include \"a.h\"\n",
		"#pragma push_macro(\"H\")\n#define H \"a.h\"\n#include H\n#pragma pop_macro(\"H\")\n",
		"#define H <b.h>\n#include H\n#undef H\n#define H \"a.h\"\n#include H\n",
		"#define I H\n#define H <b.h>\n#include I\n", "#define H() \"a.h\"\n#include H()\n", "#define S(x) #x\n#include S(a.h)\n",
		"#define C(x,y) x##y\n#define AB \"a.h\"\n#include C(A,B)\n", "#define F(x) <sub/x.h>\n#include F(c)\n",
		"#define LT <\n#include LT b.h>\n", "#define H a.h\n#define S(x) T(x)\n#define T(x) #x\n#include S(H)\n",
		"%:define S(x) %:x\n%:include S(a.h)\n", "#define C(x,y) x%:%:y\n#define AB <b.h>\n#include C(A,B)\n",
		"#define H \"a\" \".h\"\n#include \"a.h\" H\n", "#define b a\n#include <b.h>\n", "#define b c\n#define H <sub/b.h>\n#include H\n",
		"#\x00include \"a.h\"\n", "#\finclude\v\"a.h\"\n", "#include \"a.h\" junk\n", "# include \"a.h\"\r#include <b.h>\r",
		"#if 0\n'\n#elif 1\n#include \"a.h\"\n#endif\n", "#error no\n", "#include \"./a.h\"\n#include \"sub/../a.h\"\n#include <sub//c.h>\n",
		"\\u0023include \"a.h\"\n", "#define \\u00c0 \"a.h\"\n#include \\u00c0\n", "#define M$ <b.h>\n#include M$\n",
		"#define CAT(x,y) CAT_I(x,y)\n#define CAT_I(x,y) x##y\n#define N1 <b.h>\n#define ONE 1\n#include CAT(N,ONE)\n",
		"#define M 1\n#if 0\n#include M\n#endif\n#define N", "#define M 2.h\n#if 0\n#include M\n#include 1\n#endif\n#define F(",
		"#define F(x,...) __VA_ARGS__\n#include F(1,<sub/c.h>)\n", "#define T (1,\"a.h\")\n#define F(x) G x\n#define G(x,y) y\n#include F(T)\n",
		"#define S(x) S_(x)\n#define S_(x) #x\n#define D sub\n#define H D/c.h\n#include S(H)\n", "#define E\n#define S(x) #x\n#include E S(a.h)\n",
		"asm(\".incbin \\\"a.h\\\"\");\n",
	} {
		for way := range ways {
			// In each way it takes half a minute.
			if (way == 1 || !testing.Short() && way == i%len(ways)) && today.Has(fmt.Sprint("scan ", way, text)) {
				f.Add(text, []byte(nil), uint8(way))
			}
		}
	}
	compilers := make(map[uint8]*compiler)
	f.Fuzz(func(t *testing.T, text string, picks []byte, way uint8) {
		way %= uint8(len(ways))
		if len(text)+len(picks) > 2000 || strings.Contains(text, "/dev") || strings.Contains(text, "/proc") {
			return
		}
		for _, b := range picks {
			text += pieces[int(b)%len(pieces)]
		}
		c := compilers[way]
		if c == nil {
			c = newCompiler(t, ways[way].cc, ways[way].lang)
			compilers[way] = c
		}
		dir := t.TempDir()
		for _, sub := range []string{"inc/sub", "inc2/sub"} {
			if err := os.MkdirAll(dir+"/"+sub, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		put(t, dir+"/x.c", text)
		for _, name := range []string{"a.h", "b.h", "inc/a.h", "inc/b.h", "inc/sub/c.h", "inc2/b.h", "inc2/sub/c.h"} {
			put(t, dir+"/"+name, "int "+filepath.Base(filepath.Dir(name))+";\n")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, c.cc, append(ways[way].words, "-M", "-w", "-Iinc", "-Iinc2", "-x", c.lang, "x.c")...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			return // no file comes of it
		}
		names, err := sources.ParseRule(out)
		if err != nil {
			return
		}
		q := c.query(dir, "x.c")
		q.Angle, q.Words = []string{"inc", "inc2"}, ways[way].words
		s, err := New(Options{}).Resolve(q)
		if err != nil {
			return // the compiler is asked
		}
		if lost := missing(t, s, dir, names); lost != nil {
			t.Errorf("%s %s: %q: the set lacks %v", c.cc, ways[way].words, text, lost)
		}
	})
}
