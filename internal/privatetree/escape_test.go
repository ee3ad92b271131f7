package privatetree

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

const reachArg0 = "tree-test-reach"

// reach is a command that tries to reach the process whose number is its first argument, and the file and
// the directory that are its other arguments, which belong to that process and to the same user.
func reach() {
	pid, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	proc, secret, dir := "/proc/"+os.Args[1]+"/", os.Args[2], os.Args[3]
	open := func(name string, flags int) error { return fdError(unix.Open(name, flags|unix.O_CLOEXEC, 0o600)) }
	link := func(name string) error { _, err := os.Readlink(name); return err }
	for _, a := range []struct {
		name string
		err  func() error
	}{
		{"environ", func() error { return read(proc + "environ") }},
		{"maps", func() error { return read(proc + "maps") }},
		{"mem", func() error { return open(proc+"mem", unix.O_RDWR) }},
		{"cmdline", func() error { return read(proc + "cmdline") }},
		{"status", func() error { return read(proc + "status") }},
		{"root", func() error { return link(proc + "root") }},
		{"cwd", func() error { return link(proc + "cwd") }},
		{"exe", func() error { return link(proc + "exe") }},
		{"fd", func() error { return link(proc + "fd/0") }},
		{"through root", func() error { return open(proc+"root/etc/passwd", unix.O_RDONLY) }},
		{"through cwd", func() error { return open(proc+"cwd/.", unix.O_RDONLY|unix.O_DIRECTORY) }},
		{"oom_score_adj", func() error { return open(proc+"oom_score_adj", unix.O_WRONLY) }},
		{"signal", func() error { return unix.Kill(pid, unix.SIGWINCH) }},
		{"signal a thread", func() error { return unix.Tgkill(pid, pid, unix.SIGWINCH) }},
		{"host's file", func() error { return read("/etc/passwd") }},
		{"read", func() error { return read(secret) }},
		{"read by link", func() error { _ = os.Symlink(secret, os.Args[4]+"/link"); return read(os.Args[4] + "/link") }},
		{"hard link", func() error { return unix.Link(secret, os.Args[4]+"/hard") }},
		{"write", func() error { return open(secret, unix.O_WRONLY) }},
		{"truncate by opening", func() error { return open(secret, unix.O_RDONLY|unix.O_TRUNC) }},
		{"truncate by name", func() error { return unix.Truncate(secret, 0) }},
		{"mode", func() error { return unix.Chmod(secret, 0o666) }},
		{"times", func() error { return unix.UtimesNano(secret, []unix.Timespec{{Sec: 1}, {Sec: 1}}) }},
		{"rename", func() error { return unix.Rename(secret, secret+"2") }},
		{"remove", func() error { return unix.Unlink(secret + "2") }},
		{"make", func() error { return open(dir+"/new", unix.O_CREAT|unix.O_WRONLY) }},
		{"make a directory", func() error { return unix.Mkdir(dir+"/newdir", 0o700) }},
		{"list", func() error { _, err := os.ReadDir(dir); return err }},
		{"list /tmp", func() error { _, err := os.ReadDir("/tmp"); return err }},
		{"execute", func() error { return run("/bin/echo") }},
		{"execute its own", func() error {
			name := os.Args[4] + "/program"
			if err := os.WriteFile(name, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // a program
				return err
			}
			return run(name)
		}},
		{"works: write in its place", func() error { return os.WriteFile(os.Args[4]+"/x", nil, 0o600) }},
		{"works: own links", func() error { return link("/proc/self/exe") }},
		{"works: null", func() error { return open("/dev/null", unix.O_RDWR) }},
		{"works: random", func() error { return open("/dev/urandom", unix.O_RDONLY) }},
	} {
		word := "done"
		if err := a.err(); err != nil {
			word = err.Error()
		}
		fmt.Printf("%s: %s\n", a.name, word)
	}
	os.Exit(0)
}

// run runs a program that ends at once.
func run(name string) error {
	pid, err := syscall.ForkExec(name, []string{name}, &syscall.ProcAttr{})
	if err != nil {
		return err
	}
	return wait4(pid, nil, 0, nil)
}

func read(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Read(make([]byte, 16))
	if err == io.EOF {
		err = nil
	}
	return err
}

