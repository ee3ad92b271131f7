package offload

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// sample is what pprof prints, with stacks of each kind.
const sample = `File: rdistccd
Type: cpu
Time: 2026-01-01 00:00:00 UTC
Duration: 5s, Total samples = 1s (20%)
-----------+-------------------------------------------------------
      10ms   internal/runtime/syscall/linux.Syscall6
             syscall.Syscall
             github.com/rdistcc/rdistcc/pkg/iwarp.(*qp).receive
             github.com/rdistcc/rdistcc/pkg/iwarp.(*qp).rxLoop
-----------+-------------------------------------------------------
      20ms   runtime.memmove
             github.com/rdistcc/rdistcc/pkg/iwarp.(*rxState).scatter
             github.com/rdistcc/rdistcc/pkg/iwarp/rdmap.(*Receiver).segment
-----------+-------------------------------------------------------
      30ms   github.com/rdistcc/rdistcc/pkg/worker.(*Server).answer (inline)
             main.main
-----------+-------------------------------------------------------
     1.00s   internal/runtime/syscall/linux.Syscall6
             os.(*File).Write
             github.com/rdistcc/rdistcc/pkg/worker/run.lay
-----------+-------------------------------------------------------
      40ms   runtime.futex
             runtime.schedule
             runtime.mcall
-----------+-------------------------------------------------------
`

func TestParseTraces(t *testing.T) {
	p, err := ParseTraces(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	total := 1.1
	for name, c := range map[string][2]Share{
		"stack":   {p.Stack, {User: 0.02 / total, System: 0.01 / total}},
		"daemon":  {p.Daemon, {User: 0.03 / total, System: 1 / total}},
		"runtime": {p.Runtime, {System: 0.04 / total}},
	} {
		if math.Abs(c[0].User-c[1].User) > 1e-9 || math.Abs(c[0].System-c[1].System) > 1e-9 {
			t.Errorf("%s: %+v, want %+v", name, c[0], c[1])
		}
	}
	if p.Total != 1100*time.Millisecond {
		t.Errorf("total %v", p.Total)
	}
	cost := &Cost{User: 5, System: 105}
	cost.Model(p)
	if math.Abs(cost.ModelUser-3) > 1e-9 || math.Abs(cost.ModelSystem-104) > 1e-9 {
		t.Errorf("model %v + %v, want 3 + 104", cost.ModelUser, cost.ModelSystem)
	}
	if _, err := ParseTraces(strings.NewReader("File: x\n")); err == nil {
		t.Error("no samples, and no error")
	}
}

// TestClients keeps a daemon busy, of which every job has its object.
func TestClients(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	dir := farmtest.Dir(t)
	f := farmtest.New(t, dir)
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("sandbox: off\ntoolchains: {dirs: ["+filepath.Dir(farmtest.StandIn(t))+"]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d, err := f.StartDaemon(ctx, "d1", "--config", config, "--jobs", "2")
	if err != nil {
		t.Fatal(err)
	}
	dev := iwarptest.Open(t, iwarp.Config{})
	for _, size := range []int{100, 4 << 10, 1 << 20} {
		c, err := Connect(ctx, Load{Device: dev, Addr: d.Addr, Clients: 3, Size: size})
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if got := len(c.job.Text); size >= 4<<10 && got != size {
			t.Errorf("a source of %d bytes, want %d", got, size)
		}
		if done, err := c.Run(ctx, time.Millisecond); err != nil || done.Jobs < 3 || done.Lost > 0 {
			t.Errorf("%d bytes: %+v, %v", size, done, err)
		}
		c.Close()
	}
	if cpu := (&Daemon{PID: d.PID()}).cpu(); cpu < 0 {
		t.Errorf("CPU time %v", cpu)
	}
	if _, err := Connect(ctx, Load{Device: dev, Addr: "127.0.0.1:1", Clients: 1, Size: 100, Retries: 3}); err == nil {
		t.Error("nobody is there, and no error")
	}
}
