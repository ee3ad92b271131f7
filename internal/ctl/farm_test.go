package ctl

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/reporttest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

func TestDrainForPeople(t *testing.T) {
	s := newShell(t)
	s.want(100, "", "no connection manager runs", "drain", "a")
	s.want(101, "", "rdistcc: drain needs a HOST, as in: rdistcc drain build7\n", "drain")
	s.want(101, "", "rdistcc: logs needs a HOST, as in: rdistcc logs build7\n", "logs")
	s.want(101, "", "rdistcc: --lines: -1 is no number of lines\n", "logs", "build7", "-n", "-1")
	s.want(101, "", "rdistcc: why takes one FILE, as in: rdistcc why src/x.c\n", "why", "a.c", "b.c")
	var answer atomic.Pointer[report.Drained]
	answer.Store(&report.Drained{Host: "a:7632", Drained: true, Running: 2})
	s.manager(func(q *ipc.Control) *ipc.Reply {
		if q.Args[1] == "x" {
			return &ipc.Reply{Code: 101, Data: []byte("no host x: the hosts are a:7632")}
		}
		return reply(t, answer.Load())
	})
	s.want(0, "a:7632 gets nothing new; 2 jobs of this machine will be finished there\n", "", "drain", "a")
	s.want(0, `"running": 2`, "", "drain", "a", "--json")
	s.want(101, "", "rdistcc: no host x: the hosts are a:7632\n", "drain", "x")
	answer.Store(&report.Drained{Host: "a:7632", Drained: true, Was: true})
	s.want(0, "a:7632 was drained already\n", "", "drain", "a")
	answer.Store(&report.Drained{Host: "a:7632"})
	s.want(0, "a:7632 gets jobs again\n", "", "undrain", "a")
	answer.Store(&report.Drained{Host: "a:7632", Was: true})
	s.want(0, "a:7632 was not drained\n", "", "undrain", "a")
}

func TestStatsForPeople(t *testing.T) {
	s := newShell(t)
	s.want(100, "", "no connection manager runs", "stats")
	st := report.Stats{Version: "v1", Since: time.Now().Add(-time.Hour), Jobs: reporttest.Sample().Jobs, Retries: 1, Hedges: 3, HedgesWon: 2, Troubles: 4, Twice: 7,
		Again:    []report.TwiceCount{{Reason: "diagnostics", Jobs: 4, Source: "w.c"}, {Reason: "doubt:dependency-file", Jobs: 1, Source: "x.c"}},
		Audits:   map[string]uint64{"same": 5, "differs": 1},
		BytesOut: 3 << 20, BytesIn: 5000, Hosts: []report.HostStats{{Host: "a:7632", OK: 120, Failed: 1}},
		Phases:     []report.Quantiles{{Phase: "total", Count: 120, P50: 1500, P90: 90000, P99: 2100000, Max: 130e6}},
		Prediction: report.Prediction{Count: 100, Near: 80, Twice: 99, Median: 1.02}}
	s.manager(func(*ipc.Control) *ipc.Reply { return reply(t, st) })
	out := strings.Join(strings.Fields(s.want(0, "", "", "stats")), " ")
	for _, want := range []string{
		"connection manager v1, up 1h0m", "remote a:7632 120 77% 0", "1 retry, 3 second hosts (2 first), 4 compiles here because of trouble, 0 commands ended",
		"7 compiles ran on a host and then here again: diagnostics 4 (w.c), doubt:dependency-file 1 (x.c)",
		"3.0MiB of sources sent, 4.9KiB of results received", "predicted times of 100 compiles: 80% within a quarter, 99% within a factor of two",
		"total 1.5 ms 90 ms 2.1 s 2m10s", "audits by a second host: 1 differs, 5 same", "a:7632 120 1 0B 0B",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("stats lacks %q:\n%s", want, out)
		}
	}
	s.want(0, `"hedges_won": 2`, "", "stats", "--json")
	if text := string(statsText(&report.Stats{}, time.Now())); !strings.Contains(text, "no commands yet") {
		t.Errorf("without commands: %s", text)
	}
}

