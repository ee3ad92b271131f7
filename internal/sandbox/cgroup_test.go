package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/cgroup"
)

// fakeCgroup is a directory with the files of a delegated control group, and a machine that
// says this process is in it.
func fakeCgroup(t *testing.T, controllers string) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "system.slice", "rdistccd.service")
	for name, text := range map[string]string{
		"cgroup.type": "domain\n", "cgroup.controllers": controllers, "cgroup.procs": strconv.Itoa(os.Getpid()) + "\n",
		"cgroup.subtree_control": "", "daemon/cgroup.procs": "", "daemon/cpu.weight": "100",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	write(t, filepath.Join(root, "self/cgroup"), "2:pids:/x\n0::/system.slice/rdistccd.service\n")
	write(t, filepath.Join(root, "self/mountinfo"), "22 1 0:21 / / rw - ext4 /dev/sda rw\n30 23 0:26 / "+root+" rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")
	before := proc
	proc = root
	t.Cleanup(func() { proc = before })
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil { //nolint:gosec // as the kernel's
		t.Fatal(err)
	}
}

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDelegated(t *testing.T) {
	dir := fakeCgroup(t, "cpu memory pids\n")
	got, err := Delegated()
	if err != nil || got != dir {
		t.Fatalf("got %q, %v, want %q", got, err, dir)
	}
	if procs := text(t, dir+"/daemon/cgroup.procs"); procs != strconv.Itoa(os.Getpid()) {
		t.Errorf("moved %q", procs)
	}
	if on := text(t, dir+"/cgroup.subtree_control"); on != "+memory +pids +cpu" {
		t.Errorf("switched on %q", on)
	}
	if w := text(t, dir+"/daemon/cpu.weight"); w != "1000" {
		t.Errorf("own weight %q", w)
	}
	g, err := NewGroup(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"memory.max", "memory.swap.max", "pids.max", "cgroup.controllers", "memory.events", "pids.events", "cgroup.kill"} {
		write(t, g.dir+"/"+name, "")
	}
	write(t, g.dir+"/cgroup.controllers", "memory pids\n")
	if !g.Limited() {
		t.Error("has no limits")
	}
	if err := g.Limit(Limits{JobMemory: 1000, Processes: 10}, 24, 2); err != nil {
		t.Error(err)
	}
	if m, s, p := text(t, g.dir+"/memory.max"), text(t, g.dir+"/memory.swap.max"), text(t, g.dir+"/pids.max"); m != "1024" || s != "0" || p != "12" {
		t.Errorf("memory %q, swap %q, pids %q", m, s, p)
	}
	write(t, g.dir+"/memory.max", "")
	if err := g.Limit(Limits{JobMemory: 1000, Processes: 10}, 24, 2); err != nil || text(t, g.dir+"/memory.max") != "" {
		t.Errorf("the same limits were written again, %v", err)
	}
	if err := g.Limit(Limits{}, 24, 2); err != nil || text(t, g.dir+"/memory.max") != "max" {
		t.Errorf("no limit: %q, %v", text(t, g.dir+"/memory.max"), err)
	}
	if g.OutOfMemory() {
		t.Error("out of memory at once")
	}
	write(t, g.dir+"/memory.events", "low 0\nmax 7\noom 1\noom_kill 2\n")
	if !g.OutOfMemory() || g.OutOfMemory() {
		t.Error("not out of memory, or for ever")
	}
	if g.OutOfTasks() {
		t.Error("out of tasks at once")
	}
	write(t, g.dir+"/pids.events", "max 3\n")
	if !g.OutOfTasks() || g.OutOfTasks() {
		t.Error("not out of tasks, or for ever")
	}
}

// TestSweep: what a killed process has left goes, what another one has stays.
func TestSweep(t *testing.T) {
	dir := fakeCgroup(t, "memory pids\n")
	gone := exec.Command("/bin/true")
	if err := gone.Run(); err != nil {
		t.Skip(err)
	}
	left, other := fmt.Sprintf("%s/runner-%d-1", dir, gone.Process.Pid), fmt.Sprintf("%s/runner-%d-1", dir, os.Getppid())
	for _, name := range []string{left, other} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Delegated(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("the group of a process that is dead stays")
	}
	if _, err := os.Stat(other); err != nil {
		t.Error("the group of a process that lives is gone")
	}
}

