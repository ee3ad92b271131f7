package iwarp_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
)

// The table of docs/conformance.md has every item once, and names only tests that
// exist.
func TestConformanceTable(t *testing.T) {
	doc, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	exists := testNames(t)
	items := make(map[string]bool)
	counts := make(map[string]int)
	row := regexp.MustCompile(`^\| (([A-Z]+)-\d\d) \| [^|]+ \| ([^|]+) \|$`)
	named := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(string(doc)) {
		m := row.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		if items[m[1]] {
			t.Errorf("%s stands there twice", m[1])
		}
		items[m[1]] = true
		counts[m[2]]++
		tests := named.FindAllStringSubmatch(m[3], -1)
		if len(tests) == 0 && m[3] != "not yet" && !strings.HasPrefix(m[3], "not applicable: ") {
			t.Errorf("%s: %q is neither a test, nor \"not yet\", nor \"not applicable: \" and why", m[1], m[3])
		}
		for _, x := range tests {
			if !exists[x[1]] {
				t.Errorf("%s: there is no %s", m[1], x[1])
			}
		}
	}
	for part, want := range map[string]int{"MPA": 56, "DDP": 38, "RDMAP": 50, "CM": 28, "EXT": 21, "VRB": 30, "INT": 15, "SEC": 25} {
		if counts[part] != want {
			t.Errorf("%d items of %s, want %d", counts[part], part, want)
		}
	}
}

// testNames are the tests under pkg/iwarp as package.Test, and the subtests that
// data files and the suite's table name, by the short forms of the document.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, dir := range []string{".", "mpa", "ddp", "rdmap", "../../internal/test/kit/iwarptest", "../../internal/test/kit/inproc", "../../interop"} {
		pkg := filepath.Base(dir)
		if dir == "." {
			pkg = "iwarp"
		}
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			for _, m := range function.FindAllStringSubmatch(read(f), -1) {
				all[pkg+"."+m[1]] = true
			}
		}
	}
	cases, err := filepath.Glob("../../internal/test/kit/iwarptest/suite*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range cases {
		for _, m := range regexp.MustCompile(`(?m)^\t\{"(\w+)", \(\*conn\)`).FindAllStringSubmatch(read(f), -1) {
			all["suite/"+m[1]] = true
		}
	}
	transcripts, err := filepath.Glob("rdmap/testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range transcripts {
		all["transcript/"+strings.TrimSuffix(filepath.Base(f), ".txt")] = true
	}
	v, err := iwarptest.ReadVectors("testdata/vectors/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range v.Reactions {
		all["reaction/"+r.Name] = true
	}
	for _, r := range v.MPAReactions {
		all["startup/"+r.Name] = true
	}
	return all
}
