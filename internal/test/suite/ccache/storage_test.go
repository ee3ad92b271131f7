package ccache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/debsrc"
	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// storage is a user of ccache, with a farm of one daemon.
type storage struct {
	*testing.T
	*farm.Farm
	ctx    context.Context
	ccache string // a version with storage helpers
	bin    string // directory with the helper
	run    string // ccache's runtime directory
	work   string
	log    string // ccache's
}

// startStorage starts a farm for users of ccache. It skips the test where there is no ccache with storage helpers to be had.
func startStorage(t *testing.T) *storage {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs and fetches a ccache")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	a, err := debsrc.New(*sourcesDir)
	if err != nil {
		t.Fatal(err)
	}
	within, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	ccache, err := a.Program(within, "unstable", "ccache", "usr/bin/ccache")
	if err != nil {
		t.Skipf("no ccache with storage helpers: %v", err) // it is not among what a machine is said to have
	}
	f := farmtest.New(t, farmtest.Dir(t))
	s := &storage{t, f, ctx, ccache, filepath.Join(f.Dir, "bin"), runtimeDir(t), filepath.Join(f.Dir, "work"), filepath.Join(f.Dir, "ccache.log")}
	for _, dir := range []string{s.bin, s.work} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(f.Bin, "rdistcc-cm"), filepath.Join(s.bin, "ccache-storage-rdistcc")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.StartDaemon(ctx, "host", "--jobs", "2"); err != nil {
		t.Fatal(err)
	}
	s.startManager()
	t.Cleanup(func() { s.stopHelpers() })
	return s
}

// runtimeDir returns a directory whose path is short: ccache's sockets in it have names of 60 characters.
func runtimeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (s *storage) startManager() {
	s.Helper()
	if err := s.StartManager(s.ctx, "--hosts", s.Daemons[0].Addr); err != nil {
		s.Fatal(err)
	}
}

// env returns the environment of a ccache with that remote storage and an own directory.
func (s *storage) env(dir, remote string) []string {
	return append(s.Env(), "PATH="+s.bin+":"+os.Getenv("PATH"), "CCACHE_DIR="+filepath.Join(s.Dir, dir), "CCACHE_REMOTE_STORAGE="+remote,
		"CCACHE_LOGFILE="+s.log, "CCACHE_TEMPDIR="+s.run, "XDG_RUNTIME_DIR="+s.run, "CCACHE_CONFIGPATH=/dev/null", "CCACHE_NOCOMPRESS=1")
}

// compile compiles a file by ccache, and wants the same object as from the compiler alone. It returns what ccache has logged.
func (s *storage) compile(dir, remote, file string) (log string) {
	s.Helper()
	if err := os.Remove(s.log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Fatal(err)
	}
	objects := make(map[bool][]byte)
	for _, plain := range []bool{true, false} {
		args := []string{s.ccache, "gcc", "-O2", "-g", "-c", file, "-o", "out.o"}
		if plain {
			args = args[1:]
		}
		cmd := exec.CommandContext(s.ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env = s.work, s.env(dir, remote)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			b, _ := os.ReadFile(s.log)
			s.Fatalf("%q: %v\n%s\n%s", args, err, out, b)
		}
		b, err := os.ReadFile(filepath.Join(s.work, "out.o"))
		if err != nil {
			s.Fatal(err)
		}
		objects[plain] = b
	}
	if !bytes.Equal(objects[true], objects[false]) {
		s.Errorf("%s: another object than gcc makes", file)
	}
	b, err := os.ReadFile(s.log)
	if err != nil {
		s.Fatal(err)
	}
	return string(b)
}

// wants compiles, and wants something of ccache's log.
func (s *storage) wants(dir, remote, file string, want ...string) {
	s.Helper()
	log := s.compile(dir, remote, file)
	for _, w := range want {
		if !strings.Contains(log, w) {
			s.Errorf("%s with %s: no %q in\n%s", file, remote, w, log)
		}
	}
	if strings.Contains(log, "Failed to connect to spawned") {
		s.Errorf("ccache has waited in vain:\n%s", log)
	}
}

