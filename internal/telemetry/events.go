package telemetry

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of what an event has, whatever names and numbers peers make up. A page that has more says so.
const (
	maxLanes   = 64
	maxRunning = 512  // bars
	maxEnded   = 2000 // bars, of a whole as of one change
	maxSeconds = 600  // of counts
	maxRows    = 200  // of a table
	maxCell    = 160  // bytes of a text in a cell or a lane
	maxLabel   = 100  // bytes of a text in a bar
	maxNote    = 640  // bytes of a note or a fact
	maxID      = 64

	// maxTables is how many bytes the tables of one event may have. One that no longer fits comes with the next event.
	maxTables = 256 << 10
)

// eventVersion changes when the shape of events does. A page of another version reloads itself.
const eventVersion = 1

// event is one event of /live. The fields that a whole has only do not change while a program runs.
type event struct {
	V       int                     `json:"v"`
	At      int64                   `json:"at"` // of the program's clock, in milliseconds since 1970, as all times
	Whole   bool                    `json:"whole,omitempty"`
	Version string                  `json:"version,omitempty"` // whole only
	State   string                  `json:"state"`
	Ready   bool                    `json:"ready"`
	Notes   []string                `json:"notes"`
	Facts   []Fact                  `json:"facts"`
	Tables  map[int]json.RawMessage `json:"tables,omitempty"` // by position; those that have changed
	Title   string                  `json:"title,omitempty"`  // whole only, as the next two
	Legend  []Key                   `json:"legend,omitempty"`
	Charts  []Chart                 `json:"charts,omitempty"`
	Lanes   []Lane                  `json:"lanes"`
	Running []bar                   `json:"running"`
	Ended   []bar                   `json:"ended"`
	Counts  [][]seconds             `json:"counts"` // by chart
	// Left says how many lanes and bars were left out because of their number.
	Left left `json:"left"`
}

type left struct {
	Lanes int `json:"lanes,omitempty"`
	Bars  int `json:"bars,omitempty"`
}

// bar is a Bar as it is sent.
type bar struct {
	ID    string `json:"id"`
	Lane  string `json:"lane"`
	Place int    `json:"place"`
	Text  string `json:"text"`
	More  string `json:"more,omitempty"`
	Tone  Tone   `json:"tone,omitempty"`
	Begin int64  `json:"begin"`
	Parts []part `json:"parts"`
}

type part struct {
	Kind Kind    `json:"kind"`
	MS   float64 `json:"ms"`
}

// seconds is a second and the values of a chart's series in it.
type seconds []int64

// table is a Table as it is sent.
type table struct {
	Columns []string `json:"columns"`
	Rows    [][]Cell `json:"rows"`
	Left    int      `json:"left,omitempty"` // rows left out
}

// source makes the events of a page. It is a feed.Source.
type source struct {
	o    *ServerOptions
	from uint64 // LiveOptions.Look

	last   event
	tables map[int]json.RawMessage // as they were sent last
	ended  []bar                   // the newest last, at most maxEnded
	counts []map[int64]seconds     // by chart and second
}

func newSource(o *ServerOptions) *source {
	s := &source{o: o, tables: make(map[int]json.RawMessage)}
	for range o.Live.Charts {
		s.counts = append(s.counts, make(map[int64]seconds))
	}
	return s
}

// Next looks at the program. It returns what has changed.
func (s *source) Next() ([]byte, error) {
	page, now := s.o.page(), time.Now()
	look := s.o.Live.Look(s.from)
	s.from = look.Next
	e := event{V: eventVersion, At: now.UnixMilli(), State: clean(page.stateNow(), maxCell), Ready: page.notReady == "",
		Notes: []string{}, Facts: []Fact{}, Lanes: []Lane{}, Running: []bar{}, Ended: []bar{}}
	for _, n := range page.Notes {
		e.Notes = append(e.Notes, clean(n, maxNote))
	}
	for _, f := range page.Facts {
		f.Value = clean(f.Value, maxNote)
		e.Facts = append(e.Facts, f)
	}
	shown := make(map[string]bool)
	for _, l := range look.Lanes[:min(len(look.Lanes), maxLanes)] {
		shown[l.Name] = true
		l.Name, l.Note = clean(l.Name, maxCell), clean(l.Note, maxCell)
		e.Lanes = append(e.Lanes, l)
	}
	e.Left.Lanes = len(look.Lanes) - len(e.Lanes)
	take := func(bars []Bar) (list []bar) {
		for i := range bars {
			if shown[bars[i].Lane] {
				list = append(list, bars[i].short())
			}
		}
		return list
	}
	running, ended := look.Running[:min(len(look.Running), maxRunning)], look.Ended[max(0, len(look.Ended)-maxEnded):]
	e.Left.Bars = len(look.Running) - len(running) + len(look.Ended) - len(ended)
	e.Running, e.Ended = append(e.Running, take(running)...), append(e.Ended, take(ended)...)
	s.ended = append(s.ended, e.Ended...)
	s.ended = slices.Delete(s.ended, 0, max(0, len(s.ended)-maxEnded))
	e.Counts = s.count(look.Counts, now)
	var err error
	if e.Tables, err = s.changed(page.Tables); err != nil {
		return nil, err
	}
	s.last = e
	return encode(&e)
}

