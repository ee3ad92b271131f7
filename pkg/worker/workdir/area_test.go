package workdir

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox/probe"
)

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case Arg0:
		Main()
	case probe.Arg0:
		probe.Main()
	}
	os.Exit(m.Run())
}

// If daemon and guard are killed at once, the next daemon cleans up, and leaves alone what belongs to others.
func TestStaleAreasAreRemoved(t *testing.T) {
	base := t.TempDir()
	held, err := New(base)
	if err != nil {
		t.Fatal(err)
	}
	stale, err := New(base)
	if err != nil {
		t.Fatal(err)
	}
	stale.dir.Close() // as the kernel does for the dead
	src := filepath.Join(stale.Path, "job0", "src")
	if err := os.MkdirAll(src, 0o700); err != nil {
		t.Fatal(err)
	}
	orphan := exec.Command("sleep", "1000")
	orphan.Dir = src
	orphan.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- orphan.Wait() }()
	for name, mode := range map[string]os.FileMode{"rdistccd-open": 0o755, "other": 0o700, newPrefix + "young": 0o700} {
		if err := os.Mkdir(filepath.Join(base, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(base, "rdistccd-link")); err != nil {
		t.Fatal(err)
	}
	if n, err := RemoveStale(base); n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	<-ended
	for _, name := range []string{filepath.Base(held.Path), "rdistccd-open", "other", newPrefix + "young", "rdistccd-link"} {
		if _, err := os.Lstat(filepath.Join(base, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(stale.Path); err == nil {
		t.Error("the stale area is still there")
	}
	if err := held.Remove(); err != nil {
		t.Error(err)
	}
}

// The guard has a session of its own, where no terminal reaches it, and the area does not count as left over
// as long as it lives.
func TestGuardHoldsTheArea(t *testing.T) {
	base := t.TempDir()
	area, err := New(base)
	if err != nil {
		t.Fatal(err)
	}
	g, err := StartGuard(area)
	if err != nil {
		t.Fatal(err)
	}
	if sid, err := unix.Getsid(g.cmd.Process.Pid); err != nil || sid != g.cmd.Process.Pid {
		t.Errorf("the guard is in session %d, %v", sid, err)
	}
	area.dir.Close()
	// It holds the lock on until it has cleaned up.
	if stale(area.Path, false) {
		t.Error("the area counts as left over while its guard lives")
	}
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(area.Path); err == nil {
		t.Error("the guard left the area")
	}
}

// TestTargetsOfCanariesAreRemoved: the targets of a daemon that was killed are removed, and no others.
func TestTargetsOfCanariesAreRemoved(t *testing.T) {
	stale, err := os.MkdirTemp("/tmp", probe.Shared)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(stale)
	if err := os.WriteFile(filepath.Join(stale, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	host, err := probe.NewHost(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	// By the guard of a daemon that ends; the next daemon's start calls RemoveTargets.
	area, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g, err := StartGuard(area)
	if err != nil {
		t.Fatal(err)
	}
	area.dir.Close()
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(stale); err == nil {
		t.Error("what a dead daemon left is still there")
	}
	if _, err := os.Lstat(host.Targets().Temp); err != nil {
		t.Error(err)
	}
}
