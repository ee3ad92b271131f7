package worker

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	format "github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
)

// twinTest is a host with a compiler that does not end before it is released, and two managers of one tenant.
type twinTest struct {
	*testServer
	tool    unit.ToolchainID
	pids    func() []int // two for each compile
	release func()
	a, b    *testClient
}

func startTwins(t *testing.T) *twinTest {
	ts, _ := startTrees(t, func(o *Options) { o.Jobs, o.Results = 4, 16<<20 })
	x := &twinTest{testServer: ts}
	x.tool, x.pids, x.release = ts.slow()
	x.a, x.b = dialAs(t, ts.addr, 3, &job.Hello{}), dialAs(t, ts.addr, 5, &job.Hello{})
	return x
}

var twinKeyOfTests = resultcache.Key{1, 2}

// twinJob is a job with a header. Its files are in one list, or in two in another order. Times differ.
func twinJob(header string, other bool) request {
	files := map[string]string{"/src/a.h": header, "/src/b.h": "b"}
	p := &listed{q: request{body: treeBody("gcc-13"), text: "int x;\n"}}
	p.q.body.Files[0].Len = uint64(len(p.q.text))
	names := []string{"/src/a.h", "/src/b.h"}
	if other {
		names = []string{"/src/b.h", "/src/a.h"}
		p.q.body.Files[0].MTime = 7
	}
	for i, name := range names {
		p.blob(files[name])
		p.list.Files = append(p.list.Files, job.ListedFile{Name: name, Len: uint64(len(files[name])), MTime: int64(100 * i), Content: idOf(files[name])})
	}
	q := p.named(true)
	q.change = func(m *job.Job) { m.Key, m.Join, m.Expect = twinKeyOfTests, true, 5000 }
	return q
}

// waiting returns how many jobs wait for equal ones.
func (ts *testServer) waiting() (n int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, x := range ts.twins {
		n += x.waiting
	}
	return n
}

// places returns how many jobs have a place.
func (ts *testServer) placed() int {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.lend.Running()
}

// answers returns how many jobs were answered with each result.
func (ts *testServer) answers() map[string]float64 {
	ts.t.Helper()
	r := prometheus.NewRegistry()
	if err := r.Register(ts.o.Metrics.jobs); err != nil {
		ts.t.Fatal(err)
	}
	list, err := r.Gather()
	if err != nil || len(list) != 1 {
		ts.t.Fatal(list, err)
	}
	values := make(map[string]float64)
	for _, m := range list[0].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "result" {
				values[l.GetValue()] += m.GetCounter().GetValue()
			}
		}
	}
	return values
}

