package connmgr

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// processes starts a shell that prints process ids and waits, and returns the ids.
func processes(t *testing.T, attr *syscall.SysProcAttr, script string, n int) (pids []int) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash, which gives commands process groups without a terminal")
	}
	cmd := exec.Command(bash, "-c", script)
	cmd.SysProcAttr = attr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	for s := bufio.NewScanner(out); len(pids) < n && s.Scan(); {
		pid, err := strconv.Atoi(strings.TrimSpace(s.Text()))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) < n {
		t.Fatalf("%d processes, want %d", len(pids), n)
	}
	return pids
}

func TestBuildsAreToldApart(t *testing.T) {
	// A terminal's shell: each command line has a process group.
	pids := processes(t, &syscall.SysProcAttr{Setsid: true},
		`exec 3<&0; set -m; bash -c 'echo $$; cat <&3; :' & bash -c 'bash -c "echo \$\$; cat <&3; :"; :' & echo $$; cat <&3; wait`, 3)
	var f families
	buildOf := f.buildOf
	seen := make(map[uint64]bool)
	for _, pid := range pids {
		seen[buildOf(pid)] = true
	}
	if len(seen) != 3 {
		t.Errorf("the shell and its two jobs are %d builds, want 3", len(seen))
	}

	// A tool that gives each command a group of its own.
	tool := processes(t, &syscall.SysProcAttr{Setsid: true},
		`exec 3<&0; set -m; bash -c 'set -m; echo $$; bash -c "echo \$\$; cat <&3; :" & bash -c "echo \$\$; cat <&3; :" & cat <&3; wait' & cat <&3; wait`, 3)
	for _, pid := range tool[1:] {
		if a, b := buildOf(tool[0]), buildOf(pid); a != b {
			t.Errorf("a command of process %d is of build %x, the tool of %x", pid, b, a)
		}
	}

	if buildOf(0) != 0 || buildOf(1<<30) != 0 {
		t.Error("processes that cannot be seen are not one build")
	}
}

// TestBuildsAreNotKnownForGood: what is known of a group is used again, for a while,
// and there is a bound on it.
func TestBuildsAreNotKnownForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f families
		pid := os.Getpid()
		first := f.buildOf(pid)
		session, err := unix.Getsid(pid)
		if err != nil {
			t.Fatal(err)
		}
		own := familyOf(session, unix.Getpgrp())
		if _, ok := f.known[own]; !ok {
			t.Fatalf("after its build was told nothing is known of group %d", unix.Getpgrp())
		}
		const other = 12345
		f.known[own] = family{other, time.Now()}
		if got, want := f.buildOf(pid), familyOf(session, other); got != want {
			t.Errorf("build %x, want %x, which is known", got, want)
		}
		time.Sleep(familyLast)
		if got := f.buildOf(pid); got != first {
			t.Errorf("build %x, want %x: what was known is old", got, first)
		}
		for i := range maxFamilies {
			f.known[uint64(i)] = family{}
		}
		delete(f.known, own)
		if got := f.buildOf(pid); got != first || len(f.known) > maxFamilies {
			t.Errorf("build %x, want %x, and %d groups are known, want at most %d", got, first, len(f.known), maxFamilies)
		}
	})
}

func TestNamedBuilds(t *testing.T) {
	of := func(uid uint32, name string) uint64 {
		c := &client{m: new(Manager), uid: uid, pid: int32(os.Getpid()), lease: &ipc.Lease{Build: name}}
		return c.build()
	}
	again := of(1, "a")
	if of(1, "a") != again || of(1, "a") == of(1, "b") || of(1, "a") == of(2, "a") || of(1, "") == of(1, "a") {
		t.Error("names do not tell builds apart")
	}
}

// TestBuildsTakeTurns: a build that came later does not stand behind all of a
// large one.
func TestBuildsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, func(o *Options) { o.Slots = 16 })
		turn := make(chan struct{})
		var began []string
		d := startFake(t, s.far, "10.0.0.1:7632", func(d *fakeDaemon) {
			d.jobs = 2
			d.onJob = func(c *fakeConn, j *fakeJob) {
				began = append(began, string(j.text))
				<-turn
				c.finish(j, compiled(j))
			}
		})
		s.m.wantHosts(s.m.listOf(d.addr), nil)
		synctest.Wait()
		var wg sync.WaitGroup
		for _, text := range []string{"a1", "a2", "a3", "a4", "a5", "b1", "b2"} {
			f := leaseOf(d.addr)
			f.Build = text[:1]
			wg.Go(func() {
				if _, no := s.run(context.Background(), f, text); no != nil {
					t.Errorf("%s: answer %+v", text, no)
				}
			})
			synctest.Wait() // it waits for the host, or runs there
		}
		for range 7 {
			turn <- struct{}{}
			synctest.Wait()
		}
		wg.Wait()
		if len(began) != 7 || began[2] != "b1" {
			t.Errorf("order %q, want b1 when the first of the others has ended", began)
		}
	})
}
