package ctl

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/gain"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// remoteJob returns the record of a compile on a host that took as long as it would have taken here.
func remoteJob(began time.Time) report.JobRecord {
	return report.JobRecord{Began: began, Ended: began.Add(time.Second), Host: "a:7632", Finished: true, HereUS: 1e6}
}

// TestFollow: a build's commands are told once, by the manager that was there and by the one that comes after it.
func TestFollow(t *testing.T) {
	s := newShell(t)
	var mu sync.Mutex // guards the next two
	var asked []string
	answers := []report.BuildJobs{
		{PID: 1, Next: 7}, // at the beginning
		{PID: 1, Next: 9, More: true, Jobs: make([]report.JobRecord, 2)},
		{PID: 1, Next: 10, Running: 3, Jobs: make([]report.JobRecord, 1)},
		{PID: 2, Next: 400, Jobs: make([]report.JobRecord, 100)}, // another manager, which understood the question otherwise
		{PID: 2, Next: 4, Lost: 2, Jobs: make([]report.JobRecord, 4)},
	}
	s.manager(func(q *ipc.Control) *ipc.Reply {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, strings.Join(q.Args, " "))
		a := answers[0]
		answers = answers[1:]
		return reply(t, a)
	})
	c := s.ctl()
	f := c.follow("x")
	if a := f.ask(); len(a.jobs) != 3 || a.running != 3 || f.err != nil {
		t.Errorf("the first: %d, %d running, %v", len(a.jobs), a.running, f.err)
	}
	if a := f.ask(); len(a.jobs) != 4 || f.lost != 2 {
		t.Errorf("of the next manager: %d, %d lost", len(a.jobs), f.lost)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"build x", "build x 7", "build x 9", "build x 10", "build x 0"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

// TestBuildWithoutAnswers: a manager that cannot say what ran where costs a line, not the build.
func TestBuildWithoutAnswers(t *testing.T) {
	s := newShell(t)
	s.env["PATH"] = os.Getenv("PATH")
	s.manager(func(*ipc.Control) *ipc.Reply {
		return &ipc.Reply{Code: reason.ExitArguments, Data: []byte(`the connection manager knows no "build"`)}
	})
	s.want(0, "done\n", "rdistcc: what ran where is not known: the connection manager knows no \"build\"\n", "build", "--", "sh", "-c", "echo done")
	s.want(5, "", "rdistcc: what ran where is not known", "build", "sh", "-c", "exit 5")
}

// TestBuildIsNotKept: a build runs where nothing can be written down.
func TestBuildIsNotKept(t *testing.T) {
	s := newShell(t)
	s.env["PATH"], s.env["XDG_STATE_HOME"] = os.Getenv("PATH"), s.file("state-file", "")
	s.want(0, "done\n", "rdistcc: this build is not kept: ", "build", "sh", "-c", "echo done")
}

func TestBuildText(t *testing.T) {
	began := time.Now().Add(-time.Hour)
	b := &builds.Build{ID: 3, Command: []string{"make", "-j8", "X=\x1b[31m"}, Began: began, Ended: began.Add(72 * time.Second), Cores: 4, Exit: 2, Lost: 5,
		Gain: gain.Sum{Jobs: 412, Failed: 1, Twice: 2, Asked: 391, BytesOut: 3 << 20, BytesIn: 5000, Alone: 271 * time.Second,
			Places:  []gain.Place{{Place: "remote", Name: "a:7632", Jobs: 371}, {Place: "cached", Name: "farm", Jobs: 20}, {Place: "local", Jobs: 21, Failed: 1}},
			Links:   []gain.Link{{Link: "/w/prog\x1b", Parts: 12, Remote: 9, Cached: 2}},
			Reasons: []gain.Reason{{Reason: "local-share", Jobs: 10, Took: 30 * time.Second, File: "x.c"}, {Reason: "link", Jobs: 5}, {Reason: "query", Jobs: 2}, {Reason: "probe", Jobs: 2}, {Reason: "unknown-option:-fx", Jobs: 1}, {Reason: "stdin", Jobs: 1}}}}
	text := string(buildText(b, time.Now()))
	words := strings.Join(strings.Fields(text), " ")
	for _, want := range []string{
		"rdistcc: build 3: make -j8 X=?[31m: exit status 2 took 72 s without the farm about 4m31s on 4 processors: 3.8 times as long",
		"commands 412: 371 on hosts, 20 from the cache, 21 here; 1 failed; 2 compiled on a host and then here again",
		"cache 20 of 391 that it was asked for (5%)", "bytes 3.0MiB sent, 4.9KiB received", "not counted up to 5 commands",
		"a:7632 371 90% 0", "cache (farm) 20 5% 0", "here 21 5% 1", "LINK WITH LTO PARTS ON HOSTS CACHED HERE /w/prog? 12 9 2 1", "why 21 commands ran here, the costliest reason first local-share 10 30 s",
		"add hosts or faster ones", "(x.c)", "the option -fx for certain", "and 1 reason more",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	b.Gain.Alone = 60 * time.Second
	if text := string(buildText(b, time.Now())); !strings.Contains(text, "about 60 s on 4 processors: the farm has cost 12 s\n") {
		t.Errorf("a farm that costs time: %s", text)
	}
	b.Ended = time.Time{}
	if text := string(buildText(b, time.Now())); !strings.Contains(text, "it was killed") || strings.Count(text, "\n") != 1 {
		t.Errorf("killed: %s", text)
	}
	lines := string(buildLines([]builds.Build{*b, {ID: 2, Running: true}}, time.Now()))
	if !regexp.MustCompile(`\n3 +1h0m +- +- +412 +90% +5% +killed +make`).MatchString(lines) || !strings.Contains(lines, "runs") {
		t.Errorf("lines:\n%s", lines)
	}
}

// screen is a terminal: as much of one as the progress line needs, and no more.
type screen struct {
	mu          sync.Mutex
	rows        [][]rune
	cols        int
	row, col    int
	top, bottom int
	saved       [2]int
	scrolled    []string // lines that have left the whole screen at its top
	odd         string   // a sequence that it does not know
}

func newScreen(rows, cols int) *screen {
	s := &screen{cols: cols, bottom: rows - 1, row: rows - 1} // a shell is mostly in the last line
	for range rows {
		s.rows = append(s.rows, nil)
	}
	return s
}

func (s *screen) down() {
	if s.row != s.bottom {
		s.row = min(s.row+1, len(s.rows)-1)
		return
	}
	if s.top == 0 {
		s.scrolled = append(s.scrolled, string(s.rows[0]))
	}
	copy(s.rows[s.top:s.bottom], s.rows[s.top+1:s.bottom+1])
	s.rows[s.bottom] = nil
}

var sequence = regexp.MustCompile(`^\x1b(?:[78D]|\[([0-9;]*)([A-Za-z]))`)

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for text := string(b); text != ""; {
		if m := sequence.FindStringSubmatch(text); m != nil {
			text = text[len(m[0]):]
			n := []int{1, 1}
			for i, w := range strings.Split(m[1], ";") {
				if v, err := strconv.Atoi(w); err == nil && i < 2 {
					n[i] = v
				}
			}
			switch m[0][1:] + m[2] {
			case "7":
				s.saved = [2]int{s.row, s.col}
			case "8":
				s.row, s.col = s.saved[0], s.saved[1]
			case "D":
				s.down()
			default:
				switch m[2] {
				case "A":
					s.row = max(s.row-1, 0)
				case "H":
					s.row, s.col = n[0]-1, n[1]-1
				case "K":
					s.rows[s.row] = nil
				case "m":
				case "r":
					s.top, s.bottom, s.row, s.col = 0, len(s.rows)-1, 0, 0
					if m[1] != "" {
						s.top, s.bottom = n[0]-1, n[1]-1
					}
				default:
					s.odd = m[0]
				}
			}
			continue
		}
		r, rest := rune(text[0]), text[1:]
		text = rest
		switch r {
		case '\r':
			s.col = 0
		case '\n':
			s.down()
		default:
			line := s.rows[s.row]
			for len(line) <= s.col {
				line = append(line, ' ')
			}
			line[s.col] = r
			s.rows[s.row] = line
			s.col++
		}
	}
	return len(b), nil
}

// line returns a line of the screen; text all that was ever written, from the top.
func (s *screen) line(i int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.rows[i])
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := slices.Clone(s.scrolled)
	for _, r := range s.rows {
		lines = append(lines, string(r))
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n") + "\n"
}

// terminal opens a terminal of that size. What is written to it reaches w.
func terminal(t *testing.T, rows, cols int, w *screen) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		need.Skipf(t, need.Sandbox, "no terminals: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		need.Skipf(t, need.Sandbox, "no terminals: %v", err)
	}
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(cols)}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			_, _ = w.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = slave.Close() // it may be closed already
		<-done
		_ = master.Close()
	})
	return slave
}