// marks returns the head of the client's shelf, and the mark of the tests' job.
func (c *testClient) marks() (h format.Head, u format.UnderWay, ok bool) {
	c.t.Helper()
	w := c.welcome.Shelf
	b := c.read(job.Window{STag: w.STag, TO: w.TO, Len: format.HeadLen + 8*format.MarkLen})
	h, err := format.ParseHead(b[:format.HeadLen], w.Len)
	var x format.Index
	if err == nil {
		err = x.Learn(h)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	x.LearnMarks(b[format.HeadLen:], time.Now())
	u, ok = x.UnderWay(twinKeyOfTests)
	return h, u, ok
}

// TestJoined: of two equal jobs, however they came here, one is run. The other one waits without a place, and has the
// same result. Until then, a mark on the shelf says that it is under way.
func TestJoined(t *testing.T) {
	x := startTwins(t)
	if _, _, ok := x.b.marks(); ok {
		t.Error("a mark before there is a job")
	}
	first := x.a.start(x.tool, twinJob("a", false))
	until(t, "the compiler", func() bool { return len(x.pids()) == 2 })
	h, u, ok := x.b.marks()
	if !ok || !u.Running || u.Expect != 5*time.Second || u.Maker != format.MakerOf([16]byte{3}) || h.Marks != 1 || h.Makers.Others(u.Maker) || !h.Makers.Others(format.MakerOf([16]byte{5})) {
		t.Errorf("%+v, %v, %+v", u, ok, h)
	}
	second := x.b.start(x.tool, twinJob("a", true))
	until(t, "the second job to wait", func() bool { return x.waiting() == 1 })
	if n := x.placed(); n != 1 {
		t.Errorf("%d jobs have a place", n)
	}
	if h, _, _ := x.b.marks(); h.Marks != 1 {
		t.Errorf("%d marks of a job and one that waits for it", h.Marks)
	}
	x.release()
	one, two := x.a.result(first), x.b.result(second)
	if one.Status != job.StatusRan || one.Exit != 0 || one.Joined || len(one.Files) != 1 || string(one.bytes(one.Files[0].Segment)) != "done\n" {
		t.Fatalf("%+v", one.Result)
	}
	if two.Status != job.StatusRan || two.Exit != 0 || !two.Joined || len(two.Files) != 1 || string(two.bytes(two.Files[0].Segment)) != "done\n" ||
		two.Digest != one.Digest || two.Wall != one.Wall || two.CPU != one.CPU || two.Next == nil {
		t.Errorf("%+v, not that of\n%+v", two.Result, one.Result)
	}
	if n := x.answers(); n[resultOK] != 1 || n[resultJoined] != 1 {
		t.Errorf("%v", n)
	}
	if h, _, ok := x.b.marks(); ok || h.Marks != 0 || h.Makers != 0 || x.b.look(twinKeyOfTests) == nil {
		t.Errorf("afterwards: a mark %v, %+v", ok, h)
	}
	if len(x.twins) != 0 {
		t.Errorf("%d jobs are left", len(x.twins))
	}
}

// TestNotJoined: jobs that are not equal although their names are, or that do not want to, are run.
func TestNotJoined(t *testing.T) {
	x := startTwins(t)
	first := x.a.start(x.tool, twinJob("a", false))
	until(t, "the compiler", func() bool { return len(x.pids()) == 2 })
	alone := twinJob("a", true)
	alone.change = func(m *job.Job) { m.Key = twinKeyOfTests }
	command := twinJob("a", true)
	command.body.Args = append([]string{"-O1"}, command.body.Args...)
	for i, q := range []request{alone, twinJob("other", true), command} {
		id := x.b.start(x.tool, q)
		until(t, "its own compile", func() bool { return len(x.pids()) == 2*(i+2) })
		defer func() {
			if r := x.b.result(id); r.Exit != 0 || r.Status != job.StatusRan || r.Joined {
				t.Errorf("job %d: %+v", i, r.Result)
			}
		}()
	}
	x.release()
	x.a.result(first)
}

// TestJoinedWithoutResult: a job that waits for another one is run if that has no result for it, however it ends.
// One that is cancelled while it waits is answered, and changes nothing for the other one.
func TestJoinedWithoutResult(t *testing.T) {
	part.Skip(t)
	for how, end := range map[string]func(x *twinTest, first uint64){
		"cancelled": func(x *twinTest, first uint64) { x.a.send(&job.Cancel{Seq: 1, Jobs: []uint64{first}}) },
		"gone":      func(x *twinTest, _ uint64) { x.a.qp.Abort() },
	} {
		t.Run(how, func(t *testing.T) {
			x := startTwins(t)
			first := x.a.start(x.tool, twinJob("a", false))
			until(t, "the compiler", func() bool { return len(x.pids()) == 2 })
			second, third := x.b.start(x.tool, twinJob("a", true)), x.b.start(x.tool, twinJob("a", false))
			until(t, "two jobs to wait", func() bool { return x.waiting() == 2 })
			end(x, first)
			until(t, "another compiler, and a job that waits", func() bool { return len(x.pids()) == 4 && x.waiting() == 1 })
			if _, u, ok := x.b.marks(); !ok || u.Maker != format.MakerOf([16]byte{5}) {
				t.Errorf("%+v, %v", u, ok)
			}
			x.release()
			two, three := x.b.result(second), x.b.result(third)
			if two.Exit != 0 || two.Status != job.StatusRan || three.Exit != 0 || three.Status != job.StatusRan || two.Joined == three.Joined || two.Digest != three.Digest {
				t.Errorf("%+v and\n%+v", two.Result, three.Result)
			}
		})
	}
	t.Run("the one that waits", func(t *testing.T) {
		x := startTwins(t)
		first := x.a.start(x.tool, twinJob("a", false))
		until(t, "the compiler", func() bool { return len(x.pids()) == 2 })
		second := x.b.start(x.tool, twinJob("a", true))
		until(t, "the second job to wait", func() bool { return x.waiting() == 1 })
		x.b.send(&job.Cancel{Seq: 1, Jobs: []uint64{second}})
		if r := x.b.result(second); r.Status != job.StatusFailed || r.Cause != job.CauseCancelled {
			t.Errorf("%+v", r.Result)
		}
		if x.waiting() != 0 {
			t.Error("it still waits")
		}
		x.release()
		if r := x.a.result(first); r.Exit != 0 || r.Status != job.StatusRan {
			t.Errorf("%+v", r.Result)
		}
	})
	t.Run("failed", func(t *testing.T) {
		x := startTwins(t)
		first := x.a.start(x.tool, twinJob("a", false))
		until(t, "the compiler", func() bool { return len(x.pids()) == 2 })
		q := twinJob("a", true)
		q.sink = 3 // shorter than the result
		second := x.b.start(x.tool, q)
		until(t, "the second job to wait", func() bool { return x.waiting() == 1 })
		x.release()
		x.a.result(first)
		if r := x.b.result(second); r.Status != job.StatusFailed || r.Cause != job.CauseTooBig {
			t.Errorf("%+v", r.Result)
		}
	})
}

// TestTwinsOfTenants: a job never waits for one of another tenant.
func TestTwinsOfTenants(t *testing.T) {
	ts, addr := startNamed(t, func(o *Options) { o.Jobs, o.Results = 4, 16<<20 })
	if !ts.places.Trees {
		t.Skip("needs the right to make namespaces")
	}
	tool, pids, release := ts.slow()
	one, two := dialFrom(t, "127.0.0.1", addr, 1, &job.Hello{}), dialFrom(t, "127.0.0.2", addr, 2, &job.Hello{})
	first := one.start(tool, twinJob("a", false))
	until(t, "the compiler", func() bool { return len(pids()) == 2 })
	second := two.start(tool, twinJob("a", false))
	until(t, "its own compile", func() bool { return len(pids()) == 4 })
	if _, u, ok := two.marks(); !ok || u.Maker == format.MakerOf([16]byte{1}) {
		t.Errorf("%+v, %v", u, ok)
	}
	release()
	if a, b := one.result(first), two.result(second); a.Joined || b.Joined {
		t.Error("joined")
	}
}
