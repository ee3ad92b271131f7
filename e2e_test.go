package rdistcc

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// patience bounds what a script waits for; a script that waits as long fails.
const patience = 2 * time.Minute

// TestScripts runs testdata/script with the real programs. Beside testscript's own
// commands there are
//
//	daemon NAME [FLAG...]    starts rdistccd; $NAME is its address
//	cm [NAME...] [FLAG...]   starts rdistcc-cm with these daemons as hosts
//	again NAME               starts a daemon that has ended once more, at its address
//	end NAME, crash NAME     SIGTERM and SIGKILL ("cm" is the manager)
//	waitlog NAME REGEXP      waits for a line in its log
//	waitproc [!] REGEXP      waits until a process with such a command line runs (or none)
//	proxy NAME DAEMON FAULT  a relay that misbehaves, see startProxy
//	status N PROGRAM ARG...  exec that must end with exit status N
//	twice FILE PROGRAM ARG...
//	                         runs a command through rdistcc and by itself: FILE,
//	                         status, stdout and stderr must be the same
//
// A script begins without daemon and manager, with RDISTCC_REPORT=$WORK/report.
// When it ends all programs must end well, and leave no process and no file.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs and starts farms")
	}
	for _, tool := range []string{"gcc", "g++"} {
		if _, err := exec.LookPath(tool); err != nil {
			need.Skipf(t, need.Tools, "no %s", tool)
		}
	}
	testscript.Run(t, todays(t, scripts(t.Context(), "testdata/script", farmtest.Programs(t))))
}

// todays has only those scripts run that are in the part.
func todays(t *testing.T, p testscript.Params) testscript.Params {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.Dir, "*.txt*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", p.Dir, err)
	}
	today := part.Of(t)
	p.Dir, p.Files = "", slices.DeleteFunc(files, func(name string) bool { return !today.Has(filepath.Base(name)) })
	return p
}

// scripts is how the scripts in dir run, with the programs in bin.
func scripts(ctx context.Context, dir, bin string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "trees": // hosts are sure to have private trees; and mounts can be made
				return privatetree.MayMount(), nil
			}
			return false, errors.New("unknown condition " + cond)
		},
		Setup: func(e *testscript.Env) error { return setup(ctx, e, bin) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": startDaemon, "again": startAgain, "cm": startManager, "end": end, "crash": crash,
			"waitlog": waitLog, "waitproc": waitProcess, "proxy": startProxy, "status": exitsWith, "twice": twice,
			"systemdir": systemDir,
		},
	}
}

// TestScriptsRunToTheirEnd: testscript's own stop ends a script as one that passed, and
// its own commands come before ours of the same name.
func TestScriptsRunToTheirEnd(t *testing.T) {
	own := []string{"cd", "chmod", "cmp", "cmpenv", "cp", "env", "exec", "exists", "grep", "kill", "mkdir", "mv", "rm", "skip",
		"stderr", "stdin", "stdout", "stop", "symlink", "ttyin", "ttyout", "unix2dos", "unquote", "wait"}
	for name := range scripts(t.Context(), "", "").Cmds {
		if slices.Contains(own, name) {
			t.Errorf("testscript has a command %s of its own: ours is never run", name)
		}
	}
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	stops := regexp.MustCompile(`(?m)^stop\b`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script, _, _ := strings.Cut(string(text), "\n-- ")
		if line := stops.FindString(script); line != "" {
			t.Errorf("%s: %q: what follows is never run", file, line)
		}
	}
}

// stage is a script's farm.
type stage struct {
	*farm.Farm
	ctx   context.Context
	names map[string]farm.Process // daemons, and "cm"

	proxies []*proxy
}

// stageKey finds a script's stage.
type stageKey struct{}

func setup(ctx context.Context, e *testscript.Env, bin string) error {
	f, err := farmtest.Lay(bin, e.WorkDir)
	if err != nil {
		return err
	}
	s := &stage{Farm: f, ctx: ctx, names: map[string]farm.Process{}}
	e.Values[stageKey{}] = s
	e.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	e.Setenv("HOME", e.WorkDir)
	e.Setenv("LC_ALL", "C")
	e.Setenv("RDISTCC_DIR", s.Dir)
	e.Setenv("XDG_CACHE_HOME", filepath.Join(e.WorkDir, "cache"))
	e.Setenv("RDISTCC_CACHE", "off") // equal commands compile each time
	e.Setenv("RDISTCC_REPORT", filepath.Join(e.WorkDir, "report"))
	e.Defer(func() {
		// First: one that is asked to stop must not meet a signal at its very end.
		stopErr := s.Stop()
		// A manager that a wrapper started is nobody's child.
		stopper := exec.Command(s.Wrapper, "stop")
		stopper.Env = s.Env()
		_ = stopper.Run() // there need not be one
		if stopErr != nil {
			e.T().Fatal(stopErr)
		}
		for _, p := range s.proxies {
			p.stop()
		}
		if left := leftovers(e.WorkDir); len(left) > 0 {
			e.T().Fatal("left behind: ", left)
		}
	})
	return nil
}

