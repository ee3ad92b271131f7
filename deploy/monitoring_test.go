// Package deploy holds what an installation copies: configuration, systemd
// units, and the Prometheus and Grafana files that are tested here.
package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// patience bounds the wait for Prometheus to have seen something; nothing is
// expected to take so long.
const patience = 2 * time.Minute

func TestPromtoolAcceptsConfiguration(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		need.Skipf(t, need.Tools, "promtool is not installed (Debian package prometheus)")
	}
	out, err := exec.Command("promtool", "check", "config", "prometheus/prometheus.yml").CombinedOutput()
	if err != nil {
		t.Fatalf("promtool check config: %v\n%s", err, out)
	}
}

// TestEveryQueryHasData runs a real Prometheus server beside a farm that
// compiles, and for which one job falls back: each query of the dashboard, each
// of its variables and each recording rule then has a value.
func TestEveryQueryHasData(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	for _, tool := range []string{"prometheus", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Skipf(t, need.Tools, "%s is not installed", tool)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	// With certificates, as the dashboard shows when they expire.
	f, work := farmtest.New(t, farmtest.Dir(t)), t.TempDir()
	if err := f.Start(ctx, 2, 2, farm.Security{Auth: "tls"}); err != nil {
		t.Fatal(err)
	}
	p, err := f.Monitor(ctx, ".", "")
	if err != nil {
		t.Fatal(err)
	}
	prom := server("http://" + p.HTTP)

	// A rate needs a counter that grows between two scrapes: one round, a scrape
	// that has seen it, and rounds until everything has a value.
	build := func(round int) {
		for i := range 4 {
			compile(t, f, work, fmt.Sprintf("u%d_%d", round, i), "RDISTCC_MODE=remote")
		}
		compile(t, f, work, fmt.Sprintf("lost%d", round), "RDISTCC_HOSTS="+unusedAddr(t))
	}
	build(0)
	queries := append(dashboardQueries(t), recordingRules(t)...)
	deadline := time.Now().Add(patience)
	for round := 1; len(queries) > 0; round++ {
		build(round)
		var open []query
		for _, q := range queries {
			if why := prom.lacks(ctx, q); why != "" {
				q.why = why
				open = append(open, q)
			}
		}
		queries = open
		if time.Now().After(deadline) {
			for _, q := range queries {
				t.Errorf("%s: %s: %s", q.Title, q.Expr, q.why)
			}
			return
		}
		wait(ctx, time.Second) // the next scrape
	}
	prom.checkRules(ctx, t)
	checkMetricsDocumented(ctx, t, f)
}

// checkMetricsDocumented holds what the programs export against docs/metrics.md.
func checkMetricsDocumented(ctx context.Context, t *testing.T, f *farm.Farm) {
	t.Helper()
	doc, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range []farm.Process{f.Daemons[0], f.Manager} {
		page, err := farm.Get(ctx, "http://"+p.HTTP+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		// metrics-exposed: nothing of what was compiled, nor where, nor with which words.
		for _, private := range []string{"u0_0", f.Dir, "-O2", "gcc"} {
			if strings.Contains(string(page), private) {
				t.Errorf("%s: %q is in the metrics", p.Name, private)
			}
		}
		for line := range strings.Lines(string(page)) {
			words := strings.Fields(line)
			if len(words) != 4 || words[1] != "TYPE" || !strings.HasPrefix(words[2], "rdistcc") && !strings.HasPrefix(words[2], "iwarp") {
				continue
			}
			if n++; !strings.Contains(string(doc), "`"+words[2]+"`") {
				t.Errorf("%s of %s is not in docs/metrics.md", words[2], p.Name)
			}
		}
	}
	if n < 20 {
		t.Errorf("found only %d metrics", n)
	}
}

// compile has the farm make an object of a file of its own.
func compile(t *testing.T, f *farm.Farm, dir, name string, env ...string) {
	t.Helper()
	source := filepath.Join(dir, name+".c")
	text := fmt.Sprintf("#include <stdio.h>\nint %s(void) { return printf(\"%%d\\n\", 42); }\n", name)
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(f.Wrapper, "gcc", "-O2", "-c", source, "-o", filepath.Join(dir, name+".o"))
	cmd.Env = append(append(f.Env(), "RDISTCC_VERBOSE=0"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// unusedAddr is a loopback address where nobody listens.
func unusedAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// query is one that must have a value; with Label, its metric must have that label.
type query struct {
	farm.Query
	why string // of the last failure
}

// dashboardQueries lists the queries of all panels and variables.
func dashboardQueries(t *testing.T) (all []query) {
	t.Helper()
	board, err := farm.Dashboard("grafana/rdistcc.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(board) < 20 {
		t.Errorf("the dashboard has only %d queries", len(board))
	}
	for _, q := range board {
		all = append(all, query{Query: q})
	}
	return all
}

// recordingRules lists what the rules record.
func recordingRules(t *testing.T) (all []query) {
	t.Helper()
	data, err := os.ReadFile("prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if _, name, ok := strings.Cut(line, "- record: "); ok {
			all = append(all, query{Query: farm.Query{Title: "rule", Expr: strings.TrimSpace(name)}})
		}
	}
	if len(all) == 0 {
		t.Fatal("no recording rules found")
	}
	return all
}

// server is the address of a Prometheus server.
type server string

// get asks the API and decodes its data.
func (s server) get(ctx context.Context, path string, args url.Values, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(s)+"/api/v1/"+path+"?"+args.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return nil
}

// lacks says what is missing for q to have a value, or nothing. The value of an
// empty histogram is NaN, which counts as none.
func (s server) lacks(ctx context.Context, q query) string {
	if q.Label != "" {
		var values []string
		if err := s.get(ctx, "label/"+q.Label+"/values", url.Values{"match[]": {q.Expr}}, &values); err != nil {
			return err.Error()
		}
		if len(values) == 0 {
			return "no series with label " + q.Label
		}
		return ""
	}
	var data struct {
		Result []struct{ Value [2]any }
	}
	if err := s.get(ctx, "query", url.Values{"query": {q.Expr}}, &data); err != nil {
		return err.Error()
	}
	for _, r := range data.Result {
		text, _ := r.Value[1].(string)
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
			return ""
		}
	}
	return fmt.Sprintf("no value in %d series", len(data.Result))
}

// checkRules fails for each rule, alerts too, that Prometheus cannot evaluate,
// and for an alert of a farm where nothing but single jobs went wrong.
func (s server) checkRules(ctx context.Context, t *testing.T) {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Type, Health, LastError, State string }
		}
	}
	if err := s.get(ctx, "rules", nil, &data); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			n++
			if r.Health != "ok" {
				t.Errorf("rule %s: %s %s", r.Name, r.Health, r.LastError)
			}
			if r.State == "firing" {
				t.Errorf("alert %s fires on a healthy farm", r.Name)
			}
		}
	}
	if n == 0 {
		t.Error("Prometheus has loaded no rules")
	}
}
