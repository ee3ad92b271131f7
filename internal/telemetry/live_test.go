package telemetry

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"
)

// shown is a page that lives: it counts how often it is looked at.
type shown struct {
	looks atomic.Int64
	page  func() Page
	live  func(from uint64) Live
}

func (s *shown) options() ServerOptions {
	return ServerOptions{
		Page: func() Page { s.looks.Add(1); return s.page() },
		Live: &LiveOptions{Title: "Places", Charts: []Chart{{Title: "done", Mode: ChartRate, Series: []Key{{KindCompile, "done"}}}, {Title: "now", Mode: ChartLevel, Series: []Key{{KindCompile, "now"}}}},
			Look: func(from uint64) Live { s.looks.Add(1); return s.live(from) }},
		Ready: func() error { return nil },
	}
}

// decode reads an event as a browser does.
func decode(t *testing.T, b []byte, err error) (e event) {
	t.Helper()
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(string(b), "\r\n") {
		t.Error("an event has several lines")
	}
	return e
}

// TestEventsAreChanges: an event has what is new: bars that have ended, counts of the seconds that changed, tables that
// differ. A whole has everything that counts.
func TestEventsAreChanges(t *testing.T) {
	round := 0
	at := time.Now()
	s := &shown{
		page: func() Page {
			return Page{State: "ready", Version: "v1", Tables: []Table{
				{Columns: []string{"a"}, Rows: [][]Cell{{{Text: "same"}}}}, {Columns: []string{"b"}, Rows: [][]Cell{{{Text: fmt.Sprint(round)}}}}}}
		},
		live: func(from uint64) Live {
			if from != uint64(round) {
				t.Errorf("looks from %d in round %d", from, round)
			}
			round++
			return Live{Lanes: []Lane{{Name: "h", Places: 2}}, Next: uint64(round),
				Running: []Bar{{ID: "r", Lane: "h", Begin: at, Parts: []Part{{Kind: KindCompile}}}},
				Ended:   []Bar{{ID: fmt.Sprint(round), Lane: "h", Begin: at, Parts: []Part{{KindCompile, time.Second}}}, {ID: "lost", Lane: "unknown"}},
				Counts:  []Count{{0, at, []int{2}}, {1, at, []int{round}}, {0, at.Add(-time.Hour), []int{1}}}}
		},
	}
	o := s.options()
	src := newSource(&o)
	b, err := src.Next()
	first := decode(t, b, err)
	b, err = src.Next()
	second := decode(t, b, err)
	b, err = src.Whole()
	whole := decode(t, b, err)
	for i, e := range []event{first, second, whole} {
		ended := ""
		for _, x := range e.Ended {
			ended += x.ID + " "
		}
		got := fmt.Sprintf("%s%d %d %d %d %d %v %s", ended, len(e.Tables), e.Counts[0][0][1], e.Counts[1][0][1], len(e.Counts[0]), len(e.Running), e.Whole, e.Version)
		if want := []string{"1 2 2 1 1 1 false ", "2 1 4 2 1 1 false ", "1 2 2 4 2 1 1 true v1"}[i]; got != want {
			t.Errorf("event %d: %q, want %q", i, got, want)
		}
	}
}

