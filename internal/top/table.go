package top

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// column is a column of a view.
type column struct {
	title  string
	number bool
	least  int  // its width, if there is nothing wider in it; it does not dance when numbers change
	rank   int  // on a narrow terminal the columns with the highest rank go first, and never those with 0
	keep   part // what is shown of a text that is too long
	rest   bool // it takes what the others leave
}

// part is a part of a text.
type part uint8

const (
	start part = iota
	end
	ends // both
)

// gap is between two columns; most is the width of all but the first and the last.
const (
	gap  = 2
	most = 24
)

// fit returns how wide each column is; 0 for those that have no room.
func fit(columns []column, rows []row, width int) []int {
	want := make([]int, len(columns))
	for i := range columns {
		c := &columns[i]
		want[i] = len(c.title) + 1
		if width >= wide || c.rest {
			want[i] = max(want[i], c.least)
		}
		if c.rest {
			continue
		}
		for k := range rows {
			want[i] = max(want[i], Width(rows[k].cells[i].text))
		}
		if i > 0 {
			want[i] = min(want[i], max(c.least, most)) // whatever a host calls its version
		}
	}
	// The first column is the name. It may take up to a third, or what is left.
	name := want[0]
	want[0] = min(name, max(width/3, len(columns[0].title)+1))
	total := func() (n int) {
		for _, w := range want {
			if w > 0 {
				n += w + gap
			}
		}
		return n - gap
	}
	order := make([]int, len(columns))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return columns[b].rank - columns[a].rank })
	for _, i := range order {
		if total() > width && columns[i].rank > 0 {
			want[i] = 0
		}
	}
	if left := width - total(); left != 0 {
		want[0] = max(min(want[0]+left, name), min(6, width))
	}
	for i := range columns {
		if left := width - total(); columns[i].rest && want[i] > 0 && left > 0 {
			want[i] += left
		}
	}
	return want
}

// Width returns how many cells of a terminal s takes.
func Width(s string) int { return ansi.StringWidthWc(s) }

// cut shortens s to a width; a ~ stands for what is missing.
func cut(s string, width int, keep part) string {
	w := Width(s)
	switch {
	case w <= width:
		return s
	case width < 1:
		return ""
	case keep == end:
		return ansi.TruncateLeftWc(s, w-width+1, "~")
	case keep == ends && width > 2:
		return ansi.TruncateWc(s, (width+1)/2, "~") + ansi.TruncateLeftWc(s, w-width/2, "")
	}
	return ansi.TruncateWc(s, width, "~")
}

// pad cuts s, or adds blanks, so that it has a width.
func pad(s string, width int, right bool, keep part) string {
	s = cut(s, width, keep)
	blanks := strings.Repeat(" ", max(width-Width(s), 0))
	if right {
		return blanks + s
	}
	return s + blanks
}

// heading returns the titles of the columns. The one that rows are sorted by has a mark: v down, ^ up.
func heading(columns []column, widths []int, l *list) Line {
	var spans Line
	for i, w := range widths {
		if w == 0 {
			continue
		}
		title := columns[i].title
		if i == l.sort {
			mark := "^"
			if columns[i].number != l.reversed {
				mark = "v"
			}
			title += mark
		}
		if len(spans) > 0 {
			spans = spans.add(Heading, strings.Repeat(" ", gap))
		}
		spans = spans.add(Heading, pad(title, w, columns[i].number, start))
	}
	return spans
}

func (r *row) line(columns []column, widths []int) Line {
	var spans Line
	for i, w := range widths {
		if w == 0 {
			continue
		}
		if len(spans) > 0 {
			spans = spans.add(Plain, strings.Repeat(" ", gap))
		}
		c := &r.cells[i]
		spans = spans.add(c.style, pad(c.text, w, columns[i].number, columns[i].keep))
	}
	return spans
}
