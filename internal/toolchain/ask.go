package toolchain

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// probeTime bounds one run of a driver that describes itself.
const probeTime = 20 * time.Second

// printMax is how much of a driver's description is read, in bytes.
const printMax = 64 << 10

func (f *finding) progName(name string) (string, error) { return f.ask("-print-prog-name=" + name) }

// ask runs the driver with one option that makes it print one line, and returns the line.
func (f *finding) ask(option string) (string, error) {
	out, err := f.run(f.tc.Exec, option)
	if err != nil {
		return "", fmt.Errorf("identify compiler: %s %s: %w", f.tc.Exec, option, err)
	}
	line, _, _ := strings.Cut(out, "\n")
	return strings.TrimSpace(line), nil
}

// run runs a program and returns what it prints on both its outputs. It prints into memory, not into a pipe: the end
// of a pipe comes late if a process that the driver left behind holds it, or if the whole machine was paused.
func (f *finding) run(path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(f.ctx, f.limit, fmt.Errorf("no answer for %v", f.limit))
	defer cancel()
	fd, err := unix.MemfdCreate("driver", unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("memory for what %s prints: %w", path, err)
	}
	out := os.NewFile(uintptr(fd), "driver")
	defer out.Close()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = f.env
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	// In a group of its own, which is killed with it: a script would leave behind what it has started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	// Pdeathsig comes at the end of the thread that starts it: none ends that a goroutine holds. Others do (internal/lookups).
	runtime.LockOSThread()
	err = cmd.Run()
	runtime.UnlockOSThread()
	if ctx.Err() != nil {
		f.unanswered = cmp.Or(f.unanswered, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), context.Cause(ctx)))
		return "", context.Cause(ctx)
	}
	var ended *exec.ExitError
	if err != nil && (!errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL) {
		f.unanswered = cmp.Or(f.unanswered, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)) // there was no memory, or no process
	}
	printed, readErr := io.ReadAll(io.NewSectionReader(out, 0, printMax))
	if readErr != nil {
		return "", readErr
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, firstLine(printed))
	}
	return string(printed), nil
}

func firstLine(b []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(b), []byte("\n"))
	return string(line)
}
