package main

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/telemetry"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Rows of the status page: recent commands, and commands under way.
const (
	rowsOfJobs     = 30
	rowsOfUnderway = 100
)

// page returns the current status page.
func (d *daemon) page() telemetry.Page {
	s, sums := d.m.Status(), d.m.Stats()
	name, _ := os.Hostname() // an empty name is shown as such
	return pageOf(&s, &sums, name)
}

// pageOf shows the farm as this manager sees it.
func pageOf(s *report.Status, sums *report.Stats, name string) telemetry.Page {
	up, running, places := 0, 0, 0
	for i := range s.Hosts {
		if h := &s.Hosts[i]; h.State == "up" && !h.Drained {
			up++
			running += h.Running
			places += h.Jobs
		}
	}
	var remote, all uint64
	for _, j := range s.Jobs {
		n := j.OK + j.Failed
		if all += n; j.Place == "remote" {
			remote += n
		}
	}
	share := "no commands yet"
	if all > 0 {
		share = figure.Percent(remote, all)
	}
	cached := "it was not asked"
	if c := &s.Cache; c.Asked > 0 {
		cached = fmt.Sprintf("%d of %d (%s)", c.AllHits(), c.Asked, figure.Percent(c.AllHits(), c.Asked))
		if d := c.SavedCPU(); d > 0 {
			cached += ", saved " + figure.Digits(d)
		}
	}
	p := telemetry.Page{
		Program: "rdistcc-cm", Host: name, Version: build.Version, State: "ready", Links: []telemetry.Cell{{Text: "builds", Link: "builds"}, {Text: "reasons", Link: "reasons"}},
		Facts: []telemetry.Fact{
			{Name: "serving since", Value: s.Since.Format(time.DateTime)},
			{Name: "hosts that take jobs", Value: fmt.Sprintf("%d of %d", up, len(s.Hosts))},
			{Name: "our jobs there", Value: fmt.Sprintf("%d, with %d places", running, places)},
			{Name: "commands under way", Value: strconv.Itoa(s.Running)},
			{Name: "waiting: host, list, here", Value: fmt.Sprintf("%d, %d, %d", s.Waiting.Credit, s.Waiting.Preprocess, s.Waiting.Local)},
			{Name: "done on hosts", Value: share},
			{Name: "from the cache", Value: cached},
			{Name: "retries, second hosts", Value: fmt.Sprintf("%d, %d", sums.Retries, sums.Hedges)},
			{Name: "why the compiler here was asked", Value: cmp.Or(strings.Join(s.Inputs.DoubtCounts(), ", "), "it was not")},
			{Name: "here because of trouble", Value: strconv.FormatUint(sums.Troubles, 10)},
			{Name: "slots", Value: fmt.Sprintf("%d leased, %d kept, at most %d", s.Slots.Leased, s.Slots.Free, s.Slots.Max)},
		},
		Tables: []telemetry.Table{hostTable(s), underwayTable(s), countTable(s.Jobs, all), inputTable(&s.Inputs), phaseTable(sums), jobTable(s)},
	}
	p.Notes = append(p.Notes, s.SettingNotes()...)
	if len(s.Drained) > 0 {
		p.Notes = append(p.Notes, "drained by hand: "+strings.Join(s.Drained, ", "))
	}
	if s.NoHosts > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d compiles ran here because no hosts were configured; set RDISTCC_HOSTS", s.NoHosts))
	}
	return p
}

func hostTable(s *report.Status) telemetry.Table {
	t := telemetry.Table{Title: "Hosts", Empty: "none was named yet",
		Columns: []string{"host", "state", "version", "our jobs", "all jobs", "worth queueing", "credits", "round trip", "rate", "speed", "sandbox", "done", "failed", "sent, received", "note"}}
	for i := range s.Hosts {
		h := &s.Hosts[i]
		state := telemetry.Cell{Text: h.Word(), Tone: tone(h.Word())}
		ours, theirs := telemetry.Cell{Text: strconv.Itoa(h.Running)}, telemetry.Cell{Text: "-"}
		if h.Jobs > 0 {
			ours.Share = float64(h.Running) / float64(h.Jobs)
			if h.Load != nil {
				theirs = telemetry.Cell{Text: fmt.Sprintf("%d of %d", h.Load.Running, h.Jobs), Share: float64(h.Load.Running) / float64(h.Jobs)}
				if h.Load.Queued > 0 {
					theirs.Text += fmt.Sprintf(", %d queued", h.Load.Queued)
				}
			}
		}
		rtt, rate, speed := "-", "-", "-"
		if h.RTTUS > 0 {
			rtt = figure.Micros(uint64(h.RTTUS))
		}
		if h.Rate > 0 {
			rate = figure.Bytes(uint64(h.Rate)) + "/s"
		}
		if h.Speed > 0 {
			speed = fmt.Sprintf("%.2f", h.Speed)
		}
		t.Rows = append(t.Rows, append([]telemetry.Cell{{Text: h.Addr}, state, {Text: cmp.Or(h.Version, "-")}, ours, theirs},
			cells(h.Depth, h.Credits, rtt, rate, speed, cmp.Or(h.Sandbox, "-"), h.OK, h.Failed, figure.Bytes(h.Out)+", "+figure.Bytes(h.In), h.Note())...))
	}
	return t
}

