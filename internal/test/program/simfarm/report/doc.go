package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rdistcc/rdistcc/internal/test/program/simfarm"
)

// Marks in the document that enclose the report.
const (
	begin = "<!-- written by make sim: begin -->\n"
	end   = "<!-- written by make sim: end -->\n"
)

// mostBar is where the bars of ratios are cut.
const mostBar = 2.4

// plotted lists the cases whose utilisation is drawn.
var plotted = []string{"mixed", "foreign load", "hosts lost", "stragglers", "long tail"}

// write puts tables into the document at path, and plots into img beside it.
func write(path string, rows []simfarm.Row, command string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok1 := bytes.Cut(old, []byte(begin))
	_, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok1 || !ok2 {
		return fmt.Errorf("%s lacks the lines %q and %q", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	img := filepath.Join(filepath.Dir(path), "img")
	if err := os.MkdirAll(img, 0o755); err != nil {
		return err
	}
	names, about := cases(rows)
	var b bytes.Buffer
	b.Write(head)
	b.WriteString(begin)
	fmt.Fprintf(&b, "`%s`\n\n", command)
	b.WriteString("| case | hosts and builds |\n|---|---|\n")
	for i, n := range names {
		fmt.Fprintf(&b, "| %s | %s |\n", n, about[i])
	}
	b.WriteString("\nMakespan relative to the oracle's:\n\n| case |")
	for _, r := range simfarm.Rules {
		fmt.Fprintf(&b, " %s |", r)
	}
	b.WriteString(" oracle, s |\n|---|" + strings.Repeat("---|", len(simfarm.Rules)+1) + "\n")
	values := make([][]float64, len(names))
	for i, n := range names {
		fmt.Fprintf(&b, "| %s |", n)
		for _, r := range of(rows, n) {
			values[i] = append(values[i], r.Ratio)
			fmt.Fprintf(&b, " %.3f |", r.Ratio)
		}
		fmt.Fprintf(&b, " %.1f |\n", of(rows, n)[len(simfarm.Rules)-1].Makespan.Seconds())
	}
	b.WriteString("\n![makespans](img/sim-makespan.svg)\n")
	stores(&b, rows)
	if err := os.WriteFile(filepath.Join(img, "sim-makespan.svg"), bars("Makespan / the oracle's", names, simfarm.Rules, values, mostBar), 0o644); err != nil {
		return err
	}
	b.WriteString("\nFraction of the farm's cores in use over time:\n\n")
	for _, n := range plotted {
		use := make([][]float64, 0, len(simfarm.Rules))
		rs := of(rows, n)
		if len(rs) == 0 {
			continue
		}
		for _, r := range rs {
			use = append(use, r.Use)
		}
		file := "sim-use-" + strings.ReplaceAll(n, " ", "-") + ".svg"
		if err := os.WriteFile(filepath.Join(img, file), curves("Utilisation: "+n, simfarm.Rules, use, rs[0].Sample), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&b, "![utilisation, %s](img/%s)\n", n, file)
	}
	b.WriteString(end)
	b.Write(tail)
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// stores writes how much it helps to tell the scheduler what hosts hold, for the cases where they hold anything.
func stores(w *bytes.Buffer, rows []simfarm.Row) {
	first := true
	for i := range rows {
		untold := &rows[i]
		if untold.Rule != simfarm.Untold {
			continue
		}
		if first {
			first = false
			w.WriteString("\nHosts that keep headers: the scheduler, the same scheduler without knowledge of what hosts hold (untold), and the oracle. Makespan relative to the oracle's, gigabytes on the wire, and jobs whose host had dropped a header:\n\n" +
				"| case | rdistcc | untold | rdistcc, GB | untold, GB | oracle, GB | rdistcc, dropped | untold, dropped | oracle, dropped |\n|---|---|---|---|---|---|---|---|---|\n")
		}
		rs := of(rows, untold.Case)
		told, oracle := &rs[0], &rs[len(rs)-1]
		fmt.Fprintf(w, "| %s | %.3f | %.3f | %.2f | %.2f | %.2f | %.0f | %.0f | %.0f |\n", untold.Case, told.Ratio, untold.Ratio,
			told.Sent/1e9, untold.Sent/1e9, oracle.Sent/1e9, told.Lacks, untold.Lacks, oracle.Lacks)
	}
}

// cases returns the cases in the order of rows.
func cases(rows []simfarm.Row) (names, about []string) {
	for i := range rows {
		if r := &rows[i]; len(names) == 0 || names[len(names)-1] != r.Case {
			names, about = append(names, r.Case), append(about, r.About)
		}
	}
	return names, about
}

// of returns a case's rows.
func of(rows []simfarm.Row, name string) []simfarm.Row {
	for i := range rows {
		if rows[i].Case == name {
			return rows[i:min(len(rows), i+len(simfarm.Rules))]
		}
	}
	return nil
}
