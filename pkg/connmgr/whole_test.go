package connmgr

import (
	"os"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// TestWholeIsLeft: of a command that the manager does not read it says so, and takes a lease on the same connection.
func TestWholeIsLeft(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	w := r.dial()
	defer w.close()
	w.send(&ipc.Whole{Version: ipc.Version, View: ipc.Look("."), Words: "rdistcc\x00gcc\x00@words\x00", Environ: "PWD=/\x00"})
	if k, _, err := w.conn.Recv(); err != nil || k != ipc.KindAsk {
		t.Fatalf("answer of kind %d, %v, want Ask", k, err)
	}
	if !w.lease(leaseOf(d.Addr)) {
		t.Error("no lease after that")
	}
}

// TestWholeIsLeased: a command that the manager reads gets what its lease would get.
func TestWholeIsLeased(t *testing.T) {
	r := newRig(t, nil)
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/a.c", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w := r.dial()
	defer w.close()
	w.send(&ipc.Whole{Version: ipc.Version, View: ipc.Look(dir), Words: "rdistcc\x00gcc\x00-c\x00a.c\x00",
		Environ: "PATH=" + os.Getenv("PATH") + "\x00PWD=" + dir + "\x00RDISTCC_HOSTS=\x00"})
	if no, ok := w.recv().(*ipc.GoLocal); !ok || no.Reason != "no-hosts" {
		t.Errorf("%+v, want no-hosts", no)
	}
}
