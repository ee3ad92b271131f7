package worker

import (
	"bytes"
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// slow makes a compiler of two processes that stop themselves until they are released. pids are those seen
// stopped so far, in any tree.
func (ts *testServer) slow() (id unit.ToolchainID, pids func() []int, release func()) {
	mark := ts.t.TempDir() // in their command lines
	ts.bin = mark
	ts.settings.Store(&Settings{JobTimeout: patience, Dirs: []string{mark}})
	id = ts.fake("gcc-13", "/bin/sh -c 'kill -STOP $$' "+mark+" &\nkill -STOP $$\nwait\necho done >$out\n")
	var mu sync.Mutex
	seen := map[int]bool{}
	pids = func() []int {
		mu.Lock()
		defer mu.Unlock()
		for _, pid := range stopped(ts.t, mark) {
			seen[pid] = true
		}
		return slices.Collect(maps.Keys(seen))
	}
	return id, pids, func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				for _, pid := range pids() {
					_ = unix.Kill(pid, unix.SIGCONT) // it may have ended
				}
				time.Sleep(2 * time.Millisecond)
			}
		}()
		ts.t.Cleanup(func() { cancel(); <-ended })
	}
}

// stopped returns the stopped processes with a mark in their command lines.
func stopped(t testing.TB, mark string) []int {
	proc, err := os.ReadDir("/proc")
	if err != nil {
		t.Error(err)
	}
	var list []int
	for _, d := range proc {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile("/proc/" + d.Name() + "/cmdline")
		if err != nil || !strings.Contains(string(line), mark) {
			continue
		}
		stat, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if _, state, _ := strings.Cut(string(stat), ") "); err == nil && strings.HasPrefix(state, "T") {
			list = append(list, pid)
		}
	}
	return list
}

// forms runs a test for jobs of both forms, each an ordinary compile.
func forms(t *testing.T, test func(t *testing.T, b job.Body)) {
	part.Skip(t)
	t.Run("text", func(t *testing.T) { test(t, compileBody("cpp-output", "a.c")) })
	t.Run("sources", func(t *testing.T) {
		tr, err := privatetree.New(t.Context(), privatetree.Spec{})
		if err != nil {
			need.Skipf(t, need.Sandbox, "%v", err)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
		test(t, treeBody("gcc-13"))
	})
}

// treeBody returns the body of an ordinary compile of an empty file in the sources form.
func treeBody(compiler string) job.Body {
	return job.Body{
		Argv0: compiler, Args: []string{"-c", "a.c", "-o", "x.o"}, Language: "c", Name: "a.c", Cwd: "/src",
		Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "x.o"}}, Files: []unit.File{{Name: "a.c"}},
	}
}

func wantDead(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		until(t, "process "+itoa(pid)+" to end", func() bool { return !alive(pid) })
	}
}

func TestCancelKillsTheGroup(t *testing.T) { forms(t, testCancelKillsTheGroup) }

func testCancelKillsTheGroup(t *testing.T, b job.Body) {
	ts := startServer(t, func(o *Options) { o.Jobs = 1 })
	id, pids, _ := ts.slow()
	c := dial(t, ts.addr, &job.Hello{})
	first := c.start(id, request{body: b})
	second := c.start(id, request{body: b})
	until(t, "the compiler", func() bool { return len(pids()) == 2 })
	// The one in the queue first: it is answered though no core is free.
	c.send(&job.Cancel{Seq: 1, Jobs: []uint64{second, 12345}})
	if r := c.result(second); r.Status != job.StatusFailed || r.Cause != job.CauseCancelled {
		t.Errorf("queued: %+v", r.Result)
	}
	c.wait("an ack", func() bool { return c.acks[job.KindCancel] == 1 })
	c.send(&job.Cancel{Seq: 2, Jobs: []uint64{first}})
	if r := c.result(first); r.Status != job.StatusFailed || r.Cause != job.CauseCancelled || len(r.Files) != 0 {
		t.Errorf("running: %+v", r.Result)
	}
	wantDead(t, pids())
	if n := len(pids()); n != 2 {
		t.Errorf("%d processes ran, the queued job's too", n)
	}
}

