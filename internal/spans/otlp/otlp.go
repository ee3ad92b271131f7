// Package otlp sends the spans of a build to a collector by OTLP over HTTP, in its JSON encoding.
//
// A build is a trace: a root span, a span for each command, and one for each phase of it. The identifiers are made of
// the build, so one that is sent again gives the same spans.
package otlp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/spans"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Trace says what the spans belong to.
type Trace struct {
	spans.Build
	ID      int    // the build's number
	Exit    int    // its exit status
	Machine string // name of the build host
	Version string // of rdistcc
}

// Exporter sends spans to a collector.
type Exporter struct {
	// URL is where: without a path, /v1/traces of that server.
	URL string
	// Header is added to each request.
	Header http.Header
	// Client is used for requests; nil: one that gives up after a while.
	Client *http.Client
	// Pause is how long to wait before a request that the collector has no room for is sent again; 0: a second.
	Pause time.Duration
}

const (
	perRequest = 500 // commands
	attempts   = 4   // of a request that the collector has no room for
	within     = 30 * time.Second
	maxAnswer  = 64 << 10 // bytes of an answer that are read
)

// Endpoint returns the URL that a collector's address stands for, as Exporter.URL.
func Endpoint(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%s is no address of a collector, as in http://localhost:4318", address)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

// Headers parses a list of headers as OTEL_EXPORTER_OTLP_HEADERS has it: NAME=VALUE,NAME=VALUE, percent-encoded.
func Headers(list string) (http.Header, error) {
	h := make(http.Header)
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || name == "" {
			return nil, errors.New("not a list of NAME=VALUE") // what it has may be secret
		}
		h.Add(name, value)
	}
	return h, nil
}

// Send sends a build and its commands. It returns how many spans the collector has taken.
func (x *Exporter) Send(ctx context.Context, t *Trace, jobs []report.JobRecord) (sent int, err error) {
	where, err := Endpoint(x.URL)
	if err != nil {
		return 0, err
	}
	id := idOf(t)
	root := t.root(id)
	for first := true; first || len(jobs) > 0; first = false {
		var list []span
		if first {
			list = append(list, root)
		}
		n := min(len(jobs), perRequest)
		for i := range jobs[:n] {
			list = append(list, command(id, root.SpanID, &jobs[i])...)
		}
		jobs = jobs[n:]
		body, err := json.Marshal(t.request(list))
		if err != nil {
			return sent, err
		}
		if err := x.post(ctx, where, body); err != nil {
			return sent, err
		}
		sent += len(list)
	}
	return sent, nil
}

// post sends one request, again if the collector has no room for it now.
func (x *Exporter) post(ctx context.Context, where string, body []byte) error {
	for n := 1; ; n++ {
		again, err := x.try(ctx, where, body)
		if err == nil || !again || n == attempts {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(cmp.Or(x.Pause, time.Second)):
		}
	}
}

func (x *Exporter) try(ctx context.Context, where string, body []byte) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, where, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	for name, values := range x.Header {
		r.Header[name] = values
	}
	r.Header.Set("Content-Type", "application/json")
	client := x.Client
	if client == nil {
		client = &http.Client{Timeout: within}
	}
	answer, err := client.Do(r)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // what has come is shown
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, fmt.Errorf("%s: %s", where, answer.Status)
	default:
		return false, fmt.Errorf("%s: %s: %s", where, answer.Status, firstLine(text))
	}
	var partial struct {
		PartialSuccess struct {
			RejectedSpans json.RawMessage `json:"rejectedSpans"`
			ErrorMessage  string          `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(text, &partial) == nil {
		// A 64-bit number is a string in this encoding.
		if n := strings.Trim(string(partial.PartialSuccess.RejectedSpans), `"`); n != "" && n != "0" && n != "null" {
			return false, fmt.Errorf("%s: %s spans were rejected: %s", where, firstLine([]byte(n)), firstLine([]byte(partial.PartialSuccess.ErrorMessage)))
		}
	}
	return false, nil
}

// firstLine returns the beginning of a text as a part of a line.
func firstLine(text []byte) string {
	const most = 200
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return strconv.QuoteToGraphic(line[:min(len(line), most)])
}

// The messages of opentelemetry-proto that are needed here, as their JSON encoding has them: identifiers in
// hexadecimal, 64-bit numbers as strings, enums as numbers.
type (
	span struct {
		TraceID  string      `json:"traceId"`
		SpanID   string      `json:"spanId"`
		ParentID string      `json:"parentSpanId,omitempty"`
		Name     string      `json:"name"`
		Kind     int         `json:"kind"`
		Start    string      `json:"startTimeUnixNano"`
		End      string      `json:"endTimeUnixNano"`
		Attrs    []attribute `json:"attributes,omitempty"`
		Status   *status     `json:"status,omitempty"`
	}
	attribute struct {
		Key   string `json:"key"`
		Value value  `json:"value"`
	}
	value struct {
		String *string `json:"stringValue,omitempty"`
		Int    string  `json:"intValue,omitempty"`
	}
	status struct {
		Code    int    `json:"code"`
		Message string `json:"message,omitempty"`
	}
)

