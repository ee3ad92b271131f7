package pages

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/browser"
	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
)

// hostile is a name of a source that would be markup, and would change the direction of what follows.
const hostile = `<img src=x onerror=document.title='owned'>` + "\u202e.c"

// build compiles sources whose names and times look like a build's, n at a time, until stop is closed.
func (s *shell) build(gcc string, n int, stop <-chan struct{}) (wait func()) {
	var work sync.WaitGroup
	dirs := []string{"net", "fs", "mm", "drivers/gpu", "lib"}
	names := []string{"socket", "inode", "page_alloc", "route", "journal", "queue", "scatter", "checksum", "device"}
	dir := filepath.Join(s.Dir, "src")
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			s.Fatal(err)
		}
	}
	for w := range n {
		work.Go(func() {
			for i := w; ; i += n {
				select {
				case <-stop:
					return
				default:
				}
				k := i
				if i/n%3 > 0 { // what was compiled before
					k = i % 50
				}
				ms := 300 + k*7919%13*(k*104729%11)*30
				exit := ""
				if k%41 == 40 {
					exit = " exit 1"
				}
				file := fmt.Sprintf("%s/%s.c", dirs[k%len(dirs)], names[k*31%len(names)])
				if i%60 == 5 {
					file = hostile
				}
				text := fmt.Sprintf("/* stand-in: sleep %d cpu %d output 4000%s */ int f%d;\n", ms, ms/50, exit, k)
				at := filepath.Join(dir, "w", strconv.Itoa(w), file)
				if os.MkdirAll(filepath.Dir(at), 0o755) != nil || os.WriteFile(at, []byte(text), 0o644) != nil {
					return
				}
				args := []string{gcc, "-c", file, "-o", "out.o"}
				if w < 2 { // a compiler whose results are kept
					args[0] = "gcc"
				}
				if i%29 == 3 {
					args = []string{gcc, "-E", file}
				}
				cmd := exec.CommandContext(s.ctx, s.Wrapper, args...)
				cmd.Env, cmd.Dir = s.Env(), filepath.Join(dir, "w", strconv.Itoa(w))
				_ = cmd.Run() // some fail, as they should
			}
		})
	}
	return work.Wait
}

// watched starts a farm for a browser to look at, which has a stand-in for a compiler besides those of this machine.
func watched(t *testing.T, jobs ...int) *shell {
	return watchedWith(t, []string{filepath.Dir(farmtest.StandIn(t)), "/usr/bin"}, jobs...)
}

// watchedWith starts a farm of a daemon for each number of jobs, with the compilers of these directories.
func watchedWith(t *testing.T, compilers []string, jobs ...int) *shell {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	t.Cleanup(cancel)
	f := farmtest.New(t, farmtest.Dir(t))
	s := &shell{t, f, ctx}
	f.Vars = append(f.Vars, "RDISTCC_CACHE=on")
	if err := f.Secure(ctx, farm.Security{}); err != nil {
		t.Fatal(err)
	}
	if err := f.AddSettings("daemon.yaml", "toolchains: {dirs: ["+strings.Join(compilers, ", ")+"]}\n"); err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for i, n := range jobs {
		d, err := f.StartDaemon(ctx, fmt.Sprintf("host%d", i), "--jobs", fmt.Sprint(n))
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, d.Addr)
	}
	if err := f.StartManager(ctx, "--hosts", strings.Join(hosts, " ")); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestLive: in a browser, both pages show what runs, as it changes, and the names of sources as text.
func TestLive(t *testing.T) {
	b := browser.Start(t)
	s := watched(t, 2, 1)
	stop := make(chan struct{})
	wait := s.build(farmtest.StandIn(t), 4, stop)
	defer wait()
	defer close(stop)
	for _, x := range []struct{ name, url string }{{"manager", s.Manager.HTTP}, {"daemon", s.Daemons[0].HTTP}} {
		t.Run(x.name, func(t *testing.T) {
			p := b.Open("http://"+x.url+"/", browser.Look{Width: 1400, Height: 900})
			defer p.Close()
			p.WaitFor("the page is live", `document.querySelector('#feed').textContent === 'live'`)
			p.WaitFor("bars", `document.querySelectorAll('svg.lanes g.bar').length > 3`)
			p.WaitFor("names of sources in bars", `[...document.querySelectorAll('svg.lanes title')].some(t => /\w+\.c/.test(t.textContent))`)
			p.WaitFor("a table that changes", `[...document.querySelectorAll('td')].some(t => /page_alloc\.c|inode\.c/.test(t.textContent))`)
			if x.name == "manager" { // a file with such a name is compiled on no host
				p.WaitFor("a hostile name, as text", `document.body.textContent.includes('<img src=x')`)
			}
			var title string
			if p.Eval(`document.title`, &title); strings.Contains(title, "owned") {
				t.Error("a name of a source was run as a script")
			}
			p.Eval(`document.querySelector('#pause').click()`, nil)
			p.WaitFor("paused", `document.querySelector('#feed').textContent === 'paused'`)
			p.Eval(`document.querySelector('#pause').click()`, nil)
			p.WaitFor("live again", `document.querySelector('#feed').textContent === 'live'`)
			if c := p.Complaints(); len(c) > 0 {
				t.Errorf("the browser complains: %q", c)
			}
		})
	}
}
