package privatetree

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// tryArg has Main end at once: by then the program has made calls that name files.
const tryArg = "try"

// tried says that a command of this process has had its calls answered.
var tried atomic.Bool

// try finds out whether calls can be answered, by running this program in the tree: the kernel may let nobody read another process's
// memory.
func (t *Tree) try() error {
	if tried.Load() {
		return nil
	}
	exe, err := Self()
	if err != nil {
		return err
	}
	defer unix.Close(exe)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	fd := int(null.Fd())
	r, err := t.Start(&Command{ExecFD: exe, Argv: []string{Arg0, tryArg}, Dir: "/", Stdin: fd, Stdout: fd, Stderr: fd})
	if err != nil {
		return err
	}
	o, err := r.Wait()
	switch {
	case errors.Is(err, ErrGone):
		return err
	case err == nil && o.Excess == sandbox.ExcessNames:
		why := "the memory of commands cannot be read"
		if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && strings.TrimSpace(string(b)) > "1" {
			why += fmt.Sprintf(" (kernel.yama.ptrace_scope is %s; remedy: sysctl kernel.yama.ptrace_scope=1)", strings.TrimSpace(string(b)))
		}
		return fmt.Errorf("%w: %s", ErrUnanswered, why)
	case err == nil && o.Exit == 0 && o.Signal == 0: // otherwise it could not run there: it needs libraries
		tried.Store(true)
	}
	return t.Clean()
}

// Self returns a descriptor of a copy of this program that can be executed where no files can be. The caller
// closes it.
func Self() (int, error) {
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return -1, err
	}
	defer exe.Close()
	const execute = 0x10 // MFD_EXEC, which kernels before 6.3 do not know
	fd, err := unix.MemfdCreate(Arg0, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|execute)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(Arg0, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, fmt.Errorf("copy this program: %w", err)
	}
	for n := 1; n > 0 && err == nil; { // copied by the kernel: reading it would make 30 MB of garbage
		if n, err = unix.Sendfile(fd, int(exe.Fd()), nil, 1<<30); errors.Is(err, unix.EINTR) {
			n, err = 1, nil
		}
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("copy this program: %w", err)
	}
	return fd, nil
}
