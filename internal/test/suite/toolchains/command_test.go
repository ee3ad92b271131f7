package toolchains

import (
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"strings"
	"testing"
)

// TestCommand: a host is sent a compiler before any command uses it, and the first job runs there.
func TestCommand(t *testing.T) {
	cc := compilers(t, "gcc", "clang")[0]
	s := prepare(t, bare)
	s.start()
	host := s.Daemons[0].Addr
	want := func(status int, out string, args ...string) {
		t.Helper()
		if got := s.run(append([]string{"toolchain"}, args...)...); got.status != status || !strings.Contains(got.out, out) {
			t.Errorf("toolchain %q: exit %d, %s", args, got.status, got.out)
		}
	}
	want(0, "no compiler has been used", "list")
	want(101, "no compiler has been used yet: name one", "send", host)
	want(101, "no host build7", "send", "build7", cc)
	want(110, "not a compiler", "send", host, "/bin/true")
	want(0, host+" has "+cc, "send", host, cc)
	want(0, "received", "list")
	want(0, host+" has "+cc, "send", host) // it has it
	s.write("x.c", cSource)
	if got := s.run(cc, "-O2", "-g", "-c", "x.c", "-o", "x.o"); got.status != 0 || got.where != "remote:"+host {
		t.Errorf("exit %d, %s: %s", got.status, got.where, got.out)
	}
	s.equal(cc, "-O2", "-g", "-c", "x.c", "-o", "x.o")
}

// TestCommandRefused: sending to a host that accepts none, or that is not there, ends with one line.
func TestCommandRefused(t *testing.T) {
	cc := compilers(t, "gcc", "clang")[0]
	s := prepare(t, "toolchains: {dirs: [/nowhere], accept: none}\n")
	d, err := s.StartDaemonUnready(s.ctx, "host", "--jobs", "1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.StartManager(s.ctx, "--hosts", d.Addr+" 127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	for host, x := range map[string]struct {
		status int
		why    string
	}{d.Addr: {110, "cannot be sent: rejected (denied): this daemon accepts no toolchains (toolchains.accept)\n"}, "127.0.0.1:1": {103, "connection refused"}} {
		got := s.run("toolchain", "send", host, cc)
		if got.status != x.status || !strings.Contains(got.out, x.why) || strings.Count(got.out, "\n") != 1 {
			t.Errorf("%s: exit %d, %s", host, got.status, got.out)
		}
	}
	if got := s.run("toolchain", "list"); !strings.Contains(got.out, "cannot be sent: ") || !strings.Contains(got.out, "not known: ") {
		t.Errorf("%s", got.out)
	}
}

// TestDoctor: it tells which compilers a host has, and which it is going to be sent; or why it cannot be.
func TestDoctor(t *testing.T) {
	part.Skip(t)
	cc := compilers(t, "gcc", "clang")[0]
	for what, c := range map[string]struct {
		settings string
		status   int
		why      string
	}{
		"sent":     {bare, 0, "when a command uses it"},
		"compiles": {bare, 0, "compile     not tried: the host has none of the compilers here yet"},
		"none":     {"toolchains: {dirs: [/nowhere], accept: none}\n", 100, "cannot be sent it: this daemon accepts no toolchains (toolchains.accept)"},
		"unsafe":   {bare + "sandbox: off\n", 100, "does not confine compiles"},
		"no room":  {"toolchains: {dirs: [/nowhere], size: 1MiB}\n", 100, "the host has room for 512KiB"},
		"received": {bare, 0, "gives the same object as here"},
	} {
		t.Run(what, func(t *testing.T) {
			s := prepare(t, c.settings)
			d, err := s.StartDaemonUnready(s.ctx, "host", "--jobs", "2")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.StartManager(s.ctx, "--hosts", d.Addr); err != nil {
				t.Fatal(err)
			}
			if what == "received" {
				if got := s.run("toolchain", "send", d.Addr, cc); got.status != 0 {
					t.Fatal(got.out)
				}
			}
			if got := s.run("doctor", d.Addr); got.status != c.status || !strings.Contains(got.out, c.why) {
				t.Errorf("exit %d, %s", got.status, got.out)
			}
		})
	}
}
