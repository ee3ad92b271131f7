package ctl

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/gain"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// limitsOf parses limits as flags give them; "" is none.
func limitsOf(t *testing.T, local, misses string) *limits {
	t.Helper()
	l := new(limits)
	for s, text := range map[*share]string{&l.local: local, &l.misses: misses} {
		if text != "" {
			if err := s.Set(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// TestLimits: the lines name what has caused most, and what is just as much as is allowed is not too much.
func TestLimits(t *testing.T) {
	var tally gain.Tally
	now := time.Now()
	add := func(n int, r report.JobRecord) {
		r.Began, r.Ended, r.Finished = now, now.Add(time.Second), true
		for range n {
			tally.Add(&r)
		}
	}
	add(6, report.JobRecord{Source: "a.c", Host: "h", Asked: true, Missed: "changed since the command ran last: x.h"})
	add(8, report.JobRecord{Source: "a.c", Host: "h", Asked: true, Cached: "manager"})
	add(1, report.JobRecord{Source: "a.c", Local: true, Asked: true, Reason: reason.LocalShare, Missed: "no result of an equal compile is kept"})
	add(4, report.JobRecord{Source: "a.c", Local: true, Reason: "unknown-option:-fx\x1b"})
	add(1, report.JobRecord{Source: "a.c", Local: true, Reason: reason.HostLost})
	add(30, report.JobRecord{Local: true, Reason: reason.Link})
	add(30, report.JobRecord{Local: true, Reason: reason.Probe})
	g := tally.Sum(now, now, 1)
	const local, missed = "6 of 20 compiles ran here (30%), more than --max-local 29.9%; 4: unknown-option:-fx? (", "7 of 15 compiles that the cache was asked for were not in it (47%), more than --max-misses 0%; " +
		"6: changed since the command ran last: x.h; 1: no result of an equal compile is kept"
	for _, x := range []struct {
		local, misses string
		want          []string
	}{
		{"30%", "47%", nil}, {"", "", nil}, {"29.9%", "", []string{local}}, {"", "0%", []string{missed}}, {"29.9%", "0%", []string{local, missed}},
	} {
		got := limitsOf(t, x.local, x.misses).judge(&g)
		if len(got) != len(x.want) {
			t.Errorf("%q, %q: %q", x.local, x.misses, got)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], x.want[i]) {
				t.Errorf("got  %s\nwant %s", got[i], x.want[i])
			}
		}
	}
	if got := limitsOf(t, "0%", "0%").judge(&gain.Sum{}); got != nil {
		t.Errorf("of nothing: %q", got)
	}
	for _, bad := range []string{"", "10", "x%", "-1%", "101%", "NaN%", "%"} {
		if err := new(share).Set(bad); err == nil {
			t.Errorf("%q is taken for a share", bad)
		}
	}
}

// TestBuildOfUnknownShares: a build does not pass limits that nobody can judge, and what fails by itself keeps its status.
func TestBuildOfUnknownShares(t *testing.T) {
	s := newShell(t)
	s.env["PATH"] = os.Getenv("PATH")
	s.want(101, "", `invalid argument "10" for "--max-local" flag: give a share from 0% to 100%`, "build", "--max-local", "10", "true")
	s.want(0, "", "no command of it came to rdistcc", "build", "--max-local", "10%", "true")
	s.manager(func(*ipc.Control) *ipc.Reply {
		return &ipc.Reply{Code: reason.ExitArguments, Data: []byte(`the connection manager knows no "build"`)}
	})
	s.want(reason.ExitLimit, "", "whether the build keeps to its limits is not known", "build", "--max-misses", "10%", "true")
	s.want(5, "", "what ran where is not known", "build", "--max-misses", "10%", "sh", "-c", "exit 5")
}
