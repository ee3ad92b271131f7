// Package reporttest has reports for tests of what shows them.
package reporttest

import (
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Sample is the status of a manager with three hosts that has done compiles of all kinds.
func Sample() report.Status {
	return report.Status{
		Version: "v1", PID: 42, Since: time.Now().Add(-90 * time.Minute), ListFrom: "/etc/rdistcc/hosts", Running: 3,
		Slots:   report.SlotStatus{Max: 64, Leased: 2},
		Waiting: report.WaitingStatus{Credit: 1},
		Hosts: []report.HostStatus{
			{Addr: "a:7632", State: "up", Tools: 2, Jobs: 8, Running: 2, Credits: 6, OK: 120, Out: 3 << 20, In: 5000, Load: &job.Load{LoadAvg: 150}, LoadFrom: "board", LoadAgeMS: 320, Tree: true},
			{Addr: "b:7632", State: "down", Error: "connection refused"},
			{Addr: "c:7632", State: "up", Tools: 2, Jobs: 4, Load: &job.Load{}, LoadFrom: "welcome"},
		},
		Jobs: []report.JobCount{
			{Place: "local", Reason: "link", OK: 10}, {Place: "local", Reason: "diagnostics", OK: 20, Failed: 5}, {Place: "remote", Host: "a:7632", OK: 120},
		},
		Inputs: report.InputCounts{Scan: 112, Memo: 3, List: 10, Doubts: map[string]uint64{"time": 4, "command": 6, "asked": 4}},
		Underway: []report.Underway{
			{ID: 3, Source: "z.c", Phase: report.PhaseCompiles, Hosts: []string{"a:7632", "c:7632"}, AgeMS: 1500},
			{ID: 4, Source: "prog", Phase: report.PhaseRuns, Here: true, AgeMS: 65000},
			{ID: 5, Source: "w.c", Phase: report.PhaseWaits},
		},
		Recent: []report.JobRecord{
			{Began: time.Now().Add(-5 * time.Second), Source: "x.c", Local: true, Reason: "host-lost", Detail: "b:7632 lost (reset)", Trouble: true},
			{Source: "y.c", Reason: "link", Local: true},
		},
	}
}
