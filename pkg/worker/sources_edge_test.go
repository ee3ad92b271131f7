package worker

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestPWDThroughALink: the compile directory in the debug information is the
// client's name of it.
func TestPWDThroughALink(t *testing.T) {
	ts, c := startTrees(t, nil, "clang")
	for _, cc := range []string{"gcc", "clang"} {
		p := newProject(t, cc, map[string]string{"real/deep/a.c": "int a;\n", "real/h.h": "\n"})
		link := p.root + "/link"
		if err := os.Symlink(p.root+"/real", link); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{p.root + "/real/deep", link + "/deep"} {
			p.dir, p.env = dir, []string{"PWD=" + dir}
			p.change = func(b *job.Body) {
				b.Links = []unit.Link{{Name: link, Target: p.root + "/real"}}
			}
			got := p.compare(c, ts.tool(cc), []string{"-c", "-g", "a.c", "-include", "../h.h"})
			if text := got.files[p.root+"/real/deep/a.o"]; !strings.Contains(text, dir) {
				t.Errorf("%s in %s: the object does not name it", cc, dir)
			}
		}
	}
}

// TestSameFile: two names of one file are one file, so that #pragma once holds.
func TestSameFile(t *testing.T) {
	ts, c := startTrees(t, nil)
	p := newProject(t, "gcc", map[string]string{"a.c": "#include \"x/h.h\"\n#include \"y/h.h\"\n", "x/h.h": "#pragma once\nint h = 1;\n", "y/other": ""})
	if err := os.Link(p.root+"/x/h.h", p.root+"/y/h.h"); err != nil {
		t.Fatal(err)
	}
	p.prepare([]string{"-c", "a.c"}, []string{"y/h.h"})
	same := 0
	for _, f := range p.body.Files {
		if f.Same != 0 {
			same++
		}
	}
	if same != 1 {
		t.Fatalf("the files are %+v", p.body.Files)
	}
	p.same(p.there(c, ts.tool("gcc")), p.here(p.body.Args))
}

