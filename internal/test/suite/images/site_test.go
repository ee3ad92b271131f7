// Package images tests, with real programs, compiles that use precompiled headers: hosts make these themselves, and every file
// and every message is that of the plain command.
package images

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// site is a farm with one host, and a directory in which commands run.
type site struct {
	testing.TB
	*farm.Farm
	ctx  context.Context
	work string
}

// start starts a farm.
func start(t testing.TB) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs and starts a farm")
	}
	part.Skip(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	f := farmtest.New(t, farmtest.Dir(t))
	s := &site{t, f, ctx, filepath.Join(f.Dir, "work")}
	if err := os.Mkdir(s.work, 0o777); err != nil {
		t.Fatal(err)
	}
	f.Vars = []string{"LC_ALL=C"}
	d, err := s.StartDaemon(s.ctx, "host", "--jobs", "2")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.StartManager(s.ctx, "--hosts", d.Addr); err != nil {
		t.Fatal(err)
	}
	return s
}

// ran is what a command did.
type ran struct {
	where  string // its line in RDISTCC_REPORT
	out    string // what it printed
	status int
}

// command runs a command in dir.
func (s *site) command(dir string, args ...string) ran {
	s.Helper()
	cmd := exec.CommandContext(s.ctx, args[0], args[1:]...)
	report := filepath.Join(s.TempDir(), "report")
	cmd.Dir, cmd.Env = dir, append(s.Env(), "PWD="+dir, "RDISTCC_REPORT="+report)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		s.Fatal(err)
	}
	where, _ := os.ReadFile(report) // the compiler itself writes none
	return ran{strings.TrimSpace(string(where)), string(out), cmd.ProcessState.ExitCode()}
}

// sh runs a script in dir, in which $RD is rdistcc.
func (s *site) sh(dir, script string) {
	s.Helper()
	cmd := exec.CommandContext(s.ctx, "sh", "-ec", script)
	cmd.Dir, cmd.Env = dir, append(s.Env(), "PWD="+dir, "RD="+s.Wrapper)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%s: %v: %s", script, err, out)
	}
}

// outputs reads what compiles write in dir, and removes it.
func (s *site) outputs(dir string) map[string]string {
	s.Helper()
	all := make(map[string]string)
	for _, pattern := range []string{"*.o", "*.d"} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern)) // no bad pattern
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err := errors.Join(err, os.Remove(name)); err != nil {
				s.Fatal(err)
			}
			all[filepath.Base(name)] = string(b)
		}
	}
	return all
}

// objects returns the object files of a build below the working directory.
func (s *site) objects() map[string]string {
	s.Helper()
	all := map[string]string{}
	err := filepath.Walk(filepath.Join(s.work, "build"), func(name string, info os.FileInfo, err error) error {
		if err == nil && strings.HasSuffix(name, ".o") && !strings.Contains(name, "CompilerId") {
			var b []byte
			b, err = os.ReadFile(name)
			all[name] = string(b)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return all
}

// use runs a compile with rdistcc and without, and fails the test unless it runs where it should, "remote:" or a reason, and
// both do the same.
func (s *site) use(what, dir, want string, args ...string) {
	s.Helper()
	var got ran
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got = s.command(dir, append([]string{s.Wrapper}, args...)...)
		// The host may not be there yet.
		if strings.HasPrefix(got.where, want) || got.where != "local:no-hosts" && got.where != "local:local-share" || time.Now().After(end) {
			break
		}
	}
	files := s.outputs(dir)
	plain := s.command(dir, args...)
	wanted := s.outputs(dir)
	if !strings.HasPrefix(got.where, want) {
		s.Errorf("%s: %s ran %q, want %q", what, strings.Join(args, " "), got.where, want)
	}
	if got.status != plain.status || got.out != plain.out {
		s.Errorf("%s: %s: status %d and %q, want %d and %q", what, strings.Join(args, " "), got.status, got.out, plain.status, plain.out)
	}
	if !maps.Equal(files, wanted) {
		s.Errorf("%s: %s: files %v differ from those of the plain command, %v", what, strings.Join(args, " "), slices.Sorted(maps.Keys(files)), slices.Sorted(maps.Keys(wanted)))
	}
}

// write writes a file below the working directory.
func (s *site) write(name, text string) {
	s.Helper()
	name = filepath.Join(s.work, name)
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, []byte(text)) {
		return
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(text), 0o666)); err != nil {
		s.Fatal(err)
	}
}

// metric returns one of the daemon's.
func (s *site) metric(prefix string) float64 {
	s.Helper()
	v, err := s.Daemons[0].Metric(s.ctx, prefix)
	if err != nil {
		s.Fatal(err)
	}
	return v
}
