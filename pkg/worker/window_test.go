package worker

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/alone"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// small makes slots of 64 KiB, so that sources of other tests need windows.
func small(o *Options) {
	o.Slot, o.Prefault = 64<<10, 64<<10
	o.Source, o.Result, o.Large = 8<<20, 8<<20, 16<<20
}

// bigSource returns a C source of at least n bytes.
func bigSource(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "extern int declared_%d(int, %s);\n", i, strings.Repeat("long ", 2))
	}
	return b.String() + hello
}

// given waits until all memory of sources and results is freed.
func (ts *testServer) given() {
	ts.t.Helper()
	until(ts.t, "large memory to come back", func() bool { return ts.large.Used() == 0 })
	if !ts.large.Whole() {
		ts.t.Error("large memory is short")
	}
}

// objectOf returns the object that gcc makes from text locally.
func objectOf(t *testing.T, text string) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.c"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("gcc", "-x", "cpp-output", "-c", "a.c", "-o", "a.o")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	object, err := os.ReadFile(filepath.Join(dir, "a.o"))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// TestBigSourceIsFetched: a source that is too big for a slot is read from its window and compiled, and
// nothing of it is kept.
func TestBigSourceIsFetched(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ts := startServer(t, small)
	c := dial(t, ts.addr, &job.Hello{})
	if c.welcome.MaxSource != 8<<20 || c.welcome.MaxBody != 64<<10 {
		t.Fatalf("%+v", c.welcome)
	}
	text := bigSource(3 << 20)
	r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: text, offer: true})
	if r.Status != job.StatusRan || r.Exit != 0 || len(r.Files) != 1 || r.Next == nil {
		t.Fatalf("%+v", r.Result)
	}
	if !bytes.Equal(r.bytes(r.Files[0].Segment), objectOf(t, text)) {
		t.Error("the object is another one than here")
	}
	ts.given()
}

// TestBigResultIsOffered: an object that is too big for slot and sink stays in a window until it is released.
func TestBigResultIsOffered(t *testing.T) {
	ts := startServer(t, small)
	c := dial(t, ts.addr, &job.Hello{})
	text := "char large[3000000] = {1};\n"
	body := compileBody("cpp-output", "a.c")
	for _, sink := range []int{32 << 10, 4 << 20} { // the sink's bound, and the slot's
		r := c.do(ts.tool("gcc"), request{body: body, text: text, sink: sink, fetch: 8 << 20})
		if r.Status != job.StatusRan || len(r.Files) != 1 || r.Window.STag == 0 {
			t.Fatalf("%+v", r.Result)
		}
		for _, x := range r.sink {
			if x != 0 {
				t.Fatal("a result that is offered was written as well")
			}
		}
		got := c.read(r.Window)
		f := r.Files[0]
		if !bytes.Equal(got[f.Off:][:f.Len], objectOf(t, text)) {
			t.Error("the object is another one than here")
		}
		if ts.large.Used() != int64(r.Window.Len) {
			t.Errorf("%d bytes are counted, want %d", ts.large.Used(), r.Window.Len)
		}
		c.post(&job.Release{ID: r.ID}, r.Window.STag)
		ts.given()
	}
	// Who would not fetch it, or not so much, gets the old answer.
	for _, fetch := range []uint64{0, 1 << 20} {
		r := c.do(ts.tool("gcc"), request{body: body, text: text, sink: 32 << 10, fetch: fetch})
		if r.Status != job.StatusFailed || r.Cause != job.CauseTooBig || r.Window.STag != 0 {
			t.Errorf("fetch %d: %+v", fetch, r.Result)
		}
	}
	ts.given()
}

