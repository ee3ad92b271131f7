package connmgr

import (
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
)

// TestChoiceIsRecorded: a job's record says how its host was chosen.
func TestChoiceIsRecorded(t *testing.T) {
	r := newRig(t, nil)
	a := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	b := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.IDs = nil })
	hosts := a.Addr + " " + b.Addr
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
	if x := rec.Considered[0]; x.Host != a.Addr || x.Finish <= 0 || x.Why != "" {
		t.Errorf("chosen %+v, want %s and when it would be done", x, a.Addr)
	}
	if x := rec.Considered[1]; x.Host != b.Addr || x.Finish != 0 || x.Why != b.Addr+" does not have this compiler" {
		t.Errorf("other %+v, want the reason against %s", x, b.Addr)
	}
	// A job that no host took.
	r.goLocal(b.Addr, "int x;")
	r.idle()
	if rec := r.m.Status().Recent[0]; len(rec.Considered) != 1 || rec.Considered[0].Why == "" {
		t.Errorf("record %+v, want the reason against the only host", rec)
	}
}
