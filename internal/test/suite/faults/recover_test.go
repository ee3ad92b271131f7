package faults

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/test/kit/relay"
)

// relayed is a relay to a daemon, until the test ends.
func relayed(t *testing.T, d farm.Process) *relay.Relay {
	t.Helper()
	r, err := relay.New(d.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// on compiles hello.c on each host in turn, as soon as it takes jobs.
func (s *site) on(hosts ...string) {
	s.t.Helper()
	s.file("hello.c", "int hello(int x) { return x + 1; }\n")
	for _, host := range hosts {
		s.eventually("compile on "+host, func() string {
			o := s.run([]string{"RDISTCC_VERBOSE=0", "RDISTCC_BACKOFF_PERIOD=0", "RDISTCC_HOSTS=" + host}, "gcc", "-O2", "-c", "hello.c")
			if o.status != 0 {
				s.t.Fatalf("exit status %d: %s", o.status, o.stderr)
			}
			s.sameObject("hello.o", "gcc", "-O2", "-c", "hello.c")
			if o.report == "remote:"+host {
				return ""
			}
			return o.report
		})
	}
}

// runs waits until a daemon runs n jobs.
func (s *site) runs(d farm.Process, n float64) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%v jobs at %s", n, d.Name), func() string {
		if now := s.metrics(d)["rdistccd_jobs_running"]; now != n {
			return fmt.Sprint(now, " run")
		}
		return ""
	})
}

// runsOr waits until a daemon runs a job, which it reports, or a compile has ended.
func (s *site) runsOr(j *running, d farm.Process) (runs bool) {
	s.t.Helper()
	s.eventually("job at "+d.Name+", or end of the compile", func() string {
		if report, err := os.ReadFile(j.report); err == nil && len(report) > 0 {
			return ""
		}
		if runs = s.metrics(d)["rdistccd_jobs_running"] == 1; runs {
			return ""
		}
		return "neither"
	})
	return runs
}

// abandon ends a compile that was begun with startLong and has moved on.
func (s *site) abandon(j *running) {
	s.t.Helper()
	_ = j.cmd.Process.Signal(syscall.SIGTERM)
	if o := j.wait(); o.status != 128+15 || o.stderr != "" {
		s.t.Errorf("%+v, want it ended by SIGTERM without a word", o)
	}
}

// pair starts two daemons, and returns for a compile on them which one has it.
func (s *site) pair(settings string) (d1, d2 farm.Process, which func() (has, other farm.Process)) {
	s.t.Helper()
	d1, d2 = s.daemon("d1", settings, "--jobs", "2"), s.daemon("d2", settings, "--jobs", "2")
	return d1, d2, func() (farm.Process, farm.Process) {
		if s.metrics(d2)["rdistccd_jobs_running"] == 1 {
			return d2, d1
		}
		return d1, d2
	}
}

// TestDaemonStartsAgain: a daemon that is killed in mid-compile can be started again at
// once, on the same ports, though its compilers have outlived it; they end, what they
// worked in goes, and managers take the new one for what it is.
func TestDaemonStartsAgain(t *testing.T) {
	part.Skip(t)
	t.Parallel()
	for _, tree := range []string{"auto", "off"} {
		t.Run("tree "+tree, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			d := s.daemon("d1", "daemon: {tree: "+tree+"}\n", "--jobs", "2")
			s.manager(d.Addr, "")
			s.remote(d.Addr)
			s.atRest()
			for range 2 {
				j := s.startLong(nil, "long")
				for losses := 1; ; losses++ {
					s.Daemons[0].Kill()
					if err := s.StartDaemonAgain(t.Context(), 0); err != nil {
						t.Fatal(err)
					}
					// It may have its job back, if it is there before the job goes elsewhere, but once.
					if losses == 2 || !s.runsOr(j, d) {
						break
					}
				}
				if o := j.wait(); o.status != 0 || o.report != "local:host-lost" {
					t.Errorf("%+v, want it compiled here", o)
				}
				s.sameObject("long.o", append([]string{"g++", "-c", "long.cc"}, longFlags...)...)
				s.remote(d.Addr)
				s.clean()
			}
		})
	}
}

