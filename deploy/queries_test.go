package deploy

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
)

// linked are metrics that cannot have a value before the manager has been connected to a
// host, and one of its jobs has run there.
var linked = map[string]string{
	"rdistcc_cm_link_rtt_seconds": "a connection measures it",
	"rdistcc_cm_host_speed":       "compiles show it",
}

// TestEveryQueryNamesWhatIsThere holds each query that is shipped against what the programs
// of a farm export that has just started: each metric is there, with a series for each
// value that the query asks for, though nothing has gone wrong yet, nor anything run.
func TestEveryQueryNamesWhatIsThere(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a farm")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	f, work := farmtest.New(t, farmtest.Dir(t)), t.TempDir()
	if err := f.Start(ctx, 1, 2, farm.Security{Auth: "tls"}); err != nil { // with expiring certificates
		t.Fatal(err)
	}
	queries := append(dashboardQueries(t), ruleQueries(t)...)
	for _, program := range []string{"rdistcc", "rdistccd"} {
		queries = append(queries, query{Query: farm.Query{Title: "which build it is",
			Expr: program + `_build_info{version=~".+",revision=~".+",protocol=~"[0-9]+"}`}})
	}
	check := func(when string, exempt map[string]string) {
		there := scrape(ctx, t, f.Manager, f.Daemons[0])
		n := 0
		for _, q := range queries {
			for _, sel := range selectors(t, q.Expr) {
				n++
				if exempt[sel.name] == "" && !there.has(sel) {
					t.Errorf("%s: %s: nothing is exported for %s, %s", q.Title, q.Expr, sel, when)
				}
			}
			if q.Label != "" && !there.labelled(q.Expr, q.Label) {
				t.Errorf("%s: no %s has the label %s, %s", q.Title, q.Expr, q.Label, when)
			}
		}
		if n < 60 {
			t.Errorf("found only %d selectors", n)
		}
	}
	check("at the start", linked)
	checkShown(t, scrape(ctx, t, f.Manager, f.Daemons[0]))
	for i := range 4 {
		compile(t, f, work, string(rune('a'+i)), "RDISTCC_MODE=remote")
	}
	for name, why := range linked { // with a heartbeat, or the end of a job
		for !scrape(ctx, t, f.Manager, f.Daemons[0]).has(selector{name: name}) {
			select {
			case <-ctx.Done():
				t.Fatalf("%s is not there, though %s", name, why)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	check("after the first compiles", nil)
}

// checkShown fails for each metric about what compiles read, and what hosts keep of it, that
// is on no panel of the dashboard.
func checkShown(t *testing.T, there series) {
	t.Helper()
	shown := make(map[string]bool)
	for _, q := range dashboardQueries(t) {
		for _, sel := range selectors(t, q.Expr) {
			shown[sel.name] = true
		}
	}
	n := 0
	for name := range there {
		if !strings.HasPrefix(name, "rdistcc_cm_input") && !strings.HasPrefix(name, "rdistccd_store_") {
			continue
		}
		if n++; !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
	if n < 12 {
		t.Errorf("found only %d metrics of inputs and of stores", n)
	}
}

// ruleQueries are what the recording rules and alerts evaluate.
func ruleQueries(t *testing.T) (all []query) {
	t.Helper()
	data, err := os.ReadFile("prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	title := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "record", "alert":
			title = value
		case "expr":
			if rest, quoted := strings.CutPrefix(value, "'"); quoted {
				value = strings.ReplaceAll(strings.TrimSuffix(rest, "'"), "''", "'")
			}
			all = append(all, query{Query: farm.Query{Title: title, Expr: value}})
		}
	}
	if len(all) < 20 {
		t.Fatalf("found only %d rules", len(all))
	}
	return all
}

// selector is a metric with label matchers.
type selector struct {
	name     string // a regular expression where the query has one
	matchers []matcher
	text     string
}

func (s selector) String() string { return s.text }

type matcher struct{ label, op, value string }

var (
	selectorText = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)?\{([^}]*)\}|\b(?:rdistccd?|iwarp)[_:][a-zA-Z0-9_:]*`)
	matcherText  = regexp.MustCompile(`([a-zA-Z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	words        = regexp.MustCompile(`^[a-zA-Z0-9_-]+(\|[a-zA-Z0-9_-]+)+$`)
)

// selectors are those of an expression that programs of ours have to serve: not the series
// up, nor what recording rules make. One that asks for one of several words is a selector
// for each.
func selectors(t *testing.T, expr string) (list []selector) {
	t.Helper()
	for _, m := range selectorText.FindAllStringSubmatch(expr, -1) {
		s := selector{name: m[1], text: m[0]}
		if s.name == "" && !strings.HasPrefix(m[0], "{") {
			s.name = m[0]
		}
		var several []matcher
		for _, p := range matcherText.FindAllStringSubmatch(m[2], -1) {
			switch q := (matcher{p[1], p[2], p[3]}); {
			case q.label == "__name__":
				s.name = q.value
			case q.label == "instance", q.label == "job": // Prometheus's own
			case q.op == "=~" && words.MatchString(q.value):
				several = append(several, q)
			default:
				s.matchers = append(s.matchers, q)
			}
		}
		if s.name == "up" {
			continue
		}
		if strings.Contains(s.name, ":") {
			if !slices.ContainsFunc(recordingRules(t), func(q query) bool { return q.Expr == s.name }) {
				t.Errorf("%s: no rule records %s", expr, s.name)
			}
			continue
		}
		one := []selector{s}
		for _, q := range several {
			var more []selector
			for _, s := range one {
				for word := range strings.SplitSeq(q.value, "|") {
					more = append(more, selector{s.name, append(slices.Clone(s.matchers), matcher{q.label, "=", word}), s.text + " with " + word})
				}
			}
			one = more
		}
		list = append(list, one...)
	}
	return list
}

// series are what programs export: labels by metric.
type series map[string][]map[string]string

// scrape reads the metrics of programs.
func scrape(ctx context.Context, t *testing.T, programs ...farm.Process) series {
	t.Helper()
	all := make(series)
	line := regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)
	for _, p := range programs {
		page, err := p.Get(ctx, "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(page)) {
			m := line.FindStringSubmatch(strings.TrimSuffix(l, "\n"))
			if m == nil || strings.HasPrefix(l, "#") {
				continue
			}
			labels := make(map[string]string)
			for _, p := range matcherText.FindAllStringSubmatch(m[2], -1) {
				labels[p[1]] = p[3]
			}
			all[m[1]] = append(all[m[1]], labels)
		}
	}
	return all
}

func (s series) has(want selector) bool {
	name := regexp.MustCompile("^(?:" + want.name + ")$")
	for metric := range maps.Keys(s) {
		if name.MatchString(metric) && slices.ContainsFunc(s[metric], want.takes) {
			return true
		}
	}
	return false
}

// labelled reports whether a series of the metric has a value for label, which Prometheus
// itself gives to all when it is the instance.
func (s series) labelled(metric, label string) bool {
	return slices.ContainsFunc(s[metric], func(l map[string]string) bool { return label == "instance" || l[label] != "" })
}

func (s selector) takes(labels map[string]string) bool {
	for _, m := range s.matchers {
		same := labels[m.label] == m.value
		if strings.HasSuffix(m.op, "~") {
			same = regexp.MustCompile("^(?:" + m.value + ")$").MatchString(labels[m.label])
		}
		if same == strings.HasPrefix(m.op, "!") {
			return false
		}
	}
	return true
}

// TestSelectors: the test above sees what there is in a query.
func TestSelectors(t *testing.T) {
	var got []string
	for _, s := range selectors(t, `sum by (host) (rate(rdistcc_cm_x_total{place="remote",host=~".*",why=~"a|b",instance=~"i"}[1m])) / iwarp_y - on (job) up{job="z"}`) {
		got = append(got, s.name, s.String())
		for _, m := range s.matchers {
			got = append(got, m.label+m.op+m.value)
		}
	}
	text := `rdistcc_cm_x_total{place="remote",host=~".*",why=~"a|b",instance=~"i"}`
	want := []string{"rdistcc_cm_x_total", text + " with a", "place=remote", "host=~.*", "why=a",
		"rdistcc_cm_x_total", text + " with b", "place=remote", "host=~.*", "why=b", "iwarp_y", "iwarp_y"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