// TestDelegatedWithoutCPU: shares of the processor are not needed.
func TestDelegatedWithoutCPU(t *testing.T) {
	dir := fakeCgroup(t, "memory pids\n")
	if got, err := Delegated(); err != nil || got != dir || text(t, dir+"/cgroup.subtree_control") != "+memory +pids" || text(t, dir+"/daemon/cpu.weight") != "100" {
		t.Errorf("got %q, %v; switched on %q", got, err, text(t, dir+"/cgroup.subtree_control"))
	}
}

// TestOthersAreNotMoved: a group in which others are was not given to this process, unless it says so.
func TestOthersAreNotMoved(t *testing.T) {
	dir := fakeCgroup(t, "memory pids\n")
	write(t, dir+"/cgroup.procs", fmt.Sprintf("%d\n%d\n", os.Getppid(), os.Getpid()))
	if got, err := Delegated(); !errors.Is(err, errNoCgroup) || text(t, dir+"/daemon/cgroup.procs") != "" {
		t.Errorf("got %q, %v", got, err)
	}
	t.Run("marked", func(t *testing.T) {
		if err := unix.Setxattr(dir, "user.delegate", []byte("1"), 0); err != nil {
			t.Skipf("needs a file system with attributes: %v", err)
		}
		if got, err := Delegated(); err != nil || got != dir {
			t.Errorf("got %q, %v", got, err)
		}
	})
	// The machine's root has no type, and nothing needs to be moved.
	t.Run("root", func(t *testing.T) {
		if err := os.Remove(dir + "/cgroup.type"); err != nil {
			t.Fatal(err)
		}
		write(t, dir+"/daemon/cgroup.procs", "")
		if got, err := Delegated(); err != nil || got != dir || text(t, dir+"/daemon/cgroup.procs") != "" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// TestLimitsOfTheKernel: one group runs into its bounds, and the other one does not notice.
func TestLimitsOfTheKernel(t *testing.T) {
	dir, err := Delegated()
	if err != nil {
		t.Skip(err)
	}
	start := func(l Limits, script string) (*Group, *exec.Cmd, *bytes.Buffer) {
		t.Helper()
		g, err := NewGroup(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !g.Limited() {
			t.Fatal("the group has no limits")
		}
		if err := g.Limit(l, 0, 0); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := exec.Command("/bin/sh", "-c", "read moved; "+script)
		cmd.Stdout, cmd.Stderr = &out, &out
		begin(t, g, cmd)
		return g, cmd, &out
	}
	neighbour, sleeper, _ := start(Limits{JobMemory: 32 << 20, Processes: 10}, "sleep 1000")
	hog, cmd, out := start(Limits{JobMemory: 32 << 20}, "head -c 300000000 /dev/zero | tail -c 200000000")
	if err := cmd.Wait(); err == nil || !hog.OutOfMemory() || hog.OutOfTasks() {
		t.Errorf("who takes 200 MB of 32: %v: %.100s", err, out)
	}
	bomb, cmd, out := start(Limits{Processes: 5}, "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; wait")
	// The shell ends when it cannot start one; what it has started lives on.
	if state, err := cmd.Process.Wait(); err != nil || state.Success() || !bomb.OutOfTasks() || bomb.OutOfMemory() {
		t.Errorf("who starts 9 of 5: %v, %v: %s", state, err, out)
	}
	if n := len(strings.Fields(text(t, bomb.dir+"/cgroup.procs"))); n == 0 || n > 5 {
		t.Errorf("%d processes, of 5", n)
	}
	if len(strings.Fields(text(t, neighbour.dir+"/cgroup.procs"))) == 0 || neighbour.OutOfMemory() || neighbour.OutOfTasks() {
		t.Error("the neighbour was disturbed")
	}
	for _, g := range []*Group{neighbour, hog, bomb} {
		if err := errors.Join(g.Kill(), g.Remove()); err != nil {
			t.Error(err)
		}
	}
	_ = sleeper.Wait() // was killed
	if left, err := filepath.Glob(dir + "/" + groupName + "*"); err != nil || len(left) != 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestGroupsShareTheProcessor: many processes of one group take no more of it than the one of another.
func TestGroupsShareTheProcessor(t *testing.T) {
	dir, err := Delegated()
	if err != nil {
		t.Skip(err)
	}
	one, err := NewGroup(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(one.Kill(), one.Remove()) }()
	if have := text(t, one.dir+"/cgroup.controllers"); !hasController([]byte(have), "cpu") {
		t.Skipf("cpu is not delegated, only %s", have)
	}
	many, err := NewGroup(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(many.Kill(), many.Remove()) }()
	spin := "while :; do :; done"
	begin(t, many, exec.Command("/bin/sh", "-c", "read moved; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do ("+spin+") & done; wait"))
	for used(t, many) < 300*time.Millisecond { // all of them have begun
		time.Sleep(10 * time.Millisecond)
	}
	before := used(t, many)
	begin(t, one, exec.Command("/bin/sh", "-c", "read moved; "+spin))
	for used(t, one)+used(t, many)-before < 3*time.Second {
		time.Sleep(10 * time.Millisecond)
	}
	if a, b := used(t, one), used(t, many)-before; b > 4*a {
		t.Errorf("one process had %v, beside sixteen with %v together", a, b)
	}
}

// used is the processor time that a group has had.
func used(t *testing.T, g *Group) time.Duration {
	t.Helper()
	for line := range strings.Lines(text(t, g.dir+"/cpu.stat")) {
		if us, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(us))
			if err != nil {
				t.Fatal(err)
			}
			return time.Duration(n) * time.Microsecond
		}
	}
	t.Fatal("cpu.stat tells no use")
	return 0
}

func TestNothingDelegated(t *testing.T) {
	fakeCgroup(t, "cpu\n")
	if dir, err := Delegated(); !errors.Is(err, errNoCgroup) || !strings.Contains(err.Error(), "Delegate=") {
		t.Errorf("got %q, %v", dir, err)
	}
	write(t, filepath.Join(proc, "self/mountinfo"), "")
	if dir, err := Delegated(); !errors.Is(err, errNoCgroup) {
		t.Errorf("got %q, %v", dir, err)
	}
}

// TestGroupOfTheKernel is what works without controllers.
func TestGroupOfTheKernel(t *testing.T) {
	_, mount, err := cgroup.Unified("/proc")
	if err != nil {
		t.Skip(err)
	}
	g, err := NewGroup(mount.At)
	if err != nil {
		t.Skipf("needs to make control groups: %v", err)
	}
	cmd := exec.Command("/bin/sh", "-c", "read moved; sleep 1000 & sleep 1000 & wait")
	begin(t, g, cmd)
	if text(t, g.dir+"/cgroup.procs") == "" {
		t.Error("it is elsewhere")
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

// begin starts a command that goes on when it can read a line, which it can when it is in the group.
func begin(t *testing.T, g *Group, cmd *exec.Cmd) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
}

func TestParseStat(t *testing.T) {
	st, ok := parseStat([]byte("5 (a b) c) (d)) R 4 3 2 0 -1 4194304 101 0 0 0 7 8 9 10 20 0 1 0 12345 2703360 333 18446744073709551615\n"))
	if !ok || st != (stat{'R', 3, 2, 34 * tick, 333}) {
		t.Errorf("got %+v, %v", st, ok)
	}
	for _, bad := range []string{"", ")", "5 (a) R 4 3", "5 (a) R 4 x 2 0 -1 4194304 101 0 0 0 7 8 9 10 20 0 1 0 12345 2703360 333"} {
		if st, ok := parseStat([]byte(bad)); ok {
			t.Errorf("%q: got %+v", bad, st)
		}
	}
}