// TestReach: a hostile command finds nothing of the host. Outside of a tree, all attempts succeed.
func TestReach(t *testing.T) {
	fd := prober(t)
	owner := func(uid int) (secret, dir string) { // a file, and a directory, of that user
		dir = bareDir(t)
		secret = dir + "/secret"
		must(t, os.WriteFile(secret, []byte("a secret of the host"), 0o600))
		if uid != 0 {
			must(t, os.Chown(secret, uid, -1))
			must(t, os.Chown(dir, uid, -1))
		}
		return secret, dir
	}
	parse := func(out string) map[string]string {
		got := map[string]string{}
		for line := range strings.Lines(out) {
			if i := strings.LastIndex(line[:min(40, len(line))], ": "); i > 0 {
				name, word, _ := strings.Cut(strings.TrimPrefix(line, "works: "), ": ")
				if strings.HasPrefix(line, "works: ") {
					name = "works: " + name
				}
				got[name] = strings.TrimSpace(word)
			}
		}
		return got
	}
	secret, dir := owner(0)
	victim := again("sleep", "1000") // one of the same user, with nothing to protect it
	victim.Path, _ = filepath.EvalSymlinks("/bin/sleep")
	must(t, victim.Start())
	defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
	pid := strconv.Itoa(victim.Process.Pid)
	out, err := again(reachArg0, pid, secret, dir, bareDir(t)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	free := parse(string(out))
	for name, word := range free {
		if word != "done" {
			t.Errorf("%s fails out here too: %s", name, word)
		}
	}
	for name, kind := range confinedKinds(t) {
		t.Run(name, func(t *testing.T) {
			tr := confined(t, kind, Spec{})
			if !tr.Measures().Has(sandbox.Landlock | sandbox.Seccomp) {
				need.Skipf(t, need.Sandbox, "needs Landlock and seccomp")
			}
			secret, dir := owner(tr.uid)
			o, out := runProbe(t, tr, fd, reachArg0, pid, secret, dir, tr.Path("/tmp"))
			got := parse(out)
			if o.Exit != 0 || len(got) != len(free) {
				t.Fatalf("got %+v, %d of %d lines: %s", o, len(got), len(free), out)
			}
			for name, word := range got {
				// Where names are the tree's own, its /tmp is no one else's.
				own := tr.bare == "" || tr.marks != nil
				if name == "works: own links" && !tr.HasProc() {
					continue
				}
				if strings.HasPrefix(name, "works: ") || own && name == "list /tmp" {
					if word != "done" {
						t.Errorf("%s: %s", name, word)
					}
				} else if word == "done" {
					t.Errorf("it reaches: %s", name)
				}
			}
		})
	}
}

// TestExcess: a command that takes too much is ended, the outcome says why, and nothing is left of it.
func TestExcess(t *testing.T) {
	long(t)
	spin := "while :; do :; done"
	for name, kind := range confinedKinds(t) {
		t.Run(name, func(t *testing.T) {
			tr := confined(t, kind, Spec{Files: programs(t, "/bin/sh", "head", "tail", "sleep"), Size: 16 << 20})
			for _, test := range []struct {
				script string
				limits sandbox.Limits
				want   sandbox.Excess
			}{
				{"echo fine", sandbox.Limits{JobMemory: 1 << 30, Processes: 8, CPU: time.Minute, File: 1 << 20, Memory: 4 << 30}, sandbox.ExcessNone},
				{"head -c 200000000 /dev/zero | tail -c 100000000 & wait; " + spin, sandbox.Limits{JobMemory: 30 << 20}, sandbox.ExcessMemory},
				{"for i in 1 2 3 4 5 6; do sleep 1000 & done; wait", sandbox.Limits{Processes: 5}, sandbox.ExcessProcesses},
				// It ends before the first look.
				{"for i in 1 2 3 4 5 6; do sleep 1000 & done; exit 3", sandbox.Limits{Processes: 5}, sandbox.ExcessProcesses},
				{"for i in 1 2 3 4; do sleep 1000 & done", sandbox.Limits{Processes: 5}, sandbox.ExcessNone},
				{"(" + spin + ") & (" + spin + ") & wait", sandbox.Limits{CPU: 100 * time.Millisecond}, sandbox.ExcessCPU},
				{"exec head -c 2000000 /dev/zero >$TMPDIR/big", sandbox.Limits{File: 1 << 20}, sandbox.ExcessFile},
			} {
				o := runLimited(t, tr, test.script, test.limits)
				if o.Excess != test.want || (o.Exit != 0 || o.Signal != 0) != (test.want != sandbox.ExcessNone) || o.Killed {
					t.Errorf("%s: got %+v, want %v", test.script, o, test.want)
				}
				must(t, tr.Clean())
			}
			if tr.bare != "" {
				script := "i=0; while :; do head -c 1000000 /dev/zero >$TMPDIR/$i; i=$((i+1)); sleep 0.01; done"
				if o := runLimited(t, tr, script, sandbox.Limits{}); o.Excess != sandbox.ExcessFile {
					t.Errorf("a full disk: got %+v", o)
				}
				must(t, tr.Clean())
				if left := sessionOf(t, tr); len(left) != 0 {
					t.Errorf("left: %q", left)
				}
			} else if n := members(t, tr); n > 1 {
				t.Errorf("%d processes live on", n-1)
			}
		})
	}
}

func runLimited(t testing.TB, tr *Tree, script string, l sandbox.Limits) Outcome {
	t.Helper()
	fd := int(null(t).Fd())
	r, err := tr.Start(&Command{
		Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin", "TMPDIR=" + tr.Path("/tmp")}, Dir: "/",
		Stdin: fd, Stdout: fd, Stderr: fd, Limits: l,
	})
	must(t, err)
	o, err := r.Wait()
	must(t, err)
	return o
}

// TestControlGroup: a tree's processes are in a group of their own, which ends with them.
func TestControlGroup(t *testing.T) {
	const at = "/sys/fs/cgroup/unified"
	dir, err := os.MkdirTemp(at, "tree-test-")
	if err != nil {
		t.Skipf("needs control groups, version 2, to make some in: %v", err)
	}
	defer os.Remove(dir)
	for name, kind := range confinedKinds(t) {
		s := kind(Spec{Files: programs(t, "/bin/sh", "sleep")})
		s.Cgroup = dir
		tr, err := New(t.Context(), s)
		must(t, err)
		groups, err := filepath.Glob(dir + "/runner-*/cgroup.procs")
		must(t, err)
		if len(groups) != 1 {
			t.Fatalf("%s: groups: %q", name, groups)
		}
		if procs, err := os.ReadFile(groups[0]); err != nil || string(procs) != strconv.Itoa(tr.proc.Pid)+"\n" {
			t.Errorf("%s: in it: %q, %v", name, procs, err)
		}
		if tr.Measures().Has(sandbox.Cgroup) {
			t.Error("a group without controllers counts as a measure")
		}
		if o := runLimited(t, tr, "exit 3", sandbox.Limits{JobMemory: 1 << 30}); o.Exit != 3 {
			t.Errorf("%s: got %+v", name, o)
		}
		must(t, tr.Close())
		if _, err := os.Stat(filepath.Dir(groups[0])); err == nil {
			t.Errorf("%s: the group stays", name)
		}
	}
}

// sessionOf lists the processes in the session of a tree's process, but that.
func sessionOf(t testing.TB, tr *Tree) (found []string) {
	t.Helper()
	all, err := os.ReadDir("/proc")
	must(t, err)
	for _, e := range all {
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil || e.Name() == strconv.Itoa(tr.proc.Pid) {
			continue
		}
		if f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:])); f[3] == strconv.Itoa(tr.proc.Pid) && f[0] != "Z" {
			found = append(found, string(b))
		}
	}
	return found
}

