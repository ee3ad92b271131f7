package worker

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/cgroup"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// fakeProc returns a directory that stands in for /proc and reports that much memory.
type fakeProc struct {
	t   *testing.T
	dir string
}

func newFakeProc(t *testing.T, free uint64) *fakeProc {
	p := &fakeProc{t, t.TempDir()}
	p.memory(free)
	p.kills(7)
	return p
}

func (p *fakeProc) put(name, text string) {
	p.t.Helper()
	tmp := filepath.Join(p.dir, "new")
	err := os.WriteFile(tmp, []byte(text), 0o644)
	if err == nil {
		err = os.Rename(tmp, filepath.Join(p.dir, name)) // never seen half
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *fakeProc) memory(free uint64) {
	p.put("meminfo", fmt.Sprintf("MemTotal:       99999999 kB\nMemAvailable:   %d kB\nBuffers: 3 kB\n", free>>10))
}

func (p *fakeProc) kills(n int) {
	p.put("vmstat", fmt.Sprintf("nr_free_pages 12\noom_kill %d\nlast 1\n", n))
}

// waits makes it report how much programs wait for memory, in percent.
func (p *fakeProc) waits(percent string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Join(p.dir, "pressure"), 0o755); err != nil {
		p.t.Fatal(err)
	}
	p.put("pressure/memory", "some avg10="+percent+" avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")
}

// TestPressureAlone: that programs wait for memory counts where memory is short, on the machine or in a control group around
// the daemon. A small group that has reached its limit says nothing of a host that has plenty.
func TestPressureAlone(t *testing.T) {
	proc := newFakeProc(t, 20<<30)
	proc.waits("25.00")
	s := &Server{o: Options{Proc: proc.dir, WorkBase: proc.dir}}
	for _, k := range []struct {
		what       string
		free       uint64
		most, used uint64 // of the group; 0: there is none
		waits      string
		short      bool
	}{
		{what: "20 GB are free", free: 20 << 30, waits: "25.00"},
		{what: "and nothing waits", free: 20 << 30, waits: "0.00"},
		{what: "3 GB of 100 are free", free: 3 << 30, waits: "25.00", short: true},
		{what: "and nothing waits", free: 3 << 30, waits: "0.00"},
		{what: "almost nothing is free", free: 100 << 20, waits: "0.00", short: true},
		{what: "the group is nearly full", free: 20 << 30, most: 8 << 30, used: 7500 << 20, waits: "25.00", short: true},
		{what: "it is not", free: 20 << 30, most: 8 << 30, used: 2 << 30, waits: "25.00"},
		{what: "it has room, and the machine has none", free: 2 << 30, most: 4 << 30, used: 1 << 30, waits: "25.00", short: true},
	} {
		proc.memory(k.free)
		proc.waits(k.waits)
		s.groups = nil
		if k.most > 0 {
			proc.bound(k.most, k.used)
			s.groups = cgroup.Find(proc.dir)
		}
		s.readHostLoad()
		if got := s.short(); got != k.short {
			t.Errorf("%s, and programs wait for %s %% of the time: short is %v", k.what, k.waits, got)
		}
	}
}

// TestMemoryAdmission: a job that needs more memory than the host has is refused; one for which there is
// memory once others have ended waits for that.
func TestMemoryAdmission(t *testing.T) {
	proc := newFakeProc(t, 1<<30)
	ts := startServer(t, func(o *Options) { o.Proc = proc.dir })
	id, pids, release := ts.slow()
	c := dial(t, ts.addr, &job.Hello{})
	q := func(mib uint64) request {
		return request{body: compileBody("cpp-output", "a.c"), change: func(m *job.Job) { m.Memory, m.Expect = mib<<20, 3600e3 }}
	}
	if r := c.do(id, q(2000)); r.Status != job.StatusRefused || r.Cause != job.CauseMemory || !strings.Contains(r.Detail, "memory expected") {
		t.Errorf("2000 MiB of 1024: %+v", r.Result)
	}
	first := c.start(id, q(600))
	until(t, "the compiler", func() bool { return len(pids()) == 2 })
	second := c.start(id, q(600)) // beside the first there is no room for it
	small := c.start(id, request{body: compileBody("cpp-output", "a.c"), change: q(600).change})
	until(t, "two jobs to wait", func() bool { st := ts.Status().Load; return st.Queued == 2 && st.Running == 1 })
	if n := len(pids()); n != 2 {
		t.Errorf("%d processes run, though there is no memory", n)
	}
	proc.memory(4 << 30)
	until(t, "the second to run", func() bool { return len(pids()) == 4 })
	release()
	for _, n := range []uint64{first, second, small} {
		if r := c.result(n); r.Status != job.StatusRan || r.Exit != 0 {
			t.Errorf("%+v", r.Result)
		}
	}
}

