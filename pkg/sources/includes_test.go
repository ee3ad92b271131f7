package sources

import (
	"fmt"
	"strings"
	"testing"
)

// TestIncludes: however a directive is written, its header is found, or the doubt is told.
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
		{"#include MACRO\n", "computed"},
		{"#include MACRO\n#include OTHER(1)\n#include \"x.h\"", `computed "x.h"`},
		{"// #include MACRO\n", ""},
		{"/* see\n#include what you use\n*/", ""},
		{"#include\n", ""},
		{"#inc\\\nlude \"x.h\"\n", "doubt"},
		{"#include\\\n_next \"x.h\"\n", "doubt"},
		{"#??/\ninclude \"x.h\"\n", `"x.h"`},
		{"#i?" + "?/\nnclude \"x.h\"\n", "doubt"},
		{"#inc\\  \nlude \"x.h\"\n", "doubt"},
		{"#include \"a\\\nb.h\"\n", "computed"},
		{"#include \"a??/b.h\"\n", "doubt"},
		{"#/\\\n* c */ include \"x.h\"\n", "doubt"},
		{"#pragma include_alias(\"a\", \"b\")\n", "doubt"},
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
				s = "computed"
			}
			if i.Next {
				s = "next " + s
			}
			got = append(got, s)
		})
		if doubt {
			got = append(got, "doubt")
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%q: got %s, want %s", c.text, s, c.want)
		}
	}
}
