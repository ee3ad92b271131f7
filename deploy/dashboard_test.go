package deploy

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// board is as much of Grafana's schema as the dashboard uses.
type board struct {
	UID           string
	SchemaVersion int
	Links         []link
	Templating    struct {
		List []variable
	}
	Panels []struct {
		ID         int
		Type       string
		Title      string
		Datasource source
		GridPos    struct{ X, Y, W, H int }
		Links      []link
		Targets    []struct {
			RefID      string
			Expr       string
			Datasource source
		}
		FieldConfig struct {
			Defaults struct {
				Thresholds *struct {
					Mode  string
					Steps []struct {
						Color string
						Value *float64
					}
				}
				Mappings []struct {
					Type    string
					Options map[string]struct{ Text, Color string }
				}
				Links []link
			}
		}
	}
}

type source struct{ Type, UID string }

type link struct{ Title, URL string }

type variable struct{ Name, Type string }

func dashboard(t *testing.T) (b board) {
	t.Helper()
	text, err := os.ReadFile("grafana/rdistcc.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDashboardIsWhole holds the dashboard against what Grafana's schema asks for, as there is no Grafana to load it: known
// types, numbers and places of panels that are free, thresholds that rise from a first one without a value, the data source
// that the user has chosen.
func TestDashboardIsWhole(t *testing.T) {
	b := dashboard(t)
	if b.SchemaVersion != 38 || b.UID == "" {
		t.Errorf("schema version %d, uid %q", b.SchemaVersion, b.UID)
	}
	ids, taken, kinds, limits := map[int]bool{}, map[[2]int]string{}, map[string]int{}, 0
	for _, p := range b.Panels {
		kinds[p.Type]++
		if !slices.Contains([]string{"row", "stat", "timeseries", "state-timeline"}, p.Type) {
			t.Errorf("%s: type %q", p.Title, p.Type)
		}
		if p.ID == 0 || ids[p.ID] || p.Title == "" {
			t.Errorf("%q: its number %d is none, or another panel's", p.Title, p.ID)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s: its place is not among the 24 columns: %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s and %s overlap", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		chosen := source{"prometheus", "${datasource}"}
		if p.Type != "row" && p.Datasource != chosen {
			t.Errorf("%s: data source %+v", p.Title, p.Datasource)
		}
		for _, target := range p.Targets {
			if target.Datasource != chosen || target.RefID == "" {
				t.Errorf("%s: target %+v", p.Title, target)
			}
		}
		if steps := p.FieldConfig.Defaults.Thresholds; steps != nil {
			limits++
			for i, s := range steps.Steps {
				if (i == 0) != (s.Value == nil) || i > 1 && *s.Value <= *steps.Steps[i-1].Value || s.Color == "" || steps.Mode != "absolute" {
					t.Errorf("%s: threshold %d of %+v", p.Title, i, steps)
				}
			}
		}
		if m := p.FieldConfig.Defaults.Mappings; p.Type == "state-timeline" && (len(m) != 1 || m[0].Type != "value" || len(m[0].Options) < 2) {
			t.Errorf("%s: its states have no words", p.Title)
		}
	}
	if kinds["state-timeline"] < 5 || limits < 8 {
		t.Errorf("%d timelines of states, %d panels with thresholds", kinds["state-timeline"], limits)
	}
}

// TestDashboardVariablesAreUsed checks that each variable is used, and that each query is about what they select.
func TestDashboardVariablesAreUsed(t *testing.T) {
	b := dashboard(t)
	used := map[string]bool{"datasource": true} // TestDashboardIsWhole sees to it
	name := regexp.MustCompile(`\$(\w+)`)
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			for _, m := range selectorText.FindAllString(target.Expr, -1) {
				if !strings.Contains(m, "$manager") && !strings.Contains(m, "$daemon") {
					t.Errorf("%s: %s is that of all machines, whichever are selected", p.Title, m)
				}
				if strings.Contains(m, "$host") && !strings.Contains(m, "$manager") {
					t.Errorf("%s: %s is a manager's, of which none is selected", p.Title, m)
				}
			}
			for _, m := range name.FindAllStringSubmatch(target.Expr, -1) {
				used[m[1]] = true
			}
		}
	}
	for _, v := range b.Templating.List {
		if !used[v.Name] {
			t.Errorf("no query uses the variable %s", v.Name)
		}
	}
}

// TestDashboardLinksLead checks links: to documents and their headings, and to this dashboard with variables that it has.
func TestDashboardLinksLead(t *testing.T) {
	b := dashboard(t)
	links := b.Links
	for _, p := range b.Panels {
		links = append(append(links, p.Links...), p.FieldConfig.Defaults.Links...)
	}
	books, hosts := 0, 0
	for _, l := range links {
		if path, ok := strings.CutPrefix(l.URL, "https://github.com/rdistcc/rdistcc/blob/main/"); ok {
			books++
			file, anchor, _ := strings.Cut(path, "#")
			text, err := os.ReadFile("../" + file)
			if err != nil {
				t.Error(err)
			}
			if anchor != "" && !regexp.MustCompile(`(?im)^##+ `+anchor+`$`).Match(text) {
				t.Errorf("%s: no such heading", l.URL)
			}
			continue
		}
		hosts++
		if rest, ok := strings.CutPrefix(l.URL, "/d/"+b.UID+"/"); ok {
			for _, m := range regexp.MustCompile(`var-(\w+)=|\$\{(\w+):queryparam\}`).FindAllStringSubmatch(rest, -1) {
				if !slices.ContainsFunc(b.Templating.List, func(v variable) bool { return v.Name == m[1]+m[2] }) {
					t.Errorf("%s: no such variable", l.URL)
				}
			}
		} else if l.URL != "http://${__field.labels.instance}/" {
			t.Errorf("%s leads elsewhere", l.URL)
		}
	}
	if books < 10 || hosts < 20 {
		t.Errorf("found only %d links to documents, and %d of hosts", books, hosts)
	}
}

// TestRecordingRulesAreUsed checks that the dashboard or an alert uses each rule.
func TestRecordingRulesAreUsed(t *testing.T) {
	queries := dashboardQueries(t)
	for _, q := range ruleQueries(t) {
		if !strings.Contains(q.Title, ":") { // an alert
			queries = append(queries, q)
		}
	}
	for _, rule := range recordingRules(t) {
		if !slices.ContainsFunc(queries, func(q query) bool { return strings.Contains(q.Expr, rule.Expr) }) {
			t.Errorf("nothing uses %s", rule.Expr)
		}
	}
}