// stopHelpers ends all helpers by ccache's own command, and wants none to be left.
func (s *storage) stopHelpers() {
	s.Helper()
	for range 300 {
		pids := s.helpers()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			var url, name, value string                                    // which helper is meant
			b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ") // it may have ended
			for kv := range strings.SplitSeq(string(b), "\x00") {
				switch key, v, _ := strings.Cut(kv, "="); key {
				case "CRSH_URL":
					url = v
				case "CRSH_ATTR_KEY_0":
					name = v
				case "CRSH_ATTR_VALUE_0":
					value = v
				}
			}
			if name != "" {
				url += " @" + name + "=" + value
			}
			cmd := exec.Command(s.ccache, "--stop-storage-helpers")
			cmd.Env = s.env("stop", url)
			if out, err := cmd.CombinedOutput(); err != nil {
				s.Errorf("ccache --stop-storage-helpers: %v\n%s", err, out)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.Error("helpers do not end")
}

// helpers returns the helpers that serve below ccache's runtime directory.
func (s *storage) helpers() (pids []int) {
	s.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		s.Fatal(err)
	}
	for _, name := range all {
		if b, _ := os.ReadFile(name); bytes.Contains(b, []byte("CRSH_IPC_ENDPOINT="+s.run)) {
			pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
			if state, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); !bytes.Contains(state, []byte(") Z ")) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Words of ccache's log.
const (
	hit    = "Result: remote_storage_hit"
	miss   = "Result: remote_storage_miss"
	failed = "Result: remote_storage_error"
	stored = "Result: remote_storage_write"
)

// TestStorage: what one user of ccache has compiled, another one has by one line of settings: from the manager's directory on
// the same machine, from the memory of hosts on another one. Whatever is wrong costs hits, and neither a build nor a wait.
func TestStorage(t *testing.T) {
	part.Skip(t)
	s := startStorage(t)
	s.write("a.h", "#define A 1\n")
	var files []string
	for i := range 3 {
		name := fmt.Sprintf("f%d.c", i)
		s.write(name, fmt.Sprintf("#include \"a.h\"\nint big%d[] = {%s};\nint f(int x) { return A + x + %d; }\n", i, strings.Repeat("7,", 1+i*50_000), i))
		files = append(files, name)
	}
	for _, f := range files {
		s.wants("one", "rdistcc:", f, miss, stored)
	}
	if n := len(s.helpers()); n != 1 {
		t.Errorf("%d helpers, want one for all", n)
	}
	for _, f := range files {
		s.wants("two", "rdistcc:", f, hit, "Result: direct_cache_hit")
	}

	// Another machine has neither ccache's directory nor the manager's.
	s.onHosts(2 * len(files))
	s.anotherMachine()
	for _, f := range files {
		s.wants("three", "rdistcc:", f, hit, "Result: direct_cache_hit")
	}

	// A manifest that ccache replaces is replaced on hosts, too.
	s.write("a.h", "#define A 2\n")
	s.wants("three", "rdistcc:", files[0], miss, stored)
	s.onHosts(2*len(files) + 2)
	s.anotherMachine()
	s.wants("four", "rdistcc:", files[0], hit, "Result: direct_cache_hit")

	// Trouble.
	s.write("a.h", "#define A 1\n")
	if err := exec.Command("kill", "-9", strconv.Itoa(s.helpers()[0])).Run(); err != nil {
		t.Fatal(err)
	}
	s.wants("five", "rdistcc:", files[1], hit)
	s.wants("five", "rdistcc: @colour=blue", files[2], failed, "there is no attribute @colour=blue")
	s.wants("six", "rdistcc://host/x", files[2], failed, "its URL is neither rdistcc: nor rdistcc:/PATH")
	s.wants("seven", "rdistcc:"+filepath.Join(s.Dir, "none.sock"), files[2], failed, "no connection manager serves "+s.Dir)
	s.wants("seven", "rdistcc:"+filepath.Join(s.Dir, "cm.sock"), files[1], hit)
	if err := s.Manager.Stop(); err != nil {
		t.Fatal(err)
	}
	s.wants("eight", "rdistcc: @start=no", files[2], failed, "no connection manager serves")
	s.startManager()
	s.wants("nine", "rdistcc:", files[1], hit)

	missing := exec.CommandContext(s.ctx, s.ccache, "gcc", "-c", files[0])
	missing.Dir = s.work
	missing.Env = append(s.env("ten", "rdistcc:"), "PATH="+os.Getenv("PATH"))
	if out, err := missing.CombinedOutput(); err == nil || !strings.Contains(string(out), "unknown remote storage scheme: rdistcc") {
		t.Errorf("docs/cache.md says that ccache fails where the helper is missing: %v, %s", err, out)
	}
}

// TestStorageStarts: where no manager runs, the helper starts one, which ends by itself.
func TestStorageStarts(t *testing.T) {
	part.Skip(t)
	s := startStorage(t)
	if err := s.Manager.Stop(); err != nil {
		t.Fatal(err)
	}
	s.write("a.c", "int a;\n")
	s.wants("one", "rdistcc:", "a.c", miss, stored)
	s.wants("two", "rdistcc:", "a.c", hit)
	stop := exec.CommandContext(s.ctx, s.Wrapper, "stop")
	stop.Env = s.Env()
	if out, err := stop.CombinedOutput(); err != nil {
		t.Errorf("rdistcc stop: %v, %s", err, out)
	}
}

func (s *storage) write(name, text string) {
	s.Helper()
	name = filepath.Join(s.work, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	old := time.Now().Add(-time.Hour) // ccache trusts no file that is younger than its own run
	if err := os.Chtimes(name, old, old); err != nil {
		s.Fatal(err)
	}
}

// onHosts waits until hosts have kept so many values.
func (s *storage) onHosts(n int) {
	s.Helper()
	for range 1000 {
		kept, err := s.Daemons[0].Metric(s.ctx, `rdistccd_copies_total{result="kept"}`)
		if err != nil {
			s.Fatal(err)
		}
		if int(kept) >= n {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.Fatalf("hosts have not kept %d values", n)
}

// anotherMachine replaces the manager by one that has nothing.
func (s *storage) anotherMachine() {
	s.Helper()
	if err := s.Manager.Stop(); err != nil {
		s.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(s.Dir, "rdistcc", "results")); err != nil {
		s.Fatal(err)
	}
	s.startManager()
}
