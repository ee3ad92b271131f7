package connmgr

import (
	"slices"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// TestUnderway: the status lists each command under way with its phase and place, from its lease to its end.
func TestUnderway(t *testing.T) {
	r := newRig(t, nil)
	release := make(chan struct{})
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			<-release
			c.Finish(j, daemontest.Compiled(j))
		}
	})
	want := func(phase, place string) {
		t.Helper()
		var got []report.Underway
		eventually(t, phase+" at "+place, func() bool {
			got = r.m.Status().Underway
			return len(got) == 1 && got[0].Source == "x.c" && got[0].Phase == phase && got[0].Place() == place
		})
		if t.Failed() {
			t.Logf("got %+v", got)
		}
	}
	w := r.dial()
	if !w.lease(leaseOf(d.Addr)) {
		t.FailNow()
	}
	want(report.PhaseLists, "here")
	w.send(w.preprocess("int x;"))
	want(report.PhaseCompiles, d.Addr)
	close(release)
	if _, ok := w.recv().(*ipc.Result); !ok {
		t.Fatal("no result")
	}
	want(report.PhaseReturns, "here")
	w.send(&ipc.Finish{Where: ipc.WhereRemote, Closed: true})
	w.close()
	r.idle()

	// One that runs here, and one that waits for its turn; neither has a source.
	r.m.Apply(Live{LocalJobs: 1})
	link := &ipc.Local{Version: ipc.Version, Reason: "link", Turn: ipc.TurnLocal, Compiler: "/usr/bin/gcc", Output: "prog"}
	first, second := r.dial(), r.dial()
	defer first.close()
	defer second.close()
	first.send(link)
	if k := first.recv(); k != ipc.KindGo {
		t.Fatalf("Local answered by %v", k)
	}
	link.Output = ""
	second.send(link)
	var got []string
	eventually(t, "the second to wait", func() bool {
		got = nil
		for _, u := range r.m.Status().Underway {
			got = append(got, u.Source, u.Phase, u.Place())
		}
		return slices.Equal(got, []string{"prog", report.PhaseRuns, "here", "gcc", report.PhaseWaits, "here"})
	})
	// Questions are not commands.
	if n := len(r.m.Status().Underway); n != 2 {
		t.Errorf("%d commands under way, want 2", n)
	}
	first.close()
	second.close()
	r.idle()
}
