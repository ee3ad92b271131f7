package reason

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDocumentHasAllReasons holds docs/troubleshooting.md and Words against each other: every reason with its exit status.
func TestDocumentHasAllReasons(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, details, _ := strings.Cut(section(string(text)), "## What is not reproducible")
	rule, farm, _ := strings.Cut(rules, "## Because of the farm")
	found := map[string]bool{}
	table := func(text, prefix string, fromFarm bool) {
		for line := range strings.Lines(text) {
			cells := strings.Split(strings.Trim(line, "|\n "), " | ")
			reason, _, ok := strings.Cut(strings.TrimPrefix(cells[0], "`"), "`")
			if !ok || !strings.HasPrefix(line, "| `") {
				continue
			}
			reason = prefix + reason
			w, what, ok := Find(reason)
			if !ok || w.Farm != fromFarm {
				t.Errorf("%s of the document: %+v, %v", reason, w, ok)
				continue
			}
			found[w.Reason] = true
			if what != "" && strings.Contains(w.Means, "WHAT") && !strings.Contains(Explain(reason), what) {
				t.Errorf("%s is explained without %s: %s", reason, what, Explain(reason))
			}
			if status := strings.Fields(cells[len(cells)-1]); fromFarm && !slices.ContainsFunc(status, func(s string) bool { return strings.Trim(s, ",") == decimal(w.Status) }) {
				t.Errorf("%s: status %d, the document has %q", reason, w.Status, status)
			}
		}
	}
	table(rule, "", false)
	table(farm, "", true)
	table(details, NotReproducible, false)
	for _, w := range Words {
		if !found[w.Reason] {
			t.Errorf("%s is not in the document", w.Reason)
		}
		if w.Means == "" || w.Farm != (w.Status != 0) {
			t.Errorf("%+v", w)
		}
	}
}

// section returns what the page says about reasons.
func section(page string) string {
	_, page, _ = strings.Cut(page, "\n## Why a command ran locally\n")
	page, _, _ = strings.Cut(page, "\n## ")
	return page
}

func decimal(n uint8) string {
	return string([]byte{'0' + n/100, '0' + n/10%10, '0' + n%10})
}

func TestExplain(t *testing.T) {
	for reason, want := range map[string]string{
		"unknown-option:-fx":   "the option -fx",
		"not-reproducible:pch": "(pch, see",
		"doubt:object":         "the object from a host",
		"link:full-lto":        "the linker compiles the whole program at once",
		"timeout":              "RDISTCC_IO_TIMEOUT",
		"none":                 "docs/troubleshooting.md has more",
		"timeout:x":            "docs/troubleshooting.md has more",
	} {
		if got := Explain(reason); !strings.Contains(got, want) {
			t.Errorf("%s: %s", reason, got)
		}
	}
}

// TestRemedies: where the document says what to do, the program does as well, in one of two places.
func TestRemedies(t *testing.T) {
	if got := Remedy("doubt:object"); !strings.Contains(got, "rdistcc why") {
		t.Errorf("of doubt: %q", got)
	}
	if got := Remedy(Query); got != "" {
		t.Errorf("of a query: %q", got)
	}
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range Words {
		_, line, _ := strings.Cut(section(string(text)), "| `"+strings.TrimSuffix(w.Reason, "WHAT"))
		line, _, _ = strings.Cut(line, "\n")
		cells := strings.Split(line, " | ")
		if w.Remedy != "" && (len(cells) < 3 || strings.Trim(cells[2], "| ") == "") && w.Reason != Mode && w.Reason != Paths {
			t.Errorf("%s has a remedy, and the document none: %q", w.Reason, line)
		}
	}
}

// TestLabels: what a wrapper says must not become a time series.
func TestLabels(t *testing.T) {
	for reason, want := range map[string]string{"refused:full": "refused", "unknown-option:-x": "unknown-option", "link": "link", "made-up": Other, "": Other} {
		if got := Label(reason); got != want {
			t.Errorf("%q: %s, want %s", reason, got, want)
		}
	}
	list := Labels()
	if slices.Sort(list); len(slices.Compact(slices.Clone(list))) != len(list) || !slices.Contains(list, Other) || len(list) < 20 {
		t.Errorf("labels: %q", list)
	}
}
