package connmgr

import (
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// submitTree leases a slot and submits a body in the sources form that is not at the start of the slot. It
// returns both answers.
func (w *wrapper) submitTree(f *ipc.Lease, text string) (*ipc.Leased, any) {
	w.t.Helper()
	w.send(f)
	leased, ok := w.recv().(*ipc.Leased)
	if !ok {
		w.t.Fatal("no slot")
	}
	b := job.Body{Argv0: "gcc", Args: []string{"-c", "x.c"}, Language: "c", Name: "x.c", Cwd: "/src",
		Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "x.o"}}, Files: []unit.File{{Name: "x.c", Len: uint64(len(text))}}}
	const at = 4096
	enc := b.Append(nil)
	off := job.TextOffset(len(enc))
	for _, part := range []struct {
		b   []byte
		off int
	}{{enc, at}, {[]byte(text), at + off}} {
		if _, err := w.source.WriteAt(part.b, int64(part.off)); err != nil {
			w.t.Fatal(err)
		}
	}
	w.send(&ipc.Submit{BodyOff: at, BodyLen: uint32(len(enc)), TextOff: uint32(off), TextLen: uint64(len(text)), Tree: true})
	return leased, w.recv()
}

// TestSourcesFormNeedsATree: a host without private trees gets no job in the sources form, and the wrapper is
// told before it makes one.
func TestSourcesFormNeedsATree(t *testing.T) {
	r := newRig(t, nil)
	plain := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	shows := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.Tree = true })
	r.remote(plain.Addr, "int x;")
	r.remote(shows.Addr, "int x;")

	w := r.dial()
	leased, got := w.submitTree(leaseOf(plain.Addr+" "+shows.Addr), "int y;")
	if res, ok := got.(*ipc.Result); !leased.Tree || !ok || res.Host != shows.Addr {
		t.Errorf("tree %v, answer %T %+v, want a result of %s", leased.Tree, got, got, shows.Addr)
	}
	w.close()

	w = r.dial()
	leased, got = w.submitTree(leaseOf(plain.Addr), "int y;")
	if no, ok := got.(*ipc.GoLocal); leased.Tree || !ok || no.Reason != "not-reproducible:paths" || no.Trouble {
		t.Errorf("tree %v, answer %T %+v, want not-reproducible:paths without trouble", leased.Tree, got, got)
	}
	w.close()

	w = r.dial()
	need := leaseOf(plain.Addr)
	need.NeedTree = true
	w.send(need)
	if no, ok := w.recv().(*ipc.GoLocal); !ok || no.Reason != "not-reproducible:paths" {
		t.Error("a slot for a job that no host can take")
	}
	w.close()
	r.idle()
}

// TestFirstJobsHaveTheHostsForm: whether a host has private trees is known once it is connected. A first job
// waits for that, because a job in a form that no host takes must run here.
func TestFirstJobsHaveTheHostsForm(t *testing.T) {
	r := newRig(t, func(o *Options) { o.ConnectGrace = time.Minute })
	plain := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	var wg sync.WaitGroup
	for range 8 {
		w := r.dial()
		wg.Go(func() {
			defer w.close()
			if w.lease(leaseOf(plain.Addr)) && w.leased.Tree {
				t.Error("asked for a job that the host does not take")
			}
		})
	}
	wg.Wait()
	r.idle()
}

// TestSearchListComesWithALaterLease: the first lease does not wait for the list of header directories.
func TestSearchListComesWithALaterLease(t *testing.T) {
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed")
	}
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	lease := func() []string {
		w := r.dial()
		defer w.close()
		f := leaseOf(d.Addr)
		f.Compiler, f.Language = cc, "c"
		leased, _ := w.submitTree(f, "int x;")
		return leased.Include
	}
	if dirs := lease(); dirs != nil {
		t.Errorf("the first lease has %q", dirs)
	}
	eventually(t, "the search list", func() bool { return lease() != nil })
	r.idle()
}
