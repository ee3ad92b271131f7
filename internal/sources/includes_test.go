package sources

import (
	"fmt"
	"strings"
	"testing"
)

// TestIncludes: however a directive is written, its header is found, or a doubt is reported.
func TestIncludes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`#include "x.h"`, `"x.h"`},
		{"#include <x.h>\n", "<x.h>"},
		{" \t#\tinclude\t<a/x.h> // y\n", "<a/x.h>"},
		{"#include_next <x.h>\n", "next <x.h>"},
		{"#import \"x.h\"\n", `"x.h"`},
		{"/* c */ #/**/include/* d */\"x.h\"\n", `"x.h"`},
		{"#\\\n include \\\r\n <x.h>\n", "<x.h>"},
		{"# \f\v include \"x.h\"\n", `"x.h"`},
		{"#\x00include \"x.h\"\n", `"x.h"`},
		{"#if 0\n#include \"x.h\"\n#endif\n", `"x.h"`},
		{"%:include \"x.h\"\n", `"x.h"`},
		{"??=include \"x.h\"\n", `"x.h"`},
		{"\xef\xbb\xbf#include \"x.h\"\r\n", `"x.h"`},
		{"R\"(#include \"x.h\"\n)\"", `"x.h"`},
		{"#include MACRO\n", "computedMACRO"},
		{"#include MACRO /* c */ // d\n#include MACRO\n# include M2", "computedMACRO computedM2"},
		{"#include MACRO\n#include OTHER(1)\n#include <x\n#include \"x.h\"", `computedMACRO computed(OTHER(1)) computed(<x) "x.h"`},
		{"#include MACRO X // y\n", "computed"},
		{"#include MACRO  X /* y */ \\\n Z\r\n", "computed(MACRO  X    Z)"},
		{"#include MAC\\\nRO\n", "computed(MACRO)"},
		{"#include M$\n", "computed"},
		{"#include M\\u00c0\n", "computed"},
		{"#include M\xc3\x80\n", "computed"},
		{"// #include MACRO\n", ""},
		{"/* see\n#include what you use\n*/", ""},
		{"/*\n */ #include MACRO\n", "computedMACRO"},
		{"int x; #include MACRO\n", ""},
		{"char *s = \"*/ // \\\n#include \\\"x.h\\\"\";\n", ""},
		{"#define X \\\r\n\\\n #include MACRO\n", ""},
		{"char *s = R\"(\\\n#include MACRO\n)\";", ""},
		{"// x *\\\n/\\\n#include MACRO\n", ""},
		{"/* x *\\\n/\\\n#include MACRO\n", "computedMACRO"},
		{"int x; \\ \n#include MACRO\n", "computedMACRO"},
		{"int x; ?" + "?/\n#include MACRO\n", "computedMACRO"},
		{"int x; ?" + "?/\n\\\n#include MACRO\n", "computedMACRO"},
		{"char *s = \"\\\"/*\"; // it's\n/* it's\n#include what you use\n*/", ""},
		// In C that is a string, and in C++ it continues after the line.
		{"char *s = R\"(\";\n#include MACRO\n//)\"", "computedMACRO"},
		{"#error don't /*\n#include MACRO\n/**/", "computedMACRO"},
		{"int n = 1'/*'0;\n#include MACRO\n/**/", "computedMACRO"},
		{"#include <a/*b.h>\n#include MACRO\n/**/", "<a/*b.h> computedMACRO"},
		{"#include \"a\\\" \"/*\"\n#include MACRO\n/**/", "computedMACRO doubt"},
		{"// \\ \n/*\n#include MACRO\n/**/", "computedMACRO"},
		{"// ?" + "?/\n/*\n#include MACRO\n/**/", "computedMACRO"},
		{"/* *\\\n/\n#include MACRO\n/**/", "computedMACRO"},
		{"/\\\n* \" */ \"/*\"\n#include MACRO\n/**/", "computedMACRO"},
		{"char *s = \"a\rb /*\n#include MACRO\n/**/", "computedMACRO"},
		{"char *s = \"\\\\\n\" /*\"\n#include MACRO\n/**/", "computedMACRO"},
		{"int n = 1'000; char *s = R\"(\n/* )\";\n#include MACRO\n/**/", "computedMACRO"},
		{"char *s = \"/*\\\"\n#include MACRO\n/**/", "computedMACRO"},
		{"??=include <a/*b.h>\n#include MACRO\n/**/", "computedMACRO <a/*b.h>"},
		{"#if A < 4 && B // c\n/*\n#include MACRO\n*/\n", ""},
		{"char *s = \"x\"; /* c */\n/*\n#include what you use\n*/\n", ""},
		{"char *s = R\"(x)\";\n/*\n#include what you use\n*/\n", ""},
		{"#include\n", ""},
		{"#inc\\\nlude \"x.h\"\n", "doubt"},
		{"#include\\\n_next \"x.h\"\n", "doubt"},
		{"#??/\ninclude \"x.h\"\n", `"x.h"`},
		{"#i?" + "?/\nnclude \"x.h\"\n", "doubt"},
		{"#inc\\  \nlude \"x.h\"\n", "doubt"},
		{"#include \"a\\\nb.h\"\n", "computed"},
		{"#include \"a??/b.h\"\n", "doubt"},
		{"#/\\\n* c */ include \"x.h\"\n", "doubt"},
		{"#define x(a) #a\n#if 1\n#elif 2\n#endif\n#ident \"x\"\n#included \"x.h\"\n#i", ""},
		{"#define include \"x.h\"\n#\n", ""},
	} {
		var got []string
		doubt := Includes(NewText("x.c", []byte(c.text), false), func(i Include) {
			s := "<" + i.Name + ">"
			if i.Quoted {
				s = fmt.Sprintf("%q", i.Name)
			}
			if i.Computed {
				if s = "computed" + i.Macro; i.Line != "" {
					s += "(" + i.Line + ")"
				}
			}
			if i.Next {
				s = "next " + s
			}
			got = append(got, s)
		}, func(Define) {})
		if doubt {
			got = append(got, "doubt")
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%q: got %s, want %s", c.text, s, c.want)
		}
	}
}

