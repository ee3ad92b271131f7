package wireattacks

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// overLoopback lists the packages whose tests start the real programs.
var overLoopback = []string{"wireattacks", "faults", "rdistcc", "main"}

// otherLayers are not the wire's: their cases need a test, of whichever kind.
var otherLayers = []string{"auth", "local", "ops"}

// TestEveryAttackHasItsTests holds docs/faults.md against the list of attacks:
// each has a row, with a test in process and one over loopback, which exist, and a
// metric that counts it.
func TestEveryAttackHasItsTests(t *testing.T) {
	list, err := os.ReadFile("testdata/wire-attacks.toml")
	if err != nil {
		t.Fatal(err)
	}
	layers := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^id = "([a-z0-9-]+)"\nlayer = "([a-z]+)"$`).FindAllStringSubmatch(string(list), -1) {
		layers[m[1]] = m[2]
	}
	if n := strings.Count(string(list), "[[case]]"); n != 39 || len(layers) != n {
		t.Fatalf("%d cases, of which %d have an id and a layer; want 39", n, len(layers))
	}
	doc, err := os.ReadFile("../../../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Attacks on the wire\n")
	section, _, _ = strings.Cut(section, "\n## ")
	exists := tests(t)
	seen := make(map[string]bool)
	name := regexp.MustCompile("`([a-z]+\\.(?:Test|Fuzz)\\w+)`")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 4 || strings.TrimSpace(cells[0]) == "case" || strings.HasPrefix(cells[0], "---") {
			continue
		}
		id := strings.TrimSpace(cells[0])
		layer, ok := layers[id]
		if !ok || seen[id] {
			t.Errorf("row %q is none of the list's, or stands there twice", id)
		}
		seen[id] = true
		found := [2]int{}
		for i, cell := range cells[1:3] {
			for _, m := range name.FindAllStringSubmatch(cell, -1) {
				found[i]++
				pkg, _, _ := strings.Cut(m[1], ".")
				if !exists[m[1]] {
					t.Errorf("%s: there is no %s", id, m[1])
				}
				if slices.Contains(overLoopback, pkg) != (i == 1) {
					t.Errorf("%s: %s stands in the wrong column", id, m[1])
				}
			}
		}
		if slices.Contains(otherLayers, layer) {
			if found[0]+found[1] == 0 {
				t.Errorf("%s has no test", id)
			}
			continue
		}
		if found[0] == 0 || found[1] == 0 {
			t.Errorf("%s has %d tests in process and %d over loopback", id, found[0], found[1])
		}
		if !strings.Contains(cells[3], "_total`") {
			t.Errorf("%s: no metric counts it", id)
		}
	}
	for id := range layers {
		if !seen[id] {
			t.Errorf("%s has no row", id)
		}
	}
}

// tests are all of the module, as package.Test.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	err := filepath.WalkDir("../../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				all[strings.TrimSuffix(f.Name.Name, "_test")+"."+fn.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
