package buildpage

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/internal/gain"
	"github.com/rdistcc/rdistcc/internal/test/kit/browser"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

var began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// sample is a build with a command of each kind, of which the one that runs from second a to second b is job(a, b).
func sample() (*builds.Build, []report.JobRecord, *costs.Report) {
	job := func(name string, a, b int) report.JobRecord {
		return report.JobRecord{ID: uint64(a), Began: began.Add(time.Duration(a) * time.Second), Ended: began.Add(time.Duration(b) * time.Second), Finished: true,
			Cwd: "/w", Source: name, Host: "a.example:7632", CPUUS: uint32(b-a) * 1e6, Memory: 100 << 20}
	}
	jobs := []report.JobRecord{job("main.c", 0, 4), job("<img src=x onerror=document.title='owned'>.c", 0, 3), job("b.c", 1, 2), job("\u202elink.c", 5, 9), job("c.c", 4, 5)}
	jobs[2].Cached, jobs[2].Missed = "disk", ""
	jobs[3].Local, jobs[3].Reason, jobs[3].Detail = true, "link", "links <all>"
	jobs[4].Exit = 1
	jobs[0].Missed = "main.h has changed"
	var tally gain.Tally
	for i := range jobs {
		tally.Add(&jobs[i])
	}
	jobs[0].CreditUS, jobs[0].QueueUS = 200_000, 1_000_000
	b := &builds.Build{ID: 12, Command: []string{"make", "-j4", "X=</title>"}, Dir: "/w", Began: began, Ended: began.Add(10 * time.Second), Cores: 2}
	b.Gain = tally.Sum(b.Began, b.Ended, b.Cores)
	c := &costs.Report{Headers: []costs.Header{
		{Files: []costs.HeaderFile{{Name: "/w/main.h"}, {Name: "/w/x.h"}}, CPU: 3 * time.Second, Error: 500 * time.Millisecond, Units: 3, Touch: 5 * time.Second},
		{Files: []costs.HeaderFile{{Name: "/usr/include/stdio.h"}}, CPU: 2 * time.Second, Units: 3},
		{Files: []costs.HeaderFile{{Name: "/w/free.h"}}, Units: 1},
	}, Fit: costs.Fit{Error: -1}}
	return b, jobs, c
}

func write(t *testing.T, b *builds.Build, jobs []report.JobRecord, c *costs.Report) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, &Page{Build: b, Jobs: jobs, Costs: c}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestPage: the page says what became of each command, and names are text in it.
func TestPage(t *testing.T) {
	b, jobs, c := sample()
	text := write(t, b, jobs, c)
	for _, want := range []string{
		"<h1>Build 12</h1>", "make -j4 X=&lt;/title&gt;", "a.example:7632", "cache: disk", "c.c: 1 s, from 4 s on", "not in the cache: main.h has changed",
		"link: links &lt;all&gt;", `\u202elink.c`, ">here<", "c.c</td><td class=\"k-failed\">a.example:7632, failed", "main.h and 1 other always read with it: 3 s over 3 units", "main.h (+1)",
		`<td>a.example:7632</td><td class="n" data-v="3">3</td><td class="n" data-v="3">60%</td><td class="n" data-v="1">1</td><td class="n" data-v="8000000000">8 s</td>` +
			`<td class="n" data-v="1200000000">1.2 s</td><td class="n" data-v="5000000000">5 s</td><td class="n" data-v="2">2</td>`,
		"there are too few units for more", `data-v="500000000">± 500 ms`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "<img") || strings.Contains(text, "http://") || strings.Contains(text, "https://") {
		t.Error("a name is markup, or the page fetches something")
	}
	b.Gain = gain.Sum{}
	if text := write(t, b, nil, nil); !strings.Contains(text, "No command of this build came to rdistcc") {
		t.Error("a build without commands does not say so")
	}
}

