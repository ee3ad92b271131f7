package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"golang.org/x/sys/unix"
)

// TestDaemonEnds: a daemon that is killed, or stopped for good, in mid-compile
// costs one line; with another host not even that.
func TestDaemonEnds(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		s := newSite(t)
		d1 := s.daemon("d1", "", "--jobs", "2")
		s.manager(d1.Addr, soon)
		s.remote(d1.Addr)
		s.atRest()
		j := s.startLong(nil, "long")
		if err := d1.Signal(sig); err != nil {
			t.Fatal(err)
		}
		o := j.wait()
		if o.status != 0 || o.report != "local:host-lost" {
			t.Errorf("%v: %+v, want it compiled here", sig, o)
		}
		s.oneLine(o.stderr, "rdistcc: "+regexp.QuoteMeta(d1.Addr)+" lost .*; compiled here")
		s.sameObject("long.o", append([]string{"g++", "-c", "long.cc"}, longFlags...)...)
		if sig == syscall.SIGSTOP {
			// Back again it has lost its clients and their jobs, and takes new ones.
			if err := d1.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			s.remote(d1.Addr)
			s.clean()
		}
		d1.Kill()
		s.clean()
		if sig == syscall.SIGKILL {
			continue // the rest is the same for both
		}

		d2 := s.daemon("d2", "", "--jobs", "4")
		d3 := s.daemon("d3", "", "--jobs", "1")
		env := []string{"RDISTCC_HOSTS=" + d2.Addr + " " + d3.Addr}
		if o := s.run(env, "gcc", "-c", "hello.c"); o.report != "remote:"+d2.Addr && o.report != "remote:"+d3.Addr {
			t.Errorf("%v: %+v", sig, o)
		}
		j = s.startLong(env, "other")
		victim := d3
		if s.metrics(d2)["rdistccd_jobs_running"] == 1 {
			victim = d2
		}
		if err := victim.Signal(sig); err != nil {
			t.Fatal(err)
		}
		other := d2
		if victim == d2 {
			other = d3
		}
		s.eventually("the job at the other host", func() string {
			if s.metrics(other)["rdistccd_jobs_running"] == 1 {
				return ""
			}
			return "not there"
		})
		// The preprocessed text went again; the source was not read.
		_ = j.cmd.Process.Signal(syscall.SIGTERM)
		if o := j.wait(); o.status != 128+15 || o.stderr != "" {
			t.Errorf("%v: %+v, want it ended by SIGTERM without a word", sig, o)
		}
		victim.Kill()
		s.clean()
	}
}

// TestDaemonPauses: a daemon that is stopped for longer than a peer may be silent goes on as if
// nothing had been.
func TestDaemonPauses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "limits: {heartbeat: 500ms, silence: 4s}\n", "--jobs", "2")
	s.manager(d.Addr, "limits: {silence: 60s}\n")
	s.remote(d.Addr)
	s.atRest()
	j := s.startPause(d.PID())
	if o := j.wait(); o.status != 0 || o.stderr != "" || o.report != "remote:"+d.Addr {
		t.Errorf("%+v, want it done by the host", o)
	}
	s.sameObject("pause.o", "gcc", "-O2", "-c", "pause.c")
	s.clean()
	if log, _ := os.ReadFile(d.Log); strings.Contains(string(log), "silent") {
		t.Errorf("the daemon took its own pause for the client's:\n%s", log)
	}
}

// startPause begins a compile while the process pid is stopped for five seconds.
func (s *site) startPause(pid int) *running {
	s.t.Helper()
	s.file("pause.c", "int pause(int x) { return x * 3; }\n")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
	j := s.start(nil, "gcc", "-O2", "-c", "pause.c")
	time.Sleep(5 * time.Second)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		s.t.Fatal(err)
	}
	return j
}

// units is a build of n files.
func (s *site) units(n int) (names []string) {
	for i := range n {
		name := fmt.Sprintf("unit%d.c", i)
		s.file(name, fmt.Sprintf("#include <stdio.h>\n#include <stdlib.h>\nint unit%d(int x) { return printf(\"%d %%d\", abs(x)); }\n", i, i))
		names = append(names, name)
	}
	return names
}

