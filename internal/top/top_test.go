package top

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

var update = flag.Bool("update", false, "rewrite the frames in testdata")

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// answer is the status of a manager in the middle of a build, n seconds after began.
func answer(n int) *report.Status {
	s := &report.Status{
		Version: "v1.8.0", PID: 4711, Since: began.Add(-90 * time.Minute), Running: 31, Waiting: report.WaitingStatus{Credit: 3, Local: 1},
		Jobs: []report.JobCount{
			{Place: "remote", Host: "build1:7632", OK: uint64(900 + 24*n), Failed: 2},
			{Place: "cached", Reason: "disk", OK: 150},
			{Place: "local", Reason: "link", OK: 40},
			{Place: "local", Reason: "diagnostics", OK: 60, Failed: 7},
			{Place: "local", Reason: "host-lost", OK: 2},
		},
		Cache: report.CacheCounts{Asked: 1100, Hits: map[string]uint64{"disk": 150}},
		Recent: []report.JobRecord{
			{Source: "net/ipv4/tcp_input.c", Local: true, Reason: "host-lost", Detail: "build3:7632 lost (connection reset)", Trouble: true},
			{Source: "lib/warns.c", Local: true, Reason: "diagnostics"},
			{Output: "vmlinux", Local: true, Reason: "link"},
		},
		Drained: []string{"build2:7632"},
	}
	for i := 1; i <= 12; i++ {
		h := report.HostStatus{Addr: fmt.Sprintf("build%d:7632", i), State: "up", Jobs: 8, Tools: 3, Running: i % 5, OK: uint64(80 * i), Out: uint64(i) << 20, In: uint64(i) << 18,
			Tree: true, Version: "v1.8.0", RTTUS: int64(180 * i), Rate: 11e6 * float64(i), Speed: 0.9 + float64(i)/50, Sandbox: "confined",
			Load: &job.Load{Jobs: 8, Running: uint16(i % 9), Queued: uint16(i % 3), LoadAvg: uint32(45 * i), MemoryFree: 8 << 30}}
		if i == 1 {
			h.OK, h.Out, h.In = uint64(80+24*n), uint64(1<<20+n<<19), uint64(1<<18+n<<16)
		}
		s.Hosts = append(s.Hosts, h)
	}
	s.Hosts[1].Drained = true
	s.Hosts[2] = report.HostStatus{Addr: "build3:7632", State: "down", Error: "connection refused", PauseMS: 7000}
	s.Hosts[3].Version = "v1.7.2"
	s.Hosts[4].Refused = "every place is taken by clients with a larger share"
	s.Hosts = append(s.Hosts, report.HostStatus{Addr: "dns+farm.example", State: "source", Error: "nobody is there"})
	for i := range 31 {
		u := report.Underway{ID: uint64(100 + i), Source: fmt.Sprintf("drivers/gpu/drm/amd/display/dc/core/dc_link_%d.c", i), Phase: report.PhaseCompiles,
			Hosts: []string{fmt.Sprintf("build%d:7632", 1+i%12)}, AgeMS: int64(200 * (31 - i)), PhaseMS: int64(150 * (31 - i))}
		switch i % 10 {
		case 7:
			u.Phase, u.Hosts = report.PhaseWaits, nil
		case 8:
			u.Phase, u.Hosts, u.Here = report.PhaseRuns, nil, true
		case 9:
			u.Hosts = append(u.Hosts, "build12:7632")
		}
		s.Underway = append(s.Underway, u)
	}
	return s
}

// model returns a Model of a size that has seen six answers, one a second.
func model(width, height int) (*Model, time.Time) {
	m := New(time.Second, false)
	m.Resize(width, height)
	now := began
	for n := range 6 {
		now = began.Add(time.Duration(n) * time.Second)
		m.Take(Answer{Status: answer(n)}, now)
	}
	return m, now
}

var sizes = [][2]int{{80, 24}, {140, 40}, {20, 10}}

// TestFrames compares frames with those in testdata. `go test ./internal/top -update` rewrites them.
func TestFrames(t *testing.T) {
	for _, c := range []struct {
		name string
		keys string
		do   func(m *Model, now *time.Time)
	}{
		{name: "hosts"},
		{name: "hosts-down", keys: "down down j"},
		{name: "hosts-sorted", keys: "s s s s s r end"},
		{name: "hosts-filtered", keys: "/ u i l d 1 enter"},
		{name: "filtering", keys: "/ x y"},
		{name: "files", keys: "tab"},
		{name: "reasons", keys: "3"},
		{name: "drain", keys: "down d"},
		{name: "undrain", keys: "down down u"},
		{name: "drained", do: func(m *Model, now *time.Time) {
			m.Say("build1:7632 gets nothing new; 3 jobs of this machine will be finished there", false, *now)
		}},
		{name: "help", keys: "?"},
		{name: "paused", keys: "p"},
		{name: "silent", do: func(_ *Model, now *time.Time) { *now = now.Add(9 * time.Second) }},
		{name: "gone", do: func(m *Model, now *time.Time) {
			last := answer(0)
			last.NotRunning = &report.NotRunning{Ended: true}
			m.Take(Answer{Status: last, Trouble: "no connection manager runs at /home/u/.cache/rdistcc/cm.sock; the first compile starts one; the last one (v1.8.0) ran for 1h30m and ended 2s ago: asked to stop"}, *now)
			*now = now.Add(4 * time.Second)
		}},
		{name: "none", do: func(m *Model, now *time.Time) {
			w, h := m.width, m.height
			*m = *New(time.Second, false)
			m.Resize(w, h)
			m.Take(Answer{Trouble: "no connection manager runs at /home/u/.cache/rdistcc/cm.sock; the first compile starts one"}, *now)
		}},
		{name: "settings", do: func(m *Model, now *time.Time) {
			s := answer(5)
			s.ListError, s.ListKept = "hosts:3: build7/many: no number of jobs", true
			m.Take(Answer{Status: s}, *now)
		}},
	} {
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s-%dx%d", c.name, size[0], size[1]), func(t *testing.T) {
				m, now := model(size[0], size[1])
				for _, k := range strings.Fields(c.keys) {
					m.Key(k)
				}
				if c.do != nil {
					c.do(m, &now)
				}
				f := m.View(now)
				check(t, m, f)
				file := filepath.Join("testdata", fmt.Sprintf("%s-%dx%d.txt", c.name, size[0], size[1]))
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
			})
		}
	}
}

// codes are those that a frame may have.
var codes = regexp.MustCompile("\x1b\\[(1|2|7|1;4|31|32|33)?m")

// check fails if a frame does not fit the screen, or could have the terminal do something.
func check(t *testing.T, m *Model, f Frame) {
	t.Helper()
	if len(f) > m.height {
		t.Errorf("%d lines on a screen of %d", len(f), m.height)
	}
	for i, l := range f {
		if w := Width(l.String()); w > m.width {
			t.Errorf("line %d has %d columns of %d: %q", i, w, m.width, l)
		}
	}
	for _, r := range codes.ReplaceAllString(f.Styled(), "") {
		if r != '\n' && Text(string(r)) != string(r) {
			t.Fatalf("%q in a frame", r)
		}
	}
}
