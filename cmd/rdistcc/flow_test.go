package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// rdistcc is the program under test, built once, with no manager beside it.
var rdistcc string

// TestMain is also where the manager begins that a test has rdistcc start, and a program that says how it was called.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "rdistcc-cm" {
		os.Exit(managerMain())
	}
	if os.Getenv(sayVar) != "" {
		say()
		os.Exit(0)
	}
	dir, err := farmtest.Build(context.Background(), nil, "rdistcc")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	rdistcc = filepath.Join(dir, "rdistcc")
	os.Exit(m.Run())
}

// bench is a directory to compile in, and the environment.
type bench struct {
	t   *testing.T
	dir string
	env []string
}

// turn skips a test that runs commands if the run is a short one, and another day is its turn.
func turn(t *testing.T) {
	t.Helper()
	if testing.Short() {
		part.Skip(t)
	}
}

// newBench has no manager, and none can be started.
func newBench(t *testing.T, env ...string) *bench {
	t.Helper()
	turn(t)
	b := &bench{t: t, dir: t.TempDir()}
	b.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "LC_ALL=C", "PWD=" + b.dir,
		"RDISTCC_DIR=" + filepath.Join(b.dir, "state"), "RDISTCC_REPORT=" + b.path("report"),
	}, env...)
	return b
}

