package privatetree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// shell makes a tree with a shell and more programs.
func shell(t testing.TB, names ...string) *Tree {
	t.Helper()
	return newTree(t, Spec{Files: programs(t, append(names, "/bin/sh")...)})
}

func TestHowACommandEnds(t *testing.T) {
	tr := shell(t)
	for _, test := range []struct {
		script       string
		exit, signal int
		out          string
	}{
		{"echo hello", 0, 0, "hello\n"},
		{"echo words >&2; exit 3", 3, 0, "words\n"},
		{"kill -SEGV $$", 0, int(unix.SIGSEGV), ""},
		{"pwd; cd ..; pwd", 0, 0, "/tmp\n/\n"},
		{"echo $PATH $LC_ALL", 0, 0, "/usr/bin:/bin C\n"},
	} {
		o, out := runIn(t, tr, "/tmp", "/bin/sh", "-c", test.script)
		if o.Exit != test.exit || o.Signal != test.signal || out != test.out || o.Killed {
			t.Errorf("%s: got %+v, %q", test.script, o, out)
		}
		if o.CPU <= 0 || o.MaxRSS < 4096 {
			t.Errorf("%s: used %v of CPU, %d bytes", test.script, o.CPU, o.MaxRSS)
		}
	}
}

// TestProgramsInTurn runs several programs as one command.
func TestProgramsInTurn(t *testing.T) {
	tr := shell(t)
	sh := func(script string) []string { return []string{"/bin/sh", "-c", script} }
	run := func(c *Command) (Outcome, string, error) {
		t.Helper()
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		must(t, err)
		defer out.Close()
		c.Env, c.Dir, c.Stdin, c.Stdout, c.Stderr = []string{"A=a"}, "/tmp", int(null(t).Fd()), int(out.Fd()), int(out.Fd())
		r, err := tr.Start(c)
		must(t, err)
		o, err := r.Wait()
		b, rerr := os.ReadFile(out.Name())
		must(t, rerr)
		return o, string(b), err
	}
	then := func(scripts ...string) (list []Program) {
		for _, s := range scripts {
			list = append(list, Program{Argv: sh(s)})
		}
		return list
	}
	for _, test := range []struct {
		first        string
		then         []Program
		exit, signal int
		out          string
	}{
		{"echo 1", then("echo 2 $A; pwd", "echo 3; exit 4"), 4, 0, "1\n2 a\n/tmp\n3\n"},
		{"echo 1; exit 2", then("echo 2"), 2, 0, "1\n"},
		{"echo 1", then("kill -SEGV $$", "echo 3"), 0, int(unix.SIGSEGV), "1\n"},
		{"on() { while :; do :; done; }; on & echo $! >/tmp/pid", then("read pid </tmp/pid; kill -0 $pid 2>&- || echo gone"), 0, 0, "gone\n"},
	} {
		if o, out, err := run(&Command{Argv: sh(test.first), Then: test.then}); err != nil || o.Exit != test.exit || o.Signal != test.signal || out != test.out {
			t.Errorf("%s: got %+v, %q, %v", test.first, o, out, err)
		}
	}
	// The time of each counts: that of a busy one is far above a shell's.
	idle, _, _ := run(&Command{Argv: sh(":")})
	first, _, _ := run(&Command{Argv: sh(busy), Then: then(":")})
	second, _, _ := run(&Command{Argv: sh(":"), Then: []Program{{Path: "/bin/sh", Argv: append([]string{"called"}, sh(busy)[1:]...)}}})
	if least := min(first.CPU, second.CPU); least < 2*idle.CPU && least < 10*time.Millisecond {
		t.Errorf("idle takes %v, with a busy first program %v, with a busy second one %v", idle.CPU, first.CPU, second.CPU)
	}
	if _, out, err := run(&Command{Argv: sh("echo 1"), Then: []Program{{Argv: []string{"/none"}}}}); !errors.Is(err, fs.ErrNotExist) || out != "1\n" {
		t.Errorf("a second program that is not there: %q, %v", out, err)
	}
	// One that is killed has no successor.
	c := &Command{Argv: sh("echo >/tmp/1; while :; do :; done"), Then: then("echo >/tmp/2"), Dir: "/", Stdin: 0, Stdout: 1, Stderr: 2}
	r, err := tr.Start(c)
	must(t, err)
	started(t, tr, "/tmp/1")
	r.Kill()
	if o, err := r.Wait(); err != nil || !o.Killed || o.Signal != int(unix.SIGKILL) {
		t.Errorf("killed: got %+v, %v", o, err)
	}
	if _, err := tr.Open("/tmp/2"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the next one ran: %v", err)
	}
}

// busy takes some time.
const busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"

