package faults

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// rows is how many faults docs/faults.md has.
const rows = 46

// TestMatrix wants a row for each fault, in order, that says what happens, within what bound, and which
// test shows it. Other documents' tests check that these tests exist.
func TestMatrix(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(text), "\n## ") // other tables have headings of their own
	name := regexp.MustCompile("`Test[A-Z]\\w*`")
	next := 1
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		n, err := strconv.Atoi(strings.TrimSpace(cells[0]))
		if err != nil || len(cells) < 2 {
			continue
		}
		if n != next || len(cells) != 5 {
			t.Errorf("row %d of %d cells, want row %d of 5", n, len(cells), next)
		}
		for i, cell := range cells {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("row %d: cell %d is empty", n, i)
			}
		}
		if !name.MatchString(cells[len(cells)-1]) {
			t.Errorf("row %d names no test", n)
		}
		next = n + 1
	}
	if next != rows+1 {
		t.Errorf("%d rows, want %d", next-1, rows)
	}
}