// TestWhatIsNotBrought: a tree has only the toolchain and the job's own files, and the next job sees nothing
// of them.
func TestWhatIsNotBrought(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Jobs = 1 })
	host := filepath.Join(t.TempDir(), "host.h")
	if err := os.WriteFile(host, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := newProject(t, "gcc", map[string]string{"a.c": "#if __has_include(\"brought.h\")\n#warning yes\n#else\n#warning no\n#endif\n#if __has_include(\"" + host + "\")\n#error the host\n#endif\n", "brought.h": "\n"})
	for i := range 4 {
		p.names = []string{"a.c", "brought.h"}[:1+i%2]
		p.prepare([]string{"-c", "a.c"}, nil)
		got := p.there(c, ts.tool("gcc"))
		if want := []string{"#warning no", "#warning yes"}[i%2]; got.exit != 0 || !strings.Contains(got.stderr, want) {
			t.Errorf("time %d: status %d, %q", i+1, got.exit, got.stderr)
		}
	}
	// A header that was forgotten is an error like any other.
	p.write("b.c", "#include \"brought.h\"\n")
	p.names = []string{"b.c"}
	p.prepare([]string{"-c", "b.c"}, nil)
	if got := p.there(c, ts.tool("gcc")); got.exit != 1 || !strings.Contains(got.stderr, "brought.h: No such file") || len(got.files) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestUndeclaredFile: a file that the job did not declare makes the result void, wherever it is.
func TestUndeclaredFile(t *testing.T) {
	ts, c := startTrees(t, nil)
	for script, want := range map[string]string{
		"echo x >$out; echo y >extra":                      "/src/extra",
		"echo x >extra; exit 1":                            "/src/extra",
		"echo x >$out; echo y >/src/.hidden; echo z >more": "/src/.hidden and 1 more",
		"echo x >$out; echo y >/usr/include/extra.h":       "/usr/include/extra.h",
	} {
		id := ts.fake("gcc-13", script+"\n")
		r := c.do(id, request{body: treeBody("gcc-13")})
		if r.Status != job.StatusFailed || r.Cause != job.CauseUndeclared || r.Detail != want {
			t.Errorf("%s: %+v", script, r.Result)
		}
	}
	id := ts.fake("gcc-13", "echo x >/tmp/left; echo y >$out\n")
	if r := c.do(id, request{body: treeBody("gcc-13")}); r.Status != job.StatusRan || len(r.Files) != 1 {
		t.Errorf("a temporary file: %+v", r.Result)
	}
	// A declared file that is not there is the compiler's business.
	id = ts.fake("gcc-13", "exit 0\n")
	if r := c.do(id, request{body: treeBody("gcc-13")}); r.Status != job.StatusRan || len(r.Files) != 0 {
		t.Errorf("no output: %+v", r.Result)
	}
	// Nor does a link lead out; and no such thing is this host's fault.
	for what, change := range map[string]func(*job.Body){
		"a link":                  func(b *job.Body) { b.Links = []unit.Link{{Name: "/src/x.o", Target: "/etc/passwd"}} },
		"a directory":             func(b *job.Body) { b.Dirs = []string{"/src/x.o"} },
		"a file of the toolchain": func(b *job.Body) { b.Args[len(b.Args)-1], b.Outputs[0].Name = "/dev/null", "/dev/null" },
	} {
		b := treeBody("gcc-13")
		change(&b)
		if r := c.do(id, request{body: b}); r.Status != job.StatusFailed || r.Cause != job.CauseUndeclared || len(r.Files) != 0 {
			t.Errorf("%s in the place of the output: %+v", what, r.Result)
		}
	}
}

// TestNamesOfTheToolchain: a job cannot bring a file under a name of the toolchain's, unless it is the same
// file.
func TestNamesOfTheToolchain(t *testing.T) {
	ts, c := startTrees(t, nil)
	out, err := exec.Command("gcc", "-print-prog-name=cc1").Output()
	if err != nil {
		t.Fatal(err)
	}
	b := treeBody("gcc")
	b.Files = append(b.Files, unit.File{Name: strings.TrimSpace(string(out)), Len: 1, Exec: true})
	if r := c.do(ts.tool("gcc"), request{body: b, text: "x"}); r.Status != job.StatusRefused || r.Cause != job.CauseTree {
		t.Errorf("another cc1: %+v", r.Result)
	}
	for name, change := range map[string]func(*job.Body){
		"a file twice":          func(b *job.Body) { b.Files = append(b.Files, unit.File{Name: "a.c"}) },
		"a file as a directory": func(b *job.Body) { b.Files = append(b.Files, unit.File{Name: "a.c/b.h"}) },
		"a directory as a file": func(b *job.Body) { b.Files = append(b.Files, unit.File{Name: "/src"}) },
		"a name that is too long": func(b *job.Body) {
			b.Files = append(b.Files, unit.File{Name: strings.Repeat("n", 300)})
		},
		"a path that is too long": func(b *job.Body) {
			b.Files = append(b.Files, unit.File{Name: strings.Repeat("d/", 3000) + "n"})
		},
		"a directory's name for a file": func(b *job.Body) { b.Files = append(b.Files, unit.File{Name: "a/"}) },
		"dots for a file":               func(b *job.Body) { b.Files = append(b.Files, unit.File{Name: ".."}) },
		"a link for the root":           func(b *job.Body) { b.Links = []unit.Link{{Name: "/", Target: "/x"}} },
		"a loop of links": func(b *job.Body) {
			b.Links = []unit.Link{{Name: "/x", Target: "/y"}, {Name: "/y", Target: "/x"}}
			b.Files = append(b.Files, unit.File{Name: "/x/h.h"})
		},
	} {
		b := treeBody("gcc")
		change(&b)
		if r := c.do(ts.tool("gcc"), request{body: b}); r.Status != job.StatusRefused || r.Cause == job.CauseInternal {
			t.Errorf("%s: %+v", name, r.Result)
		}
	}
	if r := c.do(ts.tool("gcc"), request{body: treeBody("gcc")}); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("an honest job after them: %+v", r.Result)
	}
}

// TestProgramsAreNotBrought: an assembler where gcc looks for one first, or a library that every program
// would load, is treated as an ordinary file.
func TestProgramsAreNotBrought(t *testing.T) {
	ts, c := startTrees(t, nil)
	out, err := exec.Command("gcc", "-print-libgcc-file-name").Output()
	if err != nil {
		t.Fatal(err)
	}
	const script = "#!/bin/sh\necho brought >&2\nexit 1\n"
	b := treeBody("gcc")
	var text string
	for _, name := range []string{filepath.Dir(string(out)) + "/as", "/usr/local/bin/as", "/lib/x.so"} {
		b.Files = append(b.Files, unit.File{Name: name, Len: uint64(len(script)), Exec: true})
		text += script
	}
	for range 3 {
		if r := c.do(ts.tool("gcc"), request{body: b, text: text}); r.Status != job.StatusRan || r.Exit != 0 || r.Stderr.Len != 0 || len(r.Files) != 1 {
			t.Errorf("%+v: %s", r.Result, r.bytes(r.Stderr))
		}
	}
}

