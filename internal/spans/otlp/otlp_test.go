package otlp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/spans"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// collected is a span as a collector reads it: strictly by the JSON encoding of opentelemetry-proto.
type collected struct {
	TraceID, SpanID, ParentSpanID, Name string
	Kind                                int
	StartTimeUnixNano, EndTimeUnixNano  string
	Attributes                          []struct {
		Key   string
		Value struct{ StringValue, IntValue *string }
	}
	Status struct {
		Code    int
		Message string
	}
}

// collector takes spans.
type collector struct {
	t        *testing.T
	list     []collected
	requests int
	answer   func(w http.ResponseWriter, n int) bool // whether it has answered request n by itself
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.requests++
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("X-Key") != "a b" {
		c.t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
	}
	if c.answer != nil && c.answer(w, c.requests) {
		return
	}
	var q struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []map[string]any }
			ScopeSpans []struct {
				Scope struct{ Name, Version string }
				Spans []collected
			}
		}
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil || len(q.ResourceSpans) != 1 || len(q.ResourceSpans[0].ScopeSpans) != 1 || q.ResourceSpans[0].ScopeSpans[0].Scope.Name != "rdistcc" {
		c.t.Errorf("%+v, %v", q, err)
		return
	}
	if got := fmt.Sprint(q.ResourceSpans[0].Resource.Attributes); !strings.Contains(got, "service.name") || !strings.Contains(got, "builder") {
		c.t.Errorf("the resource is %s", got)
	}
	c.list = append(c.list, q.ResourceSpans[0].ScopeSpans[0].Spans...)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"partialSuccess":{}}`)
}

func send(t *testing.T, c *collector, jobs []report.JobRecord) (sent int, err error) {
	t.Helper()
	c.t = t
	s := httptest.NewServer(c)
	defer s.Close()
	h, err := Headers("x-key=a%20b")
	if err != nil {
		t.Fatal(err)
	}
	x := &Exporter{URL: s.URL, Header: h, Client: s.Client(), Pause: time.Millisecond}
	return x.Send(t.Context(), &Trace{Build: spans.Build{Name: "make", Began: began, Ended: began.Add(time.Minute)}, ID: 3, Exit: 2, Machine: "builder", Version: "1"}, jobs)
}

var began = time.Date(2026, 11, 26, 12, 0, 0, 123456789, time.UTC)

func commands(n int) (jobs []report.JobRecord) {
	for i := range n {
		r := report.JobRecord{ID: uint64(i + 1), Source: fmt.Sprintf("\xff%d.c", i), Began: began.Add(time.Duration(i) * time.Millisecond), Ended: began.Add(time.Duration(i+900) * time.Millisecond),
			Host: "[::1]:7632", AnsweredUS: 800_000, CreditUS: 1000, WriteUS: 1000, CompileUS: 700_000, BytesOut: 1 << 40, Finished: true}
		if i%3 == 1 {
			r.Local, r.Host, r.Reason, r.Exit = true, "", "link", 1
		}
		jobs = append(jobs, r)
	}
	return jobs
}

func TestSend(t *testing.T) {
	c := new(collector)
	n := perRequest + 100
	sent, err := send(t, c, commands(n))
	if err != nil || c.requests != 2 || sent != len(c.list) {
		t.Fatalf("%d sent, %d come in %d requests, %v", sent, len(c.list), c.requests, err)
	}
	seen := map[string]*collected{}
	trace, span := regexp.MustCompile(`^[0-9a-f]{32}$`), regexp.MustCompile(`^[0-9a-f]{16}$`)
	nano := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	roots, below, compiles, failed := 0, 0, 0, 0
	for i := range c.list {
		s := &c.list[i]
		if seen[s.SpanID] != nil || !trace.MatchString(s.TraceID) || !span.MatchString(s.SpanID) || s.TraceID != c.list[0].TraceID {
			t.Errorf("identifiers of %+v", s)
		}
		seen[s.SpanID] = s
		if s.ParentSpanID == "" {
			roots++
		} else if up := seen[s.ParentSpanID]; up == nil || nano(s.StartTimeUnixNano) < nano(up.StartTimeUnixNano) || nano(s.EndTimeUnixNano) > nano(up.EndTimeUnixNano) {
			t.Errorf("%+v is not within %+v", s, up)
		} else if up.ParentSpanID == "" {
			below++
		}
		if nano(s.EndTimeUnixNano) < nano(s.StartTimeUnixNano) {
			t.Errorf("%+v ends before it begins", s)
		}
		if s.Kind == kindClient {
			compiles++
			if *s.Attributes[0].Value.StringValue != "::1" || *s.Attributes[1].Value.IntValue != "7632" {
				t.Errorf("a compile on another host: %+v", s)
			}
		}
		if s.Status.Code == codeError {
			failed++
		}
	}
	if roots != 1 || below != n || compiles != n-n/3 || failed != 1+n/3 {
		t.Errorf("%d roots, %d commands, %d compiles, %d failed", roots, below, compiles, failed)
	}
	if root := c.list[0]; root.Name != "make" || root.Status.Message != "exit status 2" || root.StartTimeUnixNano != strconv.FormatInt(began.UnixNano(), 10) {
		t.Errorf("the build: %+v", root)
	}
	again := new(collector)
	if _, err := send(t, again, commands(n)); err != nil || again.list[5].SpanID != c.list[5].SpanID || again.list[0].TraceID != c.list[0].TraceID {
		t.Errorf("sent again, it has other identifiers: %v", err)
	}
	if sent, err := send(t, new(collector), nil); sent != 1 || err != nil {
		t.Errorf("without commands: %d, %v", sent, err)
	}
}

func TestCollectorSaysNo(t *testing.T) {
	status := func(code int, text string) func(http.ResponseWriter, int) bool {
		return func(w http.ResponseWriter, _ int) bool { http.Error(w, text, code); return true }
	}
	for name, c := range map[string]struct {
		answer   func(http.ResponseWriter, int) bool
		want     string // of the error
		requests int
	}{
		"no room for a while": {func(w http.ResponseWriter, n int) bool { return n < 3 && status(503, "")(w, n) }, "", 3},
		"no room":             {status(429, ""), "429", attempts},
		"bad":                 {status(400, "no such\x1b field\nmore"), `400 Bad Request: "no such\x1b field"`, 1},
		"some rejected": {func(w http.ResponseWriter, _ int) bool {
			_, _ = io.WriteString(w, `{"partialSuccess":{"rejectedSpans":"7","errorMessage":"too old"}}`)
			return true
		}, `7" spans were rejected: "too old"`, 1},
		"no JSON": {status(200, "fine"), "", 1},
	} {
		x := &collector{answer: c.answer}
		_, err := send(t, x, commands(1))
		if x.requests != c.requests || c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %d requests, %v", name, x.requests, err)
		}
	}
}

func TestEndpoint(t *testing.T) {
	for address, want := range map[string]string{"http://a:4318": "http://a:4318/v1/traces", "https://a/": "https://a/v1/traces", "http://a/x?y=1": "http://a/x?y=1",
		"a:4318": "", "localhost": "", "ftp://a": "", "http://": "", "http://a\x01": "", "": ""} {
		if got, err := Endpoint(address); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", address, got, err)
		}
	}
	for _, bad := range []string{"x", "=y", "a=%zz", "a=b,c"} {
		if _, err := Headers(bad); err == nil || strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if h, err := Headers(" a = b , ,c=d=e"); err != nil || h.Get("A") != "b" || h.Get("C") != "d=e" {
		t.Errorf("%v, %v", h, err)
	}
}