// TestTimeline: commands of a place that overlap are in lanes of their own, and the shortest of very many are left out.
func TestTimeline(t *testing.T) {
	b, jobs, _ := sample()
	rows := timelineOf(b, jobs).Rows
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprintf("%s %d %s", r.Name, r.Most, r.Busy))
	}
	if want := "a.example:7632 2 50%, cache: disk 1 10%, here 1 40%"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	many := make([]report.JobRecord, 100_000)
	for i := range many {
		many[i] = report.JobRecord{Began: began, Ended: began.Add(time.Duration(i) * time.Microsecond), Finished: true, Host: fmt.Sprint("h", i%2000)}
	}
	line := timelineOf(b, many)
	n := 0
	for _, r := range line.Rows {
		n += len(r.Bars)
	}
	if n != maxBars || line.Left != len(many)-maxBars {
		t.Errorf("%d bars are drawn and %d left out, of %d", n, line.Left, len(many))
	}
	if text := write(t, b, many, nil); len(text) > 4<<20 {
		t.Errorf("the page of 100,000 commands has %d bytes", len(text))
	}
}

// TestTreemap: areas are as large as what headers cost, fill the map, and do not overlap.
func TestTreemap(t *testing.T) {
	c := new(costs.Report)
	for i := range 200 {
		c.Headers = append(c.Headers, costs.Header{Files: []costs.HeaderFile{{Name: fmt.Sprintf("/w/h%d.h", i)}}, CPU: time.Second / time.Duration(i+1)})
	}
	c.Headers[1].Files[0].Name = "/usr/include/stdio.h"
	m := treemapOf("/elsewhere", c) // a build need not run where its sources are
	if m.Areas[0].System || !m.Areas[1].System {
		t.Error("headers of the project and of the system are mixed up")
	}
	if len(m.Areas) != maxAreas || m.Rest == "" {
		t.Fatalf("%d areas, the rest is %q", len(m.Areas), m.Rest)
	}
	sum := 0.0
	for i, a := range m.Areas {
		sum += a.Width * a.Height
		if got, want := a.Width*a.Height/(m.Areas[0].Width*m.Areas[0].Height), 1/float64(i+1); math.Abs(got-want) > 1e-6 {
			t.Errorf("area %d is %f of the first, want %f", i, got, want)
		}
		if a.X < 0 || a.Y < 0 || a.X+a.Width > mapWidth+1e-6 || a.Y+a.Height > mapHeight+1e-6 {
			t.Errorf("area %d is outside: %+v", i, a)
		}
		for k, o := range m.Areas[:i] {
			if a.X+1e-6 < o.X+o.Width && o.X+1e-6 < a.X+a.Width && a.Y+1e-6 < o.Y+o.Height && o.Y+1e-6 < a.Y+a.Height {
				t.Errorf("areas %d and %d overlap", i, k)
			}
		}
	}
	if math.Abs(sum-mapWidth*mapHeight) > 1 {
		t.Errorf("the areas are %f together", sum)
	}
	if treemapOf("/w", new(costs.Report)) != nil {
		t.Error("a map of nothing")
	}
}

// TestPath: the chain of those that can have waited for each other, back from the last one.
func TestPath(t *testing.T) {
	b, jobs, _ := sample()
	var got []string
	for _, s := range pathOf(b, jobs) {
		got = append(got, fmt.Sprintf("%s %v %v", s.Name, s.Gap, s.Took))
	}
	if want := `main.c 0s 4s, c.c 0s 1s, \u202elink.c 0s 4s`; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestBrowser: the file shows itself in a browser without network, at both widths and in both schemes, and sorts its tables.
func TestBrowser(t *testing.T) {
	chromium := browser.Start(t)
	for _, width := range []int{1400, 500} {
		for _, dark := range []bool{false, true} {
			p := openSample(t, chromium, browser.Look{Width: width, Height: 900, Dark: dark})
			var wide int
			if p.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
				t.Errorf("the page is %d pixels wide on %d", wide, width)
			}
			const last = `[...document.querySelectorAll('table.sorts')].at(-1)`
			var first string
			p.Eval(last+`.tBodies[0].rows[0].cells[0].textContent`, &first)
			if first != "main.c" && first != `\u202elink.c` {
				t.Errorf("the first row is %q, want one that took longest", first)
			}
			p.Eval(`[...`+last+`.tHead.querySelectorAll('button')].find(b => b.textContent === 'Took').click()`, nil)
			p.WaitFor("the largest first", last+`.tBodies[0].rows[0].cells[3].dataset.v === '4000000000'`)
			p.Eval(`[...`+last+`.tHead.querySelectorAll('button')].find(b => b.textContent === 'Took').click()`, nil)
			p.WaitFor("the smallest first", last+`.tBodies[0].rows[0].cells[3].dataset.v === '1000000000'`)
			p.Eval(last+`.tHead.querySelector('button').click()`, nil)
			p.WaitFor("by name", last+`.tBodies[0].rows[0].cells[0].textContent.startsWith('<img')`)
			const causes = `document.querySelector('section table.sorts')`
			p.Eval(`[...`+causes+`.tHead.querySelectorAll('button')].find(b => b.textContent === 'Change').click()`, nil)
			p.WaitFor("the longest first", causes+`.tBodies[0].rows[0].cells[0].textContent === 'no longer in the cache'`)
			p.Eval(`[...`+causes+`.tHead.querySelectorAll('button')].find(b => b.textContent === 'Change').click()`, nil)
			p.WaitFor("what became faster first", causes+`.tBodies[0].rows[0].cells[0].textContent === 'commands that are gone'`)
			var title string
			if p.Eval(`document.title`, &title); title != "Build 12 - rdistcc" {
				t.Errorf("the title is %q", title)
			}
			if c := p.Complaints(); len(c) > 0 {
				t.Errorf("the browser complains: %q", c)
			}
			p.Close()
		}
	}
}