// TestCompilerCrashes: the driver's message about a crash is the same, although cc1 ran without it, and there
// is no output.
func TestCompilerCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ts, c := startTrees(t, nil)
	const deep = 400000
	p := newProject(t, "gcc", map[string]string{
		"good.c": "int x;\n", "deep.c": "int x = " + strings.Repeat("(", deep) + "1" + strings.Repeat(")", deep) + ";\n",
		"asm.c": "__asm__(\"no such instruction\");\n",
	})
	for _, name := range []string{"good.c", "deep.c"} {
		if got := p.compare(c, ts.tool("gcc"), []string{"-c", "-O1", name, "-o", "x.o"}); name == "deep.c" && got.exit == 0 {
			t.Skip("the compiler does not crash")
		}
	}
	// The assembler fails, and its own file names are other ones each time.
	for range 2 {
		p.prepare([]string{"-c", "-O1", "asm.c", "-o", "x.o"}, nil)
		if got := p.there(c, ts.tool("gcc")); got.exit != 1 || !strings.Contains(got.stderr, "no such instruction") || len(got.files) != 0 {
			t.Errorf("%+v", got)
		}
	}
}

// TestTreeProcessDies: the job in the tree fails, and the next one has another tree.
func TestTreeProcessDies(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Jobs = 1 })
	id, pids, release := ts.slow()
	n := c.start(id, request{body: treeBody("gcc-13")})
	until(t, "the compiler", func() bool { return len(pids()) == 2 })
	trees := treesOf(t, os.Getpid())
	if len(trees) != 1 {
		t.Fatalf("%d trees", len(trees))
	}
	if err := unix.Kill(trees[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := c.result(n); r.Status != job.StatusFailed || r.Cause != job.CauseInternal {
		t.Errorf("%+v", r.Result)
	}
	wantDead(t, pids())
	release()
	if r := c.do(id, request{body: treeBody("gcc-13")}); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("the next job: %+v", r.Result)
	}
}

// treesOf returns the processes of a daemon's trees.
func treesOf(t testing.TB, daemon int) []int {
	t.Helper()
	var list []int
	proc, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range proc {
		stat, err := os.ReadFile(path)
		name, nerr := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil || nerr != nil || !strings.HasPrefix(string(name), privatetree.Arg0) {
			continue
		}
		var pid, parent int
		_, rest, _ := strings.Cut(string(stat), ") ")
		if _, err := fmt.Sscanf(rest[2:], "%d", &parent); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(string(stat), "%d", &pid); err == nil && parent == daemon {
			list = append(list, pid)
		}
	}
	return list
}

// TestCompilersChange: trees show what is offered now.
func TestCompilersChange(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Jobs = 1 })
	for _, say := range []string{"one", "two", "three"} {
		id := ts.fake("gcc-13", "echo "+say+" >$out\n")
		r := c.do(id, request{body: treeBody("gcc-13")})
		if len(r.Files) != 1 || string(r.bytes(r.Files[0].Segment)) != say+"\n" {
			t.Errorf("%s: %+v", say, r.Result)
		}
	}
	if n := len(treesOf(t, os.Getpid())); n != 1 {
		t.Errorf("%d trees, want 1", n)
	}
}

func TestWithoutTrees(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Tree = TreeOff })
	c := dial(t, ts.addr, &job.Hello{})
	if c.welcome.Tree || ts.Status().Tree {
		t.Error("tells of trees")
	}
	if r := c.do(ts.tool("gcc"), request{body: treeBody("gcc")}); r.Status != job.StatusRefused || r.Cause != job.CauseTree {
		t.Errorf("%+v", r.Result)
	}
	if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("the text form: %+v", r.Result)
	}
}