// TestLargeMemoryIsBounded: a source waits for room and can be cancelled meanwhile; a result for which there
// is no room is too big; a source that is larger than the whole memory is refused.
func TestLargeMemoryIsBounded(t *testing.T) {
	ts := startServer(t, func(o *Options) { small(o); o.Large = 4 << 20 })
	c := dial(t, ts.addr, &job.Hello{})
	id := ts.tool("gcc")
	body := compileBody("cpp-output", "a.c")
	if c.welcome.MaxSource != 4<<20 {
		t.Errorf("%+v", c.welcome)
	}
	held := c.do(id, request{body: body, text: "char large[3000000] = {1};\n", fetch: 8 << 20})
	if held.Window.STag == 0 {
		t.Fatalf("%+v", held.Result)
	}
	if r := c.do(id, request{body: body, text: "char large[3000000] = {1};\n", fetch: 8 << 20}); r.Cause != job.CauseTooBig {
		t.Errorf("%+v", r.Result)
	}
	cancelled := c.start(id, request{body: body, text: bigSource(2 << 20), offer: true})
	c.send(&job.Cancel{Seq: 1, Jobs: []uint64{cancelled}})
	if r := c.result(cancelled); r.Status != job.StatusFailed || r.Cause != job.CauseCancelled {
		t.Errorf("%+v", r.Result)
	}
	waiting := c.start(id, request{body: body, text: bigSource(2 << 20), offer: true})
	if r := c.do(id, request{body: body, text: hello}); r.Exit != 0 {
		t.Errorf("a small job beside it: %+v", r.Result)
	}
	c.post(&job.Release{ID: held.ID}, held.Window.STag)
	if r := c.result(waiting); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("%+v", r.Result)
	}
	if r := c.do(id, request{body: body, text: bigSource(5 << 20), offer: true}); r.Status != job.StatusRefused || r.Cause != job.CauseTooBig {
		t.Errorf("%+v", r.Result)
	}
	ts.given()
}

// TestResultThatNobodyFetches: a client that neither reads nor releases a window loses it after a time, and
// keeps its connection; one that goes on reading loses it only after the time that a compile may take. Ticks
// measure the time.
func TestResultThatNobodyFetches(t *testing.T) {
	ts := startServer(t, func(o *Options) {
		small(o)
		o.Silence, o.WindowTime, o.JobTimeout = 1000*time.Hour, time.Hour, 1000*time.Hour
	})
	pass := func(d time.Duration) {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		for c := range ts.conns {
			c.checkLifeLocked(d)
		}
	}
	c := dial(t, ts.addr, &job.Hello{})
	id := ts.fake("gcc-13", "head -c 1000000 /dev/zero >$out\n")
	q := request{body: compileBody("cpp-output", "a.c"), fetch: 8 << 20, sink: 32 << 10}
	if r := c.do(id, q); r.Window.STag == 0 {
		t.Fatalf("%+v", r.Result)
	}
	pass(50 * time.Minute)
	if ts.large.Used() == 0 {
		t.Error("a window was closed too early")
	}
	// What is not acknowledged yet counts as reading.
	until(t, "the window to be closed", func() bool { pass(50 * time.Minute); return ts.large.Used() == 0 })
	ts.given()
	if r := c.do(ts.tool("gcc"), request{body: q.body, text: hello}); r.Exit != 0 {
		t.Errorf("after it: %+v", r.Result)
	}
	r := c.do(id, q)
	part := r.Window
	part.Len = 10
	// Each Read makes the window last WindowTime more.
	for range 10 {
		c.read(part)
		pass(50 * time.Minute)
	}
	if ts.large.Used() == 0 {
		t.Error("a window that is read was closed")
	}
	limits := ts.Settings()
	limits.JobTimeout = 5 * time.Hour // it is older than that
	ts.Apply(limits)
	c.read(part)
	pass(50 * time.Minute)
	ts.given()
	c.steal(part.STag, part.TO) // a Read from an STag that is gone
	<-c.done
}

// TestWindowsEndWithTheConnection: windows end with the connection, whatever is under way, and a drain waits
// only for results that are not fetched.
func TestWindowsEndWithTheConnection(t *testing.T) {
	ts := startServer(t, small)
	c := dial(t, ts.addr, &job.Hello{})
	q := request{body: compileBody("cpp-output", "a.c"), text: "char large[3000000] = {1};\n", fetch: 8 << 20}
	if r := c.do(ts.tool("gcc"), q); r.Window.STag == 0 {
		t.Fatalf("%+v", r.Result)
	}
	c.start(ts.tool("gcc"), request{body: q.body, text: bigSource(6 << 20), offer: true})
	c.qp.Abort()
	<-c.done
	ts.given()

	c = dial(t, ts.addr, &job.Hello{})
	r := c.do(ts.tool("gcc"), q)
	drained := make(chan error, 1)
	go func() { drained <- ts.Drain(t.Context()) }()
	c.wait("the drain", func() bool { return c.draining })
	c.read(r.Window)
	select {
	case <-drained:
		t.Error("drained with a result that is not released")
	default:
	}
	c.post(&job.Release{ID: r.ID}, r.Window.STag)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	ts.given()
}

