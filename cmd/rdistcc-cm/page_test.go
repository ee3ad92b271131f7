package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/telemetry"
	"github.com/rdistcc/rdistcc/internal/test/kit/reporttest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// TestPageShowsTheFarm: the page shows how busy each host is, which are drained, and why commands ran here.
func TestPageShowsTheFarm(t *testing.T) {
	s := reporttest.Sample()
	s.Hosts[0].Load = &job.Load{Running: 6, Queued: 2}
	s.Hosts[2].Drained = true
	s.Drained = []string{"c:7632"}
	s.Recent = append(s.Recent, report.JobRecord{ID: 9, Source: "z.c", Host: "a:7632", CompileUS: 150000, CPUUS: 130000, Expected: 140 * time.Millisecond, Hedged: "a:7632", Exit: 1})
	p := pageOf(&s, &report.Stats{Retries: 4, Hedges: 5, Phases: []report.Quantiles{{Phase: "total", Count: 1, P50: 2000}}}, "here")
	var rows []string
	bars := map[string]int{}
	for _, table := range p.Tables {
		for _, row := range table.Rows {
			if len(row) > len(table.Columns) {
				t.Errorf("%s: a row of %d cells for %d columns", table.Title, len(row), len(table.Columns))
			}
			var words []string
			for _, c := range row {
				words = append(words, c.Text)
				if c.Share > 0 {
					bars[row[0].Text+" "+c.Text] = c.Percent()
				}
			}
			rows = append(rows, strings.Join(words, "|"))
		}
	}
	text := fmt.Sprint(p.Notes) + "\n" + strings.Join(rows, "\n")
	for _, f := range p.Facts {
		text += fmt.Sprintf("\n{%s %s}", f.Name, f.Value)
	}
	for _, want := range []string{
		"{hosts that take jobs 1 of 3}", "{our jobs there 2, with 8 places}", "{done on hosts 77%}", "{retries, second hosts 4, 5}", "drained by hand: c:7632",
		"a:7632|up|-|2|6 of 8, 2 queued|0|6|-|-|-|-|120|0|3.0MiB, 4.9KiB|",
		"b:7632|down|-|0|-|0|0|-|-|-|-|0|0|0B, 0B|connection refused",
		"c:7632|drained|",
		"local|link|10|6%|0|linking is done here",
		"scan|112|90%|known from the files", "list|10|8%|listed by the compiler here", "{why the compiler here was asked command 6, asked 4, time 4}",
		"total|2 ms|", "3|z.c|compiles|a:7632, c:7632|1.5 s", "4|prog|runs|here|1m5s",
		"9|z.c|a:7632|1|||150 ms|130 ms|140 ms||second host: a:7632",
		"y.c|here: link|0|||||||linking is done here",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if bars["scan 90%"] != 89 || bars["a:7632 2"] != 25 || bars["a:7632 6 of 8, 2 queued"] != 75 {
		t.Errorf("bars are %v", bars)
	}
	if p.Tables[0].Rows[1][1].Tone != telemetry.ToneBad || p.Tables[0].Rows[0][1].Tone != telemetry.ToneGood {
		t.Error("states have the wrong colours")
	}
}
