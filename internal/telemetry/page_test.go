package telemetry

import (
	"strings"
	"testing"
)

// TestPageForNarrowScreens: a screen that is too narrow for columns shows the name of each
// beside its cell, and leaves empty ones out.
func TestPageForNarrowScreens(t *testing.T) {
	p := Page{Tables: []Table{{Title: "Hosts", Columns: []string{"host", "our jobs", "note"},
		Rows: [][]Cell{{{Text: "a:7632"}, {Text: "2 < 3", Share: 0.5}, {}}, {{Text: "b:7632"}}}}}}
	b, err := p.render()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<td role="cell" class="cell" data-column="host"><span>a:7632</span></td>`,
		`<td role="cell" class="cell" data-column="our jobs"><svg class="bar" aria-hidden="true"><rect width="50%" height="100%"/></svg><span>2 &lt; 3</span></td>`,
		`<td role="cell" class="cell empty" data-column="note"><span></span></td></tr>`,
		`<td role="cell" class="cell" data-column="host"><span>b:7632</span></td></tr>`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in\n%s", want, b)
		}
	}
	for _, want := range []string{`@media (max-width: 45rem)`, `tr:last-child td.empty { display: none; }`, `content: attr(data-column)`} {
		if !strings.Contains(string(pageStyle), want) {
			t.Errorf("no %q in the style", want)
		}
	}
}
