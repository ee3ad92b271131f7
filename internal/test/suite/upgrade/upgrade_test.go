// Package upgrade tests, with real programs, farms whose programs are of different versions.
package upgrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// previous is a commit whose programs speak the version before this one's of the job protocol, and no other.
const previous = "4beace8ea53da646eaac832d81041f12c310ba3b"

// older returns the directory of the programs of that commit. The test is skipped where the commit is not at hand, as in a shallow clone.
func older(t *testing.T) string {
	t.Helper()
	part.Skip(t)
	if testing.Short() {
		t.Skip("builds the programs of an older commit")
	}
	dir, err := olderPrograms()
	switch {
	case err != nil:
		t.Fatal(err)
	case dir == "":
		t.Skipf("commit %.12s is not here: this is no clone of the repository, or a shallow one", previous)
	}
	return dir
}

var olderPrograms = sync.OnceValues(func() (string, error) {
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", nil
	}
	git := func(args ...string) *exec.Cmd {
		return exec.Command("git", append([]string{"-C", strings.TrimSpace(string(root))}, args...)...)
	}
	if git("cat-file", "-e", previous+"^{commit}").Run() != nil {
		return "", nil
	}
	dir, err := os.MkdirTemp("", "rdistcc-older-")
	if err != nil {
		return "", err
	}
	olderDir = dir
	source := filepath.Join(dir, "source")
	text, err := git("archive", previous).Output()
	if err != nil {
		return "", fmt.Errorf("git archive: %w", err)
	}
	unpack := exec.Command("tar", "-x", "-C", source)
	unpack.Stdin = bytes.NewReader(text)
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", dir+"/", "./cmd/rdistcc", "./cmd/rdistcc-cm", "./cmd/rdistccd")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(source, 0o755)); err != nil {
		return "", err
	}
	for _, cmd := range []*exec.Cmd{unpack, build} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
		}
	}
	return dir, nil
})

// olderDir is what olderPrograms has made.
var olderDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if olderDir != "" {
		os.RemoveAll(olderDir)
	}
	os.Exit(code)
}

// site is a farm, and a directory with sources.
type site struct {
	*testing.T
	*farm.Farm
	ctx  context.Context
	work string
	want [][]byte // objects of the local compiler, by source
}

const sources = 8

// start starts a farm of two hosts, the first one with the programs of bin[0], the second one of bin[1]; manager and wrapper are of bin[2].
func start(t *testing.T, bin ...string) *site {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	f := farmtest.New(t, farmtest.Dir(t))
	s := &site{T: t, Farm: f, ctx: ctx, work: filepath.Join(f.Dir, "work")}
	if err := os.Mkdir(s.work, 0o777); err != nil {
		t.Fatal(err)
	}
	s.fewCompilers()
	for i := range sources {
		name := fmt.Sprintf("%d.c", i)
		text := fmt.Sprintf("#include <stdio.h>\nint f%d(int x) { return printf(\"%%d\", x + %d); }\n", i, i)
		gcc := exec.CommandContext(ctx, "gcc", "-O2", "-g", "-c", name, "-o", "plain.o")
		gcc.Dir = s.work
		if err := os.WriteFile(filepath.Join(s.work, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := gcc.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		object, err := os.ReadFile(filepath.Join(s.work, "plain.o"))
		if err != nil {
			t.Fatal(err)
		}
		s.want = append(s.want, object)
	}
	var hosts []string
	for i, b := range bin[:2] {
		f.Bin = b
		d, err := f.StartDaemon(ctx, fmt.Sprint("host", i+1), "--jobs", "2")
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, d.Addr)
	}
	f.Bin, f.Wrapper = bin[2], filepath.Join(bin[2], "rdistcc")
	if err := f.StartManager(ctx, "--hosts", strings.Join(hosts, " ")); err != nil {
		t.Fatal(err)
	}
	return s
}

// fewCompilers has daemons look for gcc alone. Those of the older programs do not take our word for what this machine has.
func (s *site) fewCompilers() {
	s.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		s.Fatal(err)
	}
	dir := filepath.Join(s.Farm.Dir, "compilers")
	err = errors.Join(os.Mkdir(dir, 0o755), os.Symlink(gcc, filepath.Join(dir, "gcc")), s.Secure(s.ctx, farm.Security{}),
		s.AddSettings("daemon.yaml", "toolchains: {dirs: ["+dir+"]}\n"))
	if err != nil {
		s.Fatal(err)
	}
}