// TestEventsAreBounded: whatever peers call their files and however many there are, an event is bounded, valid JSON and
// valid text.
func TestEventsAreBounded(t *testing.T) {
	for _, ugly := range []string{strings.Repeat("\x00", 5000), strings.Repeat("\xff", 5000), strings.Repeat("<&>", 2000), strings.Repeat("\u2028", 2000), strings.Repeat(`"\`, 3000), strings.Repeat("😀", 1500)} {
		p := Page{State: ugly, Notes: []string{ugly}, Facts: []Fact{{Name: "f", Value: ugly}}}
		for range 3 {
			t := Table{Columns: make([]string, 12)}
			for range maxRows + 100 {
				t.Rows = append(t.Rows, slices.Repeat([]Cell{{Text: ugly}}, 12))
			}
			p.Tables = append(p.Tables, t)
		}
		l := Live{}
		for i := range 500 {
			l.Lanes = append(l.Lanes, Lane{Name: fmt.Sprint(i, ugly), Note: ugly})
		}
		for i := range 3000 {
			b := Bar{ID: fmt.Sprint(i, ugly), Lane: l.Lanes[0].Name, Text: ugly, More: ugly, Parts: make([]Part, 4)}
			l.Running, l.Ended = append(l.Running, b), append(l.Ended, b)
		}
		s := &shown{page: func() Page { return p }, live: func(uint64) Live { return l }}
		o := s.options()
		src := newSource(&o)
		for range len(p.Tables) { // those that do not fit come later
			b, err := src.Next()
			if err != nil || len(b) > 4<<20 || !utf8.Valid(b) {
				t.Fatalf("%.10q: an event of %d bytes, text %v, %v", ugly, len(b), utf8.Valid(b), err)
			}
		}
		b, err := src.Whole()
		e := decode(t, b, err)
		if len(e.Tables) != len(p.Tables) || len(b) > 6<<20 || len(e.Lanes) != maxLanes || len(e.Running) != maxRunning || len(e.Ended) != maxEnded {
			t.Errorf("%.10q: a whole of %d bytes with %d tables, %d lanes, %d and %d bars", ugly, len(b), len(e.Tables), len(e.Lanes), len(e.Running), len(e.Ended))
		}
		if e.Left.Lanes != 500-maxLanes || e.Left.Bars != 6000-maxRunning-maxEnded {
			t.Errorf("left out: %+v", e.Left)
		}
	}
}

// TestNamesStayReadable: of a path, the end stays; texts are cut between runes.
func TestNamesStayReadable(t *testing.T) {
	long := strings.Repeat("d/", 100) + "é.c"
	if got := cleanEnd(long, 10); got != "…d/d/d/é.c" && got != "…/d/d/é.c" {
		t.Errorf("%q", got)
	}
	if got := clean("aé", 2); got != "a…" {
		t.Errorf("%q", got)
	}
	if got := clean("a\x1b[31mb\n", 100); strings.ContainsAny(got, "\x1b\n") {
		t.Errorf("%q", got)
	}
}

// TestLivePage: the page has its script, style and events, a policy that permits nothing else, and complete content
// without them. Nobody who does not watch makes the program look.
func TestLivePage(t *testing.T) {
	s := &shown{
		page: func() Page {
			return Page{Program: "rdistccd", State: "ready", Version: "v1", Facts: []Fact{{Name: "n", Value: "3 of 8", Share: 0.375}}}
		},
		live: func(uint64) Live { return Live{Lanes: []Lane{{Name: "h"}}} },
	}
	srv := serve(t, s.options())
	base := "http://" + srv.Addr().String()
	fetch := func(path string) *http.Response {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	policy := fetch("/").Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "connect-src 'self'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %q", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %q", policy)
	}
	_, body := get(t, srv, "/")
	for _, want := range []string{`src="page.js"`, `href="page.css"`, "3 of 8", `<noscript><meta http-equiv="refresh"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"style=", "<style", "onclick", "javascript:"} {
		if strings.Contains(body, bad) {
			t.Errorf("the page has %q, which its policy forbids", bad)
		}
	}
	for path, kind := range map[string]string{"/page.js": "text/javascript; charset=utf-8", "/page.css": "text/css; charset=utf-8"} {
		if r := fetch(path); r.StatusCode != 200 || r.Header.Get("Content-Type") != kind || r.Header.Get("ETag") == "" {
			t.Errorf("%s: status %d, %v", path, r.StatusCode, r.Header)
		}
	}
	looks := s.looks.Load() // by those who asked for the page
	time.Sleep(50 * time.Millisecond)
	if n := s.looks.Load(); n != looks {
		t.Errorf("%d looks without a watcher", n-looks)
	}
	stream := fetch("/live")
	r := bufio.NewReader(stream.Body)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if e := decode(t, []byte(strings.TrimSpace(data)), nil); !e.Whole || e.Facts[0].Value != "3 of 8" || e.Version != "v1" {
				t.Errorf("%s", data)
			}
			break
		}
	}
	if err := srv.Close(context.Background()); err != nil { // it would wait for ever for a watcher that is left
		t.Error(err)
	}
	for {
		if _, err := r.ReadString('\n'); err != nil {
			break
		}
	}
}

// TestScriptMakesNoMarkup: the script has no way from a text to markup, nor to code.
func TestScriptMakesNoMarkup(t *testing.T) {
	for _, bad := range []string{`innerHTML`, `outerHTML`, `insertAdjacentHTML`, `document\.write`, `\beval\b`, `new Function`, `setTimeout\(['"]`, `srcdoc`, `https?://`} {
		text := strings.ReplaceAll(string(pageScript), "http://www.w3.org/2000/svg", "") // a name, not an address
		if regexp.MustCompile(bad).MatchString(text) {
			t.Errorf("page.js has %s", bad)
		}
	}
}

// TestPageWithoutLive: a page that does not live has no script.
func TestPageWithoutLive(t *testing.T) {
	srv := serve(t, ServerOptions{Ready: func() error { return errors.New("not yet") }})
	if _, body := get(t, srv, "/"); strings.Contains(body, "script") || !strings.Contains(body, "not yet") {
		t.Errorf("%s", body)
	}
	if code, _ := get(t, srv, "/live"); code != 404 {
		t.Errorf("/live: %d", code)
	}
}
