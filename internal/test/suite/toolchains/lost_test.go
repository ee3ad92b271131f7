package toolchains

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// struck runs a command whose host is lost while it has a job of it.
func (s *site) struck(args ...string) ran {
	s.Helper()
	host := s.Daemons[0]
	if err := host.Signal(syscall.SIGSTOP); err != nil { // it keeps what it gets until it is killed
		s.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if n, err := s.Manager.Metric(s.ctx, "rdistcc_cm_running"); err == nil && n > 0 {
				break
			}
		}
		host.Kill()
	}()
	got := s.run(args...)
	<-done
	return got
}

// TestHostLostInDistributor: a host that is lost in the middle of a ThinLTO link costs a line for each of its jobs, which are compiled
// here, and no output.
func TestHostLostInDistributor(t *testing.T) {
	s := prepare(t, "")
	cc := compilers(t, "clang-14")[0]
	if _, err := exec.LookPath("ld.gold"); err != nil {
		need.Skipf(t, need.Tools, "%v", err)
	}
	s.start()
	file, commands := s.linked(cc, 4, 4711)
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) { // until the host has been found
		got := s.run("dtlto", file)
		if strings.Count(got.where, "remote:") == len(commands) {
			break
		} else if got.status != 0 || time.Now().After(end) {
			t.Fatalf("exit %d, %s: %s%s", got.status, got.where, got.out, s.log())
		}
	}
	for _, c := range commands {
		os.Remove(filepath.Join(s.work, c[len(c)-1]))
	}
	got := s.struck("dtlto", file)
	if got.status != 0 || !strings.Contains(got.out, "; compiled here") || strings.Count(got.where, "\n")+1 != len(commands) || !strings.Contains(got.where, "local:host-lost") {
		t.Errorf("exit %d, %s: %s%s", got.status, got.where, got.out, s.log())
	}
	for _, c := range commands {
		name := filepath.Join(s.work, c[len(c)-1])
		ours, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		s.plainly(c...)
		if here, err := os.ReadFile(name); err != nil || !bytes.Equal(ours, here) {
			t.Errorf("%s: %v, or it differs", name, err)
		}
	}
}

// TestHostLostInLink: the same goes for partitions of gcc's.
func TestHostLostInLink(t *testing.T) {
	s := prepare(t, "")
	if _, err := exec.LookPath("make"); err != nil {
		need.Skipf(t, need.Tools, "%v", err)
	}
	s.start()
	objects := s.program(4)
	for i, name := range objects {
		objects[i] = strings.TrimSuffix(name, ".c") + ".o"
		s.plainly("gcc", "-O2", "-g", "-flto", "-c", name, "-o", objects[i])
	}
	link := slices.Concat([]string{"gcc", "-O2", "-g", "-flto=2", "--param=lto-min-partition=10", "-flto-partition=max"}, objects, []string{"-o", "x.o"})
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) { // until the host has been found
		got := s.run(link...)
		if n := strings.Count(got.where, "remote:"); n > 2 && n == strings.Count(got.where, "\n") {
			break
		} else if got.status != 0 || time.Now().After(end) {
			t.Fatalf("exit %d, %s: %s%s", got.status, got.where, got.out, s.log())
		}
	}
	got := s.struck(link...)
	if got.status != 0 || !strings.Contains(got.out, "; compiled here") || !strings.Contains(got.where, "local:host-lost") {
		t.Errorf("exit %d, %s: %s%s", got.status, got.where, got.out, s.log())
	}
	s.equal(link...)
}