func TestTimeLimitInATree(t *testing.T) {
	ts, c := startTrees(t, nil)
	id := ts.fake("gcc-13", "while :; do :; done\n")
	if r := c.do(id, request{body: treeBody("gcc-13"), timeout: 200 * time.Millisecond}); r.Status != job.StatusFailed || r.Cause != job.CauseTimeout {
		t.Errorf("%+v", r.Result)
	}
	if r := c.do(ts.tool("gcc"), request{body: treeBody("gcc")}); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("an honest job after it: %+v", r.Result)
	}
}

// TestFilesTakeOfTheTime: laying out a job's files counts against the job's time limit, which ends it here.
// It would never get to the last file, because a tree has no room for so many.
func TestFilesTakeOfTheTime(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Slot, o.Jobs = 4<<20, 1 })
	id := ts.fake("gcc-13", "while :; do :; done\n")
	many := func(change func(b *job.Body, i int)) job.Body {
		b := treeBody("gcc-13")
		for i := range 80000 {
			change(&b, i)
		}
		return b
	}
	for what, b := range map[string]job.Body{
		"directories": many(func(b *job.Body, i int) { b.Dirs = append(b.Dirs, "d"+itoa(i)) }),
		"files":       many(func(b *job.Body, i int) { b.Files = append(b.Files, unit.File{Name: "f" + itoa(i)}) }),
		"links":       many(func(b *job.Body, i int) { b.Links = append(b.Links, unit.Link{Name: "/l" + itoa(i), Target: "/a"}) }),
	} {
		before := gathered(t, ts, "rdistccd_sandbox_denials_total", "time")
		r := c.do(id, request{body: b, timeout: 20 * time.Millisecond})
		if r.Status != job.StatusFailed || r.Cause != job.CauseTimeout || r.CPU != 0 {
			t.Errorf("%s: %+v", what, r.Result)
		}
		if got := gathered(t, ts, "rdistccd_sandbox_denials_total", "time"); got != before+1 {
			t.Errorf("%s: %v denials, want %v", what, got, before+1)
		}
		if r := c.do(ts.tool("gcc"), request{body: treeBody("gcc")}); r.Status != job.StatusRan || r.Exit != 0 {
			t.Errorf("%s: an honest job after it: %+v", what, r.Result)
		}
	}
}

// TestLitteredTree: after a job that leaves a very large number of files, the place is as clean as after any
// other.
func TestLitteredTree(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Jobs = 1 })
	id := ts.fake("gcc-13", ". ./a.c\n") // a compiler that does what its source says
	for _, script := range []string{"i=0; while [ $i -lt 5000 ]; do : >/tmp/f$i; i=$((i+1)); done", ":"} {
		script = "for f in /tmp/f*; do echo $f; done; " + script + "; echo x >$out\n"
		b := treeBody("gcc-13")
		b.Files[0].Len = uint64(len(script))
		r := c.do(id, request{body: b, text: script})
		if r.Status != job.StatusRan || r.Exit != 0 || len(r.Files) != 1 || string(r.bytes(r.Stdout)) != "/tmp/f*\n" {
			t.Errorf("%+v: %.200s", r.Result, r.bytes(r.Stdout))
		}
	}
	if log := ts.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("as if something were wrong with the host:\n%s", log)
	}
}

// TestTreesOfAnotherUser: a daemon that is not root shows trees too, where the system
// lets users have namespaces.
func TestTreesOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc")
	}
	dir, err := os.MkdirTemp("/tmp", "rdistccd-test-") // that others may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	exe := filepath.Join(dir, "worker.test")
	for _, err := range []error{os.Chmod(dir, 0o755), os.Mkdir(dir+"/bin", 0o755), os.Symlink(gcc, dir+"/bin/gcc"), os.Mkdir(dir+"/base", 0o700),
		os.Chown(dir+"/base", 65534, 65534), exec.Command("cp", "/proc/self/exe", exe).Run(), exec.Command("cp", os.Args[0], exe).Run(), os.Chmod(exe, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(exe)
	cmd.Args = []string{serverArg0, dir + "/base", dir + "/bin"}
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, strings.TrimSpace(line), &job.Hello{})
	if !c.welcome.Tree {
		need.Skipf(t, need.Sandbox, "needs namespaces for users")
	}
	p := newProject(t, "gcc", map[string]string{"a.c": "#include <stdio.h>\nint main(void) { int u; return puts(__FILE__); }\n"})
	p.compare(c, c.ids[0], []string{"-c", "-g", "-Wall", "a.c", "-MD"})
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir + "/base"); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
