package toolchains

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
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

// TestFullTemporaryDirectory: a link for whose own files the disk has no room fails as the plain one does and leaves as much, or gets by
// with less, as hosts have the assembly. Some sizes have room for the partitions, but not for what becomes of them.
func TestFullTemporaryDirectory(t *testing.T) {
	part.Skip(t)
	s := prepare(t, "")
	if _, err := exec.LookPath("make"); err != nil {
		need.Skipf(t, need.Tools, "%v", err)
	}
	s.start()
	cc := compilers(t, "gcc-11", "gcc")[0]
	var objects []string
	for _, name := range s.program(5) {
		s.plainly(cc, "-O2", "-g", "-flto", "-c", name, "-o", name+".o")
		objects = append(objects, name+".o")
	}
	link := slices.Concat([]string{cc, "-O2", "-g", "-flto=2", "--param=lto-min-partition=10", "-flto-partition=max"}, objects, []string{"-o", "x.o"})
	output := filepath.Join(s.work, "x.o")
	remote := 0
	for end := time.Now().Add(5 * time.Minute); remote == 0 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // until the host has been found
		remote = strings.Count(s.run(link...).where, "remote:")
	}
	full := filepath.Join(s.TempDir(), "full")
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	s.Vars = append(s.Vars, "TMPDIR="+full)
	// ended returns the status of a link, what it made, and how many files it left in its directory, which has some pages.
	ended := func(pages int, run func() int) (status int, program []byte, left int) {
		if err := unix.Mount("toolchains", full, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", pages*os.Getpagesize())); err != nil {
			t.Skipf("no file system of its own: %v", err)
		}
		defer func() {
			if err := unix.Unmount(full, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}()
		os.Remove(output)
		status = run()
		program, _ = os.ReadFile(output) // there is none after a failure
		files, err := os.ReadDir(full)
		if err != nil {
			t.Error(err)
		}
		return status, program, len(files)
	}
	s.plainly(link...)
	want, err := os.ReadFile(output)
	if err != nil {
		t.Fatal(err)
	}
	fail, work := 0, 0
	for pages := 2; pages <= 64 && work < 3; pages += 3 {
		var got ran
		status, program, left := ended(pages, func() int { got = s.run(link...); return got.status })
		if status == 0 {
			work++
			if !bytes.Equal(program, want) || !strings.Contains(got.where, "remote:") {
				t.Errorf("%d pages: the program differs from that of the plain link, or no part was compiled by the host: %s", pages, got.where)
			}
			continue
		}
		fail++
		plainStatus, plainProgram, plainLeft := ended(pages, func() int {
			cmd := exec.CommandContext(s.ctx, link[0], link[1:]...)
			cmd.Dir, cmd.Env = s.work, append(s.Env(), "PWD="+s.work)
			_ = cmd.Run() // its status is compared
			return cmd.ProcessState.ExitCode()
		})
		if status != plainStatus || len(program) != len(plainProgram) || left != plainLeft || !strings.Contains(got.out, "error") {
			t.Errorf("%d pages: exit %d, %d bytes, leaves %d files: %s; the plain link: %d, %d, %d", pages, status, len(program), left, got.out, plainStatus, len(plainProgram), plainLeft)
		}
	}
	if fail < 3 || work == 0 {
		t.Errorf("%d sizes were too small, %d were not", fail, work)
	}
}
