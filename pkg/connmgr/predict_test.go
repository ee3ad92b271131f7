package connmgr

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
)

// TestCompilesAreRemembered: the next manager predicts a compile from the time that it took before, and tells
// the host.
func TestCompilesAreRemembered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "history")
	var got job.Job
	takes := func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			got = j.Job
			a := daemontest.Compiled(j)
			a.Wall, a.CPU, a.MaxRSS = 900_000, 800_000, 200<<20
			c.Finish(j, a)
		}
	}
	for i := range 2 {
		synctest.Test(t, func(t *testing.T) {
			s := newSimulated(t, func(o *Options) { o.History = file })
			d := daemontest.Start(t, s.far, "10.0.0.1:7632", takes)
			if _, no := s.run(context.Background(), leaseOf(d.Addr), "int x;"); no != nil {
				t.Fatalf("answer %+v", no)
			}
			expect := time.Duration(got.Expect) * time.Millisecond
			if i == 0 && (expect != 0 || got.Memory != 0) {
				t.Errorf("the first compile is expected to take %v and %d bytes, want nothing known", expect, got.Memory)
			}
			if i == 1 && (expect < 400*time.Millisecond || expect > 1600*time.Millisecond || got.Memory < 100<<20 || got.Memory > 400<<20) {
				t.Errorf("the second compile is expected to take %v and %d bytes, want some 800 ms and 200 MiB", expect, got.Memory)
			}
		})
	}
}

// TestDamagedHistory: a damaged history causes one warning and is replaced by an empty one.
func TestDamagedHistory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(o *Options) { o.History = file })
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	r.remote(d.Addr, "int x;")
}
