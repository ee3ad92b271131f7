package underway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

type hungUp bool

func (h *hungUp) Close() error { *h = true; return nil }

// TestQuestionsAreNoCommands: from Begin on, a connection is listed and keeps the manager from being idle.
// HangUp closes questions as well as commands.
func TestQuestionsAreNoCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New()
		var question, command Command
		var first, second hungUp
		table.Add(&question, &first)
		table.Add(&command, &second)
		time.Sleep(time.Minute)
		if n, idle := len(table.List(time.Now())), table.Idle(); n != 0 || idle != time.Minute {
			t.Errorf("%d commands, idle for %v, with two questions; want none, for a minute", n, idle)
		}
		command.Begin(7, "x.c", time.Now())
		command.Sent("a:1")
		command.Sent("b:1")
		command.Taken("a:1")
		time.Sleep(time.Second)
		list := table.List(time.Now())
		if len(list) != 1 || list[0].ID != 7 || list[0].Place() != "b:1" || list[0].Phase != report.PhaseCompiles || list[0].AgeMS != 1000 || table.Idle() != 0 {
			t.Errorf("%+v, idle for %v; want job 7 at b:1", list, table.Idle())
		}
		table.HangUp()
		table.Remove(&command)
		table.Remove(&question)
		time.Sleep(time.Second)
		if idle := table.Idle(); !bool(first) || !bool(second) || idle != time.Second {
			t.Errorf("hung up %v and %v, idle for %v; want both, for a second", first, second, idle)
		}
	})
}