func TestTimeLimitKillsTheGroup(t *testing.T) { forms(t, testTimeLimitKillsTheGroup) }

func testTimeLimitKillsTheGroup(t *testing.T, b job.Body) {
	ts := startServer(t, nil)
	id, pids, _ := ts.slow()
	c := dial(t, ts.addr, &job.Hello{})
	r := c.do(id, request{body: b, timeout: 300 * time.Millisecond})
	if r.Status != job.StatusFailed || r.Cause != job.CauseTimeout {
		t.Errorf("%+v", r.Result)
	}
	wantDead(t, pids())
}

// Processes that a compiler leaves running in its group are killed when it ends.
func TestLeftoverProcessIsKilled(t *testing.T) {
	ts := startServer(t, nil)
	dir := t.TempDir()
	id := ts.fake("gcc-13", "sleep 1000 & echo $! >"+dir+"/pid; echo x >$out\n")
	c := dial(t, ts.addr, &job.Hello{})
	if r := c.do(id, request{body: compileBody("cpp-output", "a.c")}); r.Exit != 0 || len(r.Files) != 1 {
		t.Fatalf("%+v", r.Result)
	}
	b, err := os.ReadFile(dir + "/pid")
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	wantDead(t, []int{pid})
}

func TestClientGoneKillsItsCompilers(t *testing.T) { forms(t, testClientGoneKillsItsCompilers) }

func testClientGoneKillsItsCompilers(t *testing.T, b job.Body) {
	ts := startServer(t, func(o *Options) { o.Jobs = 1 })
	id, pids, release := ts.slow()
	c := dial(t, ts.addr, &job.Hello{Name: "gone"})
	other := dial(t, ts.addr, &job.Hello{Name: "stays"})
	c.start(id, request{body: b})
	c.start(id, request{body: b}) // in the queue
	until(t, "the compiler", func() bool { return len(pids()) == 2 })
	c.qp.Abort()
	wantDead(t, pids())
	until(t, "the client to be forgotten", func() bool { return len(ts.Status().Clients) == 1 })
	release()
	if r := other.do(id, request{body: b}); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("the other client: %+v", r.Result)
	}
	if n := len(pids()); n != 4 {
		t.Errorf("%d processes ran, want the first job's two and the other client's", n)
	}
}

func TestJobsAtATime(t *testing.T) { forms(t, testJobsAtATime) }

func testJobsAtATime(t *testing.T, b job.Body) {
	ts := startServer(t, func(o *Options) { o.Jobs = 2 })
	id, pids, release := ts.slow()
	c := dial(t, ts.addr, &job.Hello{})
	var ids []uint64
	for range 4 {
		ids = append(ids, c.start(id, request{body: b}))
	}
	until(t, "both runners", func() bool { st := ts.Status().Load; return len(pids()) == 4 && st.Queued == 2 })
	if st := ts.Status().Load; st.Running != 2 || st.Jobs != 2 {
		t.Errorf("load is %+v", st)
	}
	release()
	for _, n := range ids {
		if r := c.result(n); r.Status != job.StatusRan || r.Exit != 0 {
			t.Errorf("%+v", r.Result)
		}
	}
	if n := len(pids()); n != 8 {
		t.Errorf("%d processes ran, want 8", n)
	}
}

func TestDrain(t *testing.T) { forms(t, testDrain) }

