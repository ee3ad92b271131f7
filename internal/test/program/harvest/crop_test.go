package main

import (
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/honest"
)

// TestTextKeepsOthers: what is harvested again replaces its package's lists, others stay, and what two
// packages have in common is listed once.
func TestTextKeepsOthers(t *testing.T) {
	old := "package a 1\nlet 1 -O2 -Wall\ngcc $1 -c a.c\npackage b 1\ngcc -O1 -c a.c\n"
	of := func(name, version string, lines ...[]string) crop {
		c := crop{name: name, version: version}
		for _, words := range lines {
			c.lists = append(c.lists, honest.List{Package: name, Words: words})
		}
		return c
	}
	file, err := text([]crop{
		of("b", "2", []string{"gcc", "-O3", "-c", "a.c"}, []string{"gcc", "-O2", "-Wall", "-c", "a.c"}),
		of("c", "1", []string{"gcc", "-O3", "-c", "a.c"}, []string{"gcc", "-O1", "-c", "a.c"}),
	}, old)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := honest.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lists {
		got = append(got, l.Package+": "+l.String())
	}
	want := []string{"a: gcc -O2 -Wall -c a.c", "b: gcc -O3 -c a.c", "c: gcc -O1 -c a.c"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
