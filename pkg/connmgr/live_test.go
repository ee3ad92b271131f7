package connmgr

import (
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// TestApply: settings that can change while a manager serves take effect.
func TestApply(t *testing.T) {
	r := newRig(t, func(o *Options) { o.LocalShare = true })
	if no := r.goLocal("", "int x;"); no.NoFallback {
		t.Errorf("answer %+v before", no)
	}
	live := r.m.o.live()
	live.NoFallback, live.LocalJobs = true, 17
	r.m.Apply(live)
	if no := r.goLocal("", "int x;"); !no.NoFallback || no.Code != reason.ExitNoHosts {
		t.Errorf("answer %+v, want one that forbids compiling here", no)
	}
	var p report.Places
	if r.ask(&p, "nobody:1/3", "places"); p.Local != 17 {
		t.Errorf("%d places here, want 17", p.Local)
	}
	r.m.Apply(Live{})
	if l := r.m.live(); l.Attempts != 2 || l.IOTimeout != 5*time.Minute || l.Preprocessors != 2*r.m.o.Cores {
		t.Errorf("what was not given is %+v, want the defaults", l)
	}
}

// TestIdleExitChanges: a new setting can end a manager that was meant to stay.
func TestIdleExitChanges(t *testing.T) {
	r := newRig(t, nil)
	r.m.Apply(Live{IdleExit: 10 * time.Millisecond})
	if err := <-r.serving; err != nil {
		t.Error(err)
	}
	r.serving <- nil
}