func TestWhatCannotStart(t *testing.T) {
	tr := shell(t)
	must(t, tr.Write("/work/text", []byte("words"), when, false))
	fd := int(null(t).Fd())
	for _, test := range []struct {
		file, dir string
		want      error
	}{
		{"/bin/none", "/", fs.ErrNotExist},
		{"/bin/sh", "/none", fs.ErrNotExist},
		{"/work/text", "/", fs.ErrPermission},
	} {
		r, err := tr.Start(&Command{Argv: []string{test.file}, Dir: test.dir, Stdin: fd, Stdout: fd, Stderr: fd})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(); !errors.Is(err, test.want) {
			t.Errorf("%s in %s: got %v, want %v", test.file, test.dir, err, test.want)
		}
	}
	if o, _ := runIn(t, tr, "/", "/bin/sh", "-c", "exit 7"); o.Exit != 7 {
		t.Errorf("the next command: got %+v", o)
	}
}

func TestOneCommandAtATime(t *testing.T) {
	tr := shell(t)
	fd := int(null(t).Fd())
	c := &Command{Argv: []string{"/bin/sh", "-c", "exit 0"}, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd}
	r, err := tr.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Start(c); err == nil {
		t.Error("a second command was started")
	}
	if err := tr.Clean(); !errors.Is(err, ErrSpoiled) {
		t.Errorf("Clean while a command runs: got %v", err)
	}
	if _, err := r.Wait(); err != nil {
		t.Error(err)
	}
	must(t, tr.Clean())
}

