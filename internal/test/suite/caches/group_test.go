package caches

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// member is a client of a farm under TLS, with a manager and a directory of results of its own.
type member struct {
	name string
	vars []string
}

// secured is underTLS, where compiles are confined.
func secured(t *testing.T) (s *site, client func(name string, more ...string) *member) {
	t.Helper()
	s, client = underTLS(t)
	if s.metric(s.Daemons[0], "rdistccd_sandbox_level") < 2 {
		need.Skipf(t, need.Sandbox, "compiles cannot be confined here")
	}
	return s, client
}

// underTLS starts a farm of one daemon under TLS, in which alice and bob share results. client starts the manager of one
// of them, or of carol, dave or ci, who are in no group. Behind a hyphen is which one of several. More is added to its settings.
func underTLS(t *testing.T) (s *site, client func(name string, more ...string) *member) {
	t.Helper()
	s = start(t, "")
	if err := errors.Join(s.Manager.Stop(), s.Daemons[0].Stop()); err != nil {
		t.Fatal(err)
	}
	certs := filepath.Join(s.Dir, "certs")
	if out, err := exec.CommandContext(s.ctx, s.Wrapper, "certs", certs, "--daemon", "build7,127.0.0.1", "--client", "alice", "--client", "bob", "--client", "carol", "--client", "dave", "--client", "ci").CombinedOutput(); err != nil {
		t.Fatalf("rdistcc certs: %v\n%s", err, out)
	}
	tls := func(name string) string {
		return fmt.Sprintf("auth: {tls: {cert: %[1]s.crt, key: %[1]s.key, ca: %[2]s/ca.crt}}\nscheduler: {audit: 0}\nlocal: {share: false}\n", filepath.Join(certs, name), certs)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "daemon.yaml"), []byte(tls("build7")+"store: {groups: [team = alice bob]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.StartDaemonAgain(s.ctx, 0); err != nil {
		t.Fatal(err)
	}
	return s, func(name string, more ...string) *member {
		t.Helper()
		dir := filepath.Join(s.Dir, name)
		cert, _, _ := strings.Cut(name, "-")
		config := filepath.Join(dir, "config.yaml")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(config, []byte(tls(cert)+strings.Join(more, "")), 0o600)); err != nil {
			t.Fatal(err)
		}
		m := &member{name, []string{"RDISTCC_DIR=" + dir, "XDG_STATE_HOME=" + dir, "XDG_CACHE_HOME=" + dir, "RDISTCC_CONFIG=" + config}}
		before := s.Vars
		s.Vars = append(append([]string(nil), before...), m.vars...)
		s.startManager()
		s.Vars = before
		p := s.Manager
		t.Cleanup(func() {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		})
		return m
	}
}

// says returns what a command of rdistcc prints for a member.
func (s *site) says(m *member, args ...string) string {
	s.Helper()
	cmd, _ := s.command(false, m.vars, append([]string{s.Wrapper}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("rdistcc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestGroup: what alice has had compiled, bob, with whom she shares, gets from the host's memory without any compile, with equal
// objects and messages, and is told who has made it. Carol, who is in no group, has it compiled.
func TestGroup(t *testing.T) {
	s, client := secured(t)
	alice := client("alice")
	s.write("h.h", "#pragma once\n#define A 1\n")
	s.write("twin/h.h", "#pragma once\n#define A 1\n")
	cmds := [][]string{{"gcc", "-O2", "-g", "-Wall", "-MD", "-fstack-usage", "-c", "a.c", "-o", "a.o"}, {"gcc", "-c", "b.c"}, {"gcc", "-g", "-c", "big.c"}}
	s.write("a.c", "#include <stdio.h>\n#include \"h.h\"\n#include \"twin/h.h\"\nint f(void) { int unused; puts(__FILE__); return A; }\n")
	s.write("b.c", "int b;\n")
	s.write("big.c", "int big[] = {"+strings.Repeat("1,", 100_000)+"};\n")
	for _, cmd := range cmds {
		s.compilesWith("remote", alice.vars, cmd...)
	}
	for why, want := range map[string]float64{"name": 0, "inputs": 0, "confinement": 0, "signature": 0} {
		if n := s.metric(s.Daemons[0], `rdistccd_results_unshared_total{why="`+why+`"}`); n != want {
			t.Errorf("%v results of %s are not shared: %s", n, alice.name, why)
		}
	}
	bob := client("bob") // who learns what there is as soon as he is connected
	for _, cmd := range cmds {
		s.compilesWith("cached:farm", bob.vars, cmd...)
	}
	if n := s.jobs(); n != 3 {
		t.Errorf("%v compiles, want 3", n)
	}
	if why := s.says(bob, "why", "a.c"); !strings.Contains(why, s.Daemons[0].Addr+" has compiled it ") || !strings.Contains(why, ", for alice\n") {
		t.Errorf("why says\n%s", why)
	}
	if status := s.says(bob, "status"); !strings.Contains(status, "results are shared with the clients of group team on "+s.Daemons[0].Addr+"\n") {
		t.Errorf("status says\n%s", status)
	}
	carol := client("carol")
	for _, cmd := range cmds {
		s.compilesWith("remote", carol.vars, cmd...)
	}
	if n := s.jobs(); n != 6 {
		t.Errorf("%v compiles, want 6", n)
	}
	if status := s.says(carol, "status"); strings.Contains(status, "group") {
		t.Errorf("status says\n%s", status)
	}
	// Bob's own go back to alice.
	s.write("h.h", "#pragma once\n#define A 2\n")
	s.write("twin/h.h", "#pragma once\n#define A 2\n")
	s.compilesWith("remote", bob.vars, cmds[0]...)
	s.wait("alice to know", func() bool {
		return s.run(append([]string{"RDISTCC_CACHE=read"}, alice.vars...), cmds[0]...).where == "cached:farm"
	})
}
