package pages

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
)

// TestDemand: three compiles on a farm with one place are a demand for three places, as the manager sees it and as the daemon does,
// although the manager keeps what the daemon has no place for; and none when they are gone.
func TestDemand(t *testing.T) {
	cc := farmtest.StandIn(t)
	s := start(t, "", "toolchains: {dirs: ["+filepath.Dir(cc)+"]}\n", "")
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var running []*exec.Cmd
	for i := range 3 {
		source := filepath.Join(s.Dir, fmt.Sprintf("long%d.c", i))
		if err := os.WriteFile(source, fmt.Appendf(nil, "/* stand-in: sleep 600000 */\nint unit_%d;\n", i), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, s.Wrapper, cc, "-c", source, "-o", source+".o")
		cmd.Env = s.Env()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	type demand struct{ Wanted, Running, Places int }
	want := func(p farm.Process, wants demand) {
		t.Helper()
		var got demand
		for got != wants {
			b, err := p.Get(s.ctx, "/demand")
			if err == nil {
				err = json.Unmarshal(b, &got)
			}
			if err != nil {
				t.Fatalf("%s: %v; last it was %+v, want %+v", p.Name, err, got, wants)
			}
			if p.Name == s.Manager.Name {
				got.Running = 0 // how many are on their way to the host is the manager's affair
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	want(s.Manager, demand{Wanted: 3, Places: 1})
	want(s.Daemons[0], demand{Wanted: 3, Running: 1, Places: 1})
	if n, err := s.Manager.Metric(s.ctx, "rdistcc_cm_wanted_places"); n != 3 || err != nil {
		t.Errorf("rdistcc_cm_wanted_places is %v, %v", n, err)
	}
	var sum float64
	for _, name := range []string{"rdistccd_jobs_running", "rdistccd_jobs_queued", "rdistccd_jobs_waiting"} {
		n, err := s.Daemons[0].Metric(s.ctx, name)
		if err != nil {
			t.Error(err)
		}
		sum += n
	}
	if sum != 3 {
		t.Errorf("the daemon's metrics say %v", sum)
	}
	cancel()
	for _, cmd := range running {
		_ = cmd.Wait() // it was killed
	}
	want(s.Manager, demand{Places: 1})
	want(s.Daemons[0], demand{Places: 1})
}
