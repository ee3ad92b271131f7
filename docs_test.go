package rdistcc

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// TestReasonsAreDocumented collects the reasons that the code puts together, say of reason.NotReproducible and a word, and
// literals in Reason fields. Package reason's own test has those that it names.
func TestReasonsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{} // reason: where
	for _, p := range packages(t) {
		for _, file := range p.GoFiles {
			collectReasons(t, filepath.Join(p.Dir, file), found)
		}
	}
	if len(found) < 15 {
		t.Errorf("found only %d reasons in the code, the test looks in the wrong places: %v", len(found), found)
	}
	for word, where := range found {
		if what, ok := strings.CutPrefix(word, "not-reproducible:"); ok && what != "" {
			word = what
		}
		if !strings.Contains(string(doc), "`"+word) {
			t.Errorf("%s: reason %q is not in docs/troubleshooting.md", where, word)
		}
	}
}

func collectReasons(t *testing.T, path string, found map[string]string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil && s != "" {
				found[s] = fset.Position(lit.Pos()).String()
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if strings.HasPrefix(strings.ToLower(name.Name), "reason") && i < len(n.Values) {
					add(n.Values[i])
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Reason" {
				add(n.Value)
			}
		case *ast.BinaryExpr: // reason.NotReproducible + "word"
			if base, ok := n.X.(*ast.SelectorExpr); ok && base.Sel.Name == "NotReproducible" {
				add(n.Y)
			}
		}
		return true
	})
}

// TestWordsOfSourcesAreDocumented reads the words that package sources has; those of
// package compile are its own test's.
func TestWordsOfSourcesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("internal/sources/scan.go")
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`Reason\("([a-z-]+)"\)`).FindAllStringSubmatch(string(code), -1)
	if len(words) < 8 {
		t.Fatalf("found only %d words in internal/sources/scan.go", len(words))
	}
	for _, w := range words {
		if !strings.Contains(string(doc), "`"+w[1]+"`") {
			t.Errorf("not-reproducible:%s is not in docs/troubleshooting.md", w[1])
		}
	}
}

// TestDoubtsAreDocumented reads the words of package inputs and of the manager for why the
// compiler is asked what it reads.
func TestDoubtsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("docs/usage.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for file, constant := range map[string]string{"internal/inputs/table.go": `Doubt\w+`, "pkg/connmgr/known/known.go": `unknown\w+`} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\t`+constant+` += "([a-z-]+)"`).FindAllStringSubmatch(string(code), -1) {
			if n++; !strings.Contains(string(doc), "\n| `"+m[1]+"` |") {
				t.Errorf("%s: the word %q is not in docs/usage.md", file, m[1])
			}
		}
	}
	if n < 19 {
		t.Errorf("found only %d words", n)
	}
}

// TestReasonsStandOnce checks that no word of a table in docs/troubleshooting.md has two lines, and
// that each line has all columns.
func TestReasonsStandOnce(t *testing.T) {
	text, err := os.ReadFile("docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	words, columns := make(map[string]int), 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "|") { // the next table may mean something else by a word
			words, columns = make(map[string]int), 0
			continue
		}
		n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
		if columns == 0 {
			columns = n
		}
		if n != columns {
			t.Errorf("%d columns instead of %d: %s", n-1, columns-1, line)
		}
		if word, ok := strings.CutPrefix(line, "| `"); ok {
			word, _, _ = strings.Cut(word, "`")
			if words[word]++; words[word] == 2 {
				t.Errorf("%s stands twice", word)
			}
		}
	}
}