// orphans makes processes without parents, deaf to signals, of which some have more.
const orphans = `trap '' TERM INT HUP
for i in 1 2 3; do
	(sh -c 'trap "" TERM; (sleep 1000 &) ; sleep 1000 & exec sleep 1000' &)
done
sleep 0.1
>$TMPDIR/ready
`

// TestNothingOutlivesABareCommand: without a pid namespace too.
func TestNothingOutlivesABareCommand(t *testing.T) {
	for name, kind := range confinedKinds(t) {
		if strings.HasPrefix(name, "tree") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			tr := confined(t, kind, Spec{Files: programs(t, "/bin/sh", "sleep", "setsid")})
			if o := runLimited(t, tr, orphans+"setsid sleep 0 2>&- && exit 1; exit 4", sandbox.Limits{}); o.Exit != 4 {
				t.Errorf("got %+v", o)
			}
			if left := sessionOf(t, tr); len(left) != 0 {
				t.Errorf("a command left %q", left)
			}
			must(t, tr.Clean())
			start := func() *Run {
				fd := int(null(t).Fd())
				r, err := tr.Start(&Command{
					Argv: []string{"/bin/sh", "-c", orphans + "sleep 1000"}, Env: []string{"PATH=/usr/bin:/bin", "TMPDIR=" + tr.Path("/tmp")}, Dir: "/",
					Stdin: fd, Stdout: fd, Stderr: fd,
				})
				must(t, err)
				started(t, tr, "/tmp/ready")
				return r
			}
			r := start()
			r.Kill()
			if o, err := r.Wait(); err != nil || !o.Killed {
				t.Errorf("got %+v, %v", o, err)
			}
			if left := sessionOf(t, tr); len(left) != 0 {
				t.Errorf("a killed command left %q", left)
			}
			must(t, tr.Clean())
			start()
			must(t, tr.proc.Kill()) // as the kernel does when memory is short
			must(t, tr.Close())
			if left := sessionOf(t, tr); len(left) != 0 {
				t.Errorf("a dead tree's process left %q", left)
			}
		})
	}
}

