package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakeCgroup is a directory with the files of a delegated control group, and a machine that
// says this process is in it.
func fakeCgroup(t *testing.T, controllers string) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "system.slice", "rdistccd.service")
	for name, text := range map[string]string{"cgroup.controllers": controllers, "cgroup.procs": "4711\n4712\n", "cgroup.subtree_control": "", "daemon/cgroup.procs": ""} {
		write(t, filepath.Join(dir, name), text)
	}
	write(t, filepath.Join(root, "cgroup"), "2:pids:/x\n0::/system.slice/rdistccd.service\n")
	write(t, filepath.Join(root, "mountinfo"), "22 1 0:21 / / rw - ext4 /dev/sda rw\n30 23 0:26 / "+root+" rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")
	oldOwn, oldMounts := ownCgroup, mounts
	ownCgroup, mounts = filepath.Join(root, "cgroup"), filepath.Join(root, "mountinfo")
	t.Cleanup(func() { ownCgroup, mounts = oldOwn, oldMounts })
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
	// Our files keep the last write; the kernel takes one at a time.
	if procs := text(t, dir+"/daemon/cgroup.procs"); procs != "4712" {
		t.Errorf("moved %q", procs)
	}
	if on := text(t, dir+"/cgroup.subtree_control"); on != "+memory +pids" {
		t.Errorf("switched on %q", on)
	}
	g, err := NewGroup(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"memory.max", "memory.swap.max", "pids.max", "cgroup.controllers", "memory.events", "cgroup.kill"} {
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
}

func TestNothingDelegated(t *testing.T) {
	fakeCgroup(t, "cpu\n")
	if dir, err := Delegated(); !errors.Is(err, errNoCgroup) || !strings.Contains(err.Error(), "Delegate=") {
		t.Errorf("got %q, %v", dir, err)
	}
	mounts = os.DevNull
	if dir, err := Delegated(); !errors.Is(err, errNoCgroup) {
		t.Errorf("got %q, %v", dir, err)
	}
}

// TestGroupOfTheKernel is what works without controllers.
func TestGroupOfTheKernel(t *testing.T) {
	_, at, err := cgroupMount()
	if err != nil {
		t.Skip(err)
	}
	g, err := NewGroup(at)
	if err != nil {
		t.Skipf("needs to make control groups: %v", err)
	}
	f, err := g.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & sleep 1000 & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if text(t, g.dir+"/cgroup.procs") == "" {
		t.Error("started elsewhere")
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
	for range 10_000 {
		if err = g.Remove(); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error(err)
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
