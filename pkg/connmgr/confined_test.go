package connmgr

import (
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
)

// TestHowAHostConfines: users see what a host says of its sandbox.
func TestHowAHostConfines(t *testing.T) {
	for set, want := range map[sandbox.Set]string{
		0:              "off",
		sandbox.Bounds: "partial",
		sandbox.Landlock | sandbox.Seccomp | sandbox.NoNewPrivs | sandbox.Bounds: "confined",
	} {
		r := newRig(t, nil)
		d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.Sandbox = uint16(set) })
		r.warm(d.Addr)
		if h := r.m.Status().Hosts[0]; h.Sandbox != want || !slices.Equal(h.Measures, set.Names()) {
			t.Errorf("a host with %v is shown as %q with %q, want %q", set, h.Sandbox, h.Measures, want)
		}
	}
}

// TestHostThatCannotConfine: a job refused by a host that has lost its sandbox goes to another host, and does
// not count as a failure of the first.
func TestHostThatCannotConfine(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusRefused, Cause: job.CauseSandbox, Detail: "a file was reachable"}})
		}
	})
	if no := r.goLocal(d.Addr, "int x;"); no.Reason != "refused:sandbox" || !no.Trouble || d.JobsSeen() != 1 {
		t.Errorf("answer %+v after %d attempts, want refused:sandbox after one", no, d.JobsSeen())
	}
	if h := r.m.Status().Hosts[0]; h.PauseMS != 0 || h.OnTrial {
		t.Errorf("its health suffers: %+v", h)
	}
	r.idle()
}
