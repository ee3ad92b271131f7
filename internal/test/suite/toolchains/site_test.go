// Package toolchains tests, with real programs, hosts that are given compilers which they do not have.
package toolchains

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// site is a farm whose daemons have no compiler, and a directory in which commands run.
type site struct {
	*testing.T
	*farm.Farm
	ctx   context.Context
	work  string
	more  string // at the end of program's main.c
	farms bool   // linked has hosts compile the modules
}

// bare are the settings of a daemon without compilers.
const bare = "toolchains: {dirs: [/nowhere]}\n"

// prepare returns a farm without processes, whose daemons have these settings.
func prepare(t *testing.T, daemon string) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs and starts a farm")
	}
	part.Skip(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	f := farmtest.New(t, farmtest.Dir(t))
	s := &site{T: t, Farm: f, ctx: ctx, work: filepath.Join(f.Dir, "work")}
	if err := errors.Join(os.Mkdir(s.work, 0o777), f.Secure(ctx, farm.Security{}), f.AddSettings("daemon.yaml", daemon)); err != nil {
		t.Fatal(err)
	}
	f.Vars = []string{"LC_ALL=C"}
	return s
}

// start starts a daemon, and a manager that has it as its host.
func (s *site) start() {
	s.Helper()
	d, err := s.StartDaemon(s.ctx, "host", "--jobs", "2")
	if err != nil {
		s.Fatal(err)
	}
	if err := s.StartManager(s.ctx, "--hosts", d.Addr); err != nil {
		s.Fatal(err)
	}
}

// ran is what a command did.
type ran struct {
	where  string // its line in RDISTCC_REPORT
	out    string // what it printed
	status int
}

// run runs a command with rdistcc.
func (s *site) run(args ...string) ran {
	s.Helper()
	cmd := exec.CommandContext(s.ctx, s.Wrapper, args...)
	report := filepath.Join(s.TempDir(), "report")
	cmd.Dir, cmd.Env = s.work, append(s.Env(), "PWD="+s.work, "RDISTCC_REPORT="+report)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		s.Fatal(err)
	}
	where, _ := os.ReadFile(report) // a subcommand writes none
	return ran{strings.TrimSpace(string(where)), string(out), cmd.ProcessState.ExitCode()}
}

// remote runs a command that writes x.o until a host does it, and fails the test unless the object is that of the plain command.
func (s *site) remote(args ...string) {
	s.Helper()
	var got ran
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if got = s.run(args...); strings.HasPrefix(got.where, "remote:") || time.Now().After(end) || got.status != 0 {
			break
		}
	}
	if got.status != 0 || !strings.HasPrefix(got.where, "remote:") {
		s.Errorf("%s: exit %d, %s: %s%s", strings.Join(args, " "), got.status, got.where, got.out, s.log())
		return
	}
	s.equal(args...)
}

// equal fails the test unless x.o is that of the plain command.
func (s *site) equal(args ...string) {
	s.Helper()
	name := filepath.Join(s.work, "x.o")
	b, err := os.ReadFile(name)
	if err != nil {
		s.Error(err)
		return
	}
	cmd := exec.CommandContext(s.ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = s.work, append(s.Env(), "PWD="+s.work)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	if want, err := os.ReadFile(name); err != nil || !bytes.Equal(b, want) {
		s.Errorf("%s: the object differs from that of the plain command, %v", strings.Join(args, " "), err)
	}
}

// write writes a file in the working directory.
func (s *site) write(name, text string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.work, name), []byte(text), 0o666); err != nil {
		s.Fatal(err)
	}
}

// metric is farm.Process.Metric.
func (s *site) metric(p farm.Process, prefix string) float64 {
	s.Helper()
	sum, err := p.Metric(s.ctx, prefix)
	if err != nil {
		s.Fatal(err)
	}
	return sum
}

// log returns the end of the manager's log.
func (s *site) log() string {
	b, _ := os.ReadFile(s.Manager.Log) // a test that has failed already
	return string(b[max(0, len(b)-2000):])
}

// compilers returns those of a list that are installed.
func compilers(t *testing.T, names ...string) (list []string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Logf("%s is not installed (on Debian: make deps)", name)
			continue
		}
		list = append(list, name)
	}
	if len(list) == 0 {
		need.Skipf(t, need.Tools, "no compiler")
	}
	return list
}

const (
	cSource   = "#include <stdio.h>\n#include <math.h>\n#define twice(x) ((x) * 2)\nint main(int argc, char **argv) { printf(\"%d %s %f\\n\", twice(argc), argv[0], sin(argc)); return 0; }\n"
	cxxSource = "#include <vector>\n#include <string>\nint f(const std::vector<std::string> &v) { int n = 0; for (auto &s : v) n += s.size(); return n; }\n"
)