// TestSupervisorIsSafe: a command cannot end the process that starts it, which would let it go on.
func TestSupervisorIsSafe(t *testing.T) {
	for name, kind := range confinedKinds(t) {
		t.Run(name, func(t *testing.T) {
			tr := confined(t, kind, Spec{Files: programs(t, "/bin/sh", "cat")})
			var pids []string
			if tr.bare == "" {
				pids = []string{"1", "-1"}
			} else {
				threads, err := os.ReadDir("/proc/" + strconv.Itoa(tr.proc.Pid) + "/task")
				must(t, err)
				for _, th := range threads {
					pids = append(pids, th.Name())
				}
				pids = append(pids, "-"+strconv.Itoa(tr.proc.Pid), strconv.Itoa(os.Getpid()))
			}
			for _, signal := range []string{"KILL", "STOP", "TERM", "SEGV"} {
				for _, pid := range pids {
					runLimited(t, tr, "kill -s "+signal+" -- "+pid, sandbox.Limits{})
				}
			}
			if o, out := runIn(t, tr, "/", "/bin/sh", "-c", "echo ok"); o.Exit != 0 || out != "ok\n" {
				t.Errorf("the next command: got %+v, %q", o, out)
			}
			// Its own a command may signal, as drivers do.
			if o := runLimited(t, tr, "kill -s SEGV $$", sandbox.Limits{}); o.Signal != int(unix.SIGSEGV) {
				t.Errorf("its own: got %+v", o)
			}
		})
	}
}

// TestBoundsFromTheStart: what a command sees of its limits when it starts.
func TestBoundsFromTheStart(t *testing.T) {
	for name, kind := range confinedKinds(t) {
		t.Run(name, func(t *testing.T) {
			tr := confined(t, kind, Spec{Files: programs(t, "/bin/sh")})
			fd := int(null(t).Fd())
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			must(t, err)
			defer out.Close()
			const memory = 8 << 30
			for range 20 {
				r, err := tr.Start(&Command{
					Argv: []string{"/bin/sh", "-c", "ulimit -v; ulimit -f; ulimit -c; ulimit -n; ulimit -v unlimited || exit 7"}, Dir: "/", Stdin: fd, Stdout: int(out.Fd()), Stderr: fd,
					Limits: sandbox.Limits{File: 1 << 20, Memory: memory},
				})
				must(t, err)
				o, err := r.Wait()
				must(t, err)
				if o.Exit == 0 {
					t.Errorf("it raised its limit: %+v", o)
				}
			}
			b, err := os.ReadFile(out.Name())
			must(t, err)
			lines := strings.Fields(string(b))
			for i := 0; i+4 <= len(lines); i += 4 {
				if want := []string{strconv.Itoa(memory >> 10), "2048", "0", strconv.Itoa(maxOpen)}; !slices.Equal(lines[i:i+4], want) {
					t.Fatalf("got %q, want %q", lines[i:i+4], want)
				}
			}
			if len(lines) != 80 {
				t.Errorf("%d lines", len(lines))
			}
		})
	}
}

