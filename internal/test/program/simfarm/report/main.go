// Command report runs the simulated farm and prints the result of each rule.
//
//	go run ./internal/test/program/simfarm/report                    a table on stdout
//	go run ./internal/test/program/simfarm/report -only mixed -v
//	go run ./internal/test/program/simfarm/report -scale large -doc docs/scheduling.md
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/program/simfarm"
)

func main() {
	scale := flag.String("scale", "small", "small (of the test suite), large, or huge (half an hour)")
	seeds := flag.Int("seeds", 3, "how many farms and builds are drawn for each case")
	only := flag.String("only", "", "cases, separated by commas")
	verbose := flag.Bool("v", false, "say how long each run takes")
	doc := flag.String("doc", "", "document to write tables and plots to")
	flag.Parse()
	if err := run(*scale, *seeds, *only, *doc, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(scale string, seeds int, only, doc string, verbose bool) error {
	s := simfarm.Small
	switch scale {
	case "small":
	case "large":
		s = simfarm.Large
	case "huge":
		s = simfarm.Huge
	default:
		return fmt.Errorf("no scale %q: small, large or huge", scale)
	}
	var want func(string) bool
	if only != "" {
		names := strings.Split(only, ",")
		want = func(name string) bool { return slices.Contains(names, name) }
	}
	progress := func(name, rule string, seed uint64, took time.Duration) {
		if verbose {
			fmt.Fprintf(os.Stderr, "%s, %s, seed %d: %v\n", name, rule, seed, took.Round(time.Millisecond))
		}
	}
	rows, err := simfarm.Compare(s, seeds, want, progress)
	if err != nil {
		return err
	}
	table(os.Stdout, rows)
	if doc == "" {
		return nil
	}
	return write(doc, rows, fmt.Sprintf("go run ./internal/test/program/simfarm/report -scale %s -seeds %d -doc %s", scale, seeds, doc))
}

func table(w io.Writer, rows []simfarm.Row) {
	fmt.Fprintf(w, "%-14s %-13s %9s %7s %7s %7s %7s %6s %7s %8s\n", "case", "rule", "makespan", "/oracle", "p50", "p95", "p99", "local", "hedges", "sent")
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(w, "%-14s %-13s %8.2fs %7.3f %6.2fs %6.2fs %6.2fs %6.1f %7.1f %6.0fMB\n", r.Case, r.Rule, r.Makespan.Seconds(), r.Ratio,
			r.P50.Seconds(), r.P95.Seconds(), r.P99.Seconds(), r.Local, r.Hedges, r.Sent/1e6)
		if r.Stuck > 0 {
			fmt.Fprintf(w, "%27s %d jobs did not end\n", "", r.Stuck)
		}
	}
}
