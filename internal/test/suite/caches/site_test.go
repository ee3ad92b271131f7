// Package caches tests the cache of results with real programs: what comes from it, what does not, and what happens when
// something is wrong with it.
package caches

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// site is a farm of one daemon with a manager, and a directory in which commands run.
type site struct {
	*testing.T
	*farm.Farm
	ctx     context.Context
	work    string
	results string // directory of the manager's tier
	hosts   string // of the manager; "": the first daemon
}

// start starts a farm. settings are added to the manager's.
func start(t *testing.T, settings string) *site {
	t.Helper()
	return startWith(t, settings, "")
}

// startWith starts a farm. settings are added to the manager's, and daemon to the daemon's.
func startWith(t *testing.T, settings, daemon string) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs and starts a farm")
	}
	part.Skip(t)
	if _, err := exec.LookPath("gcc"); err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	t.Cleanup(cancel)
	f := farmtest.New(t, farmtest.Dir(t))
	s := &site{t, f, ctx, filepath.Join(f.Dir, "work"), filepath.Join(f.Dir, "rdistcc", "results"), ""}
	if err := os.Mkdir(s.work, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := f.Secure(ctx, farm.Security{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(settings, "farm:") { // otherwise what is no longer here would be found there, and what tests count would depend on what builds are
		switch before, after, ok := strings.Cut(settings, "cache: {"); {
		case ok:
			settings = before + "cache: {farm: false, ahead: 0, " + after
		case strings.Contains(settings, "cache:\n"):
			settings = strings.Replace(settings, "cache:\n", "cache:\n  farm: false\n  ahead: 0\n", 1)
		default:
			settings += "cache: {farm: false}\n"
		}
	}
	s.set("farm.yaml", settings)
	s.set("daemon.yaml", daemon)
	f.Vars = []string{"RDISTCC_CACHE=on", "RDISTCC_MODE=remote", "LC_ALL=C"}
	if _, err := f.StartDaemon(ctx, "host", "--jobs", "2"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(daemon, "tree: off") && s.metric(s.Daemons[0], "rdistccd_tree") == 0 { // what is known decides only where a host has trees
		need.Skipf(t, need.Sandbox, "no private trees here")
	}
	s.startManager()
	return s
}

// set adds settings to a file of the farm's. The section that they begin with replaces the farm's own.
func (s *site) set(file, settings string) {
	s.Helper()
	name := filepath.Join(s.Farm.Dir, file)
	text, err := os.ReadFile(name)
	if err != nil {
		s.Fatal(err)
	}
	if section, _, _ := strings.Cut(settings, ":"); section != "" {
		lines := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(l string) bool { return strings.HasPrefix(l, section+":") })
		if err := os.WriteFile(name, []byte(strings.Join(lines, "")+settings), 0o600); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *site) startManager() {
	s.Helper()
	hosts := s.hosts
	if hosts == "" {
		hosts = s.Daemons[0].Addr
	}
	if err := s.StartManager(s.ctx, "--hosts", hosts); err != nil {
		s.Fatal(err)
	}
}

// again ends the manager and starts another one.
func (s *site) again() {
	s.Helper()
	if err := s.Manager.Stop(); err != nil {
		s.Fatal(err)
	}
	s.startManager()
}

// write writes a file in the working directory.
func (s *site) write(name, text string) {
	s.Helper()
	name = filepath.Join(s.work, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(text), 0o666)); err != nil {
		s.Fatal(err)
	}
}

// ran is what a command did.
type ran struct {
	where  string // its line in RDISTCC_REPORT
	out    string // what it printed
	status int
}

// command prepares a command with rdistcc in front, or without. vars are added to its environment.
func (s *site) command(wrapped bool, vars []string, args ...string) (cmd *exec.Cmd, report string) {
	s.Helper()
	if wrapped {
		args = append([]string{s.Wrapper}, args...)
	}
	cmd = exec.CommandContext(s.ctx, args[0], args[1:]...)
	report = filepath.Join(s.TempDir(), "report")
	cmd.Dir, cmd.Env = s.work, append(append(s.Env(), "PWD="+s.work, "RDISTCC_REPORT="+report), vars...)
	return cmd, report
}

// run runs a command with rdistcc.
func (s *site) run(vars []string, args ...string) ran {
	s.Helper()
	cmd, report := s.command(true, vars, args...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		s.Fatal(err)
	}
	where, err := os.ReadFile(report)
	if err != nil {
		s.Fatal(err)
	}
	return ran{strings.TrimSpace(string(where)), string(out), cmd.ProcessState.ExitCode()}
}

// compiles runs a compile with rdistcc, and fails the test unless it came from where, the part in front of a colon or
// all of it, and all files that it wrote and its words are those of the plain command.
func (s *site) compiles(where string, args ...string) {
	s.Helper()
	s.compilesWith(where, nil, args...)
}

func (s *site) compilesWith(where string, vars []string, args ...string) {
	s.Helper()
	got := s.run(vars, args...)
	if got.status != 0 || got.where != where && !strings.HasPrefix(got.where, where+":") {
		s.Errorf("%s: exit %d, %s, want %s\n%s", strings.Join(args, " "), got.status, got.where, where, got.out)
	}
	with := s.written()
	cmd, _ := s.command(false, vars, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	if string(out) != got.out {
		s.Errorf("%s printed %q, without rdistcc %q", strings.Join(args, " "), got.out, out)
	}
	for name, b := range s.written() {
		if !bytes.Equal(with[name], b) {
			s.Errorf("%s, %s: %s differs from that of the plain command", strings.Join(args, " "), got.where, name)
		}
	}
}

// written returns the outputs in the working directory.
func (s *site) written() map[string][]byte {
	s.Helper()
	all := make(map[string][]byte)
	err := filepath.WalkDir(s.work, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch filepath.Ext(name) {
		case ".o", ".d", ".su", ".s":
			all[name], err = os.ReadFile(name)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return all
}

// kept returns the files of the results that are kept.
func (s *site) kept() (names []string) { return s.files("") }

// manifests returns the files of the manifests for the second step.
func (s *site) manifests() (names []string) { return s.files(".m") }

// files returns the files that are kept and whose names have the extension ext.
func (s *site) files(ext string) (names []string) {
	s.Helper()
	_ = filepath.WalkDir(s.results, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), ".") && filepath.Ext(name) == ext {
			names = append(names, name)
		}
		return nil
	})
	return names
}

// wait waits until ok returns true.
func (s *site) wait(what string, ok func() bool) {
	s.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Fatalf("waited in vain for %s", what)
}

// settle waits until n results are kept.
func (s *site) settle(n int) {
	s.Helper()
	s.wait(strconv.Itoa(n)+" results", func() bool { return len(s.kept()) == n })
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

// jobs returns how many compiles the daemon has done.
func (s *site) jobs() float64 { return s.metric(s.Daemons[0], "rdistccd_jobs_total{") }

// log returns the manager's log.
func (s *site) log() string {
	s.Helper()
	b, err := os.ReadFile(s.Manager.Log)
	if err != nil {
		s.Fatal(err)
	}
	return string(b)
}
