package connmgr

import (
	"context"
	"crypto/sha256"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
)

// header is a job by which a host makes a precompiled header of an empty file.
func header() *known.Job {
	empty := sha256.Sum256(nil)
	source, h := &inputs.Input{Name: "/src/ahead.c", ID: empty}, &inputs.Input{Name: "/src/h.h", ID: empty}
	from := &inputs.Set{Files: []*inputs.Input{{Name: h.Name}, h}}
	list, _ := from.List()
	out := []unit.Output{{Name: "ahead.o"}}
	return &known.Job{Set: &inputs.Set{Files: []*inputs.Input{source}, Dirs: []string{"/src"}}, Source: []byte{}, Images: []*inputs.Set{from},
		Body: &job.Body{Argv0: "gcc", Compiler: "/usr/bin/gcc", Args: []string{"-c", "ahead.c", "-o", "ahead.o"}, Language: "c", Name: "ahead.c", Cwd: "/src", Outputs: out,
			Files: []unit.File{{Name: source.Name}}, Images: []job.Body{{Argv0: "gcc", Compiler: "/usr/bin/gcc", Language: "c", Name: "h.h", Cwd: "/src",
				Outputs: []unit.Output{{Name: "h.h.gch"}}, Lists: []unit.ContentID{list}}}}}
}

// maker starts a daemon that can make headers and does each job by on.
func (s *simulated) maker(addr string, on func(c *daemontest.Conn, j *daemontest.Job)) *daemontest.Daemon {
	s.t.Helper()
	return daemontest.Start(s.t, s.far, addr, func(d *daemontest.Daemon) {
		d.Tree, d.Store, d.OnJob = true, 1<<20, on
	})
}

// makeAhead has hosts make a header, as a command does that makes it here.
func (s *simulated) makeAhead(hosts ...*daemontest.Daemon) *ahead {
	s.t.Helper()
	var list []string
	for _, d := range hosts {
		list = append(list, d.Addr)
	}
	c := &client{m: s.m, id: s.m.ids.Add(1), asked: time.Now()}
	c.Session = ipcserver.Detached(context.Background())
	a := c.sendAhead(leaseOf(strings.Join(list, " ")), daemontest.Toolchain, header())
	if a == nil {
		s.t.Fatal("no host makes the header")
	}
	return a
}

// over checks that nothing of the headers' making is left, what each host has seen of it, and that those named are up, with
// nothing held against them.
func (s *simulated) over(seen map[*daemontest.Daemon]int, good ...*daemontest.Daemon) {
	s.t.Helper()
	synctest.Wait()
	if st := sinks(s.m); st.Total != st.Free {
		s.t.Errorf("%d sinks of %d are in use", st.Total-st.Free, st.Total)
	}
	for d, n := range seen {
		if d.JobsSeen() != n {
			s.t.Errorf("%s was sent the job %d times, want %d", d.Addr, d.JobsSeen(), n)
		}
	}
	for _, d := range good {
		for _, h := range s.m.Status().Hosts {
			if h.Addr == d.Addr && (h.State != "up" || h.Running != 0 || h.Failed != 0 || h.OnTrial || h.PauseMS != 0 || h.Doubt != "" || h.Refused != "") {
				s.t.Errorf("%+v: it has done nothing wrong", h)
			}
		}
	}
}

// finish does a job at once.
func finish(c *daemontest.Conn, j *daemontest.Job) { c.Finish(j, daemontest.Compiled(j)) }

// after does a job after a time, unless it is cancelled.
func after(d time.Duration) func(c *daemontest.Conn, j *daemontest.Job) {
	return func(c *daemontest.Conn, j *daemontest.Job) {
		select {
		case <-time.After(d):
			finish(c, j)
		case <-j.Ctx.Done():
			c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}})
		}
	}
}