func testDrain(t *testing.T, b job.Body) {
	ts := startServer(t, func(o *Options) { o.Jobs = 1 })
	id, pids, release := ts.slow()
	c := dial(t, ts.addr, &job.Hello{})
	running, queued := c.start(id, request{body: b}), c.start(id, request{body: b})
	until(t, "the compiler", func() bool { return len(pids()) == 2 })

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := ts.Drain(ctx); err == nil {
		t.Error("Drain ended with jobs under way")
	}
	c.wait("to be told", func() bool { return c.draining })
	if ts.Ready() == nil {
		t.Error("a draining server says that it is ready")
	}
	if r := c.do(id, request{body: b}); r.Status != job.StatusRefused || r.Cause != job.CauseDraining || r.Next != nil {
		t.Errorf("a new job: %+v", r.Result)
	}
	g := job.Greeting{Version: job.Version}
	if j := rejection(t, ts.addr, g.Append(nil)); j.Cause != job.CauseDraining {
		t.Errorf("a new client: %+v", j)
	}
	release()
	if err := ts.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{running, queued} {
		if r := c.result(n); r.Status != job.StatusRan || r.Exit != 0 || !r.Load.Draining {
			t.Errorf("%+v", r.Result)
		}
	}
	ts.Close()
	<-c.done
	if err := c.qp.Err(); err != nil {
		t.Errorf("the connection ended with %v, want gracefully", err)
	}
}

// TestDrainWaitsForWhatIsOnItsWay: a job that was sent before its sender heard of the drain is refused, not
// cut off.
func TestDrainWaitsForWhatIsOnItsWay(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Grace = patience })
	id := ts.tool("gcc")
	c := dial(t, ts.addr, &job.Hello{})
	drained := make(chan error, 1)
	go func() { drained <- ts.Drain(context.Background()) }()
	c.wait("to be told", func() bool { return c.draining })
	if r := c.do(id, request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Status != job.StatusRefused || r.Cause != job.CauseDraining {
		t.Errorf("a job that was on its way: %+v", r.Result)
	}
	select {
	case err := <-drained:
		t.Fatalf("Drain ended with credits on loan: %v", err)
	default:
	}
	c.mu.Lock()
	for len(c.credits) > 0 {
		c.returnLocked()
	}
	c.mu.Unlock()
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

func TestSilentClientIsDropped(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Heartbeat, o.Silence = 20*time.Millisecond, 200*time.Millisecond })
	c := dial(t, ts.addr, nil) // says nothing, not even Hello
	lively := dial(t, ts.addr, &job.Hello{})
	<-c.done
	if r := lively.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
		t.Errorf("a client that answers heartbeats: %+v", r.Result)
	}
}

// TestClientRests: a client without a job for ten heartbeats rests, until its next job.
func TestClientRests(t *testing.T) {
	c := &conn{s: &Server{o: Options{Heartbeat: time.Second}}}
	rests := func(after time.Duration, want bool) {
		t.Helper()
		for ; after > time.Second; after -= time.Second {
			c.restsLocked(time.Second)
		}
		if c.restsLocked(time.Second) != want {
			t.Errorf("rests is %v after %v without a job", !want, c.life.unused)
		}
	}
	rests(10*time.Second, false)
	rests(time.Second, true)
	c.jobs++
	rests(11*time.Second, false) // the first finds the job
	rests(time.Second, true)
	c.tasks = map[uint64]*task{1: nil} // a long one
	rests(time.Minute, false)
}

func TestFloodIsCut(t *testing.T) { forms(t, testFloodIsCut) }

func testFloodIsCut(t *testing.T, b job.Body) {
	ts := startServer(t, nil)
	id := ts.fake("gcc-13", "s=x; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do s=$s$s; done; for i in 1 2 3 4 5 6 7 8 9; do printf %s $s; printf %s $s >&2; done; echo x >$out\n")
	c := dial(t, ts.addr, &job.Hello{})
	r := c.do(id, request{body: b, sink: 4 << 20})
	if r.Status != job.StatusRan || r.Stdout.Len != uint64(ts.o.Output)+uint64(len(capture.Note(ts.o.Output))) || r.Stderr.Len != r.Stdout.Len {
		t.Errorf("%+v", r.Result)
	} else if b := r.bytes(r.Stderr); !bytes.HasSuffix(b, []byte("x"+capture.Note(ts.o.Output))) {
		t.Errorf("the end is %q", b[len(b)-100:])
	}
	id = ts.fake("gcc-13", "echo x >$out\n")
	if r = c.do(id, request{body: b}); r.Exit != 0 || r.Stdout.Len != 0 {
		t.Errorf("the next job: %+v", r.Result)
	}
}