// Values of span.Kind and status.Code.
const (
	kindInternal = 1
	kindClient   = 3
	codeError    = 2
)

func text(key, v string) attribute {
	v = strings.ToValidUTF8(v, "\uFFFD")
	return attribute{key, value{String: &v}}
}

func number(key string, v uint64) attribute {
	return attribute{key, value{Int: strconv.FormatUint(v, 10)}}
}

func (t *Trace) request(list []span) any {
	type object = map[string]any
	resource := []attribute{text("service.name", "rdistcc"), text("service.version", t.Version), text("host.name", t.Machine)}
	return object{"resourceSpans": []object{{
		"resource":   object{"attributes": resource},
		"scopeSpans": []object{{"scope": object{"name": "rdistcc", "version": t.Version}, "spans": list}},
	}}}
}

// idOf returns the identifier of a build's trace.
func idOf(t *Trace) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "rdistcc build %d %d %s", t.ID, t.Began.UnixNano(), t.Machine))
	return hex.EncodeToString(sum[:16])
}

// spanID returns the identifier of a span: of a command by its number and begin, of a phase by its name too.
func spanID(trace string, job uint64, began time.Time, phase string) string {
	b := binary.LittleEndian.AppendUint64([]byte(trace), job)
	sum := sha256.Sum256(append(binary.LittleEndian.AppendUint64(b, uint64(began.UnixNano())), phase...))
	return hex.EncodeToString(sum[:8])
}

func newSpan(trace, id, parent string, kind int, s *spans.Span) span {
	nano := func(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }
	return span{TraceID: trace, SpanID: id, ParentID: parent, Name: strings.ToValidUTF8(s.Name, "\uFFFD"), Kind: kind, Start: nano(s.Begin), End: nano(s.End)}
}

func (t *Trace) root(trace string) span {
	s := newSpan(trace, spanID(trace, 0, t.Began, "build"), "", kindInternal, &spans.Span{Name: t.Name, Begin: t.Began, End: t.Ended})
	s.Attrs = []attribute{number("rdistcc.build", uint64(t.ID)), number("process.exit.code", uint64(t.Exit))}
	if t.Exit != 0 {
		s.Status = &status{codeError, "exit status " + strconv.Itoa(t.Exit)}
	}
	return s
}

// command returns the span of a command, and those of its phases.
func command(trace, root string, r *report.JobRecord) []span {
	whole := spans.Of(r)
	s := newSpan(trace, spanID(trace, r.ID, r.Began, ""), root, kindInternal, &whole)
	s.Attrs = []attribute{text("rdistcc.place", r.Place()), number("process.exit.code", uint64(r.Exit))}
	for _, a := range []struct{ key, v string }{{"rdistcc.compiler", r.Compiler}, {"rdistcc.source", r.Source}, {"rdistcc.output", r.Output},
		{"process.working_directory", r.Cwd}, {"rdistcc.link", r.Link}, {"rdistcc.host", r.Host}, {"rdistcc.reason", r.Reason}, {"rdistcc.cache", r.Cached}} {
		if a.v != "" {
			s.Attrs = append(s.Attrs, text(a.key, a.v))
		}
	}
	for _, a := range []struct {
		key string
		v   uint64
	}{{"rdistcc.bytes_out", r.BytesOut}, {"rdistcc.bytes_in", r.BytesIn}, {"rdistcc.cpu_us", uint64(r.CPUUS)}} {
		if a.v != 0 {
			s.Attrs = append(s.Attrs, number(a.key, a.v))
		}
	}
	switch {
	case !r.Finished:
		s.Status = &status{codeError, "ended from outside"}
	case r.Exit != 0:
		s.Status = &status{codeError, "exit status " + strconv.Itoa(int(r.Exit))}
	}
	list := []span{s}
	for i := range whole.Phases {
		p := &whole.Phases[i]
		kind := kindInternal
		if p.Name == spans.Compile {
			kind = kindClient
		}
		x := newSpan(trace, spanID(trace, r.ID, r.Began, p.Name), s.SpanID, kind, p)
		if host, port, err := net.SplitHostPort(r.Host); err == nil && kind == kindClient {
			n, _ := strconv.ParseUint(port, 10, 16) // an address of a host has one
			x.Attrs = []attribute{text("server.address", host), number("server.port", n)}
		}
		list = append(list, x)
	}
	return list
}
