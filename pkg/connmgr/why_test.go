package connmgr

import (
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/reason"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// TestChoiceIsRecorded: what a job's record says of how its host was chosen.
func TestChoiceIsRecorded(t *testing.T) {
	r := newRig(t, nil)
	a := startFake(t, r.far, "127.0.0.1:0", nil)
	b := startFake(t, r.far, "127.0.0.1:0", func(d *fakeDaemon) { d.ids = nil })
	hosts := a.addr + " " + b.addr
	r.warm(hosts)
	r.remote(hosts, "int x;")
	r.idle()
	rec := r.m.Status().Recent[0]
	if len(rec.Considered) != 2 || rec.Build == 0 {
		t.Fatalf("record %+v, want two hosts and a build", rec)
	}
	if rec.Rule != "no other could take it" {
		t.Errorf("rule %q", rec.Rule)
	}
	if x := rec.Considered[0]; x.Host != a.addr || x.Finish <= 0 || x.Why != "" {
		t.Errorf("chosen %+v, want %s and when it would be done", x, a.addr)
	}
	if x := rec.Considered[1]; x.Host != b.addr || x.Finish != 0 || x.Why != b.addr+" does not have this compiler" {
		t.Errorf("other %+v, want the reason against %s", x, b.addr)
	}
	// A job that no host took.
	r.goLocal(b.addr, "int x;")
	r.idle()
	if rec := r.m.Status().Recent[0]; len(rec.Considered) != 1 || rec.Considered[0].Why == "" {
		t.Errorf("record %+v, want the reason against the only host", rec)
	}
}

// TestRuleIsTold: a choice that the estimates alone do not explain says which rule made it.
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
