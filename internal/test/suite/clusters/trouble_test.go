package clusters

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bazelbuild/remote-apis/build/bazel/semver"

	"github.com/rdistcc/rdistcc/internal/test/kit/reapiserver"
)

const plainSource = "int f(int x) { return x + 1; }\n"

// TestStart: a daemon whose cluster will not do ends at once, by one line that says what the cluster lacks. The line shows no token.
func TestStart(t *testing.T) {
	s := prepare(t, reapiserver.Options{})
	token := filepath.Join(s.Dir, "token")
	if err := os.WriteFile(token, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(s.Dir, "token.yaml")
	if err := os.WriteFile(settings, []byte("cluster: {token-file: "+token+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(o reapiserver.Options) string { return "grpc://" + reapiserver.Start(t, o).Addr }
	x := &reapiserver.Execution{}
	for what, c := range map[string]struct {
		flags  []string
		status int
		want   string
	}{
		"a cache only":      {[]string{"--executor", at(reapiserver.Options{})}, 100, "runs no actions (exec_enabled)"},
		"switched off":      {[]string{"--executor", at(reapiserver.Options{Execute: &reapiserver.Execution{Disabled: true}})}, 100, "runs no actions (exec_enabled)"},
		"an old one":        {[]string{"--executor", at(reapiserver.Options{Execute: &reapiserver.Execution{Low: &semver.SemVer{Major: 2}, High: &semver.SemVer{Major: 2}}})}, 100, "speaks version 2.0"},
		"no SHA256":         {[]string{"--executor", at(reapiserver.Options{NoSHA256: true, Execute: x})}, 100, "does not know SHA256"},
		"no instance":       {[]string{"--executor", at(reapiserver.Options{Instance: "main", Execute: x}) + "/other"}, 100, `has no instance "other"`},
		"another token":     {[]string{"--executor", at(reapiserver.Options{Header: "authorization", Value: "Bearer x", Execute: x}), "--config", settings}, 100, "refuses this daemon"},
		"a web page":        {[]string{"--executor", "https://cluster"}, 101, "is not a URL that begins with grpc://"},
		"a password":        {[]string{"--executor", "grpcs://me:s3cret@cluster"}, 101, "use cluster.token-file"},
		"clients of distcc": {[]string{"--executor", "grpc://127.0.0.1:1", "--distcc", "127.0.0.1:0"}, 101, "clients of distcc"},
	} {
		cmd := exec.CommandContext(s.ctx, filepath.Join(s.Bin, "rdistccd"), append([]string{"--listen", "127.0.0.1:0", "--http", ""}, c.flags...)...)
		cmd.Env = s.Env()
		log, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%s: it serves", what)
			continue
		}
		status := cmd.ProcessState.ExitCode()
		last := strings.TrimSpace(string(log))
		if i := strings.LastIndex(last, "\n"); i >= 0 {
			last = last[i+1:]
		}
		if status != c.status || !strings.HasPrefix(last, "rdistccd: ") || !strings.Contains(last, c.want) || strings.Contains(string(log), "s3cret") {
			t.Errorf("%s: status %d, %s; want %d, %q", what, status, log, c.status, c.want)
		}
	}
}

// TestTrouble: what goes wrong on a cluster costs a job no more than time: it is tried again there, or runs here, with the same
// object, whatever the cluster says.
func TestTrouble(t *testing.T) {
	cc := compilers(t, "gcc")[0]
	var fault atomic.Int64
	s := prepare(t, reapiserver.Options{Execute: &reapiserver.Execution{Fault: func(n int) reapiserver.Fault {
		if n == 0 { // the proof that the toolchain runs there
			return reapiserver.None
		}
		return reapiserver.Fault(fault.Load())
	}}})
	s.write("x.c", plainSource)
	s.start()
	s.both("remote:", cc, "-g", "-c", "x.c")
	for f, where := range map[reapiserver.Fault]string{
		reapiserver.StreamBroken: "remote:", reapiserver.Quota: "local:", reapiserver.Internal: "local:", reapiserver.OtherDigest: "local:", reapiserver.OutputGone: "local:",
		reapiserver.NoResult: "local:", reapiserver.Killed: "local:", reapiserver.Unstartable: "local:", reapiserver.Invalid: "local:", reapiserver.Deadline: "local:",
	} {
		fault.Store(int64(f))
		got := s.run(false, cc, "-g", "-c", "x.c", "-o", "got.o")
		fault.Store(int64(reapiserver.None))
		s.settled()
		want := s.run(true, cc, "-g", "-c", "x.c", "-o", "want.o")
		files := s.files()
		if got.status != 0 || want.status != 0 || files["got.o"] != files["want.o"] {
			t.Errorf("fault %d: status %d, %s; the objects are equal: %v", f, got.status, got.errors, files["got.o"] == files["want.o"])
		}
		if !strings.HasPrefix(got.where, where) || strings.Count(got.errors, "\n") > 1 {
			t.Errorf("fault %d: ran %q, not %q: %s", f, got.where, where, got.errors)
		}
	}
}

// settled waits until the host takes work again, and the manager knows.
func (s *site) settled() {
	s.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if got := s.run(false, "gcc", "-c", "x.c", "-o", "settled"); strings.HasPrefix(got.where, "remote:") {
			if err := os.Remove(filepath.Join(s.work, "settled")); err != nil {
				s.Fatal(err)
			}
			return
		}
	}
	s.Fatalf("the host takes no work any more: %s", s.log())
}

// TestAway: while a cluster is away, its host takes no jobs. When it is there again, even as one that holds nothing, the host does.
func TestAway(t *testing.T) {
	cc := compilers(t, "gcc")[0]
	s := prepare(t, reapiserver.Options{})
	s.write("x.c", plainSource)
	s.start()
	s.both("remote:", cc, "-c", "x.c")
	s.server.Stop()
	got := s.run(false, cc, "-c", "x.c", "-o", "y.o")
	if got.status != 0 || !strings.HasPrefix(got.where, "local:") || strings.Count(got.errors, "\n") > 1 {
		t.Errorf("without the cluster: status %d, %q, %s", got.status, got.where, got.errors)
	}
	ready := func(want bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			_, err := s.host.Get(s.ctx, "/readyz")
			if (err == nil) == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the daemon is ready: %v, want %v", err, want)
			}
		}
	}
	ready(false)
	s.server = reapiserver.Start(t, reapiserver.Options{Listen: s.server.Addr, Execute: &reapiserver.Execution{}}) // which holds nothing
	ready(true)
	s.settled()
	s.both("remote:", cc, "-g", "-c", "x.c")
}

