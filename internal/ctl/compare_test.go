package ctl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/comparison"
	"github.com/rdistcc/rdistcc/internal/costs/journal"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// TestCompareBuilds: two builds, also of two checkouts, in the order in which they ran: their figures, what has changed for their commands and
// headers, in the terminal, as JSON and on the page.
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
		r.Build, r.Cwd, r.Source, r.Output, r.Ended = uint64(dir[2]-'0'), dir, name, strings.TrimSuffix(name, "c")+"o", began.Add(time.Duration(seconds)*time.Second)
		return r
	}
	// What both builds compiled reads a header that has grown.
	unit := func(build uint64, source string, size uint64) {
		t.Helper()
		w := journal.NewWriter(filepath.Join(s.dir, ".local", "state", "rdistcc", "costs"))
		dir := filepath.Dir(source)
		w.Add(&journal.Compile{Ended: began.Add(time.Second), Build: build, OK: true, Source: source, Output: source + ".o", CPU: time.Duration(size) * time.Millisecond}, journal.List{byte(build), source[4]},
			func(yield func(*journal.File)) {
				yield(&journal.File{Name: source, Size: size})
				yield(&journal.File{Name: dir + "/all.h", Size: size, Sum: build})
			})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a.c", "b.c"} {
		unit(1, "/w1/"+name, 100)
	}
	unit(1, "/w1/gone.c", 5000)
	build("/w1", 5*time.Second, job("/w1", "a.c", 1), job("/w1/sub", "b.c", 4), job("/w1", "gone.c", 1))
	here := job("/w2", "/w2/a.c", 3)
	here.Local, here.Host, here.Reason, here.Output = true, "", "local-share", "/w2/a.o"
	other := job("/w2/sub", "b.c", 4)
	other.Host, other.Asked, other.Missed, other.QueueUS = "c:7632", true, "changed: main.h", 1_500_000
	for _, name := range []string{"a.c", "b.c"} {
		unit(2, "/w2/"+name, 1000)
	}
	build("/w2", 9*time.Second, here, other, job("/w2", "new\x1b.c", 9))

	for _, words := range [][]string{{"builds", "1", "2"}, {"builds", "2", "1"}} {
		text := strings.Join(strings.Fields(s.want(0, "", "", words...)), " ")
		for _, want := range []string{
			"Build 2 took 9 s, 4 s longer than build 1 (+80%). Its commands took 10 s more together. What weighs most: new commands (+9 s, 1 command). BUILD 1 BUILD 2 CHANGE took 5 s 9 s +4 s",
			"commands 3 3 same on hosts 3 (100%) 2 (67%) -1 from the cache 0 (0%) 0 (0%) same here 0 (0%) 1 (33%) +1 not in the cache 0 1 +1", "hosts 1 2 +1",
			"CAUSE COMMANDS CHANGE new commands 1 +9 s here, no longer on a host 1 +2 s speed on another host 1 -1.5 s waits for a place or a turn 1 +1.5 s commands that are gone 1 -1 s",
			"PLACE BUILD 1 BUILD 2 a:7632 3 1 c:7632 0 1 here 0 1",
			"Why the cache had no result, where that has changed WHY BUILD 1 BUILD 2 changed: main.h 0 1 ",
			"REASON BUILD 1 BUILD 2 MEANS local-share 0 1 ",
			`Commands that took longer in build 2, by most COMMAND CHANGE BUILD 1 BUILD 2 WHAT HAS CHANGED new\x1b.c +9 s - 9 s new, a:7632 a.c +2 s 1 s 3 s here: local-share`,
			"Headers whose cost has changed, over the units that both compiled HEADER CHANGE BUILD 1 BUILD 2 UNITS all.h +900 ms 90 ms 990 ms 2",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q lacks %q:\n%s", words, want, text)
			}
		}
		if strings.Contains(text, "sub/b.c") || strings.Contains(text, "gone.c") {
			t.Errorf("%q names what did not take longer:\n%s", words, text)
		}
	}
	var x comparison.Comparison
	if err := json.Unmarshal([]byte(s.want(0, "", "", "builds", "2", "1", "--json")), &x); err != nil || x.Builds[0].ID != 1 || x.Causes[0].Cause != comparison.New || x.Headers[0].Name != "all.h" {
		t.Errorf("%v: JSON has %+v", err, x)
	}

	file := filepath.Join(s.dir, "both.html")
	for _, words := range [][]string{{"builds", "1", "2", "--report", file}, {"builds", "2", "--report", file, "1"}} {
		s.want(0, file+" shows build 2, compared with build 1: any browser opens it\n", "", words...)
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"<h1>Build 2</h1>", "Compared with build 1</h2>", "What weighs most: new commands", "all.h", `new\x1b.c`} {
			if !strings.Contains(string(page), want) {
				t.Errorf("the page lacks %q", want)
			}
		}
	}
	if page := s.want(0, "", "", "builds", "--served", "2", "1"); !strings.Contains(page, `href="2">build 2 alone`) || !strings.Contains(page, `href="2?with=1"`) {
		t.Error("the page that is served has no links to others")
	}
	s.want(100, "", "no build 7 is kept", "builds", "1", "7")
	s.want(101, "", "build 1 would be compared with itself; rdistcc builds lists others", "builds", "1", "01", "--report", "x")
	s.want(101, "", "x is no number of a build", "builds", "1", "x", "--report", "x")
	s.want(101, "", "give one of them", "builds", "1", "2", "--report", "x", "--json")

	running := store.New(builds.Build{Command: []string{"make"}, Dir: "/w2", Began: began})
	s.want(100, "", "build 3 has no figures to compare: it runs, or was killed", "builds", "1", "3", "--report", "x")
	running.Finish(began.Add(time.Second))
	s.want(100, "", "build 3 has no commands that came to rdistcc", "builds", "1", "3", "--report", "x")
	// What is damaged costs a line, and the rest is shown; without its records, there is no page of a build.
	for i, note := range []string{"gzip: invalid header", "of 3 commands, the records of 0 are left"} {
		records := filepath.Join(s.dir, ".local", "state", "rdistcc", "builds", "1.jobs.gz")
		if err := os.WriteFile(records, []byte("not what was written"), 0o600); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := os.Remove(records); err != nil {
				t.Fatal(err)
			}
		}
		if out := s.want(0, "4 s longer than build 1 (+80%).\n", "rdistcc: the commands of build 1 are not compared: ", "builds", "1", "2"); strings.Contains(out, "CAUSE") {
			t.Errorf("commands are compared that are not known:\n%s", out)
		}
		s.want(0, "compared with build 1", "", "builds", "1", "2", "--report", file)
		if page, err := os.ReadFile(file); err != nil || !strings.Contains(string(page), note) {
			t.Errorf("%v: the page lacks %q", err, note)
		}
	}
	s.file(".local/state/rdistcc/builds/2.json", "{")
	s.want(107, "", "2.json: ", "builds", "1", "2", "--report", "x")
}