func TestLongArguments(t *testing.T) {
	tr := shell(t)
	argv := []string{"/bin/sh", "-c", "echo $#", "sh"}
	word := strings.Repeat("x", 2000)
	for range 800 {
		argv = append(argv, word)
	}
	for range 2 {
		if o, out := runIn(t, tr, "/", argv...); o.Exit != 0 || out != "800\n" {
			t.Fatalf("got %+v, %q", o, out)
		}
	}
	for range 4000 {
		argv = append(argv, word)
	}
	fd := int(null(t).Fd())
	r, err := tr.Start(&Command{Argv: argv, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(); !errors.Is(err, unix.E2BIG) {
		t.Errorf("got %v, want E2BIG", err)
	}
	if o, out := runIn(t, tr, "/", "/bin/sh", "-c", "echo ok"); out != "ok\n" {
		t.Errorf("the next command: got %+v, %q", o, out)
	}
	var st unix.Stat_t
	if err := unix.Fstat(tr.block, &st); err != nil || st.Size > blockKeep {
		t.Errorf("the block keeps %d bytes, %v", st.Size, err)
	}
}

// started waits until the running command has made a file.
func started(t *testing.T, tr *Tree, name string) {
	t.Helper()
	for range 10_000 {
		if f, err := tr.Open(name); err == nil {
			unix.Close(f.FD)
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("nobody makes %s", name)
}

// members counts the processes of a tree's pid namespace, its first one included.
func members(t *testing.T, tr *Tree) int {
	t.Helper()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid_for_children", tr.proc.Pid))
	if err != nil {
		t.Skipf("needs to see a tree's process: %v", err)
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range all {
		if got, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err == nil && got == ns {
			n++
		}
	}
	return n
}

// hardToKill has processes in sessions of their own, without their parents, deaf to signals.
const hardToKill = `
trap '' TERM INT HUP
for i in 1 2 3; do
	(setsid sh -c 'trap "" TERM; (setsid sleep 1000 &) ; sleep 1000 & exec sleep 1000' &)
done
sleep 0.1
>/tmp/ready
`

func TestKill(t *testing.T) {
	tr := shell(t, "setsid", "sleep")
	fd := int(null(t).Fd())
	r, err := tr.Start(&Command{
		Argv: []string{"/bin/sh", "-c", hardToKill + "sleep 1000"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd,
	})
	if err != nil {
		t.Fatal(err)
	}
	started(t, tr, "/tmp/ready")
	go func() {
		r.Kill()
		r.Kill()
	}()
	o, err := r.Wait()
	if err != nil || o.Signal != int(unix.SIGKILL) || !o.Killed {
		t.Errorf("got %+v, %v", o, err)
	}
	if n := members(t, tr); n > 1 {
		t.Errorf("%d processes live on", n-1)
	}
	r.Kill() // late: not the next one's business
	o, out := runIn(t, tr, "/", "/bin/sh", "-c", "sleep 0.05; echo ok")
	if o.Killed || out != "ok\n" {
		t.Errorf("the next command: got %+v, %q", o, out)
	}
}

func TestWhatOutlivesACommandIsKilled(t *testing.T) {
	tr := shell(t, "setsid", "sleep")
	o, out := runIn(t, tr, "/", "/bin/sh", "-c", hardToKill+"echo done")
	if o.Exit != 0 || o.Signal != 0 || o.Killed || out != "done\n" {
		t.Errorf("got %+v, %q", o, out)
	}
	if n := members(t, tr); n > 1 {
		t.Errorf("%d processes live on", n-1)
	}
}

func TestFirstProcessIsSafeFromCommands(t *testing.T) {
	tr := shell(t, "cat", "ls")
	o, out := runIn(t, tr, "/", "/bin/sh", "-c", `
for s in HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STOP TSTP TTIN XCPU SYS; do kill -$s 1; done
cat /proc/1/environ /proc/1/maps >/dev/null && echo open
for f in 0 1 2 3 4 5 6; do (: >/proc/1/fd/$f) 2>/dev/null && echo open; done
ls /proc/1/cwd/ && echo open
exit 5`)
	if o.Exit != 5 || strings.Contains(out, "open") {
		t.Errorf("got %+v, %q", o, out)
	}
	if o, out := runIn(t, tr, "/", "/bin/sh", "-c", "echo ok"); o.Exit != 0 || out != "ok\n" {
		t.Errorf("the next command: got %+v, %q", o, out)
	}
}

func TestWhatACommandHas(t *testing.T) {
	tr := shell(t, "cat", "ls", "nice", "mount")
	// The C library's own two signals are not the Go runtime's to change: as they come.
	var ignored uint64
	own, err := os.ReadFile("/proc/self/status")
	must(t, err)
	if _, after, ok := strings.Cut(string(own), "SigIgn:\t"); ok {
		ignored, err = strconv.ParseUint(after[:16], 16, 64)
		must(t, err)
	}
	_, out := runIn(t, tr, "/", "/bin/sh", "-c", "cat /proc/self/status")
	for _, want := range []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000",
		"NoNewPrivs:\t1", "Umask:\t0022", fmt.Sprintf("SigIgn:\t%016x", ignored&(3<<31)), "SigBlk:\t0000000000000000"} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("lacks %q: %s", want, out)
		}
	}
	if _, out := runIn(t, tr, "/", "/bin/sh", "-c", "ls /proc/self/fd | { while read n; do echo -n $n; done; }"); out != "0123" { // 3 is ls's own
		t.Errorf("open descriptors: %q", out)
	}
	if _, out := runIn(t, tr, "/", "/bin/sh", "-c", "cat /proc/net/dev"); strings.Count(out, "\n") > 3 {
		t.Errorf("network devices: %s", out)
	}
	for _, script := range []string{"mount -o remount,rw /bin/sh", "mount -t tmpfs x /tmp", "echo x >/bin/sh", "echo 1 >/proc/sys/vm/drop_caches"} {
		if o, out := runIn(t, tr, "/", "/bin/sh", "-c", script); o.Exit == 0 {
			t.Errorf("%s: got %+v, %q", script, o, out)
		}
	}
}

func TestLimits(t *testing.T) {
	if own, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || own != 20 { // 20 minus the nice level
		t.Skip("this runs at another nice level")
	}
	tr := newTree(t, Spec{Files: programs(t, "/bin/sh", "head", "nice"), Size: 4 << 20})
	fd := int(null(t).Fd())
	r, err := tr.Start(&Command{
		Argv: []string{"/bin/sh", "-c", "until [ $(nice) -gt 0 ]; do :; done; nice >/tmp/nice; ulimit -f >/tmp/limit; exec head -c 2000000 /dev/zero >/tmp/big"},
		Env:  []string{"PATH=/usr/bin:/bin"}, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd, Nice: 7, Limits: sandbox.Limits{File: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := r.Wait()
	if err != nil || o.Signal != int(unix.SIGXFSZ) {
		t.Errorf("got %+v, %v", o, err)
	}
	if got := content(t, tr, "/tmp/nice"); got != "7\n" {
		t.Errorf("nice: got %q", got)
	}
	if got := content(t, tr, "/tmp/limit"); got != "2048\n" { // blocks of 512 bytes
		t.Errorf("limit: got %q", got)
	}
	if got := content(t, tr, "/tmp/big"); len(got) != 1<<20 {
		t.Errorf("wrote %d bytes", len(got))
	}
	if o, out := runIn(t, tr, "/", "/bin/sh", "-c", "exec head -c 5000000 /dev/zero >/tmp/big"); o.Exit == 0 || !strings.Contains(out, "No space left") {
		t.Errorf("got %+v, %q", o, out)
	}
	must(t, tr.Clean())
}

func TestTheProcessIsGone(t *testing.T) {
	tr := shell(t, "sleep")
	fd := int(null(t).Fd())
	c := &Command{Argv: []string{"/bin/sh", "-c", "sleep 1000"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd}
	r, err := tr.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = tr.proc.Kill() }()
	if _, err := r.Wait(); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
	tr.busy = false
	if r, err := tr.Start(c); err == nil {
		_, err = r.Wait()
		if !errors.Is(err, ErrGone) {
			t.Errorf("got %v, want ErrGone", err)
		}
	} else if !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
	r.Kill()
}
