package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// sayVar has the test program say what it was given, in place of its tests.
const sayVar = "RDISTCC_TEST_SAY"

func say() {
	if procs, ok := os.LookupEnv("GOMAXPROCS"); ok {
		fmt.Println("procs", procs)
	}
	fmt.Println("slack", timerSlack(), "argv", strings.Join(os.Args[1:], " "))
}

// timerSlack is this process's, in nanoseconds.
func timerSlack() uintptr {
	const getTimerSlack = 30 // PR_GET_TIMERSLACK, for which the system has no name of its own
	n, _, _ := syscall.RawSyscall(syscall.SYS_PRCTL, getTimerSlack, 0, 0)
	return n
}

// TestEntryLeavesNoTrace runs a compiler that says what it was given. Neither the words that
// package entrypoint puts into the environment nor its timer slack are for the programs that run here.
func TestEntryLeavesNoTrace(t *testing.T) {
	b := newBench(t, "RDISTCC_MODE=local")
	cc, err := os.Executable() // which says what it was given
	if err != nil {
		t.Fatal(err)
	}
	slack := fmt.Sprint("slack ", timerSlack())
	for _, c := range []struct{ name, env, want string }{
		{"nothing said", "OTHER=1", slack + " argv a b"},
		{"the user's own number", "GOMAXPROCS=3", "procs 3\n" + slack + " argv a b"},
		{"no number", "GOMAXPROCS=", "procs \n" + slack + " argv a b"},
	} {
		for _, nested := range []string{"", "1"} { // as a child, and in place of the wrapper
			cmd := exec.Command(rdistcc, cc, "a", "b")
			cmd.Env = append(b.env, c.env, sayVar+"=1")
			if nested != "" {
				cmd.Env = append(cmd.Env, typed.Safeguard+"="+nested)
			}
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != c.want {
				t.Errorf("%s, nested %q: %q, %v, want %q", c.name, nested, got, err, c.want)
			}
		}
	}
}

// TestEntryWithoutEnvironment starts with nothing in the places in which entrypoint.short looks.
func TestEntryWithoutEnvironment(t *testing.T) {
	for _, env := range [][]string{{}, {"A"}, {"GOMAXPROCS=2"}} {
		cmd := exec.Command(rdistcc, "--help")
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != usage {
			t.Errorf("environment %q: %v: %s", env, err, out)
		}
	}
}

// TestEntryIsLinked looks at a wrapper that waits: one that begins at entrypoint.short has another timer slack.
func TestEntryIsLinked(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("package entrypoint is written for amd64 and arm64, not for ", runtime.GOARCH)
	}
	if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", os.Getppid())); err != nil {
		t.Skipf("needs CAP_SYS_NICE, to be told the timer slack of another process: %v", err)
	}
	b := newBench(t)
	cc := filepath.Join(b.dir, "cc")
	// The wrapper takes a moment after the start of its child.
	const script = `#!/bin/sh
for i in 1 2 3 4 5 6 7 8 9; do
	read slack < /proc/$PPID/timerslack_ns
	[ $slack = 1000000 ] && break
	sleep 0.$i
done
echo $slack
`
	if err := os.WriteFile(cc, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(rdistcc, cc)
	cmd.Env = append(b.env, "RDISTCC_MODE=local")
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "1000000\n" {
		t.Errorf("timer slack of the wrapper: %q, %v, want 1000000", out, err)
	}
}
