package privatetree

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// confinedKinds returns the ways of confining commands that are available here, of which one has its turn where a part runs.
func confinedKinds(t testing.TB) map[string]func(Spec) Spec {
	kinds := allKinds(t)
	if today := part.Of(t); !today.Whole() {
		name := slices.Sorted(maps.Keys(kinds))[today.Seed()%uint64(len(kinds))]
		t.Logf("only %q: the others have their turn another day", name)
		return map[string]func(Spec) Spec{name: kinds[name]}
	}
	return kinds
}

func allKinds(t testing.TB) map[string]func(Spec) Spec {
	kinds := map[string]func(Spec) Spec{
		"tree":     func(s Spec) Spec { s.Confine = true; return s },
		"bare":     func(s Spec) Spec { s.Confine, s.Bare = true, bareDir(t); return s },
		"answered": func(s Spec) Spec { s.Confine, s.Bare, s.Answered = true, bareDir(t), true; return s },
	}
	if os.Geteuid() == 0 {
		user := func(s Spec) Spec { s.UID, s.GID = 65533, 65532; return s }
		kinds["tree, own user"] = func(s Spec) Spec { return user(kinds["tree"](s)) }
		kinds["answered, own user"] = func(s Spec) Spec { return user(kinds["answered"](s)) }
		kinds["bare, own user"] = func(s Spec) Spec { return user(kinds["bare"](s)) }
	}
	return kinds
}

// bareDir makes a directory that plays the root, which every user can reach.
func bareDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "bare-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// offered are the measures that this kernel has for every process, as it says itself.
func offered() sandbox.Set {
	s := sandbox.NoNewPrivs | sandbox.Bounds
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); e == 0 {
		s |= sandbox.Landlock
	}
	if _, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err == nil {
		s |= sandbox.Seccomp
	}
	return s
}

// confined makes a tree of a kind, and looks whether it is as good as this machine can have it.
func confined(t testing.TB, kind func(Spec) Spec, s Spec) *Tree {
	t.Helper()
	s = kind(s)
	tr := newTree(t, s)
	want := offered()
	if s.Bare == "" {
		want |= sandbox.Tree | sandbox.Processes | sandbox.Network | sandbox.IPC
	}
	if s.Answered {
		want |= sandbox.Names
	}
	if s.UID != 0 {
		want |= sandbox.User
	}
	if got := tr.Measures(); got != want {
		t.Errorf("confined by %v, want %v", got, want)
	}
	return tr
}

// TestConfinedCompilers compiles as honest users do, and compares with what the compiler makes out here.
func TestConfinedCompilers(t *testing.T) {
	long(t)
	c := "#include <stdio.h>\n#include <math.h>\nint f(int n) { return printf(\"%d %f\\n\", n, sin(n)); }\n"
	cxx := "#include <vector>\nstd::vector<int> v;\nvoid f() { v.push_back(1); }\n"
	options := []string{"-O2", "-g -pipe", "-O2 -flto", "-save-temps", "-ftime-report", "-g -gsplit-dwarf", "-O3 -fopenmp -MD -MF a.d", "-S", "-c -Wall -std=gnu2x"}
	for name, kind := range allKinds(t) {
		for _, cc := range []string{"gcc", "g++", "clang", "clang++", "gcc-11", "clang-13", "clang-16"} {
			if _, err := exec.LookPath(cc); err != nil || testing.Short() && strings.Contains(cc, "-") {
				continue
			}
			t.Run(name+"/"+cc, func(t *testing.T) {
				part.SkipCase(t)
				tools := toolchain(t, cc)
				tr := confined(t, kind, Spec{Files: append(tools, programs(t, "objcopy")...), Dirs: headers(t, cc)})
				file, text, list := "a.c", c, options
				if strings.Contains(cc, "++") {
					file, text, list = "a.cc", cxx, options[1:3]
				}
				for _, o := range list {
					// A directory of the same name there, so that -g and -flto say the same.
					here := t.TempDir()
					dir := here
					if tr.bare != "" && tr.marks == nil {
						dir = "/src"
					}
					must(t, tr.Write(dir+"/"+file, []byte(text), when, false))
					must(t, tr.Mkdirs(dir))
					if tr.bare != "" && tr.uid != 0 {
						must(t, unix.Fchownat(tr.root, dir[1:], tr.uid, tr.gid, 0))
					}
					args := append(strings.Fields(o), file, "-o", "out.o")
					if o != "-S" && !strings.Contains(o, "-c ") {
						args = append(args, "-c")
					}
					got, out := runIn(t, tr, tr.Path(dir), append([]string{tools[0]}, args...)...)
					if got.Exit != 0 || got.Signal != 0 || got.Excess != sandbox.ExcessNone {
						t.Fatalf("%s %s: got %+v, %s", cc, o, got, out)
					}
					object := content(t, tr, dir+"/out.o")
					if strings.HasPrefix(cc, "gcc") && (o == "-O2" || o == "-S" || o == "-g -pipe" && dir == here) {
						must(t, os.WriteFile(here+"/"+file, []byte(text), 0o600))
						cmd := exec.Command(tools[0], args...)
						cmd.Dir = here
						if words, err := cmd.CombinedOutput(); err != nil {
							t.Fatalf("%v: %s", err, words)
						}
						want, err := os.ReadFile(here + "/out.o")
						must(t, err)
						if object != string(want) {
							t.Errorf("%s %s: %d bytes, here %d, or others", cc, o, len(object), len(want))
						}
					}
					must(t, tr.Clean())
				}
				must(t, tr.Write("/src/bad.c", []byte("int x = ;\n"), when, false))
				if o, out := runIn(t, tr, tr.Path("/tmp"), tools[0], "-c", tr.Path("/src/bad.c")); o.Exit != 1 || !strings.Contains(out, ": error: expected ") {
					t.Errorf("a wrong source: got %+v, %s", o, out)
				}
			})
		}
	}
}

