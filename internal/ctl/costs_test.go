package ctl

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/internal/costs/journal"
	"github.com/rdistcc/rdistcc/internal/costs/trial"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// journalOf writes compiles of units 0 to n that ended now to a journal, as the manager does.
func (s *shell) journalOf(dir string, n int, build uint64) {
	s.t.Helper()
	w := journal.NewWriter(dir)
	for i := range n {
		w.Add(&journal.Compile{Ended: time.Now(), Build: build, OK: true, Asked: true, Source: fmt.Sprintf("/w/u%d.c", i), Output: fmt.Sprintf("/w/u%d.o", i), Where: "h:7632",
			CPU: time.Duration(i+1) * time.Second, Memory: uint64(n-i) << 20}, journal.List{byte(i)}, func(yield func(*journal.File)) {
			yield(&journal.File{Name: fmt.Sprintf("/w/u%d.c", i), Size: 10})
			yield(&journal.File{Name: "/w/all\x1b.h", Size: 1000})
			yield(&journal.File{Name: "/usr/include/stdio.h", Size: 1000})
		})
	}
	if err := w.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// TestCosts: tables show the first lines of each kind, and what cannot be read costs a line each.
func TestCosts(t *testing.T) {
	s := newShell(t)
	s.want(0, "no compiles of the last 7 days are noted\n", "", "costs")
	s.want(0, "no compiles of the last 12h0m are noted\n", "", "costs", "--days", "0.5")
	if out := s.want(0, "", "", "costs", "--json"); !strings.Contains(out, `"units": []`) || !strings.Contains(out, `"missed": []`) {
		t.Errorf("nothing, as JSON: %s", out)
	}
	s.want(101, "", "--days and --top take numbers above 0", "costs", "--days", "-1")
	s.want(101, "", "--days and --top take numbers above 0", "costs", "--top", "0")
	s.want(101, "", "give BUILD or --days", "costs", "--days", "1", "3")
	s.want(100, "", "no build 3 is kept", "costs", "3")

	dir := filepath.Join(s.dir, ".local", "state", "rdistcc", "costs")
	s.journalOf(dir, 12, 1)
	text := strings.Join(strings.Fields(s.want(0, "", "", "costs", "--top", "2")), " ")
	for _, want := range []string{
		"12 compiles of 12 units in the last 7 days: 12 on hosts, 0 from the cache, 0 here They took 78 s of CPU time.",
		"UNIT CPU SHARE MEMORY TEXT FILES COMPILES /w/u11.c 12 s 15% 1.0MiB 2.0KiB 3 1 /w/u10.c 11 s 14% 2.0MiB 2.0KiB 3 1 and 10 more",
		"most memory UNIT CPU SHARE MEMORY TEXT FILES COMPILES /w/u0.c 1 s 1% 12.0MiB",
		"(estimated by text: there are too few units for more) HEADER CPU SHARE ERROR TEXT UNITS /w/all\\x1b.h (+1)",
		"Headers whose edits cost most HEADER AN EDIT COSTS UNITS CHANGES /w/all\\x1b.h (+1) 78 s 12 0",
		"The cache had 0 of 12 compiles (0%). Why it missed 12 WHY COMPILES CPU nothing is known of an earlier compile 12 78 s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for name, content := range map[string]string{"8.log": "rdccosts\x09\x00\x00\x00", "9.log": "something else altogether"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.want(0, "12 compiles of 12 units", "8.log: written by another version of rdistcc (9, not 1)\nrdistcc: ", "costs")
	var r costs.Report
	if err := json.Unmarshal([]byte(s.want(0, "", "", "costs", "--json")), &r); err != nil || len(r.Notes) != 2 || len(r.Units) != 12 {
		t.Errorf("%v, %+v", err, r)
	}
	s.file(".local/state/other/rdistcc/costs", "no directory")
	s.env["XDG_STATE_HOME"] = filepath.Join(s.dir, ".local", "state", "other")
	s.want(107, "", "rdistcc: what compiles cost: ", "costs")
}

// TestCostsOfABuild: only the compiles of a build count, and the manager says where it has noted them.
func TestCostsOfABuild(t *testing.T) {
	s := newShell(t)
	dir := filepath.Join(s.dir, "elsewhere")
	s.manager(func(q *ipc.Control) *ipc.Reply {
		if strings.Join(q.Args, " ") != "costs" {
			t.Errorf("asked %q", q.Args)
		}
		return reply(t, report.Journal{Dir: dir})
	})
	log := builds.Open(filepath.Join(s.dir, ".local", "state", "rdistcc", "builds")).New(builds.Build{Command: []string{"make"}, Began: time.Now()})
	r := remoteJob(time.Now())
	r.Build = 7
	log.Add([]report.JobRecord{r})
	s.journalOf(dir, 3, 7)
	s.journalOf(dir, 4, 8)
	log.Finish(time.Now())
	s.want(0, "3 compiles of 3 units in build 1: 3 on hosts", "", "costs", "1")
	s.want(0, "7 compiles of 4 units in the last 7 days", "", "costs")
}

// TestReport: the page of a build is one file, with its commands and headers, which only its user can read.
func TestReport(t *testing.T) {
	s := newShell(t)
	s.want(100, "", "no builds are kept yet", "builds", "--report", "x.html")
	log := builds.Open(filepath.Join(s.dir, ".local", "state", "rdistcc", "builds")).New(builds.Build{Command: []string{"make"}, Dir: "/w", Began: time.Now()})
	r := remoteJob(time.Now())
	r.Build, r.Source = 7, "/w/u1.c"
	log.Add([]report.JobRecord{r})
	s.journalOf(filepath.Join(s.dir, ".local", "state", "rdistcc", "costs"), 3, 7)
	log.Finish(time.Now())
	file := filepath.Join(s.dir, "build.html")
	for _, words := range [][]string{{"builds", "--report", file}, {"builds", "1", "--report", file}} {
		s.want(0, file+" shows build 1: any browser opens it\n", "", words...)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"<h1>Build 1</h1>", "u1.c", "all\\x1b.h", "a:7632"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%q: the page lacks %q", words, want)
			}
		}
		if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("the page: %v, %v", st.Mode(), err)
		}
	}
	s.want(101, "", "--report needs the name of a file", "builds", "--report", "")
	s.want(101, "", "give one of them", "builds", "--report", file, "--json")
	s.want(100, "", "no build 9 is kept", "builds", "9", "--report", file)
	s.want(107, "", "/nowhere/x.html", "builds", "--report", "/nowhere/x.html")
}