// TestProgress: the progress stands in the last line of a terminal while the build writes to the same terminal, whose
// text stays whole, and nothing of it is left.
func TestProgress(t *testing.T) {
	s := newShell(t)
	s.env["TERM"], s.env["PATH"] = "xterm", os.Getenv("PATH")
	var asked atomic.Int32
	s.manager(func(*ipc.Control) *ipc.Reply {
		b := report.BuildJobs{PID: 1, Running: 3}
		switch n := asked.Add(1); {
		case n == 2:
			b.Jobs = []report.JobRecord{remoteJob(time.Now()), remoteJob(time.Now())}
			fallthrough
		case n > 2:
			b.Next = 2
		}
		if _, err := os.Stat(filepath.Join(s.dir, "end")); err == nil {
			b.Running = 0
		}
		return reply(t, b)
	})
	view := newScreen(10, 60)
	tty := terminal(t, 10, 60, view)
	c := s.ctl()
	c.out, c.err = tty, tty
	ended := make(chan error, 1)
	go func() {
		ended <- c.build([]string{"sh", "-c", `cd "$0"; for i in $(seq 20); do echo "early $i"; done; printf 'half a '
			until [ -e seen ]; do sleep 0.02; done; echo line; for i in $(seq 20); do echo "late $i"; done; touch end; exit 4`, s.dir}, true, new(limits), "")
	}()
	const want = "rdistcc: 2 done, 3 running"
	for end := time.Now().Add(2 * time.Minute); !strings.HasPrefix(view.line(9), want) || view.line(8) != "half a "; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the last lines are %q and %q; all:\n%s", view.line(8), view.line(9), view.text())
		}
	}
	s.file("seen", "")
	var e *exitError
	if err := <-ended; !errors.As(err, &e) || e.code != 4 {
		t.Errorf("the build ended with %v", err)
	}
	if err := tty.Close(); err != nil {
		t.Error(err)
	}
	lines := []string{}
	for _, when := range []string{"early", "late"} {
		for i := range 20 {
			lines = append(lines, fmt.Sprintf("%s %d", when, i+1))
		}
	}
	lines = slices.Insert(lines, 20, "half a line")
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(view.text(), "a:7632"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no summary:\n%s", view.text())
		}
	}
	if got := view.text(); !strings.HasPrefix(got, strings.Join(lines, "\n")+"\nrdistcc: build 1: sh ") || strings.Contains(got, "running") {
		t.Errorf("the terminal has\n%s", got)
	}
	view.mu.Lock()
	defer view.mu.Unlock()
	if view.top != 0 || view.bottom != 9 || view.odd != "" {
		t.Errorf("lines %d to %d scroll; unknown: %q", view.top, view.bottom, view.odd)
	}
}

