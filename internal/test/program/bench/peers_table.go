package main

import (
	"fmt"
	"io"
	"slices"
)

// peerTable is printed as in docs/perf.md: of each case the medians, and ratios that are medians of the rounds' ratios.
type peerTable struct {
	sides []*peerSide
	rows  []string
}

// add adds the rows of a case: what it is about, and the CPU time.
func (t *peerTable) add(c peerCase, got map[string][]peerSample) {
	better, unit := slices.Max[[]float64], "GB/s"
	if c.test != "write" {
		better, unit = slices.Min[[]float64], "us"
	}
	t.row(c.String()+": "+unit, got, func(s peerSample) float64 { return s.value(c) }, better)
	if c.test == "write" && c.size >= 64<<10 {
		t.row("the same: CPU ns/B", got, peerSample.cost, slices.Min[[]float64])
	}
}

// row adds a line. The ratios are those of ours, without and with CRC, to the better of the others.
func (t *peerTable) row(what string, got map[string][]peerSample, value func(peerSample) float64, better func([]float64) float64) {
	row := "| " + what + " |"
	for _, s := range t.sides {
		v := values(got[s.name], value)
		if len(v) == 0 {
			row += " - |"
			continue
		}
		row += fmt.Sprintf(" %.3g |", median(v))
	}
	for _, ours := range []string{oursPlain, oursCRC} {
		var ratios []float64
		for i, s := range got[ours] {
			var theirs []float64
			for _, peer := range []string{libfabric, ucx} {
				if i < len(got[peer]) {
					theirs = append(theirs, value(got[peer][i]))
				}
			}
			if len(theirs) > 0 {
				ratios = append(ratios, value(s)/better(theirs))
			}
		}
		if len(ratios) == 0 {
			row += " - |"
			continue
		}
		row += fmt.Sprintf(" %.2f |", median(ratios))
	}
	t.rows = append(t.rows, row)
}

func values(s []peerSample, value func(peerSample) float64) []float64 {
	v := make([]float64, len(s))
	for i := range s {
		v[i] = value(s[i])
	}
	return v
}

func (t *peerTable) print(w io.Writer) {
	head, rule := "| case |", "|---|"
	for _, s := range t.sides {
		head, rule = head+" "+s.name+" |", rule+"---|"
	}
	fmt.Fprintf(w, "%s ratio | with CRC |\n%s---|---|\n", head, rule)
	for _, r := range t.rows {
		fmt.Fprintln(w, r)
	}
}