// TestTryPCH: the units are those that are named, whose commands are in a database, those that take most time, or a command; what is
// wrong with these is said in a line.
func TestTryPCH(t *testing.T) {
	part.Skip(t)
	s := newShell(t)
	s.want(101, "", "--try-pch takes a number of headers from 1 to 1000", "costs", "--try-pch=0")
	s.want(101, "", "--commands is for --try-pch", "costs", "--commands", "x")
	s.want(101, "", "a command stands after --, and nothing before it", "costs", "--try-pch", "a.c", "--", "gcc", "-c", "b.c")
	s.want(101, "", "a command stands after --, and nothing before it", "costs", "--try-pch", "--")
	s.want(100, "", "how units are compiled is not kept: name the compile_commands.json with --commands FILE", "costs", "--try-pch")
	s.want(100, "", "there is no compile_commands.json for /nowhere/a.c: name it with --commands FILE", "costs", "--try-pch", "/nowhere/a.c")
	s.want(107, "", "/nowhere/db.json: no such file", "costs", "--try-pch", "--commands", "/nowhere/db.json", "/nowhere/a.c")
	if testing.Short() {
		t.Skip("compiles for seconds")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	s.file("src/a.h", "#pragma once\nint a(void);\n")
	source := s.file("src/a.c", "#include \"a.h\"\n#include <stdio.h>\nint a(void) { return puts(\"\"); }\n")
	s.file("src/b.c", "#include \"gone.h\"\n")
	dir := filepath.Dir(source)
	s.file("build/compile_commands.json", fmt.Sprintf(`[{"directory": %q, "file": "../src/a.c", "command": "gcc -I. -c ../src/a.c -o a.o"}, {"directory": %q, "file": "b.c", "arguments": ["gcc", "-c", "b.c"]}]`,
		filepath.Join(s.dir, "build"), dir))
	text := strings.Join(strings.Fields(s.want(0, source+": a precompiled header of 2 headers (of at most 10)\n", "", "costs", "--try-pch", source)), " ")
	for _, want := range []string{`"a.h" 1 -`, "<stdio.h>", " without, ", " of it to parse; ", "made in "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	s.file("relative.json", `[{"directory": "src", "file": "a.c", "command": "gcc -c a.c"}]`)
	s.want(0, source+": a precompiled header of 1 header (of at most 1)\n", "", "costs", "--try-pch=1", "--commands", filepath.Join(s.dir, "relative.json"), source)
	var results []trial.Result
	if err := json.Unmarshal([]byte(s.want(0, "", "", "costs", "--try-pch=1", "--json", "--", gcc, "-c", source)), &results); err != nil || len(results) != 1 || len(results[0].Headers) != 1 || results[0].With == 0 {
		t.Errorf("%v, %+v", err, results)
	}
	s.want(107, "", "db.json: no compilation database", "costs", "--try-pch", "--commands", s.file("db.json", "{}"), source)
	// One of a tree that is gone, in part.
	s.want(100, "not measured: gone.h: No such file or directory", "no precompiled header could be tried", "costs", "--try-pch", filepath.Join(dir, "b.c"))
	s.want(100, "", "has no command of "+filepath.Join(dir, "c.c"), "costs", "--try-pch", filepath.Join(dir, "c.c"))
}

// TestTryText: an estimate of more than parsing takes, which is all that can be saved, is said to be of something else.
func TestTryText(t *testing.T) {
	r := trial.Result{Unit: "a.cc", Headers: []trial.Header{{Name: "<map>", Files: 2}}, Without: 4 * time.Second, Parsed: time.Second, With: 3500 * time.Millisecond, Made: time.Second, Bytes: 1 << 20}
	for estimated, want := range map[time.Duration]string{
		0:                      " saves 500 ms (12%)\n",
		500 * time.Millisecond: " saves 500 ms (12%); estimated 500 ms (12%)\n",
		3 * time.Second:        " saves 500 ms (12%);\n  estimated 3 s: with what units make of these headers, which each still does\n",
	} {
		r.Estimated = estimated
		if got := string(tryText(&r, 10)); !strings.Contains(got, "4 s without, 1 s of it to parse; 3.5 s with it:"+want) {
			t.Errorf("%v: %s", estimated, got)
		}
	}
}
