package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr"
	"github.com/rdistcc/rdistcc/pkg/telemetry"
)

// rowsOfJobs is how many recent commands the status page shows.
const rowsOfJobs = 30

// page is the status page of now.
func (d *daemon) page() telemetry.Page {
	s := d.m.Status()
	name, _ := os.Hostname() // empty is shown as such
	p := telemetry.Page{
		Program: "rdistcc-cm", Host: name, Version: version, State: "ready",
		Facts: []telemetry.Fact{
			{Name: "serving since", Value: s.Since.Format(time.DateTime)},
			{Name: "commands under way", Value: strconv.Itoa(s.Running)},
			{Name: "waiting for a host", Value: strconv.Itoa(s.Waiting.Credit)},
			{Name: "waiting to preprocess", Value: strconv.Itoa(s.Waiting.Preprocess)},
			{Name: "waiting to run here", Value: strconv.Itoa(s.Waiting.Local)},
			{Name: "slots", Value: fmt.Sprintf("%d leased, %d kept, at most %d", s.Slots.Leased, s.Slots.Free, s.Slots.Max)},
		},
		Tables: []telemetry.Table{hostTable(&s), countTable(&s), jobTable(&s)},
	}
	if s.ListError != "" {
		p.Notes = append(p.Notes, s.ListError)
	}
	if s.NoHosts > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d compiles ran here because no hosts were configured; set RDISTCC_HOSTS", s.NoHosts))
	}
	return p
}

func hostTable(s *connmgr.Status) telemetry.Table {
	t := telemetry.Table{Title: "Hosts", Empty: "none was named yet",
		Columns: []string{"host", "state", "running", "credits", "places", "toolchains", "compiled", "failed", "note"}}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		state := telemetry.Cell{Text: h.State, Tone: telemetry.ToneWarn}
		switch h.State {
		case "up":
			state.Tone = telemetry.ToneGood
		case "down":
			state.Tone = telemetry.ToneBad
		}
		running := telemetry.Cell{Text: strconv.Itoa(h.Running)}
		if h.Jobs > 0 {
			running.Share = float64(h.Running) / float64(h.Jobs)
		}
		t.Rows = append(t.Rows, append([]telemetry.Cell{{Text: h.Addr}, state, running},
			cells(h.Credits, h.Jobs, h.Tools, h.OK, h.Failed, h.Note())...))
	}
	return t
}

func countTable(s *connmgr.Status) telemetry.Table {
	t := telemetry.Table{Title: "Commands", Empty: "none yet", Columns: []string{"place", "host", "reason", "ok", "failed"}}
	for _, j := range s.Jobs {
		t.Rows = append(t.Rows, cells(j.Place, j.Host, j.Reason, j.OK, j.Failed))
	}
	return t
}

func jobTable(s *connmgr.Status) telemetry.Table {
	t := telemetry.Table{Title: "Recent", Empty: "none yet",
		Columns: []string{"job", "source", "where", "exit", "preprocess", "compile", "total", "why"}}
	for i := range s.Recent[:min(len(s.Recent), rowsOfJobs)] {
		r := &s.Recent[i]
		where := telemetry.Cell{Text: r.Host}
		if r.Local {
			where.Text = "here: " + r.Reason
			if r.Trouble {
				where.Tone = telemetry.ToneBad
			}
		}
		ms := func(us uint32) string {
			return (time.Duration(us) * time.Microsecond).Round(time.Millisecond / 10).String()
		}
		t.Rows = append(t.Rows, []telemetry.Cell{
			{Text: strconv.FormatUint(r.ID, 10)}, {Text: r.Source}, where, {Text: strconv.Itoa(int(r.Exit))},
			{Text: ms(r.PreprocessUS)}, {Text: ms(r.CompileUS)}, {Text: ms(r.TotalUS)}, {Text: r.Detail},
		})
	}
	return t
}

func cells(values ...any) []telemetry.Cell {
	out := make([]telemetry.Cell, len(values))
	for i, v := range values {
		out[i].Text = fmt.Sprint(v)
	}
	return out
}