// tone returns the colour of a host's state.
func tone(word string) telemetry.Tone {
	switch word {
	case "up":
		return telemetry.ToneGood
	case "down", "quarantined":
		return telemetry.ToneBad
	}
	return telemetry.ToneWarn
}

func underwayTable(s *report.Status) telemetry.Table {
	t := telemetry.Table{Title: "Under way", Empty: "nothing", Columns: []string{"job", "file", "phase", "where", "age"}}
	for i := range s.Underway[:min(len(s.Underway), rowsOfUnderway)] {
		u := &s.Underway[i]
		t.Rows = append(t.Rows, cells(u.ID, u.Source, u.Phase, u.Place(), figure.Milliseconds(u.AgeMS)))
	}
	return t
}

func countTable(jobs []report.JobCount, all uint64) telemetry.Table {
	t := telemetry.Table{Title: "Commands", Empty: "none yet", Columns: []string{"place", "host or reason", "jobs", "share", "failed", "because"}}
	for _, j := range jobs {
		n := j.OK + j.Failed
		because := ""
		if j.Reason != "" {
			because = reason.Explain(j.Reason)
		}
		row := cells(j.Place, cmp.Or(j.Host, j.Reason, "-"), n, figure.Percent(n, all), j.Failed, because)
		row[3].Share = float64(n) / float64(max(all, 1))
		row[1].Link = linkOf(j.Reason)
		t.Rows = append(t.Rows, row)
	}
	return t
}

// linkOf returns the link to what the page of reasons says about one, or nothing.
func linkOf(why string) string {
	if label := reason.Label(why); label != reason.Other {
		return "reasons#" + label
	}
	return ""
}

func inputTable(c *report.InputCounts) telemetry.Table {
	t := telemetry.Table{Title: "How inputs were known", Empty: "no jobs yet", Columns: []string{"inputs", "jobs", "share", "meaning"}}
	all := c.All()
	for _, how := range report.InputWords {
		n := c.Of(how)
		if n == 0 {
			continue
		}
		row := cells(how, n, figure.Percent(n, all), report.KnownBy[how])
		row[2].Share = float64(n) / float64(all)
		t.Rows = append(t.Rows, row)
	}
	return t
}

func phaseTable(sums *report.Stats) telemetry.Table {
	t := telemetry.Table{Title: "Phases of remote compiles", Empty: "none yet", Columns: []string{"phase", "median", "90 %", "99 %", "most"}}
	for _, q := range sums.Phases {
		if q.Count > 0 {
			t.Rows = append(t.Rows, cells(q.Phase, figure.Micros(q.P50), figure.Micros(q.P90), figure.Micros(q.P99), figure.Micros(q.Max)))
		}
	}
	return t
}

func jobTable(s *report.Status) telemetry.Table {
	t := telemetry.Table{Title: "Recent", Empty: "none yet",
		Columns: []string{"job", "source", "where", "exit", "list", "wait", "compile", "CPU time", "predicted", "total", "why"}}
	for i := range s.Recent[:min(len(s.Recent), rowsOfJobs)] {
		r := &s.Recent[i]
		where, why := telemetry.Cell{Text: r.Host}, r.Detail
		if r.Cached != "" && !r.Local {
			where.Text = "cache (" + r.Cached + ")"
			why = r.Host + " had compiled it"
			if r.Second {
				why += "; what differs had not been read"
			}
		}
		if r.Local {
			where.Text = "here: " + r.Reason
			where.Link = linkOf(r.Reason)
			if why == "" {
				why = reason.Explain(r.Reason)
			}
			if r.Trouble {
				where.Tone = telemetry.ToneBad
			}
		}
		if r.Hedged != "" {
			why = "second host: " + r.Hedged
		}
		exit := telemetry.Cell{Text: strconv.Itoa(int(r.Exit))}
		if r.Exit != 0 {
			exit.Tone = telemetry.ToneWarn
		}
		ms := func(us uint32) telemetry.Cell {
			if us == 0 {
				return telemetry.Cell{}
			}
			return telemetry.Cell{Text: figure.Micros(uint64(us))}
		}
		t.Rows = append(t.Rows, []telemetry.Cell{
			{Text: strconv.FormatUint(r.ID, 10)}, {Text: cmp.Or(r.Source, r.Output)}, where, exit,
			ms(r.PreprocessUS), ms(r.CreditUS), ms(r.CompileUS), ms(r.CPUUS), ms(uint32(r.Expected.Microseconds())), ms(r.TotalUS), {Text: why},
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