func TestResultLargerThanTheSink(t *testing.T) {
	ts := startServer(t, nil)
	c := dial(t, ts.addr, &job.Hello{})
	b := compileBody("cpp-output", "a.c")
	text := "char large[100000] = {1};\n"
	r := c.do(ts.tool("gcc"), request{body: b, text: text, sink: 64 << 10})
	if r.Status != job.StatusFailed || r.Cause != job.CauseTooBig {
		t.Errorf("%+v", r.Result)
	}
	for _, x := range r.sink {
		if x != 0 {
			t.Fatal("a result that is void was written")
		}
	}
	// The daemon's own bound: its slot.
	r = c.do(ts.tool("gcc"), request{body: b, text: "char large[5000000] = {1};\n", sink: 16 << 20})
	if r.Status != job.StatusFailed || r.Cause != job.CauseTooBig {
		t.Errorf("%+v", r.Result)
	}
	if r = c.do(ts.tool("gcc"), request{body: b, text: text}); r.Exit != 0 || len(r.Files) != 1 {
		t.Errorf("with a larger sink: %+v", r.Result)
	}
}

// Only a file that the compiler itself made is returned.
func TestOutputMustBeItsOwnFile(t *testing.T) {
	ts := startServer(t, nil)
	c := dial(t, ts.addr, &job.Hello{})
	for name, script := range map[string]string{
		"a link":      "ln -s /etc/passwd $out",
		"a hard link": "ln /etc/hostname $out 2>/dev/null || { echo x >h; ln h $out; }",
		"a directory": "mkdir $out",
		"a fifo":      "mkfifo $out",
	} {
		id := ts.fake("gcc-13", script+"\n")
		r := c.do(id, request{body: compileBody("cpp-output", "a.c")})
		if r.Status == job.StatusRan && len(r.Files) > 0 {
			t.Errorf("%s: %+v", name, r.Result)
		}
	}
	// None at all is the compiler's business.
	id := ts.fake("gcc-13", "exit 0\n")
	if r := c.do(id, request{body: compileBody("cpp-output", "a.c")}); r.Status != job.StatusRan || len(r.Files) != 0 {
		t.Errorf("no output: %+v", r.Result)
	}
}

func TestCompilerKilledBySignal(t *testing.T) { forms(t, testCompilerKilledBySignal) }

func testCompilerKilledBySignal(t *testing.T, b job.Body) {
	ts := startServer(t, nil)
	id := ts.fake("gcc-13", "echo half >$out; kill -SEGV $$\n")
	c := dial(t, ts.addr, &job.Hello{})
	if r := c.do(id, request{body: b}); r.Status != job.StatusRan || r.Signal != 11 || len(r.Files) != 0 {
		t.Errorf("%+v", r.Result)
	}
}

// Old content of a slot does not leak to another client: gaps between the segments of a result are zero.
func TestGapsAreZero(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Jobs = 1 })
	id := ts.fake("gcc-13", "printf x; printf y >&2; printf z >$out\n")
	c := dial(t, ts.addr, &job.Hello{})
	for range 4 {
		r := c.do(id, request{body: compileBody("cpp-output", "a.c"), text: strings.Repeat("secret ", 1000)})
		if len(r.Files) != 1 || string(r.bytes(r.Files[0].Segment)) != "z" || string(r.bytes(r.Stdout))+string(r.bytes(r.Stderr)) != "xy" {
			t.Fatalf("%+v", r.Result)
		}
		if s := string(r.sink); strings.Contains(s, "secret") || strings.Trim(s, "\x00xyz") != "" {
			t.Errorf("the sink holds %q", strings.ReplaceAll(s[:4096], "\x00", "."))
		}
	}
}
