package comparison

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

var began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// job is a command on host a of a build in /w that began then, from second from on.
func job(name string, from, took int) report.JobRecord {
	at := began.Add(time.Duration(from) * time.Second)
	return report.JobRecord{Began: at, Ended: at.Add(time.Duration(took) * time.Second), Finished: true, Cwd: "/w", Source: name, Output: name + ".o", Host: "a", CPUUS: uint32(took) * 500_000}
}

// with changes a command.
func with(r report.JobRecord, change func(*report.JobRecord)) report.JobRecord { change(&r); return r }

func cached(r *report.JobRecord) { r.Cached = "manager" }
func here(r *report.JobRecord)   { r.Local, r.Host, r.Reason = true, "", "local-share" }
func waits(us uint32) func(r *report.JobRecord) {
	return func(r *report.JobRecord) { r.QueueUS = us }
}

// keep keeps a build that took so many seconds.
func keep(t *testing.T, s *builds.Store, took int, jobs ...report.JobRecord) *builds.Build {
	t.Helper()
	log := s.New(builds.Build{Command: []string{"make"}, Dir: "/w", Began: began, Cores: 2})
	log.Add(jobs)
	log.Finish(began.Add(time.Duration(took) * time.Second))
	if log.Err() != nil {
		t.Fatal(log.Err())
	}
	return &log.Build
}

