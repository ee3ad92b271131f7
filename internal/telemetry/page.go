package telemetry

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed" // the files of a page
	"fmt"
	"html/template"
	"net/http"
	"time"
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
	Links   []Cell   // to further pages of the program, at the foot

	notReady string
	live     bool
}

// Fact is a number or word with its name.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Share is a fraction, 0 to 1, drawn as a bar below the value; 0 = no bar.
	Share float64 `json:"share,omitempty"`
	Tone  Tone    `json:"tone,omitempty"`
}

// Long reports whether the value needs room.
func (f Fact) Long() bool { return len(f.Value) > 32 }

// Percent returns the bar's width.
func (f Fact) Percent() int { return percent(f.Share) }

// Table has one row for each item. A row may be shorter than Columns.
type Table struct {
	Title   string
	Columns []string
	Rows    [][]Cell
	Empty   string // shown instead of an empty table
}

// Cell is a value in a table.
type Cell struct {
	Text string `json:"text"`
	// Share is a fraction, 0 to 1, drawn as a bar behind the text; 0 = no bar.
	Share float64 `json:"share,omitempty"`
	Tone  Tone    `json:"tone,omitempty"`
	// Link is where the text leads: a page of the same program, without a slash at its start, such as reasons#link.
	Link string `json:"link,omitempty"`
	// ID is what a Link can name after #.
	ID string `json:"-"`
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
func (c Cell) Percent() int { return percent(c.Share) }

func percent(share float64) int { return int(100 * min(max(share, 0), 1)) }

// NotReady returns why the program takes no work, or "".
func (p Page) NotReady() string { return p.notReady }

// Live reports whether the page is updated while it is looked at.
func (p Page) Live() bool { return p.live }

// stateNow returns State, or why the program takes no work.
func (p *Page) stateNow() string { return cmp.Or(p.notReady, p.State) }

// What a page consists of. Nothing comes from elsewhere, and names from peers are never taken for more than text: neither
// by the template nor, as the header says, by the script.
var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle []byte
	//go:embed page.js
	pageScript []byte

	pageTemplate = template.Must(template.New("page").Parse(pageText))
)

// pagePolicy permits a page its own style, script and events, and nothing else. Without a trusted type the script could
// not make markup of a text if it tried.
const pagePolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// serve answers with the page.
func (p Page) serve(w http.ResponseWriter) {
	body, err := p.render()
	if err != nil {
		plain(w, http.StatusInternalServerError, err.Error())
		return
	}
	ServeHTML(w, body)
}

// ServeHTML answers with a page that was rendered elsewhere, under the policy of all pages: what it needs comes from the same server.
func ServeHTML(w http.ResponseWriter, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(body) // the reader may have gone
}

// ServePage answers every request with a page.
func ServePage(page func() Page) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { page().serve(w) }
}

// Asset returns a handler for a file of pages. A browser keeps it and asks whether it has changed.
func Asset(kind string, content []byte) http.HandlerFunc {
	tag := fmt.Sprintf("\"%x\"", sha256.Sum256(content))
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		h.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

func (p Page) render() ([]byte, error) {
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, p)
	return b.Bytes(), err
}
