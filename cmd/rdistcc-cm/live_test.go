package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/telemetry"
	"github.com/rdistcc/rdistcc/internal/test/kit/reporttest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// TestLanesShowTheFarm: each host has a lane, those that take jobs first; what runs on two hosts is in both, what waits in
// none.
func TestLanesShowTheFarm(t *testing.T) {
	s := reporttest.Sample()
	l := lookAt(&s, time.Now())
	var lanes, bars []string
	for _, x := range l.Lanes {
		lanes = append(lanes, fmt.Sprintf("%s/%d%s", x.Name, x.Places, x.Note))
	}
	for _, b := range l.Running {
		bars = append(bars, b.ID+" "+b.Text+" "+b.Lane)
	}
	if got, want := strings.Join(lanes, ", "), "this machine/0, cache/0, a:7632/8, c:7632/4, b:7632/0down"; got != want {
		t.Errorf("lanes are %s, want %s", got, want)
	}
	if got, want := strings.Join(bars, ", "), "3 z.c a:7632, 3 again z.c c:7632, 4 prog this machine"; got != want {
		t.Errorf("bars are %s, want %s", got, want)
	}
	if v := l.Counts[0].Values; fmt.Sprint(v) != "[1 1 1]" {
		t.Errorf("under way on hosts, here and waiting: %v", v)
	}
}

// TestBarsOfCommands: a command that has ended has a bar where it ran, of the parts that it spent there, and is counted
// once.
func TestBarsOfCommands(t *testing.T) {
	began := time.Now()
	for _, c := range []struct {
		r      report.JobRecord
		want   string
		series int
		cache  string
	}{
		{report.JobRecord{ID: 1, Source: "a.c", Host: "h:1", Finished: true, CreditUS: 1e6, WriteUS: 1000, QueueUS: 2000, CompileUS: 500e3, ReturnUS: 1000, AnsweredUS: 1604e3, Asked: true},
			"a.c on h:1: wait 1ms, wait 2ms, compile 500ms, wait 1ms []", 0, "[0 1]"},
		{report.JobRecord{ID: 2, Source: "a.c", Host: "h:1", Finished: true, Exit: 1, CompileUS: 500e3, AnsweredUS: 500e3}, "a.c on h:1: compile 500ms [bad] job 2; exit status 1", 0, ""},
		{report.JobRecord{ID: 3, Source: "a.c", Host: "h:1", Cached: "manager", Finished: true, AnsweredUS: 3000, Asked: true}, "a.c on cache: cached 3ms []", 1, "[1 1]"},
		{report.JobRecord{ID: 4, Output: "prog", Local: true, Reason: "link", Finished: true, TurnUS: 1000}, "prog on this machine: here 1.999s [] job 4: linking is done here", 2, ""},
		{report.JobRecord{ID: 5, Source: "a.c", Local: true, Reason: "host-lost", Detail: "h:1 lost", Trouble: true}, "a.c on this machine: trouble 2s [bad] job 5: h:1 lost; it was ended", 3, ""},
	} {
		c.r.Began, c.r.Ended = began, began.Add(2*time.Second)
		var l telemetry.Live
		addEnded(&l, &c.r)
		b := l.Ended[0]
		var parts []string
		for _, p := range b.Parts {
			parts = append(parts, fmt.Sprint(p.Kind, " ", p.Long))
		}
		if got := fmt.Sprintf("%s on %s: %s [%s] %s", b.Text, b.Lane, strings.Join(parts, ", "), b.Tone, b.More); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
		for i, n := range l.Counts[0].Values {
			if (n == 1) != (i == c.series) {
				t.Errorf("job %d counts as %v", c.r.ID, l.Counts[0].Values)
			}
		}
		cache := ""
		if len(l.Counts) > 1 {
			cache = fmt.Sprint(l.Counts[1].Values)
		}
		if cache != c.cache {
			t.Errorf("job %d counts as %q for the cache, want %q", c.r.ID, cache, c.cache)
		}
	}
}

// TestReasonsHaveLinks: every reason leads to its line on the page of reasons.
func TestReasonsHaveLinks(t *testing.T) {
	ids := make(map[string]bool)
	for _, row := range reasonTable().Rows {
		ids["reasons#"+row[0].ID] = true
	}
	for _, w := range reason.Words {
		if link := linkOf(w.Reason); !ids[link] {
			t.Errorf("%s leads to %q, which is not there", w.Reason, link)
		}
	}
	if link := linkOf("from-a-later-version"); link != "" {
		t.Errorf("an unknown reason leads to %q", link)
	}
}
