package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
)

// bound makes proc report that this process is in a control group with that limit and usage, in bytes.
func (p *fakeProc) bound(most, used uint64) {
	p.t.Helper()
	at := filepath.Join(p.dir, "groups/box")
	for _, d := range []string{at, filepath.Join(p.dir, "self")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
	p.put("self/cgroup", "0::/box/daemon\n")
	p.put("self/mountinfo", fmt.Sprintf("30 23 0:26 / %s/groups rw - cgroup2 cgroup2 rw\n", p.dir))
	p.put("groups/box/memory.max", fmt.Sprintln(most))
	p.put("groups/box/memory.current", fmt.Sprintln(used))
}

// TestMemoryOfTheGroup: in a container, the container's memory decides a compile's bound and whether a job
// can start, also when its limit is changed. If the machine has less than that, the container makes no
// difference.
func TestMemoryOfTheGroup(t *testing.T) {
	proc := newFakeProc(t, 8<<30)
	proc.bound(2<<30, 1536<<20)
	ts := startServer(t, func(o *Options) { o.Proc = proc.dir })
	if got, want := ts.o.JobMemory, int64(2<<30)/4*3; got != want {
		t.Errorf("a compile may take %d bytes, want %d", got, want)
	}
	c := dial(t, ts.addr, &job.Hello{})
	compile := func() *testResult {
		return c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello, change: func(m *job.Job) { m.Memory, m.Expect = 800<<20, 3600e3 }})
	}
	if r := compile(); r.Status != job.StatusRefused || r.Cause != job.CauseMemory || !strings.Contains(r.Detail, "memory expected") {
		t.Errorf("800 MiB, 512 free in the group: %+v", r.Result)
	}
	if n := ts.Status().Load.MemoryFree; n != 512<<20 {
		t.Errorf("clients are told of %d bytes free", n)
	}
	proc.put("groups/box/memory.max", fmt.Sprintln(3<<30))
	until(t, "the memory to be seen", func() bool { r := compile(); return r.Status == job.StatusRan && r.Exit == 0 })
	proc.memory(600 << 20)
	until(t, "the machine's to be seen", func() bool { return compile().Cause == job.CauseMemory })
}