// TestDiskFloor: with less free disk space than the floor, the host takes no work and says why. It goes on
// once there is space.
func TestDiskFloor(t *testing.T) {
	area := t.TempDir()
	if err := unix.Mount("rdistccd-test", area, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("needs root to mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(area, unix.MNT_DETACH) })
	ts := startServer(t, func(o *Options) {
		o.WorkBase, o.DiskFloor, o.Heartbeat = area, 4<<20, 20*time.Millisecond
	})
	c := dial(t, ts.addr, &job.Hello{})
	id := ts.tool("gcc")
	q := request{body: compileBody("cpp-output", "a.c"), text: hello}
	if r := c.do(id, q); r.Exit != 0 {
		t.Fatalf("%+v", r.Result)
	}
	c.mu.Lock()
	c.keep = true // what crosses the recall comes as a job
	c.mu.Unlock()
	ballast := filepath.Join(area, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 6<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	c.wait("the recall", func() bool { return len(c.recalls) > 0 })
	if err := ts.Ready(); err == nil || !strings.Contains(err.Error(), "limits.disk-floor") {
		t.Errorf("Ready says %v", err)
	}
	if r := c.do(id, q); r.Status != job.StatusRefused || r.Cause != job.CauseDisk || r.Next != nil {
		t.Errorf("below the floor: %+v", r.Result)
	}
	c.mu.Lock()
	c.keep = false
	for len(c.credits) > 0 {
		c.returnLocked()
	}
	c.send(&job.Ack{Of: job.KindRecall, Seq: c.recalls[0].Seq})
	c.mu.Unlock()
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if r := c.do(id, q); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("with space again: %+v", r.Result)
	}
	if err := ts.Ready(); err != nil {
		t.Errorf("Ready says %v", err)
	}
}

// TestKilledCompiler: a compiler, or a program of a driver, that was killed or had no memory is distinguished
// from one that rejected the source.
func TestKilledCompiler(t *testing.T) { forms(t, testKilledCompiler) }

func testKilledCompiler(t *testing.T, b job.Body) {
	proc := newFakeProc(t, 8<<30)
	ts := startServer(t, func(o *Options) { o.Proc = proc.dir })
	c := dial(t, ts.addr, &job.Hello{})
	id := ts.fake("gcc-13", `echo 'gcc: fatal error: Killed signal terminated program cc1' >&2; exit 1`)
	if r := c.do(id, request{body: b}); r.Status != job.StatusRan || r.Signal != uint8(unix.SIGKILL) || r.Exit != 0 {
		t.Errorf("killed: %+v", r.Result)
	}
	id = ts.fake("gcc-13", `echo 'cc1: out of memory allocating 65536 bytes' >&2; exit 1`)
	if r := c.do(id, request{body: b}); r.Status != job.StatusFailed || r.Cause != job.CauseMemory {
		t.Errorf("no memory: %+v", r.Result)
	}
	id = ts.fake("gcc-13", `echo 'a.c:1: error: no' >&2; exit 1`)
	if r := c.do(id, request{body: b}); r.Status != job.StatusRan || r.Signal != 0 || r.Exit != 1 {
		t.Errorf("said no: %+v", r.Result)
	}
	if b.Files != nil {
		return // a tree shows nothing of the host that could count
	}
	id = ts.fake("gcc-13", "printf 'oom_kill 8\\n' >"+proc.dir+"/vmstat; kill -KILL $$")
	if r := c.do(id, request{body: b}); r.Status != job.StatusFailed || r.Cause != job.CauseMemory {
		t.Errorf("killed for memory: %+v", r.Result)
	}
}

// TestCompilerThatCannotStart: a compiler that cannot be started is withdrawn, so that its jobs go elsewhere,
// and is offered again after a later scan. The others stay.
func TestCompilerThatCannotStart(t *testing.T) {
	part.Skip(t)
	for _, q := range []struct {
		name  string
		spoil func(t *testing.T, path string)
	}{
		{"being written", func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
		}},
		{"its interpreter is gone", func(t *testing.T, path string) {
			if err := os.Remove(filepath.Join(filepath.Dir(path), "sh")); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(q.name, func(t *testing.T) {
			ts := startServer(t, nil)
			sh, err := os.ReadFile("/bin/sh")
			if err != nil {
				t.Fatal(err)
			}
			mine := filepath.Join(ts.bin, "sh")
			if err := os.WriteFile(mine, sh, 0o755); err != nil {
				t.Fatal(err)
			}
			ts.fake("gcc-13", "echo x >$out\n")
			path := filepath.Join(ts.bin, "gcc-13")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, append([]byte("#!"+mine+"\n"), text...), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := ts.Rescan(t.Context()); err != nil {
				t.Fatal(err)
			}
			id := ts.tool("gcc-13")
			c := dial(t, ts.addr, &job.Hello{})
			b := compileBody("cpp-output", "a.c")
			if r := c.do(id, request{body: b}); r.Status != job.StatusRan || r.Exit != 0 {
				t.Fatalf("%+v", r.Result)
			}
			q.spoil(t, path)
			if r := c.do(id, request{body: b}); r.Status != job.StatusRefused || r.Cause != job.CauseToolchain {
				t.Errorf("%+v", r.Result)
			}
			c.wait("a list without it", func() bool {
				for _, x := range c.ids {
					if x == id {
						return false
					}
				}
				return true
			})
			if r := c.do(ts.tool("gcc"), request{body: b, text: hello}); r.Status != job.StatusRan || r.Exit != 0 {
				t.Errorf("another compiler: %+v", r.Result)
			}
		})
	}
}

// TestScarceHostRests: after a job for which there was no process, the host takes no work for a moment.
func TestScarceHostRests(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Heartbeat = 20 * time.Millisecond })
	c := dial(t, ts.addr, &job.Hello{})
	c.wait("all credits", func() bool { return len(c.credits) == 5 })
	ts.noted(&task{}, fmt.Errorf("start cc1: %w", unix.EAGAIN))
	if err := ts.Ready(); err == nil {
		t.Error("the host says that it is ready")
	}
	c.wait("the recall", func() bool { return len(c.credits) == 0 })
	c.wait("credits again", func() bool { return len(c.credits) == 5 })
	if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
		t.Errorf("%+v", r.Result)
	}
}

