package toolchains

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// tried are the compilers that hosts are given.
var tried = []string{"gcc", "g++", "clang", "clang++", "gcc-11", "clang-19", "aarch64-linux-gnu-gcc"}

// compileWith compiles with those of the compilers that this machine has, in turns, so that each place changes from one to the other.
func (s *site) compileWith(names ...string) {
	s.Helper()
	s.write("x.c", cSource)
	s.write("x.cc", cxxSource)
	for range 2 {
		for _, cc := range compilers(s.T, names...) {
			source := "x.c"
			if strings.HasSuffix(cc, "++") {
				source = "x.cc"
			}
			s.remote(cc, "-O2", "-g", "-Wall", "-c", source, "-o", "x.o")
		}
	}
}

// TestHostWithoutCompilers: a host that has none is sent each compiler that jobs ask for, and its objects are those of the build
// host. Parts that compilers share are sent once.
func TestHostWithoutCompilers(t *testing.T) {
	s := prepare(t, bare)
	s.start()
	s.compileWith(tried...)
	has, size := s.metric(s.Daemons[0], "rdistccd_toolchains_received "), s.metric(s.Daemons[0], "rdistccd_toolchains_received_bytes ")
	all := compilers(t, tried...)
	drivers := map[string]bool{} // nothing is sent for another name of one that is there, as clang++ is
	for _, cc := range all {
		path, err := exec.LookPath(cc)
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		drivers[path] = true
	}
	sent := float64(len(drivers))
	var bytes, n float64
	for n < sent && s.ctx.Err() == nil { // the last one is used before it is counted
		bytes, n = s.metric(s.Manager, "rdistcc_cm_toolchain_bytes_total"), s.metric(s.Manager, `rdistcc_cm_toolchains_sent_total{result="ok"}`)
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%.0f compilers sent, %.0f bytes", n, bytes)
	if failed := s.metric(s.Manager, `rdistcc_cm_toolchains_sent_total{result="failed"}`); failed != 0 || n == 0 {
		t.Errorf("%.0f compilers were sent, %.0f could not be", n, failed)
	}
	if has != float64(len(all)) || n != sent || size < bytes { // they travel compressed
		t.Errorf("the host has %.0f compilers with %.0f bytes", has, size)
	}
	if st := s.run("hosts"); !strings.Contains(st.out, "up") {
		t.Errorf("%s", st.out)
	}
	// After a restart of the manager, and of the daemon, nothing is sent again.
	if err := s.Manager.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Daemons[0].Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.StartDaemonAgain(s.ctx, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.StartManager(s.ctx, "--hosts", s.Daemons[0].Addr); err != nil {
		t.Fatal(err)
	}
	s.remote("gcc", "-O2", "-g", "-c", "x.c", "-o", "x.o")
	if again := s.metric(s.Manager, "rdistcc_cm_toolchain_bytes_total"); again > 1<<20 {
		t.Errorf("%.0f bytes were sent again", again)
	}
	s.tidy("clang-tidy-14") // most of it is there
}

// TestHostWithNothing: a daemon in an empty root, without even a C library, compiles as well.
func TestHostWithNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: chroot")
	}
	s := prepare(t, bare)
	s.inRoot(nil)
	s.compileWith("gcc", "g++", "gcc-11", "clang", "aarch64-linux-gnu-gcc")
}

// TestAnotherLibrary: a daemon in a root with another C library, also in the places where the compiler has its own, compiles with what it
// was sent alone.
func TestAnotherLibrary(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: chroot")
	}
	found, err := filepath.Glob("/lib/ld-musl-*.so.1")
	if err != nil || len(found) == 0 {
		need.Skipf(t, need.Tools, "no musl (on Debian: the package musl)")
	}
	musl, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	s := prepare(t, bare)
	names := []string{found[0], "/bin/sh", "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"}
	for _, dir := range []string{"/lib/", "/usr/lib/", "/lib/x86_64-linux-gnu/", "/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/"} {
		for _, lib := range []string{"libc.so.6", "libm.so.6", "libz.so.1", "libstdc++.so.6", "libgcc_s.so.1"} {
			names = append(names, dir+lib)
		}
	}
	s.inRoot(names, musl...)
	cc := compilers(t, "gcc", "clang")[0]
	s.write("x.c", cSource)
	s.remote(cc, "-O2", "-g", "-Wall", "-c", "x.c", "-o", "x.o")
}

// inRoot starts a farm whose daemon has a root of its own, in which these names are files with that content. It skips the test if
// compiles are not confined there.
func (s *site) inRoot(names []string, content ...byte) {
	t := s.T
	t.Helper()
	s.Root = filepath.Join(s.Dir, "root")
	if err := os.MkdirAll(s.Root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		name = filepath.Join(s.Root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, content, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	log, err := os.ReadFile(s.Daemons[0].Log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "compiles are confined") {
		need.Skipf(t, need.Sandbox, "compiles are not confined in a root of their own: %s", log)
	}
}

// TestNotAccepted: a host that accepts no toolchains says so, and commands run here as before.
func TestNotAccepted(t *testing.T) {
	part.Skip(t)
	for what, c := range map[string]struct{ settings, why string }{
		"none":       {"toolchains: {dirs: [/nowhere], accept: none}\n", "toolchains.accept"},
		"no sandbox": {bare + "sandbox: off\n", "does not confine compiles"},
	} {
		t.Run(what, func(t *testing.T) {
			s := prepare(t, c.settings)
			d, err := s.StartDaemonUnready(s.ctx, "host", "--jobs", "1")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.StartManager(s.ctx, "--hosts", d.Addr); err != nil {
				t.Fatal(err)
			}
			s.write("x.c", cSource)
			for range 100 {
				got := s.run("gcc", "-c", "x.c", "-o", "x.o")
				if got.status != 0 || got.where != "local:refused:toolchain" {
					t.Fatalf("exit %d, %s: %s", got.status, got.where, got.out)
				}
				if hosts := s.run("hosts"); strings.Contains(hosts.out, c.why) {
					s.equal("gcc", "-c", "x.c", "-o", "x.o")
					return
				}
			}
			t.Errorf("hosts: %s", s.run("hosts").out)
		})
	}
}