// TestWindowsThatLie: an invalid window of the client costs the job or the connection, never more.
func TestWindowsThatLie(t *testing.T) {
	ts := startServer(t, small)
	q := request{body: compileBody("cpp-output", "a.c"), text: bigSource(1 << 20), offer: true}
	for name, lie := range map[string]struct {
		change func(m *job.Job)
		cause  job.Cause // 0: the connection ends
	}{
		"longer than its text":   {func(m *job.Job) { m.TextLen-- }, job.CauseMalformed},
		"shorter than its text":  {func(m *job.Job) { m.TextLen++ }, job.CauseMalformed},
		"larger than it may be":  {func(m *job.Job) { m.Source.Len, m.TextLen = 1<<40, 1<<40-uint64(m.TextOff) }, job.CauseTooBig},
		"a body that is noise":   {func(m *job.Job) { m.Source.TO++; m.Source.Len--; m.TextLen-- }, job.CauseMalformed},
		"an STag of nothing":     {func(m *job.Job) { m.Source.STag ^= 1 << 12 }, 0},
		"longer than its memory": {func(m *job.Job) { m.Source.Len++; m.TextLen++ }, 0},
		"memory of the sink":     {func(m *job.Job) { m.Source.STag, m.Source.TO = m.Sink.STag, m.Sink.TO }, 0},
	} {
		c := dial(t, ts.addr, &job.Hello{})
		liar := q
		liar.change = lie.change
		n := c.start(ts.tool("gcc"), liar)
		if lie.cause == 0 {
			<-c.done
			if err := c.qp.Err(); err == nil {
				t.Errorf("%s: the connection ended in peace", name)
			}
		} else if r := c.result(n); r.Status != job.StatusRefused || r.Cause != lie.cause {
			t.Errorf("%s: %+v, want %v", name, r.Result, lie.cause)
		}
		c.qp.Abort()
		ts.given()
	}
	for name, release := range map[string]func(c *testClient, r *testResult){
		"a Release of nothing":               func(c *testClient, r *testResult) { c.post(&job.Release{ID: r.ID + 9}, r.Window.STag) },
		"a Release that invalidates nothing": func(c *testClient, r *testResult) { c.send(&job.Release{ID: r.ID}) },
		"two Releases": func(c *testClient, r *testResult) {
			c.post(&job.Release{ID: r.ID}, r.Window.STag)
			c.post(&job.Release{ID: r.ID}, r.Window.STag)
		},
		"a Read past the end": func(c *testClient, r *testResult) { c.steal(r.Window.STag, r.Window.TO+r.Window.Len-1) },
		"a Write":             func(c *testClient, r *testResult) { c.spoil(r.Window) },
		"a Read after the Release": func(c *testClient, r *testResult) {
			c.post(&job.Release{ID: r.ID}, r.Window.STag)
			c.steal(r.Window.STag, r.Window.TO)
		},
		"a job of the same number meanwhile": func(c *testClient, r *testResult) {
			c.mu.Lock()
			c.lastJob = r.ID - 1
			c.mu.Unlock()
			c.start(ts.tool("gcc"), q)
		},
	} {
		c := dial(t, ts.addr, &job.Hello{})
		r := c.do(ts.tool("gcc"), request{body: q.body, text: "char large[3000000] = {1};\n", fetch: 8 << 20})
		if r.Window.STag == 0 {
			t.Fatalf("%s: %+v", name, r.Result)
		}
		release(c, r)
		<-c.done
		ts.given()
	}
	c := dial(t, ts.addr, &job.Hello{})
	if r := c.do(ts.tool("gcc"), q); r.Exit != 0 || r.Status != job.StatusRan {
		t.Errorf("an honest one afterwards: %+v", r.Result)
	}
}

// steal reads memory that it may not read.
func (c *testClient) steal(stag uint32, to uint64) {
	_ = c.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpRead, STag: iwarp.STag(stag), TO: to,
		SGL: []iwarp.SGE{{Addr: c.recvMR.Base(), Length: 2, LKey: c.recvMR.STag()}}})
}

// spoil writes to memory that is only for reading.
func (c *testClient) spoil(w job.Window) {
	_ = c.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, STag: iwarp.STag(w.STag), TO: w.TO, Data: []byte("x")})
}

