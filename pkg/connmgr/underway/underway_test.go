package underway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

type hungUp bool

func (h *hungUp) Close() error { *h = true; return nil }
func (h *hungUp) Gone() bool   { return bool(*h) }

// TestSettle: a question waits for the commands whose wrappers have hung up, not for others, nor for ever.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New()
		var runs, ended, question Command
		var first, second, third hungUp
		table.Add(&runs, &first)
		table.Add(&ended, &second)
		table.Add(&question, &third)
		runs.Begin(1, "x.c", time.Now())
		ended.Begin(2, "y.c", time.Now())
		third = true
		settle := func() time.Duration {
			began := time.Now()
			table.Settle(time.Second)
			return time.Since(began)
		}
		if d := settle(); d != 0 {
			t.Errorf("waited for %v, with no command that has ended", d)
		}
		second = true
		go func() {
			time.Sleep(20 * time.Millisecond)
			table.Remove(&ended)
		}()
		if d := settle(); d < 20*time.Millisecond || d > 30*time.Millisecond {
			t.Errorf("waited for %v, want until the command is removed, after 20ms", d)
		}
		first = true
		if d := settle(); d != time.Second {
			t.Errorf("waited for %v, want a second", d)
		}
	})
}

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

// TestPhasesHaveAnAge: a phase is as old as the step into it; a second host and one host less begin no new one.
func TestPhasesHaveAnAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New()
		var c Command
		var conn hungUp
		table.Add(&c, &conn)
		c.Begin(1, "x.c", time.Now())
		for _, step := range []struct {
			do    func()
			phase string
			ms    int64
		}{
			{func() {}, report.PhaseWaits, 1000},
			{func() { c.Enter(report.PhaseLists) }, report.PhaseLists, 1000},
			{func() { c.Sent("a:1") }, report.PhaseCompiles, 1000},
			{func() { c.Sent("b:1") }, report.PhaseCompiles, 2000},
			{func() { c.Taken("a:1") }, report.PhaseCompiles, 3000},
			{func() { c.Taken("b:1") }, report.PhaseWaits, 1000},
			{func() { c.EnterHere(report.PhaseRuns) }, report.PhaseRuns, 1000},
		} {
			step.do()
			time.Sleep(time.Second)
			if u := table.List(time.Now())[0]; u.Phase != step.phase || u.PhaseMS != step.ms {
				t.Errorf("%s for %d ms, want %s for %d", u.Phase, u.PhaseMS, step.phase, step.ms)
			}
		}
	})
}
