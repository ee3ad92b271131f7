package connmgr

import (
	"testing"
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