// headers are the directories of a compiler's headers and other data.
func headers(t testing.TB, cc string) []string {
	t.Helper()
	dirs := []string{"/usr/include"}
	for _, name := range []string{"crtbegin.o", "include/stddef.h"} {
		out, err := exec.Command(cc, "-print-file-name="+name).Output()
		must(t, err)
		if file := strings.TrimSpace(string(out)); filepath.IsAbs(file) {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// TestEveryCommandIsConfined: what a sandbox forbids is one thread's, and the Go runtime has many. Under load, and
// with several trees, no command may come from another one.
func TestEveryCommandIsConfined(t *testing.T) {
	long(t)
	const trees, commands = 4, 150
	for name, kind := range confinedKinds(t) {
		t.Run(name, func(t *testing.T) {
			var wait sync.WaitGroup
			for range trees {
				tr := confined(t, kind, Spec{Files: programs(t, "/bin/cat", "/bin/sh")})
				wait.Go(func() {
					for range commands {
						// Two programs in turn: the second one too. Where /proc is not to be opened, that says it.
						o, out := runIn(t, tr, "/", "/bin/cat", "/proc/self/status")
						switch {
						case tr.marks != nil:
							if o.Exit != 1 || !strings.Contains(out, "No such file or directory") {
								t.Errorf("not answered: %+v, %s", o, out)
							}
						case tr.bare != "":
							if o.Exit != 1 || !strings.Contains(out, "Permission denied") {
								t.Errorf("not in its domain: %+v, %s", o, out)
							}
						case !strings.Contains(out, "\nNoNewPrivs:\t1\n") || !strings.Contains(out, "\nSeccomp:\t2\n"):
							t.Errorf("not confined: %+v, %s", o, out)
						}
					}
				})
			}
			wait.Wait()
		})
	}
}

// prober is this program as a command in a tree, given as a descriptor: it does what its
// argument says by system calls of its own, and says how it went.
func prober(t testing.TB) int {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	must(t, err)
	defer self.Close()
	fd, err := unix.MemfdCreate("prober", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	st, err := self.Stat()
	must(t, err)
	for left := int(st.Size()); left > 0; {
		n, err := unix.Sendfile(fd, int(self.Fd()), nil, left)
		must(t, err)
		left -= n
	}
	return fd
}

// runProbe runs an attempt in a tree.
func runProbe(t testing.TB, tr *Tree, fd int, arg0 string, args ...string) (Outcome, string) {
	t.Helper()
	needStatic(t)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	must(t, err)
	defer out.Close()
	r, err := tr.Start(&Command{
		ExecFD: fd, Argv: append([]string{arg0}, args...), Env: []string{"HOME=/"}, Dir: "/",
		Stdin: int(null(t).Fd()), Stdout: int(out.Fd()), Stderr: int(out.Fd()),
	})
	must(t, err)
	o, err := r.Wait()
	must(t, err)
	b, err := os.ReadFile(out.Name())
	must(t, err)
	return o, string(b)
}

// TestProbe: a program that is in no tree can be tried in one, whether that has a procfs or not, and what it uses is bounded.
func TestProbe(t *testing.T) {
	fd := prober(t)
	tr := newTree(t, Spec{Confine: true})
	if o, out := runProbe(t, tr, fd, attemptArg0, tr.Path("/tmp"), "socket"); o.Exit != 0 || out != "socket: EPERM\n" && tr.Measures().Has(sandbox.Seccomp) {
		t.Errorf("got %+v, %q", o, out)
	}
	if !tr.Measures().Has(sandbox.Bounds) {
		t.Errorf("measures: %s", tr.Measures())
	}
}

const attemptArg0 = "tree-test-attempt"

// attempts are things that a compiler does not need. Each works where nothing confines it, as root or as
// the given user.
var attempts = map[string]struct {
	try    func(arg string) error
	never  bool // no compiler does: it is counted
	remark string
}{
	"socket":        {try: func(string) error { return fdError(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)) }},
	"udp":           {try: func(string) error { return fdError(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)) }},
	"mptcp":         {try: func(string) error { return fdError(unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 262)) }},
	"unix socket":   {try: func(string) error { return fdError(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)) }},
	"netlink":       {try: func(string) error { return fdError(unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0)) }},
	"socketpair":    {try: func(string) error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err }},
	"memfd":         {try: func(string) error { return fdError(unix.MemfdCreate("x", 0)) }},
	"own group":     {try: func(string) error { return unix.Setpgid(0, 0) }},
	"priority":      {try: func(string) error { return unix.Setpriority(unix.PRIO_PROCESS, 0, 19) }},
	"limit":         {try: func(string) error { return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}) }},
	"subreaper":     {try: func(string) error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }},
	"landlock":      {try: func(string) error { return callError(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1) }},
	"execute memfd": {try: func(string) error { return callError(unix.SYS_EXECVEAT, 1<<20, 0, 0) }, remark: "EFAULT"},
	"fifo":          {try: func(dir string) error { return unix.Mkfifo(dir+"/fifo", 0o600) }},
	"chown":         {try: func(dir string) error { return unix.Chown(dir, os.Getuid(), os.Getgid()) }},
	"inotify":       {try: func(string) error { return fdError(unix.InotifyInit()) }},
	"async":         {try: func(string) error { _, err := unix.FcntlInt(0, unix.F_SETOWN, os.Getpid()); return err }},

	"set-id":       {try: func(dir string) error { return fdError(unix.Open(dir+"/setid", unix.O_CREAT|unix.O_WRONLY, 0o4755)) }},
	"set-id later": {try: func(dir string) error { return setID(dir, func(name string) error { return unix.Chmod(name, 0o4755) }) }},
	"set-id by fd": {try: func(dir string) error { return setID(dir, nil) }},

	"ptrace":         {try: func(string) error { return callError(unix.SYS_PTRACE, unix.PTRACE_TRACEME) }, never: true},
	"bpf":            {try: func(string) error { return callError(unix.SYS_BPF, 0, 0, 0) }, never: true, remark: "EINVAL EPERM"},
	"io_uring":       {try: func(string) error { return callError(unix.SYS_IO_URING_SETUP, 0, 0) }, never: true, remark: "EINVAL EFAULT EPERM ENOSYS"},
	"keyctl":         {try: func(string) error { return callError(unix.SYS_KEYCTL, 0, ^uintptr(2), 1) }, never: true, remark: "EPERM"},
	"read memory":    {try: func(string) error { return callError(unix.SYS_PROCESS_VM_READV, uintptr(os.Getpid()), 0, 0, 0, 0, 0) }, never: true},
	"user ns":        {try: func(string) error { return unshareThread(unix.CLONE_NEWNS) }, never: true, remark: "EPERM"},
	"mount":          {try: func(dir string) error { return unix.Mount("x", dir, "nosuchfs", 0, "") }, never: true, remark: "ENODEV EPERM"},
	"open by handle": {try: func(string) error { return callError(unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0) }, never: true, remark: "EPERM EFAULT"},
	"new namespaces": {try: func(string) error { return callError(unix.SYS_CLONE, unix.CLONE_NEWUSER|unix.CLONE_FS, 0, 0, 0, 0) }, never: true, remark: "EINVAL EPERM"},
}

