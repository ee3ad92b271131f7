package inputs

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const manyHeaders = "#include <vector>\n#include <string>\n#include <map>\n#include <iostream>\n#include <regex>\n#include <algorithm>\n#include <thread>\n#include <future>\n#include <functional>\n#include <random>\n#include <filesystem>\n"

// BenchmarkResolve is a unit of C++ with many headers: known, and of a source that was never seen.
func BenchmarkResolve(b *testing.B) {
	c := newCompiler(b, "g++", "c++")
	dir := b.TempDir()
	if err := os.WriteFile(dir+"/x.cc", []byte(manyHeaders), 0o666); err != nil {
		b.Fatal(err)
	}
	table := New(Options{})
	q := c.query(dir, "x.cc")
	s, err := table.Resolve(q)
	if err != nil {
		b.Fatal(err)
	}
	names, err := c.list(dir, "x.cc")
	if err != nil {
		b.Fatal(err)
	}
	what := fmt.Sprintf("%d-of-%d-files", len(names), len(s.Files))
	b.Run("warm/"+what, func(b *testing.B) {
		for b.Loop() {
			if _, err := table.Resolve(q); err != nil {
				b.Fatal(err)
			}
		}
	})
	n := 0
	b.Run("new unit/"+what, func(b *testing.B) {
		for b.Loop() {
			n++
			q := *q
			q.Key = strings.Repeat("x", n%50) + fmt.Sprint(n)
			if _, err := table.Resolve(&q); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cold/"+what, func(b *testing.B) {
		for b.Loop() {
			if _, err := New(Options{}).Resolve(q); err != nil {
				b.Fatal(err)
			}
		}
	})
}