// compile compiles source i with a name of its own for the object, and returns where that was done. The object must be that of the local
// compiler. more is further words of the command.
func (s *site) compile(i int, object string, more ...string) (where string, err error) {
	report := filepath.Join(s.work, object+".report")
	defer os.Remove(report)
	cmd := exec.CommandContext(s.ctx, s.Wrapper, append([]string{"gcc", "-O2", "-g", "-c", fmt.Sprintf("%d.c", i), "-o", object}, more...)...)
	cmd.Dir, cmd.Env = s.work, append(s.Env(), "PWD="+s.work, "RDISTCC_REPORT="+report)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		return "", fmt.Errorf("%d.c: %w: %s", i, err, out)
	}
	got, err := os.ReadFile(filepath.Join(s.work, object))
	line, rerr := os.ReadFile(report)
	if err = errors.Join(err, rerr); err == nil && !bytes.Equal(got, s.want[i]) {
		err = fmt.Errorf("%d.c: another object", i)
	}
	return strings.TrimSpace(string(line)), err
}

// builds compiles all sources several times, some at a time, and fails the test unless both hosts did a part, and nobody else.
func (s *site) builds() {
	s.Helper()
	var mu sync.Mutex
	seen := map[string]int{} // guarded by mu
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range sources {
				where, err := s.compile(i, fmt.Sprintf("%d-%d.o", worker, i))
				if err != nil {
					s.Error(err)
				}
				mu.Lock()
				seen[where]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, d := range s.Daemons {
		if seen["remote:"+d.Addr] == 0 {
			s.Errorf("%s has done nothing: %v", d.Addr, seen)
		}
		delete(seen, "remote:"+d.Addr)
	}
	if len(seen) > 0 {
		s.Errorf("not on hosts: %v", seen)
	}
}

// TestMixedFarm: programs of this version of the job protocol and of the one before work together, whichever side is ahead.
func TestMixedFarm(t *testing.T) {
	old, now := older(t), farmtest.Programs(t)
	for name, manager := range map[string]string{"manager ahead": now, "manager behind": old} {
		t.Run(name, func(t *testing.T) { start(t, old, now, manager).builds() })
	}
}

// TestSpecFilesOnOlderHosts: hosts of a version that knows nothing of spec files compile what names them.
func TestSpecFilesOnOlderHosts(t *testing.T) {
	old, now := older(t), farmtest.Programs(t)
	s := start(t, old, old, now)
	if err := os.WriteFile(filepath.Join(s.work, "x.specs"), []byte("*cc1_options:\n+ -fPIE -fno-common\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range sources {
		gcc := exec.CommandContext(s.ctx, "gcc", "-O2", "-g", "-c", fmt.Sprintf("%d.c", i), "-o", "plain.o", "-specs=x.specs")
		gcc.Dir = s.work
		if out, err := gcc.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		object, err := os.ReadFile(filepath.Join(s.work, "plain.o"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(object, s.want[i]) {
			t.Fatal("the spec file makes no difference")
		}
		s.want[i] = object
		if where, err := s.compile(i, fmt.Sprintf("%d.o", i), "-specs=x.specs"); err != nil || !strings.HasPrefix(where, "remote:") {
			t.Errorf("ran %s: %v", where, err)
		}
	}
}

// TestUpgradeUnderABuild: a farm is upgraded host by host, and downgraded again, and a build that goes on meanwhile does not notice.
func TestUpgradeUnderABuild(t *testing.T) {
	old, now := older(t), farmtest.Programs(t)
	s := start(t, old, old, now)
	s.builds()
	ctx, stop := context.WithCancel(s.ctx)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var places []string // guarded by mu
	for worker := range 3 {
		wg.Go(func() {
			for i := worker; ctx.Err() == nil; i = (i + 1) % sources {
				where, err := s.compile(i, fmt.Sprintf("w%d.o", worker))
				if err != nil {
					s.Error(err)
				}
				mu.Lock()
				places = append(places, where)
				mu.Unlock()
			}
		})
	}
	again := func(host int) { // until the host has jobs again
		mu.Lock()
		from := len(places)
		mu.Unlock()
		for !t.Failed() && s.ctx.Err() == nil {
			mu.Lock()
			back := slices.Contains(places[from:], "remote:"+s.Daemons[host].Addr)
			mu.Unlock()
			if back {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	for _, bin := range []string{now, old} {
		for host := range s.Daemons {
			s.Bin = bin
			if err := errors.Join(s.Daemons[host].Stop(), s.StartDaemonAgain(s.ctx, host)); err != nil {
				t.Error(err)
			}
			again(host)
		}
	}
	stop()
	wg.Wait()
	for _, where := range places {
		if !strings.HasPrefix(where, "remote:") {
			t.Errorf("not on a host: %s", where)
		}
	}
	t.Logf("%d compiles", len(places))
}