// TestRestartAtOnce: a daemon that was killed while its compilers ran leaves its address free, and STags and
// credits of its connections are void for the next daemon.
func TestRestartAtOnce(t *testing.T) {
	base := t.TempDir()
	ts := &testServer{t: t, bin: t.TempDir()}
	ts.link("gcc")
	cmd, addr, _ := startProcess(t, base, ts.bin)
	c := dial(t, addr, &job.Hello{})
	old := c.credits[0]
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	<-c.done
	// A child that was just being started may hold it for a moment more.
	until(t, "the address to be free", func() bool {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return false
		}
		l.Close()
		return true
	})
	t.Setenv("RDISTCCD_TEST_LISTEN", addr)
	_, again, _ := startProcess(t, base, ts.bin)
	if again != addr {
		t.Fatalf("listens on %s, not %s", again, addr)
	}
	d := dial(t, addr, &job.Hello{})
	if d.welcome.Boot == c.welcome.Boot {
		t.Error("the same boot number after a restart")
	}
	d.mu.Lock()
	d.credits[0] = old
	d.mu.Unlock()
	d.start(d.ids[0], request{body: compileBody("cpp-output", "a.c"), text: hello})
	<-d.done // what was the dead one's is nobody's: the connection ends
}

// TestMemoryLimit: a compile that needs more memory than it may have does not count as failed, so that
// another host can try. The next compile is not affected.
func TestMemoryLimit(t *testing.T) {
	part.Skip(t)
	if testing.Short() {
		t.Skip("takes seconds")
	}
	forms(t, testMemoryLimit)
}

func testMemoryLimit(t *testing.T, b job.Body) {
	ts := startServer(t, func(o *Options) { o.Memory = 96 << 20 })
	c := dial(t, ts.addr, &job.Hello{})
	q := request{body: b, text: "int table[] = {\n" + strings.Repeat("1,1,1,1,1,1,1,1,\n", 200000) + "};\n"}
	small := request{body: b, text: "int x;\n"}
	for _, q := range []*request{&q, &small} {
		if b.Files != nil {
			q.body.Argv0 = "gcc"
			q.body.Files = []unit.File{{Name: "a.c", Len: uint64(len(q.text))}}
		}
	}
	if r := c.do(ts.tool("gcc"), q); r.Status != job.StatusFailed || r.Cause != job.CauseMemory {
		t.Errorf("%+v: %s", r.Result, r.bytes(r.Stderr))
	}
	if r := c.do(ts.tool("gcc"), small); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("one that takes less: %+v", r.Result)
	}
}
