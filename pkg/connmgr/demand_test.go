package connmgr

import (
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// TestDemand: a job counts as long as a host could be of use for it: while it is prepared, while a host has it, and while it runs here
// because there is no host.
func TestDemand(t *testing.T) {
	r := newRig(t, nil)
	release := make(chan struct{})
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			<-release
			c.Finish(j, daemontest.Compiled(j))
		}
	})
	want := func(when string, want report.Demand) {
		t.Helper()
		var got report.Demand
		eventually(t, when, func() bool {
			got = r.m.Demand()
			got.Places = 0 // the daemon's own affair
			return got == want
		})
		if t.Failed() {
			t.Logf("got %+v, want %+v", got, want)
		}
	}
	want("nothing to do", report.Demand{})
	w := r.dial()
	if !w.lease(leaseOf(d.Addr)) {
		t.FailNow()
	}
	want("a job being prepared", report.Demand{Queued: 1, Wanted: 1, Hosts: 1})
	w.send(w.preprocess("int x;"))
	want("a job on the host", report.Demand{Running: 1, Wanted: 1, Hosts: 1})
	if r.m.Demand().Places < 1 {
		t.Error("the host has no places")
	}
	close(release)
	if _, ok := w.recv().(*ipc.Result); !ok {
		t.Fatal("no result")
	}
	w.send(&ipc.Finish{Where: ipc.WhereRemote, Closed: true})
	w.close()
	want("the job done", report.Demand{Hosts: 1})

	// A link is nothing for a host. A compile for which there is none would be.
	link, compile := r.dial(), r.dial()
	defer link.close()
	defer compile.close()
	link.send(&ipc.Local{Version: ipc.Version, Reason: "link", Turn: ipc.TurnLocal, Compiler: "/usr/bin/gcc", Output: "prog"})
	if k := link.recv(); k != ipc.KindGo {
		t.Fatalf("Local answered by %v", k)
	}
	d.Stop()
	if got, _ := compile.run(leaseOf("127.0.0.1:1"), "int y;"); !isLocal(got) {
		t.Fatalf("a compile without a host was answered by %+v", got)
	}
	want("a compile here for want of a host", report.Demand{Here: 1, Wanted: 1})
	compile.send(&ipc.Finish{Where: ipc.WhereLocal, Reason: "no-hosts", Closed: true})
	compile.close()
	want("the end", report.Demand{})
}

func isLocal(answer any) bool { _, ok := answer.(*ipc.GoLocal); return ok }