// build compiles all units, four at a time; meanwhile is called once half of them
// have begun. It returns all lines of rdistcc's.
func (s *site) build(units []string, env []string, meanwhile func()) (lines []string) {
	s.t.Helper()
	turn := make(chan struct{}, 4)
	results := make([]outcome, len(units))
	var all sync.WaitGroup
	for i, u := range units {
		turn <- struct{}{}
		j := s.start(env, "gcc", "-O2", "-c", u)
		if i == len(units)/2 {
			meanwhile()
		}
		all.Go(func() {
			results[i] = j.wait()
			<-turn
		})
	}
	all.Wait()
	for i, u := range units {
		o := results[i]
		if o.status != 0 || strings.Count(o.report, "\n") != 0 || !strings.Contains(o.report, ":") {
			s.t.Errorf("%s: %+v", u, o)
		}
		if o.stderr != "" {
			s.oneLine(o.stderr, "rdistcc: .*; compiled here")
			lines = append(lines, o.stderr)
		}
		s.sameObject(strings.TrimSuffix(u, ".c")+".o", "gcc", "-O2", "-c", u)
	}
	return lines
}

// TestManagerEnds: a manager that ends in mid-build, killed or asked to, costs at
// most a line for each compile that it had under way; a new one takes over.
func TestManagerEnds(t *testing.T) {
	part.Skip(t)
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			s := newSite(t)
			d := s.daemon("d1", "", "--jobs", "4")
			env := []string{"RDISTCC_HOSTS=" + d.Addr}
			s.manager("", "")
			s.atRest()
			if o := s.run(env, "gcc", "-c", s.file("first.c", "int first;\n")); o.report != "remote:"+d.Addr {
				t.Fatalf("%+v", o)
			}
			lines := s.build(s.units(40), env, func() {
				if sig == syscall.SIGKILL {
					s.Manager.Kill()
				} else if err := s.Manager.Signal(sig); err != nil {
					t.Error(err)
				}
			})
			switch {
			case sig == syscall.SIGTERM && len(lines) > 0:
				t.Errorf("lines of a manager that ends in order: %q", lines)
			case len(lines) > 4:
				t.Errorf("%d lines, but only 4 were under way: %q", len(lines), lines)
			}
			if o := s.run(env, "gcc", "-c", "first.c"); o.report != "remote:"+d.Addr || o.stderr != "" {
				t.Errorf("afterwards: %+v, want it done by the host", o)
			}
			if out, err := s.command(nil, s.Wrapper, "stop").CombinedOutput(); err != nil {
				t.Errorf("stop: %v: %s", err, out)
			}
			// The daemon holds nothing for managers that are gone.
			s.clean()
		})
	}
}

// TestTwoManagersShareAHost: two build hosts that have more to do than their common
// host takes get its credits by turns: grants, recalls and returns cross jobs and
// results all the time, and no message is without a receive.
func TestTwoManagersShareAHost(t *testing.T) {
	t.Parallel()
	a, b := newSite(t), newSite(t)
	d := a.daemon("d1", "", "--jobs", "3")
	var all sync.WaitGroup
	for _, s := range []*site{a, b} {
		s.manager(d.Addr, "")
		s.remote(d.Addr)
	}
	a.atRest()
	b.atRest()
	turn := make(chan struct{}, 16)
	for i := range 40 {
		for _, s := range []*site{a, b} {
			turn <- struct{}{}
			j := s.start([]string{"RDISTCC_MODE=remote"}, "gcc", "-O2", "-c", "hello.c", "-o", fmt.Sprintf("hello%d.o", i))
			all.Go(func() {
				if o := j.wait(); o.status != 0 || o.stderr != "" || o.report != "remote:"+d.Addr {
					t.Errorf("%+v", o)
				}
				<-turn
			})
		}
	}
	all.Wait()
	for _, s := range []*site{a, b} {
		for i := range 40 {
			s.sameFile(fmt.Sprintf("hello%d.o", i), "hello.o")
		}
		s.clean()
		for _, p := range s.members() {
			for name, n := range s.metrics(p) {
				if strings.HasPrefix(name, "iwarp_terminates_total") && n > 0 {
					t.Errorf("%s: %s %v", p.Name, name, n)
				}
			}
		}
		if log, err := os.ReadFile(s.Manager.Log); err != nil || strings.Contains(string(log), "host lost") {
			t.Errorf("a connection was lost, %v:\n%s", err, log)
		}
	}
}

