package machine

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
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
	var f Builds
	buildOf := f.Of
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

// TestBuildsAreNotKnownForGood: what is known of a group is used for a limited time, and the number of known
// groups is bounded.
func TestBuildsAreNotKnownForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Builds
		pid := os.Getpid()
		first := f.Of(pid)
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
		if got, want := f.Of(pid), familyOf(session, other); got != want {
			t.Errorf("build %x, want %x, which is known", got, want)
		}
		time.Sleep(familyLast)
		if got := f.Of(pid); got != first {
			t.Errorf("build %x, want %x: what was known is old", got, first)
		}
		for i := range maxFamilies {
			f.known[uint64(i)] = family{}
		}
		delete(f.known, own)
		if got := f.Of(pid); got != first || len(f.known) > maxFamilies {
			t.Errorf("build %x, want %x, and %d groups are known, want at most %d", got, first, len(f.known), maxFamilies)
		}
	})
}

func TestNamedBuilds(t *testing.T) {
	again := NamedBuild(1, "a")
	if NamedBuild(1, "a") != again || NamedBuild(1, "a") == NamedBuild(1, "b") || NamedBuild(1, "a") == NamedBuild(2, "a") {
		t.Error("names do not tell builds apart")
	}
}
