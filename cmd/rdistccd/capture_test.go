package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestCapture: a daemon's capture has its connections, decodes in Wireshark, and only its user can read it.
func TestCapture(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.pcapng")
	r := start(t, command(t, "--listen", "127.0.0.1:0", "--http", "", "--capture", path))
	addr := r.find(`msg=listening addr=(\S+)`)
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 4, MaxRecv: 4})
	if err != nil {
		t.Fatal(err)
	}
	// It speaks no protocol that the daemon knows, and is refused in start-up.
	if _, err := dev.Dial(t.Context(), addr, qp, &iwarp.ConnParam{PrivateData: []byte("a stranger")}); err == nil {
		t.Error("a stranger was let in")
	}
	r.signal(syscall.SIGTERM)
	r.stops(0)
	if s, err := os.Stat(path); err != nil || s.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", s, err)
	}
	if got := iwarptest.Tshark(t, path); got.Requests != 1 || got.Replies != 1 || len(got.Malformed) > 0 {
		t.Errorf("%+v", got)
	}
}
