package telemetry

import (
	"bytes"
	_ "embed"
	"html/template"
)

// Page is a status page: plain facts and tables, rendered alike by all programs.
type Page struct {
	Program string // "rdistccd"
	Host    string // name of the machine
	Version string
	State   string // one word for a person: "ready", "draining"
	Facts   []Fact
	Tables  []Table
	Notes   []string // one line each, shown at the top

	notReady string
}

// Fact is a number or word with its name.
type Fact struct{ Name, Value string }

// Table has one row for each item. A row may be shorter than Columns.
type Table struct {
	Title   string
	Columns []string
	Rows    [][]Cell
	Empty   string // shown instead of an empty table
}

// Cell is a value in a table.
type Cell struct {
	Text string
	// Share is a fraction, 0 to 1, drawn as a bar behind the text; 0 = no bar.
	Share float64
	Tone  Tone
}

// Tone colours a cell.
type Tone string

// Tones.
const (
	ToneNone Tone = ""
	ToneGood Tone = "good"
	ToneWarn Tone = "warn"
	ToneBad  Tone = "bad"
)

// Percent returns the bar's width.
func (c Cell) Percent() int {
	return int(100 * min(max(c.Share, 0), 1))
}

// NotReady returns why the program takes no work, or "".
func (p Page) NotReady() string { return p.notReady }

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

func (p Page) render() ([]byte, error) {
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, p)
	return b.Bytes(), err
}
