package inputs

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestDoubtsAreAll: a reason that Doubts leaves out would be counted under an unexpected word.
func TestDoubtsAreAll(t *testing.T) {
	code, err := os.ReadFile("table.go")
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`(?m)^\tDoubt\w+ += "([a-z-]+)"`).FindAllStringSubmatch(string(code), -1)
	for _, m := range words {
		if !slices.Contains(Doubts(), m[1]) {
			t.Errorf("Doubts lacks %q", m[1])
		}
	}
	if len(words) != len(Doubts()) {
		t.Errorf("%d words, %d of them in Doubts", len(words), len(Doubts()))
	}
	// Those of package sources are taken as they are.
	code, err = os.ReadFile("../sources/scan.go")
	if err != nil {
		t.Fatal(err)
	}
	text := string(code)
	given := regexp.MustCompile(`\.Doubt\((Err\w+)\)`).FindAllStringSubmatch(text, -1)
	if len(given) < 4 {
		t.Fatalf("found only %d doubts in package sources", len(given))
	}
	for _, g := range given {
		m := regexp.MustCompile(g[1] + ` += Reason\("([a-z-]+)"\)`).FindStringSubmatch(text)
		if m == nil || !slices.Contains(Doubts(), m[1]) {
			t.Errorf("Doubts lacks the word of %s", g[1])
		}
	}
}
