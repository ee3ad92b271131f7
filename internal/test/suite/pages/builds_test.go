package pages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/browser"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestBuilds: a build that ran is on the manager's list, which leads to its page: with tables that keys sort, in both schemes and at
// both widths, under a policy that the browser does not complain of, and without the words of its command. Keys lead to its comparison with the one before.
func TestBuilds(t *testing.T) {
	part.Skip(t)
	chromium := browser.Start(t)
	s := watched(t, 2)
	dir := filepath.Join(s.Dir, "src")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("all.h", "#define ALL 1\n")
	write(hostile, "#include \"all.h\"\nint hostile;\n")
	for i := range 3 {
		write(fmt.Sprintf("u%d.c", i), fmt.Sprintf("#include \"all.h\"\nint unit_%d;\n", i))
	}
	build := func() {
		cmd := exec.CommandContext(s.ctx, s.Wrapper, "build", "--no-progress", "--", "sh", "-c", `: SECRET=word; for f in *.c; do "$0" gcc -c "$f" -o "$f.o" || exit 1; done`, s.Wrapper)
		cmd.Env, cmd.Dir = s.Env(), dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	build()
	write("all.h", "#define ALL 2\n")
	build()
	for width, height := range map[int]int{1400: 1100, 500: 1400} {
		for _, dark := range []bool{false, true} {
			p := chromium.Open("http://"+s.Manager.HTTP+"/builds", browser.Look{Width: width, Height: height, Dark: dark})
			p.WaitFor("the builds", `document.querySelectorAll('tbody a').length === 2`)
			p.Eval(`document.querySelector('tbody a').click()`, nil)
			p.WaitFor("the page of the last one", `document.title === 'Build 2 - rdistcc' && document.querySelectorAll('table.sorts [aria-sort]').length > 5`)
			var wide int
			if p.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
				t.Errorf("the page is %d pixels wide on %d", wide, width)
			}
			var text, colour string
			p.Eval(`document.body.innerText`, &text)
			for _, want := range []string{"u1.c", `<img src=x`, "all.h has changed", s.Daemons[0].Addr} {
				if !strings.Contains(text, want) {
					t.Errorf("the page lacks %q:\n%s", want, text)
				}
			}
			if strings.Contains(text, "SECRET") {
				t.Error("the page has words of the command")
			}
			if p.Eval(`getComputedStyle(document.body).backgroundColor`, &colour); (colour == "rgb(18, 21, 27)") != dark {
				t.Errorf("dark is %v, and the page is %s", dark, colour)
			}
			const last = `[...document.querySelectorAll('table.sorts')].at(-1)`
			p.Eval(last+`.tHead.querySelector('button').focus()`, nil)
			p.Eval(`document.activeElement.click()`, nil) // as Enter does
			p.WaitFor("sorted by name", last+`.tHead.querySelector('th').getAttribute('aria-sort') === 'ascending'`)
			if *screenshots != "" {
				name := fmt.Sprintf("build-%d-%s.png", width, map[bool]string{false: "light", true: "dark"}[dark])
				if err := os.WriteFile(filepath.Join(*screenshots, name), p.Screenshot(width, height), 0o644); err != nil {
					t.Error(err)
				}
			}
			if c := p.Complaints(); len(c) > 0 {
				t.Errorf("the browser complains: %q", c)
			}
			// By keys alone to the comparison with the build before, and on from there.
			follow := func(selector, what, shown string) {
				p.Eval(`document.querySelector('`+selector+`').focus()`, nil)
				p.Press("Enter")
				p.WaitFor(what, shown)
			}
			follow(`nav a[href="2?with=1"]`, "the comparison", `document.readyState === 'complete' && document.querySelector('section h2')?.textContent === 'Compared with build 1'`)
			p.Eval(`document.querySelector('section').innerText`, &text)
			for _, want := range []string{"u1.c", `<img src=x`, "changed since the command ran last: all.h"} {
				if !strings.Contains(text, want) {
					t.Errorf("the comparison lacks %q:\n%s", want, text)
				}
			}
			if p.Eval(`document.documentElement.scrollWidth`, &wide); wide > width {
				t.Errorf("the comparison is %d pixels wide on %d", wide, width)
			}
			if *screenshots != "" {
				name := fmt.Sprintf("compare-%d-%s.png", width, map[bool]string{false: "light", true: "dark"}[dark])
				if err := os.WriteFile(filepath.Join(*screenshots, name), p.Screenshot(width, height), 0o644); err != nil {
					t.Error(err)
				}
			}
			follow(`nav a[href="2"]`, "the page without it", `document.readyState === 'complete' && document.title === 'Build 2 - rdistcc' && !document.querySelector('section')`)
			follow(`summary`, "all builds before", `document.querySelector('details').open && document.querySelectorAll('nav li a').length === 1`)
			if c := p.Complaints(); len(c) > 0 {
				t.Errorf("the browser complains: %q", c)
			}
			p.Eval(`document.querySelector('nav a[href="../builds"]').click()`, nil)
			p.WaitFor("the list again", `document.querySelectorAll('tbody a').length === 2`)
			p.Close()
		}
	}
}
