package ctl

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// TestCompareBuilds: two builds, also of two checkouts, in the order in which they ran: their figures, the reasons that have changed, and the
// commands that took longer.
func TestCompareBuilds(t *testing.T) {
	s := newShell(t)
	store := builds.Open(filepath.Join(s.dir, ".local", "state", "rdistcc", "builds"))
	began := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	build := func(dir string, took time.Duration, jobs ...report.JobRecord) {
		t.Helper()
		log := store.New(builds.Build{Command: []string{"make"}, Dir: dir, Began: began, Cores: 2})
		log.Add(jobs)
		log.Finish(began.Add(took))
		if log.Err() != nil {
			t.Fatal(log.Err())
		}
		began = began.Add(time.Hour)
	}
	job := func(dir, name string, seconds int) report.JobRecord {
		r := remoteJob(began)
		r.Cwd, r.Source, r.Output, r.Ended = dir, name, strings.TrimSuffix(name, "c")+"o", began.Add(time.Duration(seconds)*time.Second)
		return r
	}
	build("/w1", 5*time.Second, job("/w1", "a.c", 1), job("/w1/sub", "b.c", 4), job("/w1", "gone.c", 1))
	here := job("/w2", "/w2/a.c", 3)
	here.Local, here.Host, here.Reason, here.Output = true, "", "local-share", "/w2/a.o"
	other := job("/w2/sub", "b.c", 4)
	other.Host, other.Asked, other.Missed, other.QueueUS = "c:7632", true, "changed: main.h", 1_500_000
	build("/w2", 9*time.Second, here, other, job("/w2", "new\x1b.c", 9))

	want := "BUILD 1 BUILD 2 CHANGE took 5 s 9 s +4 s work, on one processor 3 s"
	for _, words := range [][]string{{"builds", "1", "2"}, {"builds", "2", "1"}} {
		text := strings.Join(strings.Fields(s.want(0, "", "", words...)), " ")
		for _, want := range []string{
			want, "commands 3 3 +0 on hosts 3 2 -1 from the cache 0 0 +0 here 0 1 +1 not in the cache 0 1 +1", "hosts 1 2 +1 waited for hosts, all commands ",
			"+1.5 s Only in build 2: c:7632 Why", "Why the cache had no result, where that has changed WHY BUILD 1 BUILD 2 changed: main.h 0 1 ",
			"REASON BUILD 1 BUILD 2 MEANS local-share 0 1 ",
			"Commands that took longer in build 2, by most COMMAND LONGER BY BUILD 1 BUILD 2 new?.c 9 s - 9 s (a:7632) a.c 2 s 1 s (a:7632) 3 s (here: local-share)",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q lacks %q:\n%s", words, want, text)
			}
		}
		if strings.Contains(text, "b.c") || strings.Contains(text, "gone.c") {
			t.Errorf("%q names what did not take longer:\n%s", words, text)
		}
	}
	if out := s.want(0, "", "", "builds", "2", "1", "--json"); strings.Index(out, `"id": 1`) > strings.Index(out, `"id": 2`) {
		t.Errorf("JSON has the later one first:\n%s", out)
	}
	s.want(100, "", "no build 7 is kept", "builds", "1", "7")
	s.want(101, "", "--report writes a page on one build", "builds", "1", "2", "--report", "x")
}
