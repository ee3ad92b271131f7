package privatetree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// How this program is called for a part in a test.
const (
	victimArg0  = "tree-test-victim"
	limitedArg0 = "tree-test-limited"
	coveredArg0 = "tree-test-covered"
)

// again prepares this program to be started in another part.
func again(arg0 string, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = arg0
	cmd.Dir = "/"
	return cmd
}

// victim makes two trees, starts commands that do not end, and waits to be killed.
func victim() {
	for i := range 2 {
		tr, err := New(context.Background(), Spec{Files: os.Args[1:]})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		fd := int(null.Fd())
		r, err := tr.Start(&Command{
			Argv: []string{"/bin/sh", "-c", hardToKill + "sleep 1000"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd,
		})
		if err != nil {
			panic(err)
		}
		for i == 0 { // the other one is killed with its command about to start
			if f, err := tr.Open("/tmp/ready"); err == nil {
				unix.Close(f.FD)
				break
			}
			time.Sleep(time.Millisecond)
		}
		fmt.Println(tr.proc.Pid)
		defer r.Kill()
	}
	time.Sleep(time.Hour) // not select{}, which ends a program that has no other goroutine
}

func TestKilledCallerLeavesNoProcess(t *testing.T) {
	newTree(t, Spec{}) // or skip
	cmd := again(victimArg0, programs(t, "/bin/sh", "setsid", "sleep")...)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var namespaces []string
	for range 2 {
		var pid int
		if _, err := fmt.Fscan(out, &pid); err != nil {
			t.Fatal(err)
		}
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid_for_children", pid))
		must(t, err)
		namespaces = append(namespaces, ns)
	}
	must(t, cmd.Process.Kill())
	if err := cmd.Wait(); !cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("it was not the signal that ended the caller: %v", err)
	}
	for range 10_000 {
		if len(processesIn(t, namespaces)) == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("processes live on: %q", processesIn(t, namespaces))
}

// processesIn lists the processes of pid namespaces.
func processesIn(t *testing.T, namespaces []string) (found []string) {
	t.Helper()
	all, err := os.ReadDir("/proc")
	must(t, err)
	for _, e := range all {
		if ns, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err == nil {
			for _, want := range namespaces {
				if ns == want {
					found = append(found, e.Name())
				}
			}
		}
	}
	return found
}

func TestNothingLeaks(t *testing.T) {
	files := programs(t, "/bin/sh", "cat")
	newTree(t, Spec{Files: files}) // or skip
	count := func(name string) int {
		b, err := os.ReadFile("/proc/self/mountinfo")
		must(t, err)
		if name == "mounts" {
			return bytes.Count(b, []byte("\n"))
		}
		fds, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(fds)
	}
	fds, mounts := count("fds"), count("mounts")
	for i := range 5 {
		tr, err := New(t.Context(), Spec{Files: files})
		must(t, err)
		must(t, tr.Write(fmt.Sprintf("/w/%d/a", i), nil, when, false))
		if o, out := runIn(t, tr, "/w", "/bin/sh", "-c", "echo ok"); out != "ok\n" {
			t.Error(o, out)
		}
		must(t, tr.Write("/tmp/x/y", nil, when, false)) // not cleaned
		must(t, tr.Close())
		must(t, tr.Close())
		if _, err := New(t.Context(), Spec{Files: []string{"/none/such"}}); err == nil {
			t.Error("a file that is not there was shown")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(ctx, Spec{Files: files}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	// What an earlier test has told to end, or this one, may take a moment to be gone.
	for i := 0; i < 500 && count("fds") > fds; i++ {
		time.Sleep(10 * time.Millisecond)
	}
	if n := count("fds"); n > fds {
		names, _ := filepath.Glob("/proc/self/fd/*")
		for i := range names {
			names[i], _ = os.Readlink(names[i]) // says what was left
		}
		t.Errorf("%d descriptors, before %d: %q", n, fds, names)
	}
	if n := count("mounts"); n != mounts {
		t.Errorf("%d mounts, before %d", n, mounts)
	}
}

func TestTreesSideBySide(t *testing.T) {
	files := programs(t, "/bin/sh", "cat")
	newTree(t, Spec{}) // or skip
	var wait sync.WaitGroup
	for i := range 4 {
		tr := newTree(t, Spec{Files: files})
		wait.Go(func() {
			for k := range 20 {
				text := fmt.Sprintf("tree %d job %d\n", i, k)
				name := fmt.Sprintf("/w/%d.c", k)
				if err := tr.Write(name, []byte(text), when, false); err != nil {
					t.Error(err)
					return
				}
				if o, out := runIn(t, tr, "/w", "/bin/sh", "-c", "cat *"); o.Exit != 0 || out != text {
					t.Errorf("got %+v, %q, want %q", o, out, text)
				}
				if err := tr.Clean(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}

func TestCloseEndsARun(t *testing.T) {
	tr := shell(t, "sleep", "setsid")
	fd := int(null(t).Fd())
	r, err := tr.Start(&Command{
		Argv: []string{"/bin/sh", "-c", hardToKill + "sleep 1000"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd,
	})
	must(t, err)
	started(t, tr, "/tmp/ready")
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid_for_children", tr.proc.Pid))
	must(t, err)
	ended := make(chan error)
	go func() {
		_, err := r.Wait()
		ended <- err
	}()
	must(t, tr.Close())
	if err := <-ended; !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want ErrGone", err)
	}
	if left := processesIn(t, []string{ns}); len(left) != 0 {
		t.Errorf("processes live on: %q", left)
	}
}

// TestWithoutRoot runs the package's tests as a user without rights.
func TestWithoutRoot(t *testing.T) {
	if testing.Short() {
		t.Skip("runs all tests anew")
	}
	part.Skip(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	tmp, err := os.MkdirTemp("", "tree-nobody")
	must(t, err)
	defer os.RemoveAll(tmp)
	must(t, os.Chmod(tmp, 0o711)) //nolint:gosec // the other user looks into it
	must(t, os.Chown(tmp, 65534, 65534))
	cmd := again("tree.test", "-test.v", "-test.short", "-test.timeout=30m")
	cmd.Env = append(cmd.Environ(), "TMPDIR="+tmp, "HOME="+tmp, allTests+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if bytes.Contains(out, []byte("--- SKIP: TestKill ")) {
		t.Skipf("%s", out)
	}
}

func TestAnotherUser(t *testing.T) {
	if !MayMount() {
		t.Skip("needs root to run commands as another user")
	}
	tr := newTree(t, Spec{Files: programs(t, "/bin/sh", "id", "stat", "sleep", "setsid", "cat"), UID: 65533, GID: 65532})
	must(t, tr.Write("/w/a.c", []byte("text"), when, false))
	must(t, tr.Symlink("a.c", "/w/l"))
	_, out := runIn(t, tr, "/w", "/bin/sh", "-c", `
id -u; id -g; id -G; stat -c '%u %g' . a.c l; echo x >a.o && echo wrote; echo x >/tmp/x && echo wrote
exec 2>/dev/null; (echo x >/usr/bin/x) || echo not; cat /proc/1/environ || echo not; kill -9 1 || echo not`)
	want := "65533\n65532\n65532\n65533 65532\n65533 65532\n65533 65532\nwrote\nwrote\nnot\nnot\nnot\n"
	if out != want {
		t.Errorf("got:\n%swant:\n%s", out, want)
	}
	if got := content(t, tr, "/w/a.o"); got != "x\n" {
		t.Errorf("got %q", got)
	}
	if o, _ := runIn(t, tr, "/w", "/bin/sh", "-c", hardToKill); o.Exit != 0 {
		t.Errorf("got %+v", o)
	}
	if n := members(t, tr); n > 1 {
		t.Errorf("%d processes live on", n-1)
	}
	must(t, tr.Clean())
}

// TestQuietRuntime looks at how exactly the threads of a tree's process are woken: the
// runtime's need not be, and a command's is as in any other place.
func TestQuietRuntime(t *testing.T) {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	own := strconv.Itoa(slack) + "\n"
	tr := newTree(t, Spec{Files: programs(t, "/bin/cat")})
	threads, err := os.ReadDir("/proc/" + strconv.Itoa(tr.proc.Pid) + "/task")
	if err != nil {
		t.Fatal(err)
	}
	quiet := 0
	for _, th := range threads {
		slack, err := os.ReadFile("/proc/" + th.Name() + "/timerslack_ns")
		if err != nil {
			t.Skipf("needs CAP_SYS_NICE: %v", err)
		}
		if string(slack) == threadSlack+"\n" {
			quiet++
		} else if th.Name() == strconv.Itoa(tr.proc.Pid) && string(slack) != own {
			t.Errorf("the thread that starts commands has %s", slack)
		}
	}
	if quiet == 0 {
		t.Errorf("none of the %d threads oversleeps", len(threads))
	}
	if o, out := runIn(t, tr, "/", "/bin/cat", "/proc/self/timerslack_ns"); o.Exit != 0 || out != own {
		t.Errorf("a command has %q, %+v; this process %q", out, o, own)
	}
}