func setID(dir string, chmod func(string) error) error {
	f, err := os.Create(dir + "/plain")
	if err != nil {
		return err
	}
	defer f.Close()
	if chmod != nil {
		return chmod(f.Name())
	}
	return unix.Fchmod(int(f.Fd()), 0o2755)
}

func fdError(_ int, err error) error { return err }

func callError(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, e := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); e != 0 {
		return e
	}
	return nil
}

func unshareThread(flags int) error { return unix.Unshare(flags) }

// attempt is a command: it makes the attempts that its arguments name, or all.
func attempt() {
	names := os.Args[2:]
	if len(names) == 0 {
		for name := range attempts {
			names = append(names, name)
		}
	}
	for _, name := range names {
		err := attempts[name].try(os.Args[1])
		word := "done"
		if e, ok := err.(syscall.Errno); ok {
			word = unix.ErrnoName(e)
		} else if err != nil {
			word = err.Error()
		}
		fmt.Printf("%s: %s\n", name, word)
	}
	os.Exit(0)
}

func verdicts(t testing.TB, out string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for line := range strings.Lines(out) {
		if name, word, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok {
			got[name] = word
		}
	}
	if len(got) != len(attempts) {
		t.Fatalf("%d of %d attempts: %s", len(got), len(attempts), out)
	}
	return got
}