// with serves the bench by m.
func (m *testManager) bench(env ...string) *bench {
	m.t.Helper()
	return newBench(m.t, append([]string{"RDISTCC_DIR=" + m.dir}, env...)...)
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(b.path(name), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(b.path(name))
	if err != nil {
		b.t.Error(err)
	}
	return string(text)
}

func (b *bench) cmd(argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = b.dir, b.env
	return cmd
}

// outcome is what the user sees of a command.
type outcome struct {
	code           int
	stdout, stderr string
}

func (b *bench) run(argv ...string) outcome {
	b.t.Helper()
	return b.finish(b.cmd(argv...))
}

func (b *bench) finish(cmd *exec.Cmd) outcome {
	b.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		b.t.Fatal(err)
	}
	return outcome{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// wants checks an outcome; stderr is to hold the given text, or be empty.
func (b *bench) wants(o outcome, code int, stderr string) {
	b.t.Helper()
	if o.code != code || stderr == "" && o.stderr != "" || !strings.Contains(o.stderr, stderr) {
		b.t.Errorf("exit %d, stderr %q; want %d and %q", o.code, o.stderr, code, stderr)
	}
}

// reported checks the lines of RDISTCC_REPORT.
func (b *bench) reported(lines ...string) {
	b.t.Helper()
	if got, want := b.read("report"), strings.Join(lines, "\n")+"\n"; got != want {
		b.t.Errorf("report is %q, want %q", got, want)
	}
}

const hello = "#include <stdio.h>\n#define N 3\nint main(void) { for (int i = 0; i < N; i++) puts(\"hello\"); return 0; }\n"

func TestRemoteObjectIsTheLocalOne(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.write("hello.c", hello)
	for _, c := range []struct{ words, out string }{
		{"gcc -O2 -c hello.c -o remote.o", "remote.o"},
		{"gcc -O2 -c hello.c", "hello.o"},
		{"gcc -S -O1 hello.c", "hello.s"},
		{"gcc -O2 -Wall -Wextra -DX=1 -I. -MMD -c hello.c -o d.o", "d.o"},
		{"-O2 -c hello.c -o implicit.o", "implicit.o"},
	} {
		words := strings.Fields(c.words)
		b.wants(b.run(append([]string{rdistcc}, words...)...), 0, "")
		remote := b.read(c.out)
		if words[0] != "gcc" {
			words = append([]string{"cc"}, words...)
		}
		if o := b.run(words...); o.code != 0 {
			t.Fatal(o.stderr)
		}
		if b.read(c.out) != remote {
			t.Errorf("%s: not the local object", c.words)
		}
	}
	b.reported("remote:farm:7632", "remote:farm:7632", "remote:farm:7632", "remote:farm:7632", "remote:farm:7632")
	if d := b.read("d.d"); !strings.HasPrefix(d, "d.o: hello.c") {
		t.Errorf("dependencies: %q", d)
	}
	m.wait()
	if len(m.finishes) != 5 || m.lost != 0 || m.finishes[0].Where != ipc.WhereRemote || !m.finishes[0].Closed || m.finishes[0].TotalUS == 0 {
		t.Errorf("finishes %+v, %d lost", m.finishes, m.lost)
	}
	l := m.leases[0]
	if l.Compiler != "/usr/bin/gcc" && !strings.HasSuffix(l.Compiler, "/gcc") || l.Source != "hello.c" || l.Output != "remote.o" || l.Cwd != b.dir {
		t.Errorf("lease %+v", l)
	}
	if body := m.bodies[0]; body.Argv0 != "gcc" || body.Name != "hello.c" || body.Cwd != b.dir || strings.Join(body.Env, " ") != "LC_ALL=C" {
		t.Errorf("body %+v", body)
	}
}

// TestDirect: with a recipe the wrapper starts cc1 itself, and what comes of it is
// the same.
func TestDirect(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed")
	}
	m.driver = gcc
	b.write("hello world.c", hello)
	b.write("gcc", "#!/bin/sh\necho \"$@\" >>"+b.path("log")+"\nexec "+gcc+" \"$@\"\n")
	if err := os.Chmod(b.path("gcc"), 0o755); err != nil {
		t.Fatal(err)
	}
	words := []string{"./gcc", "-O2", "-Wall", "-DY", "-MMD", "-MT", "a b.o", "-c", "hello world.c", "-o", "x.o"}
	b.wants(b.run(append([]string{rdistcc}, words...)...), 0, "")
	object, deps := b.read("x.o"), b.read("x.d")
	for _, line := range strings.Split(b.read("log"), "\n") {
		if strings.Contains(line, "-E") && !strings.Contains(line, "-###") {
			t.Errorf("the driver ran: %s", line)
		}
	}
	if o := b.run(words...); o.code != 0 {
		t.Fatal(o.stderr)
	}
	if b.read("x.o") != object || b.read("x.d") != deps || deps == "" {
		t.Errorf("not the local files; dependencies %q, want %q", deps, b.read("x.d"))
	}
	b.reported("remote:farm:7632")
}

func TestMasquerade(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.write("hello.c", hello)
	links := b.path("links")
	if err := os.Mkdir(links, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(rdistcc, filepath.Join(links, "gcc")); err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "PATH="+links+":"+os.Getenv("PATH"))
	b.wants(b.run("sh", "-c", "gcc -c hello.c"), 0, "")
	b.wants(b.run(filepath.Join(links, "gcc"), "-c", "hello.c"), 0, "")
	b.wants(b.run(rdistcc, "gcc", "-c", "hello.c"), 0, "") // finds the real one, not the link
	b.reported("remote:farm:7632", "remote:farm:7632", "remote:farm:7632")
	if o := b.run("sh", "-c", "gcc --version"); o.code != 0 || !strings.HasPrefix(o.stdout, "gcc ") {
		t.Errorf("%+v", o)
	}
	b.env = append(b.env, "PATH="+links)
	o := b.run(filepath.Join(links, "gcc"), "-c", "hello.c")
	b.wants(o, 127, "rdistcc: gcc: no such compiler")
}

// TestLinkNamedInFull: a build system that found the link for the compiler, and
// puts rdistcc before it as well.
func TestLinkNamedInFull(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.write("hello.c", hello)
	if err := os.Symlink(rdistcc, b.path("gcc")); err != nil {
		t.Fatal(err)
	}
	b.wants(b.run(rdistcc, b.path("gcc"), "-c", "hello.c"), 0, "")
	b.reported("remote:farm:7632")
}

func TestNoPath(t *testing.T) {
	b := newBench(t)
	b.write("hello.c", hello)
	if _, err := os.Stat("/usr/bin/gcc"); err != nil {
		t.Skip("gcc is not where a shell without PATH looks")
	}
	b.wants(b.run("env", "-u", "PATH", rdistcc, "gcc", "--version"), 0, "")
}

// TestSourceThatCanBeReadOnce: were it preprocessed here, a second compile of it
// would find nothing and make an empty object.
func TestSourceThatCanBeReadOnce(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.wants(b.run("bash", "-c", rdistcc+` gcc -O2 -Wall -x c -c <(echo '#warning once'; echo 'int x;') -o x.o`), 0, "warning")
	if o := b.run("nm", "x.o"); !strings.Contains(o.stdout, " x\n") {
		t.Errorf("symbols: %q", o.stdout)
	}
	b.reported("local:stdin")
}

func TestDirectoryIsGone(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.write("hello.c", hello)
	b.wants(b.run("sh", "-c", "mkdir gone && cd gone && rmdir ../gone && exec "+rdistcc+" gcc -c "+b.path("hello.c")+" -o "+b.path("x.o")), 0, "")
	b.read("x.o")
	b.reported("local:not-reproducible:directory")
}

func TestLoopEnds(t *testing.T) {
	b := newBench(t)
	for _, d := range []string{"x", "y"} {
		if err := os.Mkdir(b.path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\nexec " + rdistcc + " loopcc \"$@\"\n"
	if err := os.WriteFile(b.path("x/loopcc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "PATH="+b.path("x"))
	b.wants(b.run(rdistcc, "loopcc", "-c", "a.c"), 111, "calls rdistcc again")

	// A script around another compiler is no loop, however it calls that one.
	script = "#!/bin/sh\nexec " + rdistcc + " gcc \"$@\"\n"
	if err := os.WriteFile(b.path("y/mycc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("hello.c", hello)
	b.env = append(b.env, "PATH="+b.path("y")+":"+os.Getenv("PATH"))
	b.wants(b.run(rdistcc, "mycc", "-c", "hello.c"), 0, "")
	b.read("hello.o")
}

func TestExitCodes(t *testing.T) {
	b := newBench(t)
	if err := os.WriteFile(b.path("plain"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{"seven": "#!/bin/sh\nexit 7\n", "suicide": "#!/bin/sh\nkill -9 $$\n", "noshebang": "exit 9\n",
		"args": "#!/bin/sh\nprintf '<%s>' \"$@\"\n"} {
		if err := os.WriteFile(b.path(name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		argv []string
		code int
		say  string
	}{
		{[]string{"./seven"}, 7, ""},
		{[]string{"./suicide"}, 137, ""},
		{[]string{"./noshebang"}, 9, ""},
		{[]string{"./missing"}, 127, "rdistcc: ./missing: no such compiler"},
		{[]string{"no-such-compiler", "-c", "x.c"}, 127, "rdistcc: no-such-compiler: no such compiler"},
		{[]string{"./plain"}, 126, "rdistcc: ./plain: not executable"},
		{[]string{"/"}, 126, "not executable"},
	} {
		b.wants(b.run(append([]string{rdistcc}, c.argv...)...), c.code, c.say)
	}
	if o := b.run(rdistcc, "./args", "a b", "", "*", "\xff"); o.stdout != "<a b><><*><\xff>" {
		t.Errorf("arguments became %q", o.stdout)
	}
	if o := b.run(rdistcc); o.code != 101 || !strings.Contains(o.stderr, "usage") {
		t.Errorf("no arguments: %+v", o)
	}
	for _, word := range []string{"--help", "help", "-h", "-help"} {
		if o := b.run(rdistcc, word); o.code != 0 || !strings.Contains(o.stdout, "rdistcc COMPILER") {
			t.Errorf("%s: %+v", word, o)
		}
	}
	// A plain build knows no version, and has no rdistcc-cm beside it to ask here.
	if o := b.run("env", "-u", "PATH", rdistcc, "--version"); o.code != 0 || o.stdout != "rdistcc devel\n" {
		t.Errorf("--version: %+v", o)
	}
	script := filepath.Join(b.dir, "rdistcc-cm")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if o := b.run("env", "PATH="+b.dir, rdistcc, "--version"); o.code != 0 || o.stdout != "ctl --version\n" {
		t.Errorf("--version beside rdistcc-cm: %+v", o)
	}
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "RDISTCC_VERBOSE=x")
	b.wants(b.run(rdistcc, "./seven"), 7, "RDISTCC_VERBOSE=x is not a number; ignored")
}

// TestMovedResult: the answer of a second host is in a sink of its own.
func TestMovedResult(t *testing.T) {
	m := newTestManager(t)
	m.moves = true
	b := m.bench()
	b.env = append(b.env, "RDISTCC_BUILD=nightly")
	b.write("hello.c", hello)
	b.wants(b.run("gcc", "-c", "hello.c", "-o", "want.o"), 0, "")
	b.wants(b.run(rdistcc, "gcc", "-c", "hello.c"), 0, "")
	if b.read("hello.o") != b.read("want.o") {
		t.Error("the object is another one")
	}
	m.wait()
	if len(m.leases) != 1 || m.leases[0].Build != "nightly" {
		t.Errorf("leases %+v, want one of build nightly", m.leases)
	}
}

func TestLocalByRule(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.write("hello.c", hello)
	b.write("conftest.c", hello)
	b.wants(b.run("gcc", "-c", "hello.c"), 0, "")
	for _, words := range []string{"gcc -E hello.c", "gcc -M hello.c", "gcc --version", "gcc hello.o -o hello", "gcc -c conftest.c",
		"gcc -fno-such-file -c hello.c"} {
		plain := b.run(strings.Fields(words)...)
		if got := b.run(append([]string{rdistcc}, strings.Fields(words)...)...); got != plain {
			t.Errorf("%s: %+v, want %+v", words, got, plain)
		}
	}
	b.reported("local:preprocess", "local:dependencies-only", "local:query", "local:link", "local:probe", "local:unknown-option:-fno-such-file")
	b.env = append(b.env, "RDISTCC_MODE=local")
	b.wants(b.run(rdistcc, "gcc", "-c", "hello.c"), 0, "")
	m.wait()
	if len(m.leases) != 0 || len(m.locals) != 7 || m.locals[0].Turn != ipc.TurnCPP || m.locals[2].Turn != ipc.TurnNone || m.locals[3].Reason != "link" || m.locals[3].Output != "hello" {
		t.Errorf("%d leases, locals %+v", len(m.leases), m.locals)
	}
	if len(m.finishes) != 7 || m.finishes[5].Exit != 1 || m.finishes[5].Where != ipc.WhereLocal {
		t.Errorf("finishes %+v", m.finishes)
	}
}

// TestDiagnostics: whatever a compiler has to say, the user reads once what the
// local one says.
func TestDiagnostics(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.write("warn.c", "#define F(x) x\nint f(void) { int a; return F(a); }\n")
	b.write("bad.c", "int main(void) { return undeclared; }\n")
	b.write("missing.c", "#include \"nowhere.h\"\n")
	b.write("cppwarn.c", "#warning look\nint x;\n")
	for _, words := range []string{"gcc -O2 -Wall -c warn.c", "gcc -c bad.c", "gcc -c missing.c", "gcc -c cppwarn.c", "gcc -c absent.c"} {
		plain := b.run(strings.Fields(words)...)
		if plain.stderr == "" {
			t.Fatalf("%s says nothing here", words)
		}
		if got := b.run(append([]string{rdistcc}, strings.Fields(words)...)...); got != plain {
			t.Errorf("%s: %+v\nwant %+v", words, got, plain)
		}
	}
	b.reported("local:diagnostics", "local:diagnostics", "local:diagnostics", "local:diagnostics", "local:diagnostics")
	b.env = append(b.env, "RDISTCC_SKIP_LOCAL_RETRY=1")
	o := b.run(rdistcc, "gcc", "-c", "bad.c")
	b.wants(o, 1, "undeclared")
	m.wait()
	if len(m.submits) != 3 {
		t.Errorf("%d jobs were sent, want 3: a failed preprocessor sends nothing", len(m.submits))
	}
	for _, l := range m.locals {
		if !l.Closed {
			t.Errorf("slot not given back: %+v", l)
		}
	}
}

func TestTooBig(t *testing.T) {
	m := newTestManager(t)
	m.slotSize = 64 << 10
	b := m.bench()
	b.write("big.c", strings.Repeat("int f(int);\n", 10000)+hello)
	b.write("raw.i", strings.Repeat("int f(int);\n", 10000))
	for _, words := range []string{"gcc -c big.c", "gcc -c raw.i"} {
		b.wants(b.run(append([]string{rdistcc}, strings.Fields(words)...)...), 0, "")
	}
	b.read("big.o")
	b.reported("local:too-big", "local:too-big")
}

func TestOutputThatCannotBePlaced(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.write("hello.c", hello)
	words := strings.Fields("gcc -c hello.c -o no/such/dir/x.o")
	plain := b.run(words...)
	if got := b.run(append([]string{rdistcc}, words...)...); got != plain {
		t.Errorf("%+v\nwant %+v", got, plain)
	}
	b.reported("local:diagnostics")
}

func TestTroubleIsOneLine(t *testing.T) {
	turn(t)
	lost := &ipc.GoLocal{Reason: "host-lost", Trouble: true, Code: reason.ExitConnect, Detail: "build7 lost (connection reset)", Host: "build7"}
	none := &ipc.GoLocal{Reason: "no-hosts", Code: reason.ExitNoHosts, Detail: "no hosts are configured"}
	rule := &ipc.GoLocal{Reason: "local-share", NoFallback: true}
	strict := *lost
	strict.NoFallback = true
	for _, c := range []struct {
		name         string
		lease, later *ipc.GoLocal
		env          string
		code         int
		stderr       string
		report       string
	}{
		{"lost", nil, lost, "", 0, "rdistcc: build7 lost (connection reset); compiled here\n", "local:host-lost"},
		{"quiet", nil, lost, "RDISTCC_VERBOSE=0", 0, "", "local:host-lost"},
		{"forbidden", nil, lost, "RDISTCC_FALLBACK=0", 103, "rdistcc: build7 lost (connection reset); not compiled here", "local:host-lost"},
		{"remote mode", nil, lost, "RDISTCC_MODE=remote", 103, "not compiled here (RDISTCC_MODE=remote)", "local:host-lost"},
		{"distcc's word", nil, lost, "DISTCC_FALLBACK=0", 103, "not compiled here (DISTCC_FALLBACK=0)", "local:host-lost"},
		{"no hosts", none, nil, "", 0, "", "local:no-hosts"},
		{"no hosts, forbidden", none, nil, "RDISTCC_FALLBACK=0", 116, "rdistcc: no hosts are configured; not compiled here", "local:no-hosts"},
		{"by rule", rule, nil, "RDISTCC_FALLBACK=0", 0, "", "local:local-share"},
		{"settings forbid", nil, &strict, "", 103, "not compiled here (fallback.allow is off", "local:host-lost"},
		{"overridden", nil, &strict, "RDISTCC_FALLBACK=1", 0, "; compiled here\n", "local:host-lost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newTestManager(t)
			forbidden := strings.HasSuffix(c.env, "FALLBACK=0") || c.env == "RDISTCC_MODE=remote"
			m.onLease = func(f *ipc.Lease) *ipc.GoLocal {
				if forbidden != (f.Fallback == ipc.FallbackForbidden) {
					t.Errorf("the manager was told %d of fallback", f.Fallback)
				}
				return c.lease
			}
			m.onSubmit = func(*ipc.Submit) (*ipc.Result, *ipc.GoLocal) { return nil, c.later }
			b := m.bench()
			if c.env != "" {
				b.env = append(b.env, c.env)
			}
			b.write("hello.c", hello)
			b.wants(b.run(rdistcc, "gcc", "-c", "hello.c"), c.code, c.stderr)
			b.reported(c.report)
			_, err := os.Stat(b.path("hello.o"))
			if made := err == nil; made != (c.code == 0) {
				t.Errorf("object: %v", err)
			}
		})
	}
}

// TestResultThatCannotBe: success without the object, or with unrequested files, is not success; the old
// object must not pass for the new one.
func TestResultThatCannotBe(t *testing.T) {
	turn(t)
	object := ipc.File{Segment: ipc.Segment{Len: 16}}
	for name, r := range map[string]*ipc.Result{
		"no file":          {Host: "liar"},
		"an empty object":  {Host: "liar", Files: []ipc.File{{}}},
		"a file twice":     {Host: "liar", Files: []ipc.File{object, object}},
		"a further file":   {Host: "liar", Files: []ipc.File{object, {Index: 1}}},
		"past the sink":    {Host: "liar", Files: []ipc.File{{Segment: ipc.Segment{Off: 60 << 20, Len: 16 << 20}}}},
		"offset too large": {Host: "liar", Files: []ipc.File{{Segment: ipc.Segment{Off: 1<<64 - 8, Len: 16}}}},
		"length too large": {Host: "liar", Files: []ipc.File{{Segment: ipc.Segment{Len: 1 << 63}}}},
		"signal":           {Host: "liar", Signal: 11},
	} {
		t.Run(name, func(t *testing.T) {
			m := newTestManager(t)
			m.onSubmit = func(*ipc.Submit) (*ipc.Result, *ipc.GoLocal) { return r, nil }
			b := m.bench()
			b.write("hello.c", hello)
			b.wants(b.run("gcc", "-c", "hello.c"), 0, "")
			want := b.read("hello.o")
			b.write("hello.o", "old")
			o := b.run(rdistcc, "gcc", "-c", "hello.c")
			if got := b.read("hello.o"); o.code != 0 || got != want {
				t.Errorf("exit %d, an object of %d bytes, want %d", o.code, len(got), len(want))
			}
		})
	}
}

func TestManagerDies(t *testing.T) {
	m := newTestManager(t)
	m.die = 3
	b := m.bench()
	b.write("hello.c", hello)
	b.wants(b.run(rdistcc, "gcc", "-c", "hello.c"), 0, "rdistcc: connection manager closed the connection; compiled here")
	b.read("hello.o")
	b.reported("local:manager")
	// The one after has the job.
	b.wants(b.run(rdistcc, "gcc", "-c", "hello.c"), 0, "")
	b.read("hello.o")
	b.reported("local:manager", "remote:farm:7632")
	if m.wait(); len(m.leases) != 4 || m.die != 0 {
		t.Errorf("%d leases, and %d more ends of the manager, want 4 and 0", len(m.leases), m.die)
	}
}

func TestNoManager(t *testing.T) {
	b := newBench(t)
	b.write("hello.c", hello)
	// Beside the program there is no rdistcc-cm, and none on this PATH.
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "PATH="+filepath.Dir(gcc)+":/bin")
	b.wants(b.run(rdistcc, gcc, "-c", "hello.c"), 0, "rdistcc-cm is neither beside rdistcc nor on PATH; compiled here")
	b.reported("local:manager")
	b.env = append(b.env, "RDISTCC_FALLBACK=0")
	b.wants(b.run(rdistcc, gcc, "-c", "hello.c"), 103, "not compiled here")
	// What runs here by rule starts none and needs none.
	b.wants(b.run(rdistcc, gcc, "hello.o", "-o", "hello"), 0, "")
}

func TestStrangersDirectory(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.write("hello.c", hello)
	if err := os.Chmod(m.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	b.wants(b.run(rdistcc, "gcc", "-c", "hello.c"), 0, "other users can write to it (chmod go-w)")
	b.reported("local:manager")
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chmod(m.dir, 0o755), os.Chown(m.dir, 12345, -1)); err != nil {
			t.Fatal(err)
		}
		b.wants(b.run(rdistcc, "gcc", "-c", "hello.c"), 0, "it belongs to another user")
	}
	m.wait()
	if len(m.leases) != 0 {
		t.Error("a manager that is not to be trusted was asked")
	}
}

// TestClosedDescriptors: a build may run without standard input and output; no
// file of ours takes their place.
func TestClosedDescriptors(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.write("hello.c", hello)
	for _, closed := range []string{"<&-", ">&-", "<&- >&- 2>&-"} {
		b.wants(b.run("sh", "-c", rdistcc+" gcc -c hello.c -o x.o "+closed), 0, "")
		remote := b.read("x.o")
		b.wants(b.run("sh", "-c", "gcc -c hello.c -o x.o"), 0, "")
		if b.read("x.o") != remote {
			t.Errorf("%s: another object", closed)
		}
	}
	b.reported("remote:farm:7632", "remote:farm:7632", "remote:farm:7632")
}
