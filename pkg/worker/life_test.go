package worker

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/job"
)

// slow makes a compiler that writes the numbers of its two processes to a file
// and then waits until the file named go is there.
func (ts *testServer) slow() (id job.ToolchainID, pids func() []int, release func()) {
	dir := ts.t.TempDir()
	id = ts.fake("gcc-13", `
sleep 1000 &
echo $$ $! >>`+dir+`/pids
while [ ! -e `+dir+`/go ]; do sleep 0.01; done
echo done >$out
`)
	pids = func() []int {
		b, _ := os.ReadFile(filepath.Join(dir, "pids"))
		if !strings.HasSuffix(string(b), "\n") {
			return nil
		}
		var list []int
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				list = append(list, n)
			}
		}
		return list
	}
	return id, pids, func() {
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
			ts.t.Error(err)
		}
	}
}

func wantDead(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		until(t, "process "+itoa(pid)+" to end", func() bool { return !alive(pid) })
	}
}

func TestCancelKillsTheGroup(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Jobs = 1 })
	id, pids, _ := ts.slow()
	c := dial(t, ts.addr, &job.Hello{})
	b := compileBody("cpp-output", "a.c")
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

func TestTimeLimitKillsTheGroup(t *testing.T) {
	ts := startServer(t, nil)
	id, pids, _ := ts.slow()
	c := dial(t, ts.addr, &job.Hello{})
	r := c.do(id, request{body: compileBody("cpp-output", "a.c"), timeout: 300 * time.Millisecond})
	if r.Status != job.StatusFailed || r.Cause != job.CauseTimeout {
		t.Errorf("%+v", r.Result)
	}
	wantDead(t, pids())
}

// What a compiler leaves running in its group ends with it.
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

func TestClientGoneKillsItsCompilers(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Jobs = 1 })
	id, pids, release := ts.slow()
	c := dial(t, ts.addr, &job.Hello{Name: "gone"})
	other := dial(t, ts.addr, &job.Hello{Name: "stays"})
	b := compileBody("cpp-output", "a.c")
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

func TestJobsAtATime(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Jobs = 2 })
	id, pids, release := ts.slow()
	c := dial(t, ts.addr, &job.Hello{})
	var ids []uint64
	for range 4 {
		ids = append(ids, c.start(id, request{body: compileBody("cpp-output", "a.c")}))
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

func TestDrain(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Jobs = 1 })
	id, pids, release := ts.slow()
	c := dial(t, ts.addr, &job.Hello{})
	b := compileBody("cpp-output", "a.c")
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

func TestSilentClientIsDropped(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Heartbeat, o.Silence = 20*time.Millisecond, 200*time.Millisecond })
	c := dial(t, ts.addr, nil) // says nothing, not even Hello
	lively := dial(t, ts.addr, &job.Hello{})
	<-c.done
	if r := lively.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
		t.Errorf("a client that answers heartbeats: %+v", r.Result)
	}
}

func TestFloodIsCut(t *testing.T) {
	ts := startServer(t, nil)
	id := ts.fake("gcc-13", "i=0; while [ $i -lt 40 ]; do head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; i=$((i+1)); done; echo x >$out\n")
	c := dial(t, ts.addr, &job.Hello{})
	r := c.do(id, request{body: compileBody("cpp-output", "a.c"), sink: 4 << 20})
	if r.Status != job.StatusRan || r.Stdout.Len != outSize || r.Stderr.Len < 1<<19 || r.Stderr.Len > outSize {
		t.Errorf("%+v", r.Result)
	}
	if r = c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 || r.Stdout.Len != 0 {
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

// Only a file that the compiler itself made goes back.
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

func TestCompilerKilledBySignal(t *testing.T) {
	ts := startServer(t, nil)
	id := ts.fake("gcc-13", "echo half >$out; kill -SEGV $$\n")
	c := dial(t, ts.addr, &job.Hello{})
	if r := c.do(id, request{body: compileBody("cpp-output", "a.c")}); r.Status != job.StatusRan || r.Signal != 11 || len(r.Files) != 0 {
		t.Errorf("%+v", r.Result)
	}
}

// Old content of a slot is not for another client: gaps between the segments of
// a result are zero.
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
