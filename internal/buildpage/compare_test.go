package buildpage

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/comparison"
	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// markup is a name that would be more than text in a page that does not escape it.
const markup = "<img src=x onerror=document.title='owned'>\u202e\n.c"

// comparedSample is the page of a build with commands of which each has another cause not to take as long as before.
func comparedSample(t *testing.T) *Page {
	t.Helper()
	store := builds.Open(t.TempDir())
	var pair [2]*builds.Build
	var all [2][]report.JobRecord
	for i := range pair {
		begin := began.Add(time.Duration(i) * time.Hour)
		job := func(name, host string, seconds int) *report.JobRecord {
			all[i] = append(all[i], report.JobRecord{ID: uint64(len(all[i])), Began: begin.Add(time.Duration(len(all[i])) * time.Second), Finished: true, Cwd: "/w", Source: name,
				Output: strings.TrimSuffix(name, "c") + "o", Host: host, CPUUS: uint32(seconds) * 900_000, Asked: true, Missed: "nothing is known of an earlier compile"})
			r := &all[i][len(all[i])-1]
			r.Ended = r.Began.Add(time.Duration(seconds) * time.Second)
			return r
		}
		for k := range 12 {
			job(fmt.Sprintf("src/module-with-a-long-name-%d/implementation.c", k), fmt.Sprintf("build%d.example.com:7632", k%3), 4)
		}
		hit := job("src/parser.c", "build1.example.com:7632", 11)
		if i == 0 {
			hit.Cached, hit.Missed, hit.Ended = "manager", "", hit.Began.Add(20*time.Millisecond)
			job("src/removed.c", "build1.example.com:7632", 2)
		} else {
			hit.Missed = "main.h has changed"
			job(markup, "build2.example.com:7632", 9)
		}
		job("src/lexer.c", fmt.Sprintf("build%d.example.com:7632", 1+i), 3+2*i)
		if x := job("src/main.c", "build0.example.com:7632", 3+4*i); i == 1 {
			x.Local, x.Host, x.Reason, x.CPUUS = true, "", "local-share", 0
		}
		job("src/wait.c", "build0.example.com:7632", 2+2*i).QueueUS = uint32(i) * 2_000_000
		log := store.New(builds.Build{Command: []string{"make", "TOKEN=secret"}, Dir: "/w", Began: begin, Cores: 2})
		log.Add(all[i])
		log.Finish(begin.Add(time.Duration(21+12*i) * time.Second))
		if log.Err() != nil {
			t.Fatal(log.Err())
		}
		pair[i] = &log.Build
	}
	_, _, c := sample()
	x := comparison.Of(store, pair[0], pair[1])
	x.AddHeaders(&costs.Report{}, c)
	x.Notes = []string{"a line about <records>"}
	return &Page{Build: pair[1], Jobs: all[1], Costs: c, Compared: x, Others: []builds.Build{*pair[1], *pair[0]}}
}

// TestCompared: the page says what the comparison says, names are text in it, and a cause's bar is as long as what it weighs, on its side.
func TestCompared(t *testing.T) {
	p := comparedSample(t)
	var out bytes.Buffer
	if err := Write(&out, p); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{
		"<h1>Build 2</h1>", "Compared with build 1</h2>", "Build 2 took 33 s, 12 s longer than build 1 (&#43;57%). Its commands took 26 s more together. What weighs most: no longer in the cache (&#43;11 s, 1 command).",
		`<th scope="row">from the cache</th><td class="n">1 (6%)</td><td class="n">0 (0%)</td><td class="n">-1</td>`, "&lt;img src=x onerror=document.title=&#39;owned&#39;&gt;\\u202e\\n.c",
		"not in the cache: main.h has changed", "here: local-share", "build2.example.com:7632, before build1.example.com:7632", "waited 2 s, before 0 s", ">gone<",
		`<td>commands that are gone</td><td class="n" data-v="1">1</td><td class="n" data-v="-2000000000">-2 s</td>`,
		`<rect x="0.0" width="15.4" height="10" class="k-cached"/><path d="M15.4 0V10"/>`, `<rect x="15.4" width="84.6" height="10" class="k-trouble"/><path d="M15.4 0V10"/>`,
		"a line about &lt;records&gt;", "this machine does its share",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "<img") || strings.Contains(text, "?with=") {
		t.Error("a name is markup, or the file has links to other builds")
	}

	// A page that is served leads to other builds, most of all to the one before of the same command and directory.
	at := func(id int, dir string, ended bool, words ...string) builds.Build {
		b := builds.Build{ID: id, Dir: dir, Command: words, Began: p.Build.Began.Add(time.Duration(id-20) * time.Minute)}
		if ended {
			b.Ended = b.Began.Add(time.Second)
		}
		return b
	}
	p.Build.ID, p.Compared = 20, nil
	p.Others = []builds.Build{at(21, "/w", true, "make", "TOKEN=secret"), *p.Build, at(19, "/w", false, "make", "TOKEN=secret"), at(18, "/w", true, "ninja"), at(17, "/<else>", true, "make", "TOKEN=secret"),
		at(16, "/w", true, "make", "TOKEN=secret"), at(15, "/w", true, "make", "TOKEN=secret")}
	out.Reset()
	if err := WriteServed(&out, p); err != nil {
		t.Fatal(err)
	}
	text = out.String()
	var links []string
	for _, m := range regexp.MustCompile(`with=(\d+)"`).FindAllStringSubmatch(text, -1) {
		links = append(links, m[1])
	}
	if got := strings.Join(links, " "); got != "16 18 17 16 15" || strings.Contains(text, "secret") || !strings.Contains(text, "make ... in /&lt;else&gt;, 1 s") {
		t.Errorf("the page has links to %s, or shows a command or markup", got)
	}
	p.Others = p.Others[:4]
	out.Reset()
	if err := WriteServed(&out, p); err != nil || !strings.Contains(out.String(), `<a href="20?with=18">compare with build 18, the one before</a>`) {
		t.Errorf("%v: no link to the build before of another command", err)
	}
}
