package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// managerMain is this test binary under the name rdistcc-cm: it records how it was started, does what
// MANAGER says, and then answers every Lease with no-hosts until its test has ended, which takes the notes away.
func managerMain() int {
	note, err := os.OpenFile(os.Getenv("MANAGER_NOTES"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return 1
	}
	cwd, _ := os.Getwd()
	sid, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	fds, _ := os.ReadDir("/proc/self/fd")
	var open []string
	for _, fd := range fds {
		n, _ := strconv.Atoi(fd.Name())
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && n != int(note.Fd()) &&
			!strings.HasPrefix(target, "anon_inode") && !strings.Contains(target, "/fd") && !strings.HasPrefix(target, "/sys/") {
			open = append(open, fd.Name())
		}
	}
	fmt.Fprintln(note, strings.Join(os.Args[1:], " "), cwd, int(sid) == os.Getpid(), strings.Join(open, ","), os.Getenv(typed.Safeguard), os.Getpid())
	switch os.Getenv("MANAGER") {
	case "fails":
		fmt.Fprintln(os.Stderr, "no config")
		return 101
	case "refuses":
		fmt.Fprintf(os.NewFile(3, "ready"), "\x65%s:7: unknown key", os.Getenv("MANAGER_CONFIG"))
		return 101
	case "slow":
		time.Sleep(4 * time.Second)
	case "hangs":
		time.Sleep(time.Minute) // until the test kills it
		return 0
	}
	l, err := ipcserver.Listen(os.Args[2], false)
	if err != nil {
		return 102
	}
	fd, _ := strconv.Atoi(os.Getenv("RDISTCC_READY_FD"))
	ready := os.NewFile(uintptr(fd), "ready")
	if _, err := ready.Write([]byte{1}); err != nil {
		return 107
	}
	ready.Close()
	for {
		l.SetDeadline(time.Now().Add(time.Second))
		c, err := l.AcceptConn()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if _, err := os.Stat(os.Getenv("MANAGER_NOTES")); err == nil {
				continue
			}
		}
		if err != nil {
			l.Close()
			return 0
		}
		go func() {
			defer c.Close()
			for {
				k, _, err := c.Recv()
				switch {
				case err != nil || k == ipc.KindFinish:
					return
				case k == ipc.KindWhole:
					err = c.Send(ipc.AppendBare(nil, ipc.KindAsk))
				case k == ipc.KindLease:
					err = c.Send((&ipc.GoLocal{Reason: "no-hosts", Code: reason.ExitNoHosts}).Append(nil))
				case k == ipc.KindLocal:
					err = c.Send(ipc.AppendBare(nil, ipc.KindGo))
				}
				if err != nil {
					return
				}
			}
		}()
	}
}

// install puts rdistcc and this test binary, as rdistcc-cm, side by side.
func (b *bench) install() string {
	b.t.Helper()
	me, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	for name, file := range map[string]string{"rdistcc": rdistcc, "rdistcc-cm": me} {
		if err := exec.Command("cp", file, b.path(name)).Run(); err != nil {
			b.t.Fatal(err)
		}
	}
	b.env = append(b.env, "MANAGER_NOTES="+b.path("notes"))
	return b.path("rdistcc")
}

// TestOneManagerForManyWrappers: fifty at once start one, and all use it.
func TestOneManagerForManyWrappers(t *testing.T) {
	b := newBench(t)
	b.write("hello.c", "int x;\n")
	program := b.install()
	b.env = append(b.env, "RDISTCC_FALLBACK=0", "RDISTCC_VERBOSE=0")
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			cmd := b.cmd(program, "gcc", "-c", "hello.c")
			_ = cmd.Run() // the status tells
			if code := cmd.ProcessState.ExitCode(); code != reason.ExitNoHosts {
				t.Errorf("exit status %d, want %d", code, reason.ExitNoHosts)
			}
		})
	}
	wg.Wait()
	socket := filepath.Join(b.path("state"), ipc.SocketName)
	want := "--socket " + socket + " / true 0,1,2,3  "
	if notes := b.read("notes"); !strings.HasPrefix(notes, want) || strings.Count(notes, "\n") != 1 {
		t.Errorf("managers started:\n%swant\n%s", notes, want)
	}
	if st, err := os.Stat(b.path("state")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("state directory: %v, %v", st.Mode(), err)
	}
}