// TestInstalledLinksResolve checks that documents and units, as they are installed, name
// files and headings that are there.
func TestInstalledLinksResolve(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	root := t.TempDir()
	if out, err := exec.Command("make", "install-docs", "DESTDIR="+root, "PREFIX=/usr").CombinedOutput(); err != nil {
		t.Fatalf("make install-docs: %v\n%s", err, out)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links, units := 0, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".md") {
			for _, m := range link.FindAllStringSubmatch(string(data), -1) {
				if strings.Contains(m[1], "://") {
					continue
				}
				links++
				if err := leads(path, m[1]); err != nil {
					t.Errorf("%s links to %s: %v", path[len(root):], m[1], err)
				}
			}
		}
		for line := range strings.Lines(string(data)) {
			files, ok := strings.CutPrefix(strings.TrimSpace(line), "Documentation=")
			if !ok || !strings.Contains(path, "/systemd/") {
				continue
			}
			units++
			for _, f := range strings.Fields(files) {
				if _, err := os.Stat(root + strings.TrimPrefix(f, "file://")); strings.HasPrefix(f, "file://") && err != nil {
					t.Errorf("%s names %s: %v", path[len(root):], f, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if links < 50 || units < 3 {
		t.Errorf("found only %d links and %d units", links, units)
	}
}

// leads says why a relative link of a document leads nowhere.
func leads(doc, link string) error {
	file, anchor, _ := strings.Cut(link, "#")
	to := doc
	if file != "" {
		to = filepath.Join(filepath.Dir(doc), file)
	}
	if _, err := os.Stat(to); err != nil || anchor == "" {
		return err
	}
	text, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if heading := strings.TrimLeft(line, "#"); heading != line && anchorOf(heading) == anchor {
			return nil
		}
	}
	return fmt.Errorf("no heading #%s in it", anchor)
}

// anchorOf is a heading as links name it.
func anchorOf(heading string) string {
	heading = strings.ToLower(strings.TrimSpace(heading))
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return r
		}
		return -1
	}, heading)
}

// TestLinksResolve checks that relative links in the documents lead somewhere.
func TestLinksResolve(t *testing.T) {
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#]+)\)`)
	for _, doc := range append(docs, "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "lab/experiments.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
			}
		}
	}
}

// TestNamedTestsExist checks that a test which a document names is there.
func TestNamedTestsExist(t *testing.T) {
	var code strings.Builder
	for _, p := range packages(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
	}
	own, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range own {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	name := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`")
	for _, doc := range append(docs, "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "lab/experiments.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(code.String(), "func "+m[1]+"(") {
				t.Errorf("%s names %s, which does not exist", doc, m[1])
			}
		}
	}
}

// TestPackageMapIsWhole checks that the map in ARCHITECTURE.md names each package, and that its directories exist. A
// package is named by a line of its own, or by a word in the lines of a directory above it.
func TestPackageMapIsWhole(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("\n## Packages\n"))
	_, text, _ = bytes.Cut(text, []byte("\n```\n"))
	text, _, _ = bytes.Cut(text, []byte("\n```\n"))
	says := map[string]string{} // directory: its lines
	line := regexp.MustCompile(`^( *)([a-z0-9][\w/-]*)/ +(.*)`)
	top, dir := "", ""
	for _, l := range strings.Split(string(text), "\n") {
		m := line.FindStringSubmatch(l)
		if m == nil { // the line above goes on
			says[dir] += "\n" + l
			continue
		}
		if dir = m[2]; m[1] == "" {
			top = dir
		} else {
			dir = top + "/" + dir
		}
		says[dir] = m[3]
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the package map of ARCHITECTURE.md has %s: %v", dir, err)
		}
	}
	for _, p := range packages(t) {
		if !named(says, p.name()) {
			t.Errorf("%s is not in the package map of ARCHITECTURE.md", p.name())
		}
	}
}

// named reports whether a package has a line, or the nearest directory above it that has one names it.
func named(says map[string]string, name string) bool {
	if _, own := says[name]; own {
		return true
	}
	word := regexp.MustCompile(`(^|[\s(,:])` + regexp.QuoteMeta(path.Base(name)) + `([\s),.;:]|$)`)
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if text, ok := says[dir]; ok {
			return word.MatchString(text)
		}
	}
	return false
}
