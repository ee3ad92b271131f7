package inputs

import (
	"slices"
	"testing"
)

// TestLacking: the names of headers that no include directive leads anywhere by are told, and no others.
func TestLacking(t *testing.T) {
	c := newCompiler(t, "gcc", "c")
	dir := t.TempDir()
	put(t, dir+"/x.c", "#include \"h.h\"\n#include <no/such.h>\n#include \"none.h\"\n#include <stddef.h>\n#define N <macro.h>\n#include N\n#include <twice.h>\n#if __has_include(<asked.h>)\n#endif\n")
	put(t, dir+"/h.h", "#include \"twice.h\"\n")
	put(t, dir+"/twice.h", "") // beside h.h, and nowhere for <twice.h>
	tab := New(Options{})
	for range 2 {
		q := c.query(dir, "x.c")
		q.Forced = []string{"forced.h"}
		set, err := tab.Resolve(q)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{"no/such.h": true, "none.h": true, "forced.h": true, "h.h": false, "stddef.h": false, "twice.h": false} {
			if got := slices.Contains(set.Lacking, name); got != want {
				t.Errorf("%s: lacking %v, want %v (%v)", name, got, want, set.Lacking)
			}
		}
	}
	put(t, dir+"/none.h", "")
	q := c.query(dir, "x.c")
	if set, err := tab.Resolve(q); err != nil || slices.Contains(set.Lacking, "none.h") || !slices.IsSorted(set.Lacking) {
		t.Errorf("%v, %v", set, err)
	}
}

// TestOnly: a Set of what a compiler has listed has just that, and is none if a file is gone.
func TestOnly(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/x.c", "#include COMPUTED(x)\nchar t[] = __TIME__;\n")
	put(t, dir+"/h.h", "#include \"not-looked-for.h\"\n")
	tab := New(Options{})
	q := &Query{Key: "k", Source: "x.c", Cwd: dir, Only: []string{"x.c", "./h.h"}, Dirs: []string{"."}, Timed: true}
	set, err := tab.Resolve(q)
	if err != nil || len(set.Files) != 2 || set.Files[1].Name != dir+"/h.h" || !set.Timed || set.Unsure {
		t.Fatalf("%+v, %v", set, err)
	}
	more := &Set{Files: []*Input{{Name: dir + "/x.c"}, set.Files[0], {Name: dir + "/a.h", Len: 3}}, Dirs: []string{"/d"}}
	if w := set.With(more); len(w.Files) != 3 || w.Files[1].Name != dir+"/a.h" || w.Len != set.Len+3 || !slices.Contains(w.Dirs, "/d") {
		t.Errorf("%+v", w)
	}
	q.Only, q.Key = append(q.Only, "gone.h"), "l"
	if set, err := tab.Resolve(q); err == nil {
		t.Errorf("%+v of a file that is gone", set)
	}
}

// TestRelative: a Set tells that no line directive names a file absolutely only where that is certain.
func TestRelative(t *testing.T) {
	dir := t.TempDir()
	tab := New(Options{})
	for text, want := range map[string]bool{
		"int a;\n":                            true,
		"#include \"h.h\"\nint a;\n":          true,
		"#line 7\n#line 8 \"x.y\"\n":          true,
		"#line 8 \"/home/a/x.y\"\n":           false,
		"# 1 \"/home/a//\"\n":                 false, // the compiler's own, of preprocessed text
		"#include \"placed.h\"\n":             false,
		"#define F \"x\"\n#line 8 F\n":        false,
		"#line 8 \"\\057home/a/x.y\"\n":       false,
		"#if 0\n#line 8 \"/a/x.y\"\n#endif\n": false, // which of them count is not found out
	} {
		put(t, dir+"/x.c", text)
		put(t, dir+"/h.h", "#line 3 \"gen/h.y\"\n")
		put(t, dir+"/placed.h", "#line 3 \"/home/a/h.y\"\n")
		for range 2 {
			set, err := tab.Resolve(&Query{Key: text, Source: "x.c", Cwd: dir, Quote: []string{"."}})
			if err != nil || set.Relative != want {
				t.Errorf("%q: %+v, %v", text, set, err)
			}
		}
	}
	set, err := tab.Resolve(&Query{Key: "k", Source: "x.c", Cwd: dir, Only: []string{"x.c"}})
	if err != nil || set.Relative {
		t.Errorf("of files that a compiler has listed: %+v, %v", set, err)
	}
}