const forbiddenArg0 = "tree-test-forbidden"

// forbidden is a command that does what no compiler does, itself or in a child.
func forbidden() {
	switch os.Args[1] {
	case "ptrace": // containers permit it, so no filter around this one answers first
		_ = callError(unix.SYS_PTRACE, ^uintptr(0), 0, 0)
	case "x32":
		_ = callError(1<<30 | unix.SYS_GETPID)
	case "key": // a guess
		_ = unix.Kill(1<<40|os.Getpid(), unix.SIGWINCH)
	case "child":
		pid, err := syscall.ForkExec(os.Args[2], []string{forbiddenArg0, "ptrace"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		if err != nil {
			panic(err)
		}
		_ = wait4(pid, nil, 0, nil)
	case "nothing":
	}
	os.Exit(3)
}

// TestForbiddenCalls: a process that makes a call which no compiler makes is ended, and noticed, even if it
// is the child of a driver.
func TestForbiddenCalls(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	for dir := filepath.Dir(self); len(dir) > len("/tmp"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // for another user
			t.Logf("another user may not see %s: %v", dir, err)
		}
	}
	for name, kind := range confinedKinds(t) {
		t.Run(name, func(t *testing.T) {
			tr := confined(t, kind, Spec{Files: append(libraries(t, self), self)})
			if !tr.Measures().Has(sandbox.Seccomp) {
				need.Skipf(t, need.Sandbox, "needs seccomp")
			}
			fd := int(null(t).Fd())
			for _, what := range []string{"nothing", "ptrace", "x32", "key", "child"} {
				r, err := tr.Start(&Command{Path: self, Argv: []string{forbiddenArg0, what, self}, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd})
				must(t, err)
				o, err := r.Wait()
				must(t, err)
				if what == "nothing" && (o.Exit != 3 || o.Excess != sandbox.ExcessNone) || what != "nothing" && (o.Excess != sandbox.ExcessDenied || o.Signal == 0) {
					t.Errorf("%s: got %+v", what, o)
				}
			}
		})
	}
}

// TestTasksAreBounded: a command that starts processes faster than they are looked at meets a bound of the
// kernel: no process has a higher number.
func TestTasksAreBounded(t *testing.T) {
	tr := newTree(t, Spec{Files: programs(t, "/bin/sh", "true"), Confine: true})
	var u unix.Utsname
	must(t, unix.Uname(&u))
	var major, minor int
	_, _ = fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	if major < 6 || major == 6 && minor < 14 {
		t.Skip("needs a bound for each pid namespace, as Linux has it since 6.14")
	}
	_, out := runIn(t, tr, "/", "/bin/sh", "-c", "i=0; while [ $i -lt 1500 ]; do (exit 0); i=$((i+1)); done; (exit 0) & echo $!")
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatalf("got %q", out)
	}
	if n > 300+sharedTasks {
		t.Errorf("process %d, above %d", n, 300+sharedTasks)
	}
}

// TestProcIsOfProcessesOnly: /proc reveals nothing of the machine.
func TestProcIsOfProcessesOnly(t *testing.T) {
	if os.Getenv(coveredVar) != "" {
		t.Skip("the host's own is shown here")
	}
	tr := newTree(t, Spec{Files: programs(t, "/bin/sh", "ls")})
	if len(tr.Lacks()) > 0 {
		t.Skipf("this host has not: %q", tr.Lacks())
	}
	o, out := runIn(t, tr, "/", "/bin/sh", "-c", "cd /proc; for f in *; do case $f in [0-9]*|self|thread-self) ;; *) echo $f; esac; done; ls self/exe")
	if o.Exit != 0 || out != "self/exe\n" {
		t.Errorf("got %+v, %s", o, out)
	}
}
