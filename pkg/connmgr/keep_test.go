package connmgr

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// TestKept: when a manager's socket has gone, its file with what it knew is there and says why it ended. A
// manager that is killed has saved the file before.
func TestKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cm.kept")
	r := newRig(t, func(o *Options) { o.Kept, o.Version = file, "v7" })
	read := func() *report.Kept {
		t.Helper()
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		k := new(report.Kept)
		if err := json.Unmarshal(data, k); err != nil {
			t.Fatal(err)
		}
		return k
	}
	eventually(t, "the first word", func() bool { _, err := os.Stat(file); return err == nil })
	if k := read(); k.Ended || k.Status.PID != os.Getpid() {
		t.Errorf("at its start it keeps %+v", k)
	}
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	r.remote(d.Addr, "int x;")
	r.idle()
	later := time.Now().Add(keepEvery)
	r.m.keepNow(later)
	if k := read(); k.Ended || len(k.Status.Recent) != 1 || k.Stats.BytesIn == 0 || k.Status.Version != "v7" {
		t.Errorf("now and then it keeps %+v", k)
	}
	before := read().At
	r.m.keepNow(later.Add(keepEvery))
	if k := read(); !k.At.Equal(before) {
		t.Error("it writes though nothing has come since")
	}
	r.remote(d.Addr, "int y;")
	r.idle()
	r.m.Stop()
	if err := <-r.serving; err != nil {
		t.Error(err)
	}
	r.serving <- nil
	k := read()
	if !k.Ended || k.Why != "it was told to end" || len(k.Status.Recent) != 2 || len(k.Status.Hosts) != 1 || k.Status.Hosts[0].State != "up" {
		t.Errorf("at its end it keeps %+v", k)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: names of sources are for their user only", st.Mode(), err)
	}
	status, stats := k.Last()
	if status.NotRunning == nil || stats.NotRunning == nil || k.Status.NotRunning != nil {
		t.Error("the answers do not say whose they are")
	}
	if left, _ := filepath.Glob(file + ".*"); len(left) > 0 {
		t.Errorf("left: %s", strings.Join(left, " "))
	}
}

// TestNeverServedKeepsNothing: a manager that found its socket in use saves nothing.
func TestNeverServedKeepsNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cm.kept")
	dev := openDevice(t)
	defer dev.Close()
	m, err := New(Options{Device: dev, Identify: identifyTest, Kept: file})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a manager that never served has overwritten what another one kept")
	}
}