// leftovers waits until no process belongs to the script in dir and no file of a
// daemon lies in its tmp, and returns what stays.
func leftovers(dir string) (left []string) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		left = left[:0]
		procs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
		for _, proc := range procs {
			// Programs have the script's environment; compilers, which do not, work below its directory.
			env, _ := os.ReadFile(proc + "/environ") // gone, or another user's
			cwd, _ := os.Readlink(proc + "/cwd")
			if bytes.Contains(env, []byte("RDISTCC_DIR="+dir+"/state\x00")) || strings.HasPrefix(cwd+"/", dir+"/") {
				line, _ := os.ReadFile(proc + "/cmdline")
				left = append(left, strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		files, err := os.ReadDir(dir + "/tmp")
		if err != nil {
			return append(left, err.Error())
		}
		for _, f := range files {
			left = append(left, f.Name())
		}
		if len(left) == 0 {
			return nil
		}
	}
	return left
}

func of(ts *testscript.TestScript) *stage { return ts.Value(stageKey{}).(*stage) }

// process is the program that a script calls name.
func (s *stage) process(ts *testscript.TestScript, args []string) farm.Process {
	if len(args) < 1 {
		ts.Fatalf("which program?")
	}
	p, ok := s.names[args[0]]
	if !ok {
		ts.Fatalf("no program %q was started", args[0])
	}
	return p
}

func startDaemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: daemon NAME [FLAG...]")
	}
	s := of(ts)
	p, err := s.StartDaemon(s.ctx, args[0], args[1:]...)
	ts.Check(err)
	s.names[args[0]] = p
	ts.Setenv(args[0], p.Addr)
}

// systemDir makes a directory among those of the system's headers, and says where in SYSTEM.
func systemDir(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: systemdir")
	}
	dir, err := os.MkdirTemp("/usr/lib", "rdistcc-test-")
	ts.Check(err)
	ts.Defer(func() { _ = os.RemoveAll(dir) }) // the names of what is left show its owner
	ts.Check(os.Chmod(dir, 0o755))
	ts.Setenv("SYSTEM", dir)
}

func startAgain(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: again NAME")
	}
	s := of(ts)
	i := slices.IndexFunc(s.Daemons, func(p farm.Process) bool { return p.Name == args[0] })
	if i < 0 {
		ts.Fatalf("no daemon %q was started", args[0])
	}
	ts.Check(s.StartDaemonAgain(s.ctx, i))
	s.names[args[0]] = s.Daemons[i]
}

func startManager(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("unsupported: ! cm")
	}
	s := of(ts)
	var hosts []string
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		hosts = append(hosts, s.process(ts, args).Addr)
		args = args[1:]
	}
	if len(hosts) > 0 {
		args = append([]string{"--hosts", strings.Join(hosts, " ")}, args...)
	}
	ts.Check(s.StartManager(s.ctx, args...))
	s.names["cm"] = s.Manager
}

func end(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(of(ts).process(ts, args).Stop())
}

func crash(ts *testscript.TestScript, _ bool, args []string) {
	of(ts).process(ts, args).Kill()
}

func waitLog(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitlog NAME REGEXP")
	}
	p, re := of(ts).process(ts, args), regexp.MustCompile("(?m)"+args[1])
	wait(ts, "no line "+args[1]+" in "+p.Log, func() bool {
		log, err := os.ReadFile(p.Log)
		ts.Check(err)
		return re.Match(log)
	})
}

func waitProcess(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] waitproc REGEXP")
	}
	re := regexp.MustCompile(args[0])
	what := "no process " + args[0]
	if neg {
		what = "still a process " + args[0]
	}
	wait(ts, what, func() bool { return anyProcess(re) != neg })
}

// anyProcess looks for a command line with spaces between its words.
func anyProcess(re *regexp.Regexp) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, f := range files {
		line, err := os.ReadFile(f) // it may have ended meanwhile
		if err == nil && re.MatchString(strings.ReplaceAll(string(line), "\x00", " ")) {
			return true
		}
	}
	return false
}

// wait polls: neither logs nor strangers' processes can be waited for.
func wait(ts *testscript.TestScript, what string, ok func() bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if ok() {
			return
		}
	}
	ts.Fatalf("%s after %v", what, patience)
}

func exitsWith(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := exitStatus(ts, ts.Exec(args[1], args[2:]...)); got != want {
		ts.Fatalf("exit status %d, want %d; stderr: %s", got, want, ts.ReadFile("stderr"))
	}
}

func exitStatus(ts *testscript.TestScript, err error) int {
	exit := new(exec.ExitError)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	ts.Fatalf("%v", err)
	return -1
}

func twice(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: twice FILE PROGRAM [ARG...]")
	}
	type outcome struct {
		status               int
		stdout, stderr, file string
	}
	file := ts.MkAbs(args[0])
	run := func(argv ...string) (o outcome) {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			ts.Check(err)
		}
		o.status = exitStatus(ts, ts.Exec(argv[0], argv[1:]...))
		o.stdout, o.stderr = ts.ReadFile("stdout"), ts.ReadFile("stderr")
		b, err := os.ReadFile(file)
		if err != nil {
			b = []byte(err.Error()) // both ways the same
		}
		o.file = string(b)
		return o
	}
	want := run(args[1:]...)
	got := run(append([]string{"rdistcc"}, args[1:]...)...)
	if got.status != want.status || got.stdout != want.stdout || got.stderr != want.stderr {
		ts.Fatalf("%q: exit status %d, stdout %q, stderr %q\nwant %d, %q, %q", args[1:],
			got.status, got.stdout, got.stderr, want.status, want.stdout, want.stderr)
	}
	if got.file != want.file {
		ts.Fatalf("%q: %s is not what the compiler here makes (%d bytes, want %d)", args[1:], args[0], len(got.file), len(want.file))
	}
}
