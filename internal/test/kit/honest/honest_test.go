package honest

import (
	"reflect"
	"testing"
)

func TestLinesGiveTheirWords(t *testing.T) {
	lists, err := Parse("# x\npackage p 1\nlet 1 -O2 -DX=\\x22a\\x20b\\x22\ngcc $1 -c a.c\ngcc @x.rsp -c << $1 -I.\npackage q 2\ngcc -c \\x24x\n")
	want := []List{
		{Package: "p", Words: []string{"gcc", "-O2", `-DX="a b"`, "-c", "a.c"}},
		{Package: "p", Words: []string{"gcc", "@x.rsp", "-c"}, Response: []string{"-O2", `-DX="a b"`, "-I."}},
		{Package: "q", Words: []string{"gcc", "-c", "$x"}},
	}
	if err != nil || !reflect.DeepEqual(lists, want) {
		t.Fatalf("%q, %v; want %q", lists, err, want)
	}
	for _, l := range lists {
		again, err := Parse(l.String())
		if err != nil || len(again) != 1 || !reflect.DeepEqual(again[0].Expanded(), l.Expanded()) {
			t.Errorf("%q is read as %q, %v", l.String(), again, err)
		}
	}
	for _, bad := range []string{"gcc $1", "package p", "let 1", "package p 1\nlet 1 x\npackage q 1\ngcc $1"} {
		if l, err := Parse(bad); err == nil {
			t.Errorf("%q is read as %q", bad, l)
		}
	}
}

func TestShape(t *testing.T) {
	shape := func(line string) string {
		l, err := Parse(line)
		if err != nil || len(l) != 1 {
			t.Fatal(line, l, err)
		}
		return l[0].Shape()
	}
	for _, same := range [][2]string{
		{"gcc -Iinc -Ilib -DA -DB=1 -c x.c -o out/x.o", "gcc -Ib -DC -DD=2 -c src/y.c -o y.o"},
		{"gcc -isystem /a -isystem /b -c x.c", "gcc -isystem /c -c x.c"},
		{"gcc -Wp,-MD,x.d -c x.c", "gcc -Wp,-MD,.y.d -c y.c"},
	} {
		if a, b := shape(same[0]), shape(same[1]); a != b {
			t.Errorf("%q and %q have other shapes: %q, %q", same[0], same[1], a, b)
		}
	}
	for _, other := range [][2]string{
		{"gcc -I/inc -c x.c", "gcc -Iinc -c x.c"}, {"gcc -Iinc -c x.c", "gcc -iquote inc -c x.c"}, {"gcc -DA -c x.c", `gcc -DA="x" -c x.c`},
		{"gcc -O2 -c x.c", "gcc -O3 -c x.c"}, {"gcc -c x.c", "gcc -c x.cc"}, {"gcc -c x.c", "gcc -c ../x.c"},
	} {
		if a := shape(other[0]); a == shape(other[1]) {
			t.Errorf("%q and %q have one shape: %q", other[0], other[1], a)
		}
	}
}

func TestAtHome(t *testing.T) {
	got := AtHome("# x\n\n| `no` | |\n\n### What always runs locally\n\n| reason | what |\n|---|---|\n| `a:b` | c `d` |\n| `e` | |\n\n## y\n\n| `z` | |\n")
	if want := map[string]bool{"a:b": true, "e": true}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
