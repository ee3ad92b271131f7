package connmgr

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// TestBuildThatIsNamed: the name of a build takes precedence over the process.
func TestBuildThatIsNamed(t *testing.T) {
	of := func(uid uint32, name string) uint64 {
		c := &client{m: new(Manager), uid: uid, pid: int32(os.Getpid()), lease: &ipc.Lease{Build: name}}
		return c.build()
	}
	if named := of(1, "a"); named != machine.NamedBuild(1, "a") || of(1, "") == named {
		t.Error("the build is not the one that was named")
	}
}

// TestCommandsOfABuild: the manager tells what became of the commands of a build that has a name, and of no others.
func TestCommandsOfABuild(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	ask := func(words ...string) (b report.BuildJobs) {
		if code, data := r.ask(&b, "", append([]string{"build"}, words...)...); code != 0 {
			t.Fatalf("build %q: %d %s", words, code, data)
		}
		if b.PID != os.Getpid() || b.Since.IsZero() {
			t.Errorf("the answer is of no manager: %+v", b)
		}
		return b
	}
	r.remote(d.Addr, "int before;")
	r.idle() // its record is made when it has gone
	first := ask("nightly")
	if len(first.Jobs) != 0 || first.Next != 1 {
		t.Errorf("before the build: %+v", first)
	}

	began := time.Now()
	w := r.dial()
	f := leaseOf(d.Addr)
	f.Build = "nightly"
	if got, _ := w.run(f, "int x;"); got.(*ipc.Result).Host != d.Addr {
		t.Fatalf("compiled by %+v", got)
	}
	if n := ask("nightly", "1").Running; n != 1 {
		t.Errorf("%d commands under way, want 1", n)
	}
	w.send(&ipc.Finish{Where: ipc.WhereRemote, TotalUS: 5000, Closed: true})
	w.close()
	r.idle() // in this order
	r.remote(d.Addr, "int other;")
	r.idle()
	link := r.dial()
	link.send(&ipc.Local{Version: ipc.Version, Reason: reason.Link, Turn: ipc.TurnLocal, Output: "prog", Build: "nightly"})
	link.recv()
	link.send(&ipc.Finish{Where: ipc.WhereLocal, Reason: reason.Link, CPUUS: 77})
	link.close()
	r.idle()

	got := ask("nightly", fmt.Sprint(first.Next))
	if len(got.Jobs) != 2 || got.Next != 4 || got.Running != 0 || got.More || got.Lost != 0 {
		t.Fatalf("%+v", got)
	}
	compile, linked := got.Jobs[0], got.Jobs[1]
	if compile.Local || compile.Host != d.Addr || compile.AnsweredUS == 0 || compile.Ended.Before(compile.Began) || compile.Began.Before(began) {
		t.Errorf("the compile: %+v", compile)
	}
	if !linked.Local || linked.Output != "prog" || linked.CPUUS != 77 || linked.Ended.Before(linked.Began) {
		t.Errorf("the link: %+v", linked)
	}
	if more := ask("nightly", fmt.Sprint(got.Next)); len(more.Jobs) != 0 || more.Next != got.Next {
		t.Errorf("once more: %+v", more)
	}
	if other := ask("weekly", "0"); len(other.Jobs) != 0 {
		t.Errorf("of another build: %+v", other)
	}
	for _, bad := range [][]string{{"build"}, {"build", ""}, {"build", "x", "-1"}, {"build", "x", "1", "2"}} {
		if code, data := r.ask(nil, "", bad...); code != reason.ExitArguments {
			t.Errorf("%q: %d %s", bad, code, data)
		}
	}
}