// TestCauses: each command has its cause, and the parts of all causes are together the change of what commands took.
func TestCauses(t *testing.T) {
	s := builds.Open(t.TempDir())
	a := keep(t, s, 30, job("gone", 0, 3), with(job("missed", 0, 1), cached), job("hit", 1, 5), job("to-here", 2, 2), with(job("to-host", 3, 9), here), job("other", 4, 4),
		with(job("waited", 5, 2), waits(500_000)), job("ran", 6, 6), job("same", 7, 7))
	b := keep(t, s, 40, job("new", 0, 20), with(job("missed", 0, 11), func(r *report.JobRecord) { r.Asked, r.Missed = true, "x.h has changed" }), with(job("hit", 1, 1), cached),
		with(job("to-here", 2, 5), here), job("to-host", 3, 3), with(job("other", 4, 7), func(r *report.JobRecord) { waits(1_000_000)(r); r.Host = "b" }),
		with(job("waited", 5, 6), waits(4_000_000)), job("ran", 6, 7), job("same", 7, 7))
	c := Of(s, a, b)
	var got []string
	sum := time.Duration(0)
	for _, x := range c.Causes {
		got = append(got, fmt.Sprintf("%s %d %v", x.Cause, x.Commands, x.Time))
		sum += x.Time
	}
	if want := "new 1 20s, missed 1 10s, to-host 1 -6s, waited 2 4.5s, hit 1 -4s, gone 1 -3s, to-here 1 3s, other-host 1 2s, ran 2 1.5s"; strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
	if sum != c.Took[1]-c.Took[0] || c.Partial {
		t.Errorf("the causes are %v together, and commands took %v", sum, c.Took)
	}
	got = got[:0]
	for _, u := range c.Commands {
		got = append(got, u.Name+" "+u.Cause+": "+u.Says())
	}
	if want := []string{"new new: new, a", "missed missed: not in the cache: x.h has changed", "waited waited: waited 4 s, before 500 ms", "other other-host: b, before a", "to-here to-here: here: local-share",
		"ran ran: slower, a", "gone gone: gone", "hit hit: cache: manager, before a", "to-host to-host: a, before here"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if len(c.Missed) != 1 || c.Missed[0] != (Change{"x.h has changed", [2]int{0, 1}, [2]time.Duration{0, 5500 * time.Millisecond}}) {
		t.Errorf("missed: %+v", c.Missed)
	}
	if want := "Build 2 took 40 s, 10 s longer than build 1 (+33%). Its commands took 28 s more together. What weighs most: new commands (+20 s, 1 command)."; c.Says() != want {
		t.Errorf("it says %q, want %q", c.Says(), want)
	}
	// The later one is the second, whatever the order, and what took less is first if it took less.
	b.Began, b.Ended = b.Began.Add(-time.Hour), b.Ended.Add(-time.Hour)
	if c = Of(s, a, b); c.Builds[1].ID != 1 || c.Longer() >= 0 {
		t.Errorf("builds %d and %d", c.Builds[0].ID, c.Builds[1].ID)
	}
}

// TestSays: what explains most of the difference is named, be it that nothing ran, or that less ran at a time.
func TestSays(t *testing.T) {
	s := builds.Open(t.TempDir())
	crowd := keep(t, s, 10, job("a", 0, 10), job("b", 0, 10))
	alone := keep(t, s, 20, job("a", 0, 10), job("b", 10, 10))
	idle := keep(t, s, 35, job("a", 0, 10), job("b", 0, 10))
	none := keep(t, s, 5)
	for _, x := range []struct {
		a, b *builds.Build
		want string
	}{
		{crowd, alone, "Build 2 took 20 s, 10 s longer than build 1 (+100%). Most of that is due to how many commands ran at a time: 1.0, before 2.0."},
		{alone, crowd, "Build 1 took 10 s, 10 s less than build 2 (-50%). Most of that is due to how many commands ran at a time: 2.0, before 1.0."},
		{crowd, idle, "Build 3 took 35 s, 25 s longer than build 1 (+250%). Most of that is time in which no command of it ran: 25 s, before 0 s."},
		{crowd, crowd, "Build 1 took 10 s, about as long as build 1 (10 s)."},
		{crowd, none, "Build 4 took 5 s, 5 s less than build 1 (-50%). Its commands took 20 s less together. What weighs most: commands that are gone (-20 s, 2 commands)."},
	} {
		if got := Of(s, x.a, x.b).Says(); got != x.want {
			t.Errorf("got  %q\nwant %q", got, x.want)
		}
	}
}

// TestPartial: if records of commands are damaged or gone, the figures of the builds are compared, and a line says why no more is.
func TestPartial(t *testing.T) {
	for name, spoil := range map[string]func(file string) error{
		"are left":                       os.Remove,
		"of 3 commands, the records of ": func(file string) error { return os.Truncate(file, 60) },
		"1.jobs.gz: gzip: invalid header": func(file string) error {
			return os.WriteFile(file, []byte("this is not what was written"), 0o600)
		},
	} {
		dir := t.TempDir()
		s := builds.Open(dir)
		a, b := keep(t, s, 9, job("a", 0, 1), job("b", 0, 2), job("c", 0, 3)), keep(t, s, 10, job("a", 0, 5))
		if err := spoil(filepath.Join(dir, "1.jobs.gz")); err != nil {
			t.Fatal(err)
		}
		c := Of(s, a, b)
		if !c.Partial || len(c.Notes) != 1 || !strings.HasPrefix(c.Notes[0], "the commands of build 1 are not compared: ") || !strings.Contains(c.Notes[0], name) {
			t.Errorf("%s: the notes are %q", name, c.Notes)
		}
		if len(c.Commands)+len(c.Causes) > 0 || c.Took[1] != 0 || len(c.Figures()) < 8 || len(c.Places) != 1 || c.Says() != "Build 2 took 10 s, 1 s longer than build 1 (+11%)." {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestClockThatJumped: no figure is negative or more than the build took for a command, whatever the clock did.
func TestClockThatJumped(t *testing.T) {
	for _, by := range []time.Duration{-80 * 365 * 24 * time.Hour, -time.Hour, time.Hour, 80 * 365 * 24 * time.Hour} {
		s := builds.Open(t.TempDir())
		jobs := []report.JobRecord{job("a", 0, 3), job("b", 1, 4), job("c", 2, 5)}
		jobs[0].Ended, jobs[1].Began, jobs[2].Began, jobs[2].Ended = jobs[0].Ended.Add(by), jobs[1].Began.Add(by), jobs[2].Began.Add(by), jobs[2].Ended.Add(by)
		c := Of(s, keep(t, s, 9, job("a", 0, 3), job("b", 1, 4)), keep(t, s, 10, jobs...))
		if c.Took[1] < 0 || c.Took[1] > 30*time.Second || c.Idle[1] < 0 || c.Idle[1] > 10*time.Second {
			t.Errorf("%v: took %v, idle %v", by, c.Took, c.Idle)
		}
		_, _ = c.Says(), c.Figures()
	}
}

// TestAddHeaders: headers are found again in another group and another checkout, and what the estimate cannot tell apart is left out.
func TestAddHeaders(t *testing.T) {
	head := func(cpu, off, units int, names ...string) costs.Header {
		h := costs.Header{CPU: time.Duration(cpu) * time.Second, Error: time.Duration(off) * time.Second, Units: units}
		for _, n := range names {
			h.Files = append(h.Files, costs.HeaderFile{Name: n, Size: 100})
		}
		return h
	}
	c := &Comparison{Builds: [2]builds.Build{{Dir: "/w1"}, {Dir: "/w2"}}}
	c.AddHeaders(&costs.Report{Headers: []costs.Header{head(10, 1, 5, "/w1/a.h", "/w1/b.h"), head(8, 1, 5, "/usr/include/x.h"), head(4, 0, 2, "/w1/gone.h"), head(1, -1, 5, "/w1/guess.h")}},
		&costs.Report{Headers: []costs.Header{head(9, 1, 6, "/w2/a.h"), head(6, 1, 5, "/w2/b.h"), head(9, 1, 5, "/usr/include/x.h"), head(2, 1, 3, "/w2/new.h"), head(7, 0, 5, "/w2/guess.h")}})
	var got []string
	for _, h := range c.Headers {
		got = append(got, fmt.Sprintf("%s %v %v %v", h.Name, h.CPU, h.Units, h.Error))
	}
	if want := []string{"guess.h [1s 7s] [5 5] -1ns", "a.h [5s 9s] [5 6] 2s", "gone.h [4s 0s] [2 0] 0s", "new.h [0s 2s] [0 3] 1s"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
