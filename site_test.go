package rdistcc

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestDocsAreInSite holds the order of the site against the documents: each is in it once, and each entry is a
// document. settings.md is made of deploy/config.yaml.
func TestDocsAreInSite(t *testing.T) {
	text, err := os.ReadFile("mkdocs.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, nav, _ := strings.Cut(string(text), "\nnav:\n")
	nav, _, _ = strings.Cut(nav, "\n\n")
	in := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m): ([\w./-]+\.md)$`).FindAllStringSubmatch(nav, -1) {
		in[m[1]]++
	}
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	lab, err := filepath.Glob("lab/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range append(append(docs, lab...), "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/settings.md") {
		if in[doc] != 1 {
			t.Errorf("%s is %d times in nav of mkdocs.yml: it has a place there, once, where its readers look for it", doc, in[doc])
		}
		delete(in, doc)
	}
	for doc := range in {
		t.Errorf("nav of mkdocs.yml has %s, which is not there", doc)
	}
}

// TestDocsListsRender checks what GitHub shows as a list and the site as text: a list without an empty line before it, or one inside
// another that is indented by less than four columns.
func TestDocsListsRender(t *testing.T) {
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	item := regexp.MustCompile(`^( *)(?:[-*+]|\d+\.) \S`)
	for _, doc := range append(docs, "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		code, list, before := false, false, ""
		for n, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			m := item.FindStringSubmatch(line)
			switch {
			case code:
			case m == nil:
				list = list && line != ""
			case !list && before != "" && !strings.HasPrefix(before, "#") && m[1] == "" && (strings.Contains("-*+", line[:1]) || strings.HasPrefix(line, "1.")):
				t.Errorf("%s:%d: the list wants an empty line before it", doc, n+1)
				list = true
			case len(m[1]) > 0 && len(m[1]) < 4:
				t.Errorf("%s:%d: a list inside another is indented by four columns", doc, n+1)
			default:
				list = true
			}
			before = line
		}
	}
}

// TestSite builds the site, and checks that all links in it lead somewhere and that no page needs anything from elsewhere.
func TestSite(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the site")
	}
	for _, tool := range []string{"make", "mkdocs"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Skipf(t, need.Tools, "%s is not installed", tool)
		}
	}
	dir := filepath.Join(t.TempDir(), "site")
	if out, err := exec.Command("make", "-s", "site", "SITE="+dir).CombinedOutput(); err != nil {
		t.Fatalf("make site: %v\n%s", err, out)
	}
	links, pages := checkSite(t, dir)
	if pages < 20 || links < 1500 {
		t.Errorf("found only %d pages and %d links", pages, links)
	}
}

// checkSite follows the links of a site's pages, and returns how many of both there are.
func checkSite(t *testing.T, dir string) (links, pages int) {
	t.Helper()
	ids, text := map[string]map[string]bool{}, map[string]string{}
	id := regexp.MustCompile(`\sid="([^"]+)"`)
	found, err := filepath.Glob(filepath.Join(dir, "*.html"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(dir, "*", "*.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(found, more...) {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text[page], ids[page] = string(data), map[string]bool{}
		for _, m := range id.FindAllStringSubmatch(text[page], -1) {
			ids[page][m[1]] = true
		}
	}
	link := regexp.MustCompile(`<(\w+)\s[^>]*?\b(href|src)="?([^"\s>]+)`)
	for page, html := range text {
		pages++
		for _, m := range link.FindAllStringSubmatch(html, -1) {
			if strings.Contains(m[3], ":") || strings.HasPrefix(m[3], "//") {
				if m[1] != "a" && !strings.HasPrefix(m[3], "data:") {
					t.Errorf("%s fetches %s", page[len(dir):], m[3])
				}
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[3], "#")
			to := page
			switch {
			case filepath.Base(page) == "404.html" && strings.HasPrefix(file, "/"): // it is shown at any address
				to = filepath.Join(dir, file)
			case file != "":
				to = filepath.Join(filepath.Dir(page), file)
			}
			if info, err := os.Stat(to); err == nil && info.IsDir() {
				to = filepath.Join(to, "index.html")
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", page[len(dir):], m[3], err)
			} else if anchor != "" && ids[to] != nil && !ids[to][anchor] && anchor != "__comments" {
				t.Errorf("%s links to %s, which has no such heading", page[len(dir):], m[3])
			}
		}
	}
	style, err := filepath.Glob(filepath.Join(dir, "assets", "stylesheets", "*.css"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(style, filepath.Join(dir, "site.css")) {
		css, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(`(?:@import|url\()\s*["']?(?:https?:)?//[^)"']*`).Find(css); m != nil {
			t.Errorf("%s fetches %s", file[len(dir):], m)
		}
	}
	return links, pages
}
