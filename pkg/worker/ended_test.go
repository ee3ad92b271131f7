package worker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestEndedJobs: every job that was answered is remembered, in order, with its place, times and outcome; who continues
// sees the new ones only. A status says in which places jobs are.
func TestEndedJobs(t *testing.T) {
	m := NewMetrics()
	ts := startServer(t, func(o *Options) { o.Jobs, o.Metrics = 2, m })
	gcc := ts.tool("gcc")
	c := dial(t, ts.addr, &job.Hello{})
	began := time.Now()
	var got []EndedJob
	read := func(from uint64) uint64 {
		return ts.EachEnded(from, func(j *EndedJob) { got = append(got, *j) })
	}
	c.do(gcc, request{body: compileBody("cpp-output", "a.c"), text: hello})
	next := read(0)
	c.do(gcc, request{body: compileBody("cpp-output", "wrong.c"), text: "int main( {\n"})
	c.do(unit.ToolchainID{1}, request{body: compileBody("cpp-output", "b.c")})
	if last := read(next); last != 3 || len(got) != 3 {
		t.Fatalf("%d jobs, the last is %d: %+v", len(got), last, got)
	}
	// One whose compiler is not here is refused before it is read.
	for i, want := range []string{"1 a.c ok 0 true", "2 wrong.c failed 1 true", "3  refused 0 "} {
		j := &got[i]
		line := fmt.Sprintf("%d %s %s %d ", j.N, j.Source, j.Outcome, j.Exit)
		if i < 2 { // whether a refused one had a place is nobody's concern
			line += fmt.Sprint(j.Place == 1 || j.Place == 2)
			if j.Started.Before(j.Queued) || j.Ended.Before(j.Started) || j.Queued.Before(began) {
				t.Errorf("times of %+v", j)
			}
		}
		if line != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
	if !strings.Contains(got[2].Detail, "no such compiler") {
		t.Errorf("%+v", got[2])
	}
	if list, err := m.Refusals(); err != nil || len(list) != 1 || list[0] != (Refusal{"job or connection", "toolchain", 1}) {
		t.Errorf("%+v, %v", list, err)
	}

	slow, pids, release := ts.slow()
	ids := []uint64{c.start(slow, request{body: compileBody("cpp-output", "c.c"), text: hello}), c.start(slow, request{body: compileBody("cpp-output", "d.c"), text: hello})}
	until(t, "both run", func() bool { return len(pids()) == 4 })
	places := make(map[int]bool)
	for _, j := range ts.Status().Jobs {
		places[j.Place] = true
		if j.Taken > j.Age {
			t.Errorf("%+v", j)
		}
	}
	if len(places) != 2 || !places[1] || !places[2] {
		t.Errorf("jobs are in places %v", places)
	}
	release()
	for _, id := range ids {
		c.result(id)
	}
}

// TestEndedJobsAreBounded: of more jobs than that, the last ones are remembered, and of a long name its end.
func TestEndedJobsAreBounded(t *testing.T) {
	s := new(Server)
	x := &task{c: &conn{name: "desk"}, source: strings.Repeat("x", 1<<20) + "/a.c", queued: time.Now()}
	for range maxEnded + 7 {
		s.ended.add(x, new(job.Result))
	}
	n, first := 0, uint64(0)
	next := s.EachEnded(0, func(j *EndedJob) {
		if n++; first == 0 {
			first = j.N
		}
		if len(j.Source) != maxSource || !strings.HasSuffix(j.Source, "/a.c") {
			t.Fatalf("a name of %d bytes", len(j.Source))
		}
	})
	if n != maxEnded || first != 8 || next != maxEnded+7 {
		t.Errorf("%d jobs from %d to %d", n, first, next)
	}
}

// BenchmarkEnded is what it costs a job to be remembered.
func BenchmarkEnded(b *testing.B) {
	var e endedJobs
	t := &task{c: &conn{name: "desk"}, source: "src/net/socket.c", queued: time.Now(), started: time.Now(), place: 1}
	r := new(job.Result)
	b.ReportAllocs()
	for b.Loop() {
		e.add(t, r)
	}
}
