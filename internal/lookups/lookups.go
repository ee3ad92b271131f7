// Package lookups runs a command and reports every name that it, and whatever it starts, looks up in the file system, whether there
// is such a file or not. What is known of how a compiler searches can be held against that.
//
// A seccomp filter stops the command in the calls that look up names, and ptrace tells which. That needs no rights for a child of
// one's own, and costs two switches of the processor for each name. Programs that are started are not reported as names: what
// looks for one tests whether it exists.
package lookups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrUnseen means that the system lets nobody watch a process here, or that a process made calls that cannot be read: what was looked
// up is not known.
var ErrUnseen = errors.New("system calls cannot be watched")

// Run runs a program with argv and attr, whose Sys it sets, and returns the names, absolute and otherwise as the program spelt them,
// each once in the order of the calls, and how the program ended. It returns when all processes of the program's group have
// ended; the end of ctx kills them.
func Run(ctx context.Context, path string, argv []string, attr syscall.ProcAttr) (names []string, status syscall.WaitStatus, err error) {
	onThread(func() {
		r := run{ctx: ctx, seen: make(map[string]struct{})}
		err = r.start(path, argv, attr)
		names, status = r.names, r.status
	})
	return names, status, err
}

// onThread runs f on a thread that ends with it: only the thread that starts a process traces it, and the filter stays on it. The
// first thread of this process cannot end.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			onThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}

// mostNames bounds the names: a C++ source of 300 headers takes 5,000.
const mostNames = 1 << 18

var errMany = errors.New("it looks up too many names")

// run is a program that is watched.
type run struct {
	ctx    context.Context
	pid    int
	names  []string
	seen   map[string]struct{}
	status syscall.WaitStatus
	text   [unix.PathMax]byte
}

func (r *run) start(path string, argv []string, attr syscall.ProcAttr) error {
	attr.Sys = &syscall.SysProcAttr{Ptrace: true, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := filter(); err != nil {
		return err
	}
	var err error
	if r.pid, err = syscall.ForkExec(path, argv, &attr); err != nil {
		return err
	}
	defer context.AfterFunc(r.ctx, func() { _ = unix.Kill(-r.pid, unix.SIGKILL) })()
	if err = r.watch(); err != nil {
		_ = unix.Kill(-r.pid, unix.SIGKILL)
		for { // the group, so that no other child of this process is reaped
			if _, err := unix.Wait4(-r.pid, nil, unix.WALL, nil); err != nil && err != unix.EINTR {
				break
			}
		}
	}
	return errors.Join(err, context.Cause(r.ctx))
}

const options = unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL

func (r *run) watch() error {
	for first := true; ; {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-r.pid, &ws, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ECHILD:
			return nil
		case err != nil:
			return err
		case !ws.Stopped():
			if pid == r.pid {
				r.status = syscall.WaitStatus(ws)
			}
			continue
		}
		signal := 0
		switch stop := ws.StopSignal(); {
		case first:
			first = false
			if err := unix.PtraceSetOptions(pid, options); err != nil {
				return fmt.Errorf("%w: %w", ErrUnseen, err)
			}
		case stop == unix.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
			if err := r.call(pid); err != nil {
				return err
			}
		case stop == unix.SIGTRAP && ws.TrapCause() > 0, stop == unix.SIGSTOP: // another event, or a new process
		default:
			signal = int(stop)
		}
		if err := unix.PtraceCont(pid, signal); err != nil && err != unix.ESRCH {
			return fmt.Errorf("%w: %w", ErrUnseen, err)
		}
	}
}

// call handles a thread that has stopped in a call.
func (r *run) call(pid int) error {
	what, err := unix.PtraceGetEventMsg(pid)
	if err == nil && what == unseen {
		return fmt.Errorf("%w: a program of another architecture", ErrUnseen)
	}
	var regs unix.PtraceRegs
	if err == nil {
		err = unix.PtraceGetRegs(pid, &regs)
	}
	if err == unix.ESRCH {
		return nil // it was killed
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnseen, err)
	}
	args := arguments(&regs)
	dir, at := int32(unix.AT_FDCWD), args[0]
	if what == nameSecond {
		dir, at = int32(args[0]), args[1]
	}
	name, err := Name(pid, at, r.text[:])
	if err != nil || name == "" {
		return nil // the call fails likewise, or is about a descriptor
	}
	if name[0] != '/' {
		in, err := r.directory(pid, dir)
		if err != nil {
			return nil // there is no such descriptor
		}
		name = strings.TrimSuffix(in, "/") + "/" + name
	}
	if _, known := r.seen[name]; !known {
		if len(r.names) == mostNames {
			return errMany
		}
		r.seen[name] = struct{}{}
		r.names = append(r.names, name)
	}
	return nil
}

// directory returns the directory that a descriptor of a thread is, or the working directory.
func (r *run) directory(pid int, fd int32) (name string, err error) {
	link := "/proc/" + strconv.Itoa(pid) + "/cwd"
	if fd != unix.AT_FDCWD {
		link = "/proc/" + strconv.Itoa(pid) + "/fd/" + strconv.Itoa(int(fd))
	}
	read := make(chan struct{})
	go func() { // by another thread: the filter applies to this one
		defer close(read)
		name, err = os.Readlink(link)
	}()
	<-read
	return name, err
}

// Name returns the string, shorter than buf, at an address of a process, which this one may trace.
func Name(pid int, addr uint64, buf []byte) (string, error) {
	page := uint64(os.Getpagesize())
	for n := 0; n < len(buf); {
		part := buf[n:min(n+int(page-addr%page), len(buf))]
		into := unix.Iovec{Base: &part[0]}
		into.SetLen(len(part))
		k, err := unix.ProcessVMReadv(pid, []unix.Iovec{into}, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(part)}}, 0)
		if err != nil || k == 0 {
			return "", errors.Join(unix.EFAULT, err)
		}
		if end := bytes.IndexByte(part[:k], 0); end >= 0 {
			return string(buf[:n+end]), nil
		}
		n, addr = n+k, addr+uint64(k)
	}
	return "", unix.ENAMETOOLONG
}
