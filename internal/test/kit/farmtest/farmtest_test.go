package farmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/toolchain"
)

// recorder records what a test would come to.
type recorder struct {
	testing.TB
	cleanups []func()
	failed   bool
	said     strings.Builder
}

func (r *recorder) Helper()                         {}
func (r *recorder) Cleanup(f func())                { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool                    { return r.failed }
func (r *recorder) Logf(format string, args ...any) { fmt.Fprintf(&r.said, format+"\n", args...) }
func (r *recorder) Error(args ...any) {
	r.failed = true
	fmt.Fprintln(&r.said, args...)
}

func (r *recorder) end() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

// TestFarm: a farm ends with its test, which fails with a process's log when that has
// ended badly, and says nothing otherwise.
func TestFarm(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs and starts farms")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %v", killed), func(t *testing.T) {
			r := &recorder{TB: t}
			dir := Dir(r)
			settings := filepath.Join(dir, "quick.yaml") // one compiler is identified sooner than all
			err := errors.Join(os.WriteFile(settings, []byte("toolchains: {dirs: ["+dir+"]}\n"), 0o600), os.Symlink(gcc, filepath.Join(dir, "gcc")))
			if err != nil {
				t.Fatal(err)
			}
			f := New(r, dir)
			d, err := f.StartDaemon(t.Context(), "rdistccd-1", "--jobs", "1", "--config", settings)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.StartManager(t.Context(), "--hosts", d.Addr); err != nil {
				t.Fatal(err)
			}
			if killed {
				if err := d.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			r.end()
			said := r.said.String()
			if r.failed != killed || killed && (!strings.Contains(said, "did not end well") || !strings.Contains(said, "rdistccd-1.log ends with:\n")) {
				t.Errorf("failed %v: %q", r.failed, said)
			}
			if d.Running() || f.Manager.Running() {
				t.Error("a process runs on")
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the directory is there: %v", err)
			}
		})
	}
}

// TestPrograms: they are built once, each directory of cmd is one of them, and each runs.
func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	bin := Programs(t)
	if again := Programs(t); again != bin {
		t.Errorf("in %s, and then in %s", bin, again)
	}
	names, err := os.ReadDir("../../../../cmd")
	if err != nil || len(names) < 3 {
		t.Fatalf("%d directories: %v", len(names), err)
	}
	for _, name := range names {
		if out, err := exec.Command(filepath.Join(bin, name.Name()), "--help").CombinedOutput(); err != nil {
			t.Errorf("%s --help: %v: %s", name.Name(), err, out)
		}
	}
}

// TestOnceFor: of several at a time one makes a directory, and the others find it. What could not be made is tried again.
func TestOnceFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made")
	failed := errors.New("no room")
	made := func(err error) func(string) error {
		return func(part string) error {
			return errors.Join(os.Mkdir(part, 0o700), os.WriteFile(filepath.Join(part, "x"), nil, 0o600), err)
		}
	}
	if err := onceFor(path, made(failed)); !errors.Is(err, failed) {
		t.Fatalf("one that fails: %v", err)
	}
	var calls atomic.Int32
	var all errgroup.Group
	for range 8 {
		all.Go(func() error {
			err := onceFor(path, func(part string) error { calls.Add(1); return made(nil)(part) })
			_, there := os.Stat(filepath.Join(path, "x"))
			return errors.Join(err, there)
		})
	}
	if err := all.Wait(); err != nil || calls.Load() != 1 {
		t.Errorf("made %d times: %v", calls.Load(), err)
	}
}

// TestKnow: a farm's daemon is told of all compilers, and has none left to identify when it answers. So is a copy of the
// program.
func TestKnow(t *testing.T) {
	if testing.Short() {
		t.Skip("identifies all compilers")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	for _, copied := range []bool{false, true} {
		t.Run(fmt.Sprintf("copied %v", copied), func(t *testing.T) {
			f := New(t, Dir(t))
			if copied {
				bin := t.TempDir()
				program := filepath.Join(bin, "rdistccd")
				if out, err := exec.Command("cp", filepath.Join(f.Bin, "rdistccd"), program).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				if err := Know(program, f.Dir); err != nil {
					t.Fatal(err)
				}
				f.Bin = bin
			}
			known := filepath.Join(f.Dir, compilersName)
			before, err := os.Stat(known)
			if err != nil {
				t.Fatal(err)
			}
			d, err := f.StartDaemon(t.Context(), "rdistccd-1")
			if err != nil {
				t.Fatal(err)
			}
			for left := 1.0; left > 0; time.Sleep(10 * time.Millisecond) {
				if left, err = d.Metric(t.Context(), "rdistccd_identifying"); err != nil {
					t.Fatal(err)
				}
			}
			if n, err := d.Metric(t.Context(), "rdistccd_toolchains "); err != nil || n == 0 {
				t.Errorf("%v compilers: %v", n, err)
			}
			if after, err := os.Stat(known); err != nil || !os.SameFile(before, after) { // it is replaced when one more is known
				t.Errorf("the daemon has identified compilers itself: %v", err)
			}
		})
	}
}

// TestKnowSums: a manager is told the digests of the compilers' files, and still asks the compilers.
func TestKnowSums(t *testing.T) {
	if testing.Short() {
		t.Skip("identifies all compilers")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := knowSums(self, dir); err != nil {
		t.Fatal(err)
	}
	read := func() (known struct{ Entries, Sums []any }) {
		text, err := os.ReadFile(filepath.Join(dir, managerCompilersName))
		if err := errors.Join(err, json.Unmarshal(text, &known)); err != nil {
			t.Fatal(err)
		}
		return known
	}
	before := read()
	if len(before.Entries) > 0 || len(before.Sums) == 0 {
		t.Errorf("%d compilers and %d digests are known", len(before.Entries), len(before.Sums))
	}
	cache := toolchain.Cache{Home: dir, File: filepath.Join(dir, managerCompilersName)}
	if _, err := cache.Identify(t.Context(), gcc); err != nil {
		t.Fatal(err)
	}
	cache.Close()
	if after := read(); len(after.Entries) != 1 || len(after.Sums) != len(before.Sums) {
		t.Errorf("%d compilers and %d digests, of %d, are known after one was asked", len(after.Entries), len(after.Sums), len(before.Sums))
	}
}

// TestRemoveAfter: a directory is removed with all in it, but not before the process ends
// that it was for.
func TestRemoveAfter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b")
	if err := os.MkdirAll(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	descriptor, err := removeAfter(dir)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // what is not to happen has time to
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("removed too early: %v", err)
	}
	if err := unix.Close(descriptor); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, err := os.Stat(dir); err == nil; _, err = os.Stat(dir) {
		if ctx.Err() != nil {
			t.Fatal("it is still there")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestShownOfLogs: of many processes what is well is not shown, and no more than fits.
func TestShownOfLogs(t *testing.T) {
	for _, c := range []struct {
		name      string
		processes int
		info      bool
	}{{"few", 2, true}, {"many", 40, false}} {
		dir := t.TempDir()
		text := "level=WARN msg=first\n" + strings.Repeat("time=1 level=WARN msg=trouble\n", 1000) + "time=1 level=INFO msg=well\n"
		for i := range c.processes {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("p%d.log", i)), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := &recorder{TB: t}
		showLogs(r, dir)
		said := r.said.String()
		if strings.Contains(said, "msg=well") != c.info || !strings.Contains(said, "msg=trouble") || strings.Contains(said, "msg=first") || len(said) > mostOfAll+1000 {
			t.Errorf("%s: %d bytes: %.300q", c.name, len(said), said)
		}
	}
}