// TestNoProgress: where there is no room for it, or a terminal that obeys nothing, there is none.
func TestNoProgress(t *testing.T) {
	s := newShell(t)
	wide, narrow, low := newScreen(24, 80), newScreen(24, 19), newScreen(3, 80)
	for _, x := range []struct {
		term       string
		rows, cols int
		view       *screen
	}{{"dumb", 24, 80, wide}, {"", 24, 80, wide}, {"xterm", 24, 19, narrow}, {"xterm", 3, 80, low}} {
		s.env["TERM"] = x.term
		c := s.ctl()
		tty := terminal(t, x.rows, x.cols, x.view)
		c.err = tty
		log := builds.Open(t.TempDir()).New(builds.Build{Began: time.Now()})
		p := c.progressLine()
		p.show(log, 3)
		p.resize()
		p.clear()
		if text := x.view.text(); text != "\n" {
			t.Errorf("%q, %d by %d: %q", x.term, x.rows, x.cols, text)
		}
	}
	c := s.ctl()
	c.err = new(bytes.Buffer)
	if c.progressLine() != nil {
		t.Error("a progress line that is no terminal's")
	}
	// One of 20 columns is cut, not wrapped.
	p := &progressLine{rows: 10, cols: 20, began: time.Now()}
	if text := p.text(time.Now(), builds.Counts{Jobs: 123456}, 7); len(text) != 19 {
		t.Errorf("%q on 20 columns", text)
	}
}

// TestTraceIsSent: a build goes to a collector, with the headers that the environment has.
func TestTraceIsSent(t *testing.T) {
	s := newShell(t)
	s.want(100, "", "rdistcc: no builds are kept yet", "trace")
	log := s.ctl().buildStore().New(builds.Build{Command: []string{"make"}, Began: time.Now()})
	log.Add([]report.JobRecord{remoteJob(time.Now()), remoteJob(time.Now())})
	log.Finish(time.Now())
	var got atomic.Pointer[http.Request]
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.Store(r) }))
	defer server.Close()
	s.env["OTEL_EXPORTER_OTLP_HEADERS"] = "x-key=secret"
	s.want(0, "5 spans of build 1 sent\n", "", "trace", "--otlp", server.URL)
	if r := got.Load(); r == nil || r.URL.Path != "/v1/traces" || r.Header.Get("X-Key") != "secret" {
		t.Errorf("the collector got %+v", r)
	}
	s.env["OTEL_EXPORTER_OTLP_HEADERS"] = "secret"
	s.want(101, "", "rdistcc: OTEL_EXPORTER_OTLP_HEADERS: not a list of NAME=VALUE\n", "trace", "1", "--otlp", server.URL)
}
