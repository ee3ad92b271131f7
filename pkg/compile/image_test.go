package compile

import (
	"slices"
	"testing"
)

// TestMakes: only a command that hosts can repeat makes a precompiled header there.
func TestMakes(t *testing.T) {
	for _, c := range []struct {
		cc, args string
		want     []string // language and outputs
	}{
		{"gcc", "-x c-header x.h -o x.h.gch", []string{"c", "x.h.gch"}},
		{"gcc", "-O2 -g x.h", []string{"c", "x.h.gch"}},
		{"gcc", "-c x.hpp", []string{"c++", "x.hpp.gch"}},
		{"g++", "x.h -o d/x.h.gch", []string{"c++", "d/x.h.gch"}},
		{"gcc", "-x c++-header -include p.hxx -MD -MT p.gch -MF p.gch.d -o p.gch -c p.cxx", []string{"c++", "p.gch", "p.gch.d"}},
		{"clang", "-Xclang -emit-pch -Xclang -include -Xclang p.h -fpch-instantiate-templates -x c++-header -o p.pch -c p.cxx", []string{"c++", "p.pch"}},
		{"clang", "x.h", nil},                     // x.h.gch or x.h.pch
		{"gcc", "-x c++-system-header x.h", nil},  // a module's
		{"gcc", "-x objective-c-header x.h", nil}, // not known well enough
		{"gcc", "x.h y.h", nil},
		{"gcc", "-E x.h -o x.h.gch", nil},
		{"gcc", "-S x.h -o x.h.gch", nil},
		{"gcc", "-fsyntax-only x.h", nil},
		{"gcc", "-march=native x.h", nil},
		{"gcc", "-save-temps x.h", nil},
		{"gcc", "-fpch-deps x.h", nil},
		{"gcc", "-fplugin=x.so x.h", nil},
		{"gcc", "-B tools x.h", nil}, // whether the compiler there differs is not known
		{"gcc", "-fnot-an-option x.h", nil},
		{"gcc", "x.h -o -", nil},
		{"gcc", "x.h -o /dev/null", nil},
		{"clang", "-include-pch y.pch x.h -o x.pch", nil}, // one made of another
		{"clang", "-Xclang -load -Xclang x.so x.h -o x.pch", nil},
		{"gcc", "-c x.c", nil},
	} {
		p := Parse(words(c.args), testDriver(t, c.cc), nil)
		var got []string
		if p.Makes != nil {
			got = []string{p.Makes.Language}
			for _, o := range p.Makes.Outputs {
				got = append(got, o.Name)
			}
			if !p.Local || p.Reason != "not-reproducible:pch" || p.Header().Language != p.Makes.Language {
				t.Errorf("%s %s: %+v", c.cc, c.args, p)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s %s makes %q, want %q", c.cc, c.args, got, c.want)
		}
	}
}