// TestBytes: a second build of the same files sends next to nothing.
func TestBytes(t *testing.T) {
	cc := compilers(t, "gcc", "clang")[0]
	s := prepare(t, reapiserver.Options{})
	for _, name := range []string{"a", "b", "c"} {
		s.write(name+".c", "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint "+name+"(void) { return puts(\""+name+"\"); }\n")
	}
	s.start()
	build := func() {
		for _, name := range []string{"a", "b", "c"} {
			s.both("remote:", cc, "-O2", "-g", "-c", name+".c")
		}
	}
	build()
	first := s.server.Received()
	build()
	second := s.server.Received() - first
	t.Logf("the first build sent %d bytes, the second %d", first, second)
	if second*50 > first {
		t.Errorf("a second build sends %d bytes, the first one %d", second, first)
	}
}

// TestSent: a compiler that only the build host has is sent to the daemon, and from there to the cluster.
func TestSent(t *testing.T) {
	cc := compilers(t, "gcc", "clang")[0]
	s := prepare(t, reapiserver.Options{})
	if err := s.AddSettings("daemon.yaml", "toolchains: {dirs: [/nowhere]}\n"); err != nil {
		t.Fatal(err)
	}
	s.write("x.c", plainSource)
	s.start()
	if got := s.run(false, "toolchain", "send", s.host.Addr, cc); got.status != 0 {
		t.Fatal(got.out, got.errors)
	}
	s.both("remote:", cc, "-O2", "-g", "-c", "x.c")
}

// TestGone: when a command is interrupted, the cluster is told.
func TestGone(t *testing.T) {
	cc := compilers(t, "gcc", "clang")[0]
	s := prepare(t, reapiserver.Options{Execute: &reapiserver.Execution{Fault: func(n int) reapiserver.Fault {
		if n == 1 {
			return reapiserver.Hangs
		}
		return reapiserver.None
	}}})
	s.write("x.c", plainSource)
	s.start()
	ended := s.interrupted(func() bool { return s.server.Executions() >= 2 }, cc, "-c", "x.c")
	<-ended
	for end := time.Now().Add(time.Minute); s.server.Cancelled() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the operation goes on")
		}
	}
}