// TestSystemCalls: each works or fails for another reason where commands are not confined, and is refused where they are.
func TestSystemCalls(t *testing.T) {
	fd := prober(t)
	dir := bareDir(t)
	cmd := again(attemptArg0, dir)
	// Once it has asked to be traced by us, any signal stops it for ever, and the runtime preempts goroutines by signals.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	free := verdicts(t, string(out))
	for name, a := range attempts {
		want := a.remark
		if want == "" {
			want = "done"
		}
		if !slices.Contains(strings.Fields(want+" done"), free[name]) {
			t.Errorf("%s out here: %s, want %s", name, free[name], want)
		}
	}
	for name, kind := range confinedKinds(t) {
		t.Run(name, func(t *testing.T) {
			tr := confined(t, kind, Spec{})
			if !tr.Measures().Has(sandbox.Seccomp) {
				need.Skipf(t, need.Sandbox, "needs seccomp")
			}
			o, out := runProbe(t, tr, fd, attemptArg0, tr.Path("/tmp"))
			if o.Exit != 0 || o.Excess != sandbox.ExcessDenied {
				t.Errorf("got %+v", o)
			}
			for name, word := range verdicts(t, out) {
				if word != "EPERM" && (word != "ENOSYS" || name != "landlock") {
					t.Errorf("%s: %s", name, word)
				}
			}
			o, _ = runProbe(t, tr, fd, attemptArg0, tr.Path("/tmp"), "socket")
			if o.Exit != 0 || o.Excess != sandbox.ExcessNone {
				t.Errorf("a harmless one: got %+v", o)
			}
		})
	}
}

// TestListedDirectories: a compiler may list the directories beside its own, but not where those of commands lie.
func TestListedDirectories(t *testing.T) {
	p := policy(&Spec{
		Bare:  "/home/user/work/runner1",
		Files: []string{"/usr/lib/llvm-14/bin/clang", "/usr/bin/gcc", "/home/user/bin/gcc"},
		Dirs:  []string{"/usr/lib/gcc/x86_64-linux-gnu/12", "/home/user/work/gcc/lib"},
	})
	if want := []string{"/usr/lib/llvm-14", "/usr/lib/gcc"}; !slices.Equal(p.List, want) {
		t.Errorf("may list %q, want %q", p.List, want)
	}
}