// TestAheadOnEachHost: each host makes a header once, all at the same time, however long it takes one of them; a host that comes
// later makes it as long as it is not done here.
func TestAheadOnEachHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		quick, slow := s.maker("10.0.0.1:7632", finish), s.maker("10.0.0.2:7632", after(30*time.Second))
		welcome := make(chan struct{})
		late := s.maker("10.0.0.3:7632", finish)
		late.OnHello = func(c *daemontest.Conn) { <-welcome; c.Welcome() }
		never := s.maker("10.0.0.4:7632", finish)
		never.OnHello = func(*daemontest.Conn) {}
		a := s.makeAhead(quick, slow, late, never)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if quick.JobsSeen() != 1 || slow.JobsSeen() != 1 || late.JobsSeen() != 0 {
			t.Errorf("%d, %d and %d hosts make it", quick.JobsSeen(), slow.JobsSeen(), late.JobsSeen())
		}
		close(welcome)
		time.Sleep(time.Second)
		a.end(true)
		time.Sleep(time.Minute)
		s.over(map[*daemontest.Daemon]int{quick: 1, slow: 1, late: 1, never: 0}, quick, slow, late)
	})
}

// TestAheadRefused: hosts that refuse a header, or whose compiler rejects it, are asked once, and nothing is held against them.
// The others make it.
func TestAheadRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		answers := map[string]job.Result{
			"10.0.0.1:7632": {Status: job.StatusRefused, Cause: job.CausePolicy, Detail: "no"},
			"10.0.0.2:7632": {Status: job.StatusRefused, Cause: job.CauseFull},
			"10.0.0.3:7632": {Status: job.StatusRan, Exit: 1},
			"10.0.0.4:7632": {Status: job.StatusFailed, Cause: job.CauseTimeout},
		}
		var all []*daemontest.Daemon
		seen := map[*daemontest.Daemon]int{}
		for addr, r := range answers {
			all = append(all, s.maker(addr, func(c *daemontest.Conn, j *daemontest.Job) { c.Finish(j, &daemontest.Answer{Result: r}) }))
		}
		good := s.maker("10.0.0.5:7632", finish)
		all = append(all, good)
		for _, d := range all {
			seen[d] = 1
		}
		a := s.makeAhead(all...)
		time.Sleep(10 * time.Second)
		a.end(true)
		s.over(seen, all...)
	})
}

// TestAheadHostLost: a host that is lost while it makes a header is not sent it again, also when it is back, and counts as
// lost. The others go on.
func TestAheadHostLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		lost := s.maker("10.0.0.1:7632", func(_ *daemontest.Conn, j *daemontest.Job) { <-j.Ctx.Done() })
		good := s.maker("10.0.0.2:7632", after(30*time.Second))
		a := s.makeAhead(lost, good)
		time.Sleep(time.Second)
		lost.Kill()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if st := sinks(s.m); st.Total-st.Free != 1 {
			t.Errorf("%d sinks in use, want that of the host that goes on", st.Total-st.Free)
		}
		time.Sleep(5 * time.Minute)
		a.end(true)
		s.over(map[*daemontest.Daemon]int{lost: 1, good: 1}, good)
	})
}

// TestAheadRejectedHere: as soon as the command here fails, hosts are told to stop, and those that are not there yet are not
// asked.
func TestAheadRejectedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		slow := s.maker("10.0.0.1:7632", after(time.Hour))
		welcome := make(chan struct{})
		late := s.maker("10.0.0.2:7632", finish)
		late.OnHello = func(c *daemontest.Conn) { <-welcome; c.Welcome() }
		a := s.makeAhead(slow, late)
		time.Sleep(time.Second)
		began := time.Now()
		a.end(false)
		synctest.Wait()
		if time.Since(began) > time.Second {
			t.Errorf("it took %v", time.Since(began))
		}
		s.over(map[*daemontest.Daemon]int{slow: 1, late: 0}, slow)
		close(welcome)
		time.Sleep(time.Second)
		s.over(map[*daemontest.Daemon]int{slow: 1, late: 0}, slow, late)
	})
}

// TestAheadManagerStops: a manager that stops does not wait for hosts that make headers, nor for those that could.
func TestAheadManagerStops(t *testing.T) {
	for _, made := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSimulated(t, nil)
			slow, never := s.maker("10.0.0.1:7632", after(time.Hour)), s.maker("10.0.0.2:7632", finish)
			never.OnHello = func(*daemontest.Conn) {}
			a := s.makeAhead(slow, never)
			time.Sleep(time.Second)
			if made {
				a.end(true) // it is slower there than here
			}
			began := time.Now()
			s.m.Stop()
			if err := s.m.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			if time.Since(began) > time.Second {
				t.Errorf("it took %v", time.Since(began))
			}
			s.over(map[*daemontest.Daemon]int{slow: 1, never: 0}, slow)
		})
	}
}
