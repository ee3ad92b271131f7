package top

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// few is the status of a small farm n seconds after began, whose load rises and falls, and whose cache gets better.
func few(n int) *report.Status {
	s := answer(0)
	s.Hosts = s.Hosts[:2]
	s.Drained = nil
	s.Underway = s.Underway[:14]
	for i := range n {
		jobs := uint64(12 + 10*math.Sin(float64(i)/8))
		s.Jobs[0].OK += jobs
		s.Cache.Asked += jobs
		s.Cache.Hits["disk"] += jobs * uint64(i) / 80
	}
	return s
}

// watched returns a Model that has seen a small farm for a minute and a half.
func watched(width, height int, plain bool) (*Model, time.Time) {
	m := New(time.Second, plain)
	m.Resize(width, height)
	now := began
	for n := range 90 {
		now = began.Add(time.Duration(n)*time.Second + 300*time.Millisecond)
		m.Take(Answer{Status: few(n)}, now)
	}
	return m, now
}

// TestFewHosts: the rows that a few hosts leave free show the files that run, the oldest first, and the last minute is a line.
func TestFewHosts(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}, {40, 10}, {40, 16}, {20, 10}} {
		for _, plain := range []bool{false, true} {
			name := fmt.Sprintf("few-%dx%d", size[0], size[1])
			if plain {
				name += "-plain"
			}
			t.Run(name, func(t *testing.T) {
				m, now := watched(size[0], size[1], plain)
				f := m.View(now)
				check(t, m, f)
				file := filepath.Join("testdata", name+".txt")
				if *update {
					if err := os.WriteFile(file, []byte(f.String()), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if f.String() != string(want) {
					t.Errorf("the frame is\n%s\nand %s has\n%s", f, file, want)
				}
				for _, r := range f.String() {
					if plain && r > '~' {
						t.Fatalf("%q on a terminal without it", r)
					}
				}
			})
		}
	}
	m, now := watched(80, 24, false)
	if m.Key("/"); strings.Contains(m.View(now).String(), ".c ") {
		t.Error("files are shown to somebody who filters hosts")
	}
	m.Key("esc")
	s := few(90)
	s.Underway = nil
	m.Take(Answer{Status: s}, now.Add(time.Second))
	if f := m.View(now).String(); strings.Contains(f, "PHASE") {
		t.Errorf("a heading of nothing:\n%s", f)
	}
}

// TestTrend: a cell has what was done in its part of the minute, whenever answers came.
func TestTrend(t *testing.T) {
	status := func(done, asked, hits uint64) *report.Status {
		return &report.Status{PID: 1, Jobs: []report.JobCount{{OK: done}}, Cache: report.CacheCounts{Asked: asked, Hits: map[string]uint64{"disk": hits}}}
	}
	want := func(x *trend, jobs, share string) {
		t.Helper()
		a, b := x.cells(6)
		if got := fmt.Sprintf("%.1f", a); got != jobs {
			t.Errorf("jobs are %s, want %s", got, jobs)
		}
		if got := fmt.Sprintf("%.1f", b); got != share {
			t.Errorf("shares are %s, want %s", got, share)
		}
	}
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	x := new(trend)
	want(x, "[-1.0 -1.0 -1.0 -1.0 -1.0 -1.0]", "[-1.0 -1.0 -1.0 -1.0 -1.0 -1.0]")
	x.add(status(100, 50, 20), at(0))
	x.add(status(150, 100, 45), at(10))
	x.add(status(150, 100, 45), at(20))
	x.add(status(450, 400, 345), at(50)) // it was paused
	want(x, "[-1.0 5.0 0.0 10.0 10.0 10.0]", "[-1.0 0.5 -1.0 1.0 1.0 1.0]")
	x.add(status(470, 400, 345), at(54))
	want(x, "[5.0 0.0 10.0 10.0 10.0 5.0]", "[0.5 -1.0 1.0 1.0 1.0 -1.0]")
	for n := range 200 {
		x.add(status(470+uint64(n), 400, 345), at(55+float64(n)))
	}
	if len(x.points) > 63 {
		t.Errorf("%d points are kept", len(x.points))
	}
	want(x, "[1.0 1.0 1.0 1.0 1.0 1.0]", "[-1.0 -1.0 -1.0 -1.0 -1.0 -1.0]")
	x.add(status(700, 400, 345), at(100)) // the clock jumped back
	if len(x.points) != 1 {
		t.Errorf("%d points after the clock has jumped", len(x.points))
	}
	x.add(status(800, 400, 345), at(1e6)) // and forth
	want(x, "[0.0 0.0 0.0 0.0 0.0 0.0]", "[-1.0 -1.0 -1.0 -1.0 -1.0 -1.0]")
	x.add(status(10, 1, 0), at(1e6+1)) // another manager with the same number
	if len(x.points) != 1 {
		t.Errorf("%d points of two managers", len(x.points))
	}
}

func TestSpark(t *testing.T) {
	if got := spark([]float64{-1, 0, 0.001, 0.5, 1, 2}, 1, blocks); got != " ▁▂▅██" {
		t.Errorf("%q", got)
	}
	if got := spark([]float64{0, 0}, 0, ascii); got != "__" {
		t.Errorf("%q", got)
	}
}