// TestLoadBoard: a client that reads the board sees what runs, waits and drains, without a message, and can
// do nothing else with it.
func TestLoadBoard(t *testing.T) {
	ts := startServer(t, func(o *Options) { small(o); o.Jobs = 1; o.Heartbeat = patience })
	id := ts.fake("gcc-13", "while [ ! -e "+ts.base+".go ]; do sleep 0.01; done; echo x >$out\n")
	t.Cleanup(func() { os.Remove(ts.base + ".go") })
	c, idle := dial(t, ts.addr, &job.Hello{}), dial(t, ts.addr, &job.Hello{})
	w := idle.welcome.Board
	if w.Len != job.BoardLen || w.STag == 0 || w.STag == c.welcome.Board.STag {
		t.Fatalf("boards %+v and %+v", w, c.welcome.Board)
	}
	board := func(of *testClient) *job.Board {
		t.Helper()
		b, err := job.ParseBoard(of.read(of.welcome.Board))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := board(idle)
	if first.Load.Running != 0 || first.Load.Jobs != 1 || first.Load.Draining || len(first.Speeds) != 0 {
		t.Errorf("at rest: %+v", first)
	}
	body := compileBody("cpp-output", "a.c")
	a, b := c.start(id, request{body: body}), c.start(id, request{body: body})
	var busy *job.Board
	until(t, "a job that runs and one that waits", func() bool {
		busy = board(idle)
		return busy.Load.Running == 1 && busy.Load.Queued == 1
	})
	if busy.Seq <= first.Seq || busy.Uptime < first.Uptime {
		t.Errorf("busy: %+v, before: %+v", busy, first)
	}
	before := idle.qp.Stats()
	for range 20 {
		board(idle)
	}
	if after := idle.qp.Stats(); after.SendsReceived != before.SendsReceived || after.SendsSent != before.SendsSent {
		t.Errorf("messages for boards: before %+v, after %+v", before, after)
	}
	if err := os.WriteFile(ts.base+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.result(a)
	c.result(b)
	if r := c.do(ts.tool("gcc"), request{body: body, text: bigSource(1 << 20), offer: true}); r.Exit != 0 {
		t.Fatalf("%+v", r.Result)
	}
	if got := board(idle); len(got.Speeds) == 0 || got.Speeds[0].Toolchain != ts.tool("gcc") || got.Speeds[0].Rate == 0 {
		t.Errorf("speeds after a compile: %+v", got.Speeds)
	}
	go func() { _ = ts.Drain(t.Context()) }()
	until(t, "the draining flag", func() bool { return board(idle).Load.Draining })

	idle.spoil(w)
	<-idle.done
	c.steal(c.welcome.Board.STag, c.welcome.Board.TO+job.BoardLen-1)
	<-c.done
}

// TestBoardsOfPeersWithoutReads: a peer without RDMA Reads has no board, and no source is fetched from it.
func TestBoardsOfPeersWithoutReads(t *testing.T) {
	ts := startServer(t, small)
	c := dialWith(t, ts.addr, &job.Hello{}, &iwarp.ConnParam{})
	if c.welcome.Board.STag != 0 || c.welcome.MaxSource != 0 {
		t.Errorf("%+v", c.welcome)
	}
	r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: bigSource(1 << 20), offer: true})
	if r.Status != job.StatusRefused || r.Cause != job.CauseTooBig {
		t.Errorf("%+v", r.Result)
	}
	r = c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: "char large[3000000] = {1};\n", fetch: 8 << 20})
	if r.Status != job.StatusFailed || r.Cause != job.CauseTooBig || r.Window.STag != 0 {
		t.Errorf("%+v", r.Result)
	}
}

// TestNoMemoryForASource: a source for which the system has no memory is refused, so that another host can try.
func TestNoMemoryForASource(t *testing.T) {
	part.Skip(t)
	if !alone.Here(t) {
		return
	}
	ts := startServer(t, small)
	c := dial(t, ts.addr, &job.Hello{})
	q := request{body: compileBody("cpp-output", "a.c"), text: bigSource(1 << 20), offer: true}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	low := old
	low.Cur = 100 << 10 // shared memory is a file
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &low); err != nil {
		t.Fatal(err)
	}
	r := c.do(ts.tool("gcc"), q)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if r.Status != job.StatusRefused || r.Cause != job.CauseFull {
		t.Errorf("%+v", r.Result)
	}
	ts.given()
}
