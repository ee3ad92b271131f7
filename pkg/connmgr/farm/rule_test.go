package farm

import (
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// TestRuleIsTold: if the estimates alone do not explain a choice, a line says which rule made it.
func TestRuleIsTold(t *testing.T) {
	const ms = time.Millisecond
	here := func(d time.Duration) scheduler.Considered {
		return scheduler.Considered{Host: scheduler.LocalHost, Finish: d}
	}
	a, b := scheduler.Considered{Host: "a:1", Finish: 3480 * ms}, scheduler.Considered{Host: "b:1", Finish: 3300 * ms}
	full, gone := b, scheduler.Considered{Host: "b:1", Why: "b:1 does not have this compiler"}
	full.Why = "busy"
	on := scheduler.Decision{Verdict: scheduler.Run, Host: "a:1", Finish: a.Finish}
	share := scheduler.Decision{Verdict: scheduler.Local, Share: true, Finish: 300 * ms}
	known := scheduler.Job{Hosts: make([]scheduler.Host, 2), Local: true, Cost: scheduler.Cost{Known: true}}
	unknown, part := known, known
	unknown.Cost.Known, part.Local = false, false
	for _, c := range []struct {
		name string
		list []scheduler.Considered
		d    scheduler.Decision
		j    scheduler.Job
		want string
	}{
		{"a little sooner here", []scheduler.Considered{a, here(3300 * ms)}, on, known, "unless it would be done here in less than 50 % of the time and more than 500ms sooner"},
		{"nothing known", []scheduler.Considered{a, here(300 * ms)}, on, unknown, "nothing is known yet"},
		{"later here", []scheduler.Considered{a, here(4 * time.Second)}, on, known, "first"},
		{"as fast", []scheduler.Considered{a, b}, on, known, "take turns"},
		{"busy", []scheduler.Considered{a, full}, on, known, "would not pay"},
		{"the only one", []scheduler.Considered{a, gone}, on, known, "no other could take it"},
		{"much sooner here", []scheduler.Considered{here(300 * ms), a}, share, known, "done here in less than 50 %"},
		{"all busy", []scheduler.Considered{here(300 * ms), full}, share, known, "no host has a place now, and here"},
		{"localhost/N", []scheduler.Considered{here(300 * ms), full}, share, part, "localhost/N"},
		{"no host", nil, scheduler.Decision{Verdict: scheduler.Local, Reason: reason.HostLost}, known, ""},
	} {
		if got := ruleOf(c.list, &c.d, &c.j); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
