package top

import (
	"cmp"
	"slices"
	"strings"
)

// row is one line of a list.
type row struct {
	id    string // tells it from other rows, from one answer to the next
	cells []cell // one a column
	note  string // more about it, for the foot of the screen
}

type cell struct {
	text  string
	num   float64 // what a column of numbers is sorted by
	style Style
}

// list is where the user stands in a view.
type list struct {
	sort     int // index of a column
	reversed bool
	filter   string
	id       string // of the selected row; empty: the first
	at       int    // where that was last
	first    int    // the row at the top of the screen
}

func (l *list) sortBy(columns, step int) { l.sort, l.reversed = (l.sort+columns+step)%columns, false }

// arrange returns those of rows that the filter lets through, in order.
func (l *list) arrange(rows []row, columns []column) []row {
	rows = slices.DeleteFunc(rows, func(r row) bool { return !matches(&r, columns, l.filter) })
	slices.SortStableFunc(rows, func(a, b row) int {
		x, y := &a.cells[l.sort], &b.cells[l.sort]
		var c int
		if columns[l.sort].number {
			c = cmp.Compare(y.num, x.num) // the largest first
		} else {
			c = natural(x.text, y.text)
		}
		if l.reversed {
			c = -c
		}
		return cmp.Or(c, natural(a.id, b.id))
	})
	return rows
}

// natural compares names so that build2 comes before build10.
func natural(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x == 0 || y == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		n, m := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
		if c := cmp.Or(cmp.Compare(len(n), len(m)), cmp.Compare(n, m)); c != 0 {
			return c
		}
		a, b = a[x:], b[y:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits returns how many digits s begins with.
func digits(s string) int {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return i
		}
	}
	return len(s)
}

// find returns the index of the selected row. If it is gone, the one in its place is selected.
func (l *list) find(rows []row) int {
	if i := slices.IndexFunc(rows, func(r row) bool { return r.id == l.id }); i >= 0 && l.id != "" {
		l.at = i
	}
	l.at = max(min(l.at, len(rows)-1), 0)
	if len(rows) > 0 {
		l.id = rows[l.at].id
	}
	return l.at
}

// selected returns the ID of the selected row, or "" if there are no rows.
func (l *list) selected(rows []row) string {
	if len(rows) == 0 {
		return ""
	}
	return rows[l.find(rows)].id
}

// move handles the keys that select another row. page is how many fit on the screen.
func (l *list) move(key string, rows []row, page int) {
	i := l.find(rows)
	switch key {
	case "up", "k":
		i--
	case "down", "j":
		i++
	case "pgup", "ctrl+b":
		i -= page
	case "pgdown", "ctrl+f":
		i += page
	case "home", "g":
		i = 0
	case "end", "G":
		i = len(rows) - 1
	}
	if i = max(min(i, len(rows)-1), 0); len(rows) > 0 {
		l.at, l.id = i, rows[i].id
	}
}

// window returns the rows that a screen with room for n shows, so that the selected one is among them, and which of
// them that is.
func (l *list) window(rows []row, n int) (shown []row, selected int) {
	i := l.find(rows)
	l.first = max(min(l.first, len(rows)-n, i), i-n+1, 0)
	return rows[l.first:min(l.first+n, len(rows))], i - l.first
}
