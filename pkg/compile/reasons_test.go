package compile

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReasonsDocumented: every word that follows "not-reproducible:" in the sources is explained.
func TestReasonsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/troubleshooting.md")
	must(t, err)
	word := regexp.MustCompile(`(?:return|reason.NotReproducible \+|reason.NotReproducible\+|sourcesOnly\(|\t(?:text|here|opt|side|input|save|split|call|time|emit|profile|cover)\w*: +) ?"([a-z][a-z-]+)"`)
	n := 0
	for _, file := range []string{"class.go", "parse.go", "finish.go", "sides.go", "scan.go", "pragma.go"} {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, m := range word.FindAllStringSubmatch(string(text), -1) {
			if m[1] == "asm" || m[1] == "option" {
				continue // an answer between functions; no class is without its word
			}
			n++
			if !strings.Contains(string(doc), "`"+m[1]+"`") {
				t.Errorf("%s: %q is not in docs/troubleshooting.md", file, m[1])
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d words found", n)
	}
}