// Whole returns everything that the page shows.
func (s *source) Whole() ([]byte, error) {
	e := s.last
	e.Whole, e.Version, e.Tables, e.Ended = true, s.o.Page().Version, s.tables, s.ended
	e.Title, e.Legend, e.Charts = s.o.Live.Title, s.o.Live.Legend, s.o.Live.Charts
	e.Counts = nil
	for _, seen := range s.counts {
		list := []seconds{}
		for _, at := range slices.Sorted(maps.Keys(seen)) {
			list = append(list, seen[at])
		}
		e.Counts = append(e.Counts, list)
	}
	return encode(&e)
}

// changed returns the tables that differ from what was sent.
func (s *source) changed(tables []Table) (map[int]json.RawMessage, error) {
	size, out := 0, make(map[int]json.RawMessage)
	for i := range tables {
		t := &tables[i]
		x := table{Columns: t.Columns, Rows: [][]Cell{}, Left: max(0, len(t.Rows)-maxRows)}
		for _, row := range t.Rows[:min(len(t.Rows), maxRows)] {
			row = slices.Clone(row)
			for j := range row {
				row[j].Text = clean(row[j].Text, maxCell)
			}
			x.Rows = append(x.Rows, row)
		}
		b, err := encode(&x)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(b, s.tables[i]) || size+len(b) > maxTables && size > 0 {
			continue
		}
		size += len(b)
		s.tables[i], out[i] = b, b
	}
	return out, nil
}

// count adds counts to those of the last seconds. It returns the seconds that have changed, by chart.
func (s *source) count(counts []Count, now time.Time) [][]seconds {
	changed := make([]map[int64]bool, len(s.counts))
	for i := range changed {
		changed[i] = make(map[int64]bool)
	}
	oldest := now.Unix() - maxSeconds
	for _, c := range counts {
		at := c.At.Unix()
		if at < oldest || at > now.Unix()+1 {
			continue
		}
		seen, chart := s.counts[c.Chart], s.o.Live.Charts[c.Chart]
		sec := seen[at]
		if sec == nil {
			sec = make(seconds, 1+len(chart.Series))
			sec[0] = at
		}
		for i, v := range c.Values {
			if chart.Mode == ChartLevel {
				sec[1+i] = int64(v)
			} else {
				sec[1+i] += int64(v)
			}
		}
		seen[at], changed[c.Chart][at] = sec, true
	}
	out := make([][]seconds, len(s.counts))
	for i, seen := range s.counts {
		maps.DeleteFunc(seen, func(at int64, _ seconds) bool { return at < oldest })
		out[i] = []seconds{}
		for _, at := range slices.Sorted(maps.Keys(changed[i])) {
			out[i] = append(out[i], slices.Clone(seen[at]))
		}
	}
	return out
}

// short returns b as it is sent.
func (b *Bar) short() bar {
	out := bar{ID: clean(b.ID, maxID), Lane: clean(b.Lane, maxCell), Place: b.Place, Text: cleanEnd(b.Text, maxLabel), More: clean(b.More, maxLabel),
		Tone: b.Tone, Begin: b.Begin.UnixMilli(), Parts: []part{}}
	for _, p := range b.Parts {
		out.Parts = append(out.Parts, part{p.Kind, float64(p.Long.Microseconds()/100) / 10})
	}
	return out
}

// encode returns v as JSON in one line. It escapes as little as JSON allows: no part of it gets into HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// clean returns at most the first n bytes of s, as text without control characters.
func clean(s string, n int) string {
	cut := len(s) > n
	if s = printable(s[:min(len(s), n)]); len(s) > n { // it has grown
		s, cut = s[:n], true
	}
	if !cut {
		return s
	}
	for r, n := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && n == 1; r, n = utf8.DecodeLastRuneInString(s) {
		s = s[:len(s)-1] // a rune was cut
	}
	return s + "…"
}

// cleanEnd is like clean, for the end of s: that tells one path from another.
func cleanEnd(s string, n int) string {
	from := max(0, len(s)-n)
	for from > 0 && from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	if from == 0 {
		return clean(s, n)
	}
	return "…" + clean(s[from:], n)
}

// printable replaces what is no text. Control characters would be six bytes each in JSON.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}