// TestManagerGetsNoneOfTheBuild: a descriptor that the build hands down, say
// make's job server, is not kept open by the manager, and still reaches the
// compiler.
func TestManagerGetsNoneOfTheBuild(t *testing.T) {
	b := newBench(t)
	program := b.install()
	if err := os.MkdirAll(b.path("bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.path("bin/gcc"), []byte("#!/bin/sh\necho from the compiler >&4\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := b.cmd(program, b.path("bin/gcc"), "-c", "hello.c")
	cmd.ExtraFiles = []*os.File{nil, w}
	b.wants(b.finish(cmd), 0, "")
	w.Close()
	buf := make([]byte, 100)
	n, _ := r.Read(buf)
	if got := string(buf[:n]); got != "from the compiler\n" {
		t.Errorf("the compiler wrote %q", got)
	}
	if n, err := r.Read(buf); n != 0 || err == nil {
		t.Errorf("read %d, %v: somebody keeps the pipe", n, err)
	}
	b.read("notes")
}

func TestManagerThatDoesNotStart(t *testing.T) {
	b := newBench(t, "MANAGER=fails")
	b.write("hello.c", "int x;\n")
	program := b.install()
	see := "(see " + filepath.Join(b.path("state"), ipc.LogName) + "); compiled here"
	b.wants(b.run(program, "gcc", "-c", "hello.c"), 0, "connection manager did not start "+see)
	if log := b.read("state/" + ipc.LogName); log != "no config\n" {
		t.Errorf("log: %q", log)
	}
	b.wants(b.run("env", "RDISTCC_BUILD=another", program, "gcc", "-c", "hello.c"), 0, "connection manager did not start a moment ago "+see)
	if n := strings.Count(b.read("notes"), "\n"); n != 1 {
		t.Errorf("%d attempts, want 1: the second would only cost time", n)
	}
	b.env = append(b.env, "RDISTCC_FALLBACK=0")
	b.wants(b.run(program, "gcc", "-c", "hello.c"), reason.ExitConnect, "not compiled here")
	b.reported("local:manager", "local:manager", "local:manager")
	// Some time later, with the fault fixed.
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(b.path("state"), ipc.LockName), old, old); err != nil {
		t.Fatal(err)
	}
	b.env = append(b.env, "MANAGER=")
	b.wants(b.run(program, "gcc", "-c", "hello.c"), reason.ExitNoHosts, "no-hosts")
}

// TestManagerThatRefuses: each command prints the manager's own line, with the status of a wrong setting,
// until the file that the line names is edited.
func TestManagerThatRefuses(t *testing.T) {
	b := newBench(t, "MANAGER=refuses")
	b.write("hello.c", "int x;\n")
	b.write("config.yaml", "x\n")
	b.env = append(b.env, "MANAGER_CONFIG="+b.path("config.yaml"))
	program := b.install()
	line := "rdistcc: " + b.path("config.yaml") + ":7: unknown key; "
	b.wants(b.run(program, "gcc", "-c", "hello.c"), 0, line+"compiled here")
	b.env = append(b.env, "RDISTCC_FALLBACK=0")
	b.wants(b.run(program, "gcc", "-c", "hello.c"), reason.ExitArguments, line+"not compiled here")
	if n := strings.Count(b.read("notes"), "\n"); n != 1 {
		t.Errorf("%d attempts, want 1: the second would only cost time", n)
	}
	b.env = append(b.env, "MANAGER=")
	b.wants(b.run(program, "gcc", "-c", "hello.c"), reason.ExitArguments, line+"not compiled here")
	if err := os.Chmod(b.path("config.yaml"), 0o640); err != nil { // any change will do
		t.Fatal(err)
	}
	b.wants(b.run(program, "gcc", "-c", "hello.c"), reason.ExitNoHosts, "no-hosts")
}

// TestManagerThatIsSlow: a manager that gets little processor time at first, as beside other builds, is waited for.
func TestManagerThatIsSlow(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 4 s")
	}
	t.Parallel()
	b := newBench(t, "MANAGER=slow", "RDISTCC_FALLBACK=0")
	b.write("hello.c", "int x;\n")
	b.wants(b.run(b.install(), "gcc", "-c", "hello.c"), reason.ExitNoHosts, "no-hosts")
}

func TestManagerThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 10 s")
	}
	t.Parallel()
	b := newBench(t, "MANAGER=hangs")
	b.write("hello.c", "int x;\n")
	program := b.install()
	b.wants(b.run(program, "gcc", "-c", "hello.c"), 0, "connection manager did not start within 10 s")
	b.read("hello.o")
	b.reported("local:manager")
	fields := strings.Fields(b.read("notes"))
	if pid, err := strconv.Atoi(fields[len(fields)-1]); err != nil || !gone(pid) {
		t.Errorf("manager %d lives on (%v)", pid, err)
	}
}
