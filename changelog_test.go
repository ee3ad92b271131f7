package rdistcc

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocsChangelogHasReleases checks the form of CHANGELOG.md: what is not released comes first, then releases with their
// dates, the newest first, of which each tag has one.
func TestDocsChangelogHasReleases(t *testing.T) {
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(heading) == 0 || heading[0][1] != "Unreleased" {
		t.Fatal("the first section of CHANGELOG.md is not Unreleased")
	}
	var versions, dates []string
	release := regexp.MustCompile(`^(\d+\.\d+\.\d+(?:-rc\d+)?) - (\d{4}-\d\d-\d\d)$`)
	for _, h := range heading[1:] {
		m := release.FindStringSubmatch(h[1])
		if m == nil {
			t.Errorf("%q is not VERSION - YEAR-MONTH-DAY", h[1])
			continue
		}
		versions, dates = append(versions, m[1]), append(dates, m[2])
	}
	if !slices.IsSortedFunc(dates, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("the newest release is not the first: %q", dates)
	}
	tags, err := exec.Command("git", "tag", "--list", "v[0-9]*").Output()
	if err != nil {
		return // not a checkout
	}
	for tag := range strings.FieldsSeq(string(tags)) {
		if !slices.Contains(versions, strings.TrimPrefix(tag, "v")) {
			t.Errorf("CHANGELOG.md has no section for %s", tag)
		}
	}
}
