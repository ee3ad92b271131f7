package main

import (
	"bufio"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hangingCompiler makes an executable that a test can follow: it writes its pid to the pipe "started" and
// then sleeps for longer than any test. Under the name gcc it is a compiler whose preprocessor hangs.
func (b *bench) hangingCompiler() (path string, started *os.File) {
	b.t.Helper()
	dir := b.path("bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	fifo := b.path("started")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		b.t.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { f.Close() })
	path = filepath.Join(dir, "gcc")
	// The sleep is a grandchild, like cc1 under a driver.
	text := "#!/bin/sh\nsleep 1000 &\necho $! >" + fifo + "\nwait\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		b.t.Fatal(err)
	}
	return path, f
}

// startedPID waits for the pid that the script writes.
func startedPID(t *testing.T, f *os.File) int {
	t.Helper()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// gone waits until no process has the pid, or it is a zombie.
func gone(pid int) bool {
	for range 1000 {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return true
		}
		time.Sleep(10 * time.Millisecond) // there is no event for the end of a stranger's child
	}
	return false
}

func TestInterruptedPreprocessor(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			t.Logf("%v is ignored here, as under nohup", sig)
			continue
		}
		m := newTestManager(t)
		b := m.bench()
		b.write("hello.c", hello)
		gcc, started := b.hangingCompiler()
		cmd := b.cmd(rdistcc, gcc, "-c", "hello.c")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		child := startedPID(t, started)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its status is looked at below
		if got, want := cmd.ProcessState.ExitCode(), 128+int(sig); got != want {
			t.Errorf("%v: exit status %d, want %d", sig, got, want)
		}
		if !gone(child) {
			t.Errorf("%v: the preprocessor lives on", sig)
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
		m.wait()
		if m.lost != 1 || len(m.finishes) != 0 || len(m.submits) != 0 {
			t.Errorf("%v: %d connections ended early, %d finished, %d submitted", sig, m.lost, len(m.finishes), len(m.submits))
		}
		if _, err := os.Stat(b.path("report")); err == nil {
			t.Errorf("%v: an interrupted job was reported", sig)
		}
	}
}

// TestKilledOutright: SIGKILL leaves no time for anything; the compiler's driver must end nevertheless.
func TestKilledOutright(t *testing.T) {
	m := newTestManager(t)
	b := m.bench()
	b.write("hello.c", hello)
	fifo := b.path("started")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.WriteFile(b.path("gcc"), []byte("#!/bin/sh\necho $$ >"+fifo+"\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{"-c", "hello.c"}, {"hello.c"}} { // preprocessor, and the command itself
		cmd := b.cmd(append([]string{rdistcc, "./gcc"}, words...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		child := startedPID(t, f)
		_ = cmd.Process.Kill() // it runs: cannot fail
		_ = cmd.Wait()
		if !gone(child) {
			t.Errorf("%q: the compiler lives on", words)
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
	}
}

func TestInterruptedRemoteJob(t *testing.T) {
	m := newTestManager(t)
	m.hang = make(chan struct{})
	b := m.bench()
	b.write("hello.c", hello)
	cmd := b.cmd(rdistcc, "gcc", "-c", "hello.c")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for n := 0; n == 0; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		n = len(m.submits)
		m.mu.Unlock()
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its status is looked at below
	<-m.hang
	if got := cmd.ProcessState.ExitCode(); got != 128+int(syscall.SIGTERM) {
		t.Errorf("exit status %d, want 143", got)
	}
	if _, err := os.Stat(b.path("hello.o")); err == nil {
		t.Error("there is an object")
	}
}

// TestInterruptedLocalCommand: the compiler gets the signal and its end is ours.
func TestInterruptedLocalCommand(t *testing.T) {
	b := newBench(t)
	fifo := b.path("started")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	script := "#!/bin/sh\ntrap 'kill $!; exit 42' TERM\nsleep 1000 &\necho $! >" + fifo + "\nwait\n"
	if err := os.WriteFile(b.path("gcc"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for sig, want := range map[syscall.Signal]int{syscall.SIGTERM: 42, syscall.SIGHUP: 129} {
		if signal.Ignored(sig) {
			t.Logf("%v is ignored here, as under nohup", sig)
			continue
		}
		cmd := b.cmd(rdistcc, "./gcc", "x.c")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		child := startedPID(t, f)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%v: exit status %d, want %d", sig, got, want)
		}
		_ = syscall.Kill(child, syscall.SIGKILL) // SIGHUP leaves the script's own child, as without us
	}
}

// TestIgnoredSignalStaysIgnored: nohup's children do not end with the terminal.
func TestIgnoredSignalStaysIgnored(t *testing.T) {
	b := newBench(t)
	if err := os.WriteFile(b.path("gcc"), []byte("#!/bin/sh\nkill -HUP $PPID\nkill -HUP $$\nexit 5\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	o := b.run(sh, "-c", "trap '' HUP; exec "+rdistcc+" ./gcc -E x.c")
	b.wants(o, 5, "")
}