// openSample opens the page of the sample, with a comparison, in a browser.
func openSample(t *testing.T, chromium *browser.Browser, look browser.Look) *browser.Page {
	t.Helper()
	b, jobs, c := sample()
	file := filepath.Join(t.TempDir(), "build.html")
	var out bytes.Buffer
	if err := Write(&out, &Page{Build: b, Jobs: jobs, Costs: c, Compared: comparedSample(t).Compared}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	p := chromium.Open("file://"+file, look)
	p.WaitFor("the tables", `document.readyState === 'complete' && document.querySelectorAll('table.sorts').length > 9`)
	return p
}

// TestPrinted: on paper everything is on the page, in dark letters on white also if the screen is dark, and colours that mean something
// are printed.
func TestPrinted(t *testing.T) {
	chromium := browser.Start(t)
	const paper = 700 // pixels between the margins of A4, about
	for _, dark := range []bool{false, true} {
		p := openSample(t, chromium, browser.Look{Width: paper, Height: 1000, Dark: dark, Print: true})
		var cut, pale []string
		p.Eval(fmt.Sprintf(`[...document.querySelectorAll('td, th, dd, dt, h1, h2, h3, p, li, svg, .ticks span')].filter(e => { const r = e.getBoundingClientRect();
			return r.right > %d + 1 || r.left < 0 || e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && getComputedStyle(e).overflowX !== 'visible'; })
			.map(e => e.tagName + ': ' + e.textContent.slice(0, 40))`, paper), &cut)
		if len(cut) > 0 {
			t.Errorf("dark is %v: cut off are %q", dark, cut)
		}
		p.Eval(`(() => {
			const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
			return [...document.querySelectorAll('td, th, dd, dt, h1, h2, h3, p, li, code, button, .dim, .ticks span')]
				.filter(e => 1.05 / (light(getComputedStyle(e).color.match(/[\d.]+/g).map(Number)) + 0.05) < 4.5).map(e => e.tagName + ': ' + e.textContent.slice(0, 40));
		})()`, &pale)
		if len(pale) > 0 {
			t.Errorf("dark is %v: too pale to be read on white are %q", dark, pale)
		}
		var background, exact string
		p.Eval(`getComputedStyle(document.body).backgroundColor`, &background)
		p.Eval(`getComputedStyle(document.querySelector('.legend li'), '::before').printColorAdjust || getComputedStyle(document.querySelector('.legend li')).printColorAdjust`, &exact)
		if background != "rgb(255, 255, 255)" || exact != "exact" {
			t.Errorf("dark is %v: the paper is %s, and colours are printed %q", dark, background, exact)
		}
		p.Close()
	}
}

// TestKeyboard: with Tab alone, each control and each area that scrolls is reached, and seen to be; Enter and Space sort.
func TestKeyboard(t *testing.T) {
	chromium := browser.Start(t)
	for _, dark := range []bool{false, true} {
		p := openSample(t, chromium, browser.Look{Width: 500, Height: 900, Dark: dark})
		p.Eval(`(() => { window.all = new Set(document.querySelectorAll('button, a[href], .scroll')); window.unseen = []; document.addEventListener('focusin', e => {
			window.all.delete(e.target);
			const s = getComputedStyle(e.target);
			if (s.outlineStyle === 'none' || parseFloat(s.outlineWidth) < 1) window.unseen.push(e.target.outerHTML.slice(0, 80)); }); })()`, nil)
		var controls, left int
		p.Eval(`window.all.size`, &controls)
		for range controls + 5 {
			p.Press("Tab")
		}
		var unseen []string
		p.Eval(`window.all.size`, &left)
		p.Eval(`window.unseen`, &unseen)
		if controls < 20 || left > 0 || len(unseen) > 0 {
			var names []string
			p.Eval(`[...window.all].map(e => e.outerHTML.slice(0, 80))`, &names)
			t.Errorf("of %d controls, %d are not reached by Tab: %q; focus is not seen on %q", controls, left, names, unseen)
		}
		const last = `[...document.querySelectorAll('table.sorts')].at(-1)`
		p.Eval(`[...`+last+`.tHead.querySelectorAll('button')].find(b => b.textContent === 'Took').focus()`, nil)
		p.Press("Enter")
		p.WaitFor("the largest first", last+`.tBodies[0].rows[0].cells[3].dataset.v === '4000000000'`)
		p.Press("Space")
		p.WaitFor("the smallest first", last+`.tBodies[0].rows[0].cells[3].dataset.v === '1000000000'`)
		p.WaitFor("the head that says so", last+`.tHead.querySelector('[aria-sort=ascending]').textContent === 'Took'`)
		var fetched int
		if p.Eval(`performance.getEntriesByType('resource').length`, &fetched); fetched > 0 {
			t.Errorf("the page fetches %d files", fetched)
		}
		p.Close()
	}
}

// TestClockThatJumped: a clock that goes back or forth while a build runs makes no figure negative, and no page without its commands.
func TestClockThatJumped(t *testing.T) {
	for _, by := range []time.Duration{-30 * 365 * 24 * time.Hour, -time.Hour, -5 * time.Second, time.Hour, 80 * 365 * 24 * time.Hour} {
		b, jobs, c := sample()
		for i := range jobs {
			if i%2 == 0 {
				jobs[i].Ended = jobs[i].Ended.Add(by)
			} else {
				jobs[i].Began = jobs[i].Began.Add(by)
			}
		}
		b.Ended = b.Ended.Add(by)
		text := write(t, b, jobs, c)
		for _, want := range []string{"main.c", "b.c", "c.c", "<h1>Build 12</h1>"} {
			if !strings.Contains(text, want) {
				t.Errorf("%v: the page lacks %q", by, want)
			}
		}
		if bad := regexp.MustCompile(`NaN|Inf|(?:width|height|x|y|data-v)="-[^"]*"|>(?:about )?-[0-9][^<]*<`).FindAllString(text, 3); len(bad) > 0 {
			t.Errorf("%v: the page has %q", by, bad)
		}
	}
}

// TestServed: the page that a manager serves has no script or style in it, and no words of the command but the program's name. One of a
// build that runs, or was killed, says so.
func TestServed(t *testing.T) {
	b, jobs, c := sample()
	b.Command[0] = "/usr/bin/make"
	served := func() string {
		var out bytes.Buffer
		if err := WriteServed(&out, &Page{Build: b, Jobs: jobs, Costs: c}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	text := served()
	for _, want := range []string{`href="../build.css"`, `src="../build.js"`, `href="../builds"`, "<code>make ...</code>"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text, "-j4") || strings.Contains(text, "<style") || strings.Contains(text, "unsafe-inline") || strings.Contains(text, "addEventListener") {
		t.Error("the page has words of the command, or what its policy does not permit")
	}
	b.Ended = time.Time{}
	if text := served(); !strings.Contains(text, "it was killed") {
		t.Error("a build that was killed does not say so")
	}
	if b.Running = true; !strings.Contains(served(), "it runs since") {
		t.Error("a build that runs does not say so")
	}
	c.Cache = costs.Cache{Asked: 3, Hits: 1, Saved: 7 * time.Second, Missed: []costs.Miss{{Cause: costs.CauseChanged, File: "/w/main.h", Compiles: 2, CPU: 4 * time.Second}}}
	b.Running, b.Ended = false, began.Add(10*time.Second)
	if text := served(); !strings.Contains(text, "main.h has changed</td><td class=\"n\" data-v=\"2\">2</td><td class=\"n\" data-v=\"4000000000\">4 s") || !strings.Contains(text, "7 s of CPU time") {
		t.Error("the page does not say what the cache saved and missed")
	}
}