// TestDefines: however a macro gets its value, that is reported, and which header it is if it is one.
func TestDefines(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"#define A <x.h>\n", "A=<x.h>"},
		{"#define A \"a/x-1.h\" /* c */ // d\r\n", `A="a/x-1.h"`},
		{" /* c */ # /* d */ define /* e */ A/**/<x.h>", "A=<x.h>"},
		{"#\\\ndefine \\\nA \\\n<x.h>\n", "A=<x.h>"},
		{"%:define A <x.h>\n??=define B \"y.h\"\n", `A=<x.h> B="y.h"`},
		{"#if 0\n#define A <x.h>\n#endif\n", "A=<x.h>"},
		{"#define A 1\n#define B\n#define C", "A B C"},
		{"#define A B\n#define A <x.h> y\n#define A <a b.h>\n#define A <a//b.h>\n#define A L\"x.h\"\n", "A A A A A"},
		{"#define A <x.h> \\\n y\n#define B <x.h>\\\n\n", "A B"},
		{"#define A(x) <x.h>\n#define A$B <x.h>\n#defined A\n#undef A\n#define", "A()"},
		{"#define A\\\nB <x.h>\n", "?"},
		{"#define A?" + "?/\nB <x.h>\n", "?"},
		{"#def\\\nine A <x.h>\n", "?"},
		{"#define\\\nd A\n", "d"}, // too much,
		{"#define\\\n A 1\n", "A"},
		{"#define A\\\n <x.h>\n#define B\\\n\\\n\t<y.h>\n", "A=<x.h> B=<y.h>"},
		{"#define A\\\n(x) 1\n#define A\\\n\\\nB\n", "? ?"},
	} {
		var got []string
		Includes(NewText("x.c", []byte(c.text), false), func(Include) {}, func(d Define) {
			s := string(d.Name)
			switch {
			case d.Func:
				s += "()"
			case s == "":
				s = "?"
			case d.Quoted:
				s += fmt.Sprintf("=%q", d.Header)
			case d.Header != "":
				s += "=<" + d.Header + ">"
			}
			got = append(got, s)
		})
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%q: got %s, want %s", c.text, s, c.want)
		}
	}
}

// TestMacros: a macro has its parameters and its body in one line, or is odd.
func TestMacros(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"#define A", "A="},
		{"#define A\n#define B(\n#define C()\n#define D(", "A= B()=(? C()= D()=(?"},
		{"#define A /* b */ c \\\n d/**/\\\ne\n", "A=c  d e"},
		{"#define A B\\\nC\n", "A=BC"},
		{"#define A(x, y...) x ## y\n#define B( ... ) __VA_ARGS__\n", "A(x,y)=x ## y B(__VA_ARGS__)=__VA_ARGS__"},
		{"#define A \"/* x */\" // y\n", "A=\"/* x */\" // y?"},
		{"#define A \"x\n#define B 'x\n#define C R\"(x)\"\n#define D 1'0\n", "A=\"x? B='x? C=R\"(x)\"? D=1'0?"},
		{"#define A \\u00c0\n#define B x$\n#define C \xc3\x80\n#define D ?" + "?/\n", "A=\\u00c0? B=x$? C=\xc3\x80? D=?"},
	} {
		var got []string
		Macros(NewText("x.c", []byte(c.text), false), func(m Macro) {
			s := m.Name
			if m.Func {
				s += "(" + strings.Join(m.Params, ",") + ")"
			}
			if s += "=" + m.Body; m.Odd {
				s += "?"
			}
			got = append(got, s)
		})
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%q: got %s, want %s", c.text, s, c.want)
		}
	}
}