// TestWrapperEnds: a wrapper that is told to end, or killed, in mid-compile takes the compiler on the host with it.
func TestWrapperEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "2")
	s.manager(d.Addr, "buffers: {slots: 2}\n") // one that was lost would soon be missed
	s.remote(d.Addr)
	s.atRest()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL} {
		if signal.Ignored(sig) {
			t.Logf("%v is ignored here, as under nohup", sig)
			continue
		}
		j := s.startLong(nil, "long")
		if err := j.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if o := j.wait(); o.status != 128+int(sig) || o.stderr != "" || o.report != "" {
			t.Errorf("%v: %+v, want exit status %d without a word", sig, o, 128+sig)
		}
		if _, err := os.Stat(filepath.Join(s.work, "long.o")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: an object was left: %v", sig, err)
		}
		s.clean()
	}
	// The same while the preprocessor runs, which lists the inputs: it waits for the other end of a pipe.
	pipe := filepath.Join(s.work, "pipe.h")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	s.file("slow.c", "#include \"pipe.h\"\n")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		if signal.Ignored(sig) {
			continue
		}
		j := s.start([]string{"RDISTCC_INPUTS=list"}, "gcc", "-c", "slow.c")
		s.eventually("a preprocessor", func() string {
			for _, p := range s.processes() {
				if p.name == "cc1" && p.cwd == s.work {
					return ""
				}
			}
			return "none runs"
		})
		if err := j.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if o := j.wait(); o.status != 128+int(sig) || o.stderr != "" || o.report != "" {
			t.Errorf("%v while it preprocesses: %+v, want exit status %d without a word", sig, o, 128+sig)
		}
		s.clean()
	}
	for range 4 {
		if o := s.run(nil, "gcc", "-c", "hello.c"); o.report != "remote:"+d.Addr {
			t.Errorf("afterwards: %+v", o)
		}
	}
}

// TestMakeEnds: a build of 16 compiles at a time that is killed.
func TestMakeEnds(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("no make")
	}
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "16")
	s.manager(d.Addr, "local: {share: false, preprocess: 16}\n")
	s.remote(d.Addr)
	s.atRest()
	s.file("Makefile", "all: $(patsubst %,unit%.o,1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)\nunit%.o: long.cc\n\t@"+
		s.Wrapper+" g++ "+strings.Join(longFlags, " ")+" -c long.cc -o $@\n")
	s.file("long.cc", longSource)
	for _, end := range []struct {
		name string
		how  func(pid int) error
	}{
		{"make gets SIGTERM", func(pid int) error { return syscall.Kill(pid, syscall.SIGTERM) }},
		{"all get SIGINT", func(pid int) error { return syscall.Kill(-pid, syscall.SIGINT) }},
		{"all get SIGKILL", func(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }},
	} {
		cmd := s.command([]string{"MAKEFLAGS="}, "make", "-j16")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.eventually("compiles", func() string {
			if n := s.metrics(d)["rdistccd_jobs_running"]; n != 16 {
				return fmt.Sprint(n, " run")
			}
			return ""
		})
		if err := end.how(cmd.Process.Pid); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("%s: make did not fail", end.name)
		}
		s.clean()
		if left, _ := filepath.Glob(filepath.Join(s.work, "unit*")); len(left) > 0 {
			t.Errorf("%s: left %v", end.name, left)
		}
	}
	s.remote(d.Addr)
}
