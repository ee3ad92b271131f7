package farm

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Query is a query of a Grafana dashboard, with the dashboard's variables replaced: those that select
// something select all of it.
type Query struct {
	Title string // of its panel, or the variable's name
	Expr  string
	Label string // for a variable: the label of Expr, a metric, whose values it lists
	Stat  bool   // the panel shows one number
}

// Dashboard reads the queries of a dashboard's panels and variables.
func Dashboard(file string) ([]Query, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var board struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Definition, AllValue string }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var all []Query
	names := []string{"$__rate_interval", "30s"}
	for _, v := range board.Templating.List {
		if v.Type != "query" {
			continue
		}
		names = append(names, "$"+v.Name, v.AllValue)
		inner, ok := strings.CutPrefix(v.Definition, "label_values(")
		metric, label, comma := strings.Cut(strings.TrimSuffix(inner, ")"), ", ")
		if !ok || !comma {
			return nil, fmt.Errorf("%s: variable %s: %q is not label_values(metric, label)", file, v.Name, v.Definition)
		}
		all = append(all, Query{Title: v.Name, Expr: metric, Label: label})
	}
	replace := strings.NewReplacer(names...)
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			return nil, fmt.Errorf("%s: panel %q has no query", file, p.Title)
		}
		for _, target := range p.Targets {
			expr := replace.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				return nil, fmt.Errorf("%s: panel %q: unknown variable in %q", file, p.Title, expr)
			}
			all = append(all, Query{Title: p.Title, Expr: expr, Stat: p.Type == "stat"})
		}
	}
	return all, nil
}