// TestCompilerIsKilled: a compiler that is killed on its host, as by a system without memory, costs not
// even a line: the job goes to another host, and its host is not avoided for that.
func TestCompilerIsKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d1, d2, which := s.pair("")
	s.manager(d1.Addr+" "+d2.Addr, "scheduler: {backoff: 5m, backoff-max: 5m}\n")
	s.on(d1.Addr, d2.Addr)
	// Then it is not a driver's child, which would say that it was killed.
	s.file("long.cc", quickSource)
	for range 2 {
		s.run(nil, append([]string{"g++", "-c", "long.cc"}, longFlags...)...)
	}
	s.atRest()
	j := s.startLong(nil, "long")
	victim, other := which()
	s.killCompilers(victim, "long.cc")
	s.runs(other, 1)
	s.abandon(j)
	s.clean()
	o := s.run([]string{"RDISTCC_HOSTS=" + victim.Addr}, "gcc", "-O2", "-c", "hello.c")
	if o.status != 0 || o.stderr != "" || o.report != "remote:"+victim.Addr {
		t.Errorf("afterwards: %+v, want it done by the host whose compiler was killed", o)
	}
}

// killCompilers kills what compiles a source below a daemon.
func (s *site) killCompilers(d farm.Process, source string) {
	s.t.Helper()
	s.eventually("compiler at "+d.Name, func() string {
		found := "none runs"
		for _, p := range s.processes() {
			if p.name == "cc1plus" && strings.Contains(p.line, source) && below(p.pid, d.PID()) {
				if err := syscall.Kill(p.pid, syscall.SIGKILL); err == nil {
					found = ""
				}
			}
		}
		return found
	})
}

// TestLinksBreak: a connection that is reset, or goes silent in both directions, moves its job to the other
// host without a message, and both ends free what they held.
func TestLinksBreak(t *testing.T) {
	part.Skip(t)
	t.Parallel()
	for name, strike := range map[string]func(r *relay.Relay) int{
		"reset":     (*relay.Relay).Reset,
		"half-open": (*relay.Relay).Strand,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			d1, d2, which := s.pair(soon)
			r1, r2 := relayed(t, d1), relayed(t, d2)
			s.manager(r1.Addr()+" "+r2.Addr(), soon)
			s.on(r1.Addr(), r2.Addr())
			s.atRest()
			j := s.startLong(nil, "long")
			victim, other := which()
			r := r1
			if victim.Name == d2.Name {
				r = r2
			}
			if n := strike(r); n == 0 {
				t.Error("no connection to strike")
			}
			s.runs(other, 1)
			s.runs(victim, 0)
			s.abandon(j)
			s.on(r.Addr())
			s.clean()
		})
	}
}

// TestFarmComesBack: with every host gone a build goes on here, and at the hosts
// again once they are there.
func TestFarmComesBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d1, d2, _ := s.pair("")
	s.manager(d1.Addr+" "+d2.Addr, "scheduler: {backoff: 50ms, backoff-max: 200ms}\n")
	s.on(d1.Addr, d2.Addr)
	s.atRest()
	units := s.units(24)
	lines := s.build(units, nil, func() {
		s.Daemons[0].Kill()
		s.Daemons[1].Kill()
	})
	if len(lines) == 0 {
		t.Error("no compile met a host that was gone: nothing was proven")
	}
	for i := range s.Daemons {
		if err := s.StartDaemonAgain(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	s.on(d1.Addr, d2.Addr)
	if lines := s.build(units, nil, func() {}); len(lines) > 0 {
		t.Errorf("with the farm back: %q", lines)
	}
	s.clean()
}

// TestStraggler: a host that does not get on with a job, but is there, is overtaken by
// another one.
func TestStraggler(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d1, d2, _ := s.pair("")
	// Nobody takes the first one for lost in the meantime.
	s.manager(d1.Addr+" "+d2.Addr, "limits: {silence: 10m}\n")
	s.on(d1.Addr, d2.Addr)
	s.atRest()
	units := s.units(8)
	if err := d1.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.eventually("second host for a job", func() string {
		// More at a time than the other one has places for.
		if lines := s.build(units, nil, func() {}); len(lines) > 0 {
			t.Errorf("lines of rdistcc's: %q", lines)
		}
		if s.metrics(s.Manager)[`rdistcc_cm_hedges_total{result="won"}`] > 0 {
			return ""
		}
		return "no job has had one"
	})
	if err := d1.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.on(d1.Addr)
	s.clean()
}

// below reports whether a process descends from another one.
func below(pid, top int) bool {
	parent := regexp.MustCompile(`(?m)^PPid:\s+(\d+)$`)
	for pid > 1 && pid != top {
		m := parent.FindStringSubmatch(status(pid))
		if m == nil {
			return false
		}
		if _, err := fmt.Sscan(m[1], &pid); err != nil {
			return false
		}
	}
	return pid == top
}
