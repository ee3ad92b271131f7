// Package clusters tests, with real programs and compilers, daemons that hand their jobs to a cluster. The cluster is the strict
// server of kit/reapiserver, which runs actions with their inputs as the root directory.
package clusters

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/debsrc"
	"github.com/rdistcc/rdistcc/internal/test/kit/engine"
	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/internal/test/kit/reapiserver"
)

// site is a farm whose only host is a cluster, and a directory in which commands run.
type site struct {
	*testing.T
	*farm.Farm
	ctx    context.Context
	server *reapiserver.Server // nil: the cluster is not ours
	addr   string              // of the cluster
	host   farm.Process
	work   string
	vars   []string // of commands
}

// prepare returns a farm without processes, and a server for it.
func prepare(t *testing.T, o reapiserver.Options) *site {
	t.Helper()
	s := prepareAny(t)
	if err := reapiserver.Possible(t.TempDir()); err != nil {
		need.Skipf(t, need.Sandbox, "%v", err)
	}
	if o.Execute == nil {
		o.Execute = &reapiserver.Execution{}
	}
	s.server = reapiserver.Start(t, o)
	s.addr = s.server.Addr
	return s
}

// prepareOther returns a farm without processes, and a cluster for it that is not ours. It skips the test where there is none to be had.
func prepareOther(t *testing.T) *site {
	t.Helper()
	s := prepareAny(t)
	a, err := debsrc.New("")
	if err != nil {
		t.Fatal(err)
	}
	within, done := context.WithTimeout(s.ctx, 3*time.Minute)
	defer done()
	e, err := engine.Start(within, a, filepath.Join(s.Dir, "engine"), 4)
	if err != nil {
		if errors.Is(err, engine.ErrMissing) {
			t.Skip(err) // it is not among what a machine is said to have
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.addr = e.Addr
	return s
}

// prepareAny returns a farm without processes.
func prepareAny(t *testing.T) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs and starts a farm")
	}
	part.Skip(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	f := farmtest.New(t, farmtest.Dir(t))
	s := &site{T: t, Farm: f, ctx: ctx, work: filepath.Join(f.Dir, "work"), vars: []string{"RDISTCC_CACHE=off"}}
	if err := errors.Join(os.Mkdir(s.work, 0o777), f.Secure(ctx, farm.Security{})); err != nil {
		t.Fatal(err)
	}
	return s
}

// start starts a daemon with flags, and a manager that has it as its host.
func (s *site) start(flags ...string) {
	s.Helper()
	var err error
	if s.host, err = s.StartDaemon(s.ctx, "cluster", append([]string{"--executor", "grpc://" + s.addr, "--jobs", "4"}, flags...)...); err != nil {
		s.Fatal(err)
	}
	if err := s.StartManager(s.ctx, "--hosts", s.host.Addr); err != nil {
		s.Fatal(err)
	}
}

// ran is what a command did.
type ran struct {
	where       string // its line in RDISTCC_REPORT
	out, errors string // what it printed
	status      int
}

// run runs a command in the working directory, with rdistcc unless it is to be plain.
func (s *site) run(plain bool, args ...string) ran {
	s.Helper()
	report := filepath.Join(s.TempDir(), "report")
	cmd := exec.CommandContext(s.ctx, s.Wrapper, args...)
	if plain {
		cmd = exec.CommandContext(s.ctx, args[0], args[1:]...)
	}
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.work, &out, &errs
	cmd.Env = append(append(s.Env(), "PWD="+s.work, "RDISTCC_REPORT="+report), s.vars...)
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		s.Fatal(err)
	}
	where, _ := os.ReadFile(report) // a subcommand writes none
	return ran{strings.TrimSpace(string(where)), out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// both runs a command on the cluster and plainly, in the same directory, and fails the test unless it ran where, and both have the
// same files, messages and status.
func (s *site) both(where string, args ...string) {
	s.Helper()
	before := s.files()
	got := s.run(false, args...)
	files := s.files()
	s.restore(before)
	want := s.run(true, args...)
	if !strings.HasPrefix(got.where, where) {
		s.Errorf("%s: ran %q, not %q: %s%s", strings.Join(args, " "), got.where, where, got.errors, s.log())
	}
	if got.status != want.status || got.out != want.out || got.errors != want.errors {
		s.Errorf("%s: status %d, %s%s; plainly %d, %s%s", strings.Join(args, " "), got.status, got.out, got.errors, want.status, want.out, want.errors)
	}
	plain := s.files()
	for name, b := range plain {
		if files[name] != b {
			s.Errorf("%s: %s differs from that of the plain command (%d and %d bytes)", strings.Join(args, " "), name, len(files[name]), len(b))
		}
	}
	for name := range files {
		if _, ok := plain[name]; !ok {
			s.Errorf("%s: %s is there, and plainly it is not", strings.Join(args, " "), name)
		}
	}
	s.restore(before)
}

// files returns the files of the working directory, by name.
func (s *site) files() map[string]string {
	s.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(s.work, func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		all[name[len(s.work)+1:]] = string(b)
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return all
}

// restore removes the files that were not there before.
func (s *site) restore(before map[string]string) {
	s.Helper()
	for name := range s.files() {
		if _, ok := before[name]; !ok {
			if err := os.Remove(filepath.Join(s.work, name)); err != nil {
				s.Fatal(err)
			}
		}
	}
}

// write writes a file in the working directory.
func (s *site) write(name, text string) {
	s.Helper()
	name = filepath.Join(s.work, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, []byte(text), 0o666)); err != nil {
		s.Fatal(err)
	}
}

// log returns the end of the manager's log.
func (s *site) log() string {
	b, _ := os.ReadFile(s.Manager.Log) // a test that has failed already
	return string(b[max(0, len(b)-2000):])
}

// cluster is a part of the daemon's status.
type cluster struct {
	Sent   uint64 `json:"sent_bytes"`
	Ran    uint64 `json:"ran"`
	Cached uint64 `json:"cached"`
	Failed uint64 `json:"failed"`
}

// status returns what the daemon says of its cluster.
func (s *site) status() cluster {
	s.Helper()
	b, err := s.host.Get(s.ctx, "/status.json")
	if err != nil {
		s.Fatal(err)
	}
	var st struct {
		Cluster cluster `json:"cluster"`
	}
	if err := json.Unmarshal(b, &st); err != nil {
		s.Fatal(err)
	}
	return st.Cluster
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

// interrupted starts a command with rdistcc, and kills it once begun is true. ended is closed when it has ended.
func (s *site) interrupted(begun func() bool, args ...string) (ended chan struct{}) {
	s.Helper()
	cmd := exec.CommandContext(s.ctx, s.Wrapper, args...)
	cmd.Dir, cmd.Env = s.work, append(append(s.Env(), "PWD="+s.work, "RDISTCC_MODE=remote"), s.vars...)
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Minute); !begun(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatal("the command does not get to the cluster")
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		s.Fatal(err)
	}
	ended = make(chan struct{})
	go func() {
		_ = cmd.Wait() // it was killed
		close(ended)
	}()
	return ended
}