func TestWhyForPeople(t *testing.T) {
	s := newShell(t)
	s.want(100, "", "nothing is known of x.c: no connection manager runs", "why", "x.c")
	s.want(101, "", "name a file", "why", "")
	var answer atomic.Pointer[report.Why]
	answer.Store(&report.Why{Remembered: 12, Since: time.Now()})
	s.manager(func(q *ipc.Control) *ipc.Reply {
		if len(q.Args) != 3 || !filepath.IsAbs(q.Args[1]) || q.Args[2] != "x.c" {
			t.Errorf("asked %q", q.Args)
		}
		return reply(t, answer.Load())
	})
	s.want(100, "", "nothing is known of x.c: 12 commands since ", "why", "x.c")
	answer.Store(&report.Why{Remembered: 12, Since: time.Now(), Jobs: []report.JobRecord{
		{ID: 7, Began: time.Now().Add(-3 * time.Second), Source: "x.c", Output: "x.o", Compiler: "/usr/bin/gcc", Cwd: "/src", Host: "a:7632", Finished: true,
			Expected: 200 * time.Millisecond, CompileUS: 180000, CPUUS: 170000, TotalUS: 190000, Attempts: 2, Hedged: "a:7632", BytesOut: 3000,
			Considered: []report.Considered{{Host: "a:7632", Finish: 210 * time.Millisecond}, {Host: "b:7632", Why: "b:7632 is draining"},
				{Host: "c:7632", Finish: 220 * time.Millisecond, Why: "busy"}}, Rule: "so it is"},
		{ID: 6, Began: time.Now(), Source: "x.c", Local: true, Reason: "unknown-option:-fnew", Finished: true},
		{ID: 5, Began: time.Now(), Source: "x.c", Local: true, Reason: "host-lost", Detail: "b:7632 lost (reset)"},
	}})
	out := strings.Join(strings.Fields(s.want(0, "", "", "why", "x.c")), " ")
	for _, want := range []string{
		"x.c: ran on a:7632, 3s ago, exit status 0 (job 7) output x.o directory /src compiler /usr/bin/gcc",
		"considered a:7632 would have been done after 210 ms (chosen) b:7632 is draining c:7632 busy: would have been done after 220 ms on a free core rule so it is",
		"second host a:7632, as the first one was slow predicted 200 ms of a processor there; it took 170 ms",
		"phases compile 180 ms, total 190 ms bytes 2.9KiB sent",
		"x.c: ran here, 0s ago, exit status 0 (job 6) reason unknown-option:-fnew: rdistcc does not know the option -fnew for certain; is it misspelt?",
		"reason host-lost: the host could not be reached, or the connection broke b:7632 lost (reset) end the command was ended from outside",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("why lacks %q:\n%s", want, out)
		}
	}
	s.want(0, `"remembered": 12`, "", "why", "x.c", "--json")
}

// TestWhyWithoutAFile lists the last commands.
func TestWhyWithoutAFile(t *testing.T) {
	s := newShell(t)
	s.want(100, "", "no connection manager runs", "why")
	var answer atomic.Pointer[report.Status]
	answer.Store(&report.Status{})
	s.manager(func(q *ipc.Control) *ipc.Reply { return reply(t, answer.Load()) })
	s.want(0, "no commands yet\n", "", "why")
	s.want(0, "[]\n", "", "why", "--json")
	st := &report.Status{Recent: []report.JobRecord{
		{Began: time.Now(), Source: "x.c", Host: "a:7632", Rule: "no other could take it", TotalUS: 1500},
		{Began: time.Now(), Compiler: "/usr/bin/gcc", Local: true, Reason: "link", Exit: 1, TotalUS: 20000},
	}}
	for range 30 {
		st.Recent = append(st.Recent, report.JobRecord{Source: "old.c"})
	}
	answer.Store(st)
	out := s.want(0, "", "", "why")
	text := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{"0s x.c a:7632 - 0 1.5 ms", "0s gcc here link 1 20 ms", "rdistcc why FILE says more"} {
		if !strings.Contains(text, want) {
			t.Errorf("why lacks %q:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "\n"); n != 1+shownCommands+2 {
		t.Errorf("%d lines", n)
	}
}

// TestTopPrints: into pipes, on terminals that obey nothing, and where it is told to, top prints one status after the other. Package
// display tests it on a terminal.
func TestTopPrints(t *testing.T) {
	s := newShell(t)
	s.want(101, "", "--every 1ms: at least 100ms", "top", "--every", "1ms")
	s.want(101, "", "--times -1 is no number of times", "top", "--times", "-1")
	sample := reporttest.Sample()
	sample.Hosts[1].Error, sample.Underway[0].Source = "\x1b[2J\u009b\nhost", "z\x1b]0;owned\x07.c"
	s.manager(func(q *ipc.Control) *ipc.Reply {
		if q.Args[0] == "hosts" {
			return reply(t, sample.Hosts)
		}
		return reply(t, sample)
	})
	for _, terminal := range []bool{false, true} {
		s.terminal = terminal
		for _, flags := range [][]string{{"--every", "100ms"}, {"--plain", "--interval", "100ms"}} {
			out := s.want(0, "", "", append([]string{"top", "--times", "2"}, flags...)...)
			if strings.Count(out, "connection manager v1") != 2 || strings.Count(out, "?[2J? host") != 2 || !strings.Contains(out, "z?]0;owned?.c") || strings.ContainsAny(out, "\x1b\x07\u009b") {
				t.Errorf("top %q prints %q", flags, out)
			}
		}
	}
	for _, cmd := range []string{"status", "hosts"} {
		if out := s.want(0, "", "", cmd); !strings.Contains(out, "?[2J? host") || strings.ContainsAny(out, "\x1b\x07\u009b") {
			t.Errorf("%s prints %q", cmd, out)
		}
	}
}
