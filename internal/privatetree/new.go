package privatetree

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/entrypoint"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/wire"
)

const defaultSize = 1 << 30 // bytes

// New starts a tree's process and returns when the tree is ready. After ErrNoRight another try on this host
// is pointless; other errors come from the names in s. Cancelling ctx only ends the making.
func New(ctx context.Context, s Spec) (*Tree, error) {
	if s.Size == 0 {
		s.Size = defaultSize
	}
	if s.Bare != "" && !s.Answered {
		s.Keep = 0 // commands are given other names than those of kept files
	}
	t := &Tree{root: -1, block: -1, fresh: -1, uid: s.UID, gid: s.GID, bare: s.Bare}
	t.job.begin()
	t.kept.begin(s.Keep)
	t.close = sync.OnceValue(t.end)
	if err := t.make(ctx, &s); err != nil {
		_ = t.Close() // it was not completed
		return nil, fmt.Errorf("make a private tree: %w", err)
	}
	return t, nil
}

func (t *Tree) make(ctx context.Context, s *Spec) error {
	if (s.UID != 0 || s.GID != 0) && !(MayMount() || s.Bare != "" && sandbox.MayBecome()) {
		return fmt.Errorf("%w: run commands as user %d: needs root with CAP_SYS_ADMIN, or CAP_SETUID and the like without namespaces", ErrNoRight, s.UID)
	}
	for _, dir := range []string{s.Bare, s.Root} {
		if dir != "" && !path.IsAbs(dir) {
			return fmt.Errorf("%s: not an absolute name", dir)
		}
	}
	if s.Bare != "" && s.Root != "" {
		return fmt.Errorf("%w: a toolchain from %s needs namespaces", ErrNoRight, s.Root)
	}
	if s.Answered {
		if s.Bare == "" || !s.Confine {
			return fmt.Errorf("%w: the tree is not bare, or not confined", ErrUnanswered)
		}
		if err := t.mark(s); err != nil {
			return err
		}
	}
	if err := t.start(s); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = t.proc.Kill() })
	err := t.ready()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = t.snapshot()
	}
	if err == nil && t.marks != nil {
		err = t.try()
	}
	return err
}

// start starts the process and sends it the specification.
func (t *Tree) start(s *Spec) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "tree")
	defer theirs.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil { // for the netpoller
		unix.Close(pair[0])
		return err
	}
	t.conn = os.NewFile(uintptr(pair[0]), "tree")
	if t.sock, err = t.conn.SyscallConn(); err != nil {
		return err
	}
	if t.block, err = unix.MemfdCreate("tree", unix.MFD_CLOEXEC); err != nil {
		return err
	}
	if s.Cgroup != "" {
		if t.group, err = sandbox.NewGroup(s.Cgroup); err != nil {
			return err
		}
	}
	uid, gid := s.UID, s.GID
	var as *syscall.Credential
	if s.Answered && uid != 0 { // it does for commands what their calls ask for, with no more rights than they have
		as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		uid, gid = 0, 0
	}
	if t.proc, err = startChild(theirs, t.block, s.Bare == "", as); err != nil {
		return err
	}
	if t.group != nil {
		// The process waits for the specification, so it has not started anything yet. clone3 could have
		// created it in the group, but systemd's RestrictNamespaces= forbids that call, whose flags no
		// filter sees.
		if err := t.group.Add(t.proc.Pid); err != nil {
			return err
		}
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(uid))
	b = binary.LittleEndian.AppendUint32(b, uint32(gid))
	b = binary.LittleEndian.AppendUint32(b, uint32(bit(s.Confine))*confineBit|uint32(bit(s.Answered))*answeredBit)
	b = wire.AppendStrings(b, s.Files)
	b = wire.AppendStrings(b, s.Dirs)
	b = wire.AppendString(b, s.Bare)
	b = wire.AppendString(b, s.Root)
	if s.Answered {
		b = wire.AppendStrings(b, t.marks.files)
		b = wire.AppendStrings(b, t.marks.dirs)
	}
	if err := writeBlock(t.block, b); err != nil {
		return err
	}
	t.big = len(b) > blockKeep
	return t.send(&request{block: uint64(len(b)), limits: sandbox.Limits{File: s.Size + s.Keep}}, nil)
}

// Spec.Confine and Spec.Answered as passed to the process.
const (
	confineBit = 1 << iota
	answeredBit
)

// startChild re-executes this program, in new namespaces if apart, as another user if as is not nil.
func startChild(sock *os.File, block int, apart bool, as *syscall.Credential) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	// os.StartProcess takes files; the descriptor stays the caller's.
	dup, err := unix.FcntlInt(uintptr(block), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	mem := os.NewFile(uintptr(dup), "tree")
	defer mem.Close()
	sys := &syscall.SysProcAttr{Setsid: true, Credential: as} // the terminal's signals are meant for the caller
	if apart {
		sys.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWNET
	}
	if apart && !MayMount() {
		sys.Cloneflags |= unix.CLONE_NEWUSER
		if err := mayClone(sys.Cloneflags); err != nil {
			return nil, noRight("start a process in new namespaces", err)
		}
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	defer entrypoint.Given()()
	p, err := os.StartProcess("/proc/self/exe", []string{Arg0}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"GOMAXPROCS=1"},
		Files: []*os.File{null, null, os.Stderr, sock, mem},
		Sys:   sys,
	})
	if err != nil && apart {
		return nil, noRight("start a process in new namespaces", err)
	}
	return p, err
}

// mayClone returns the error by which the kernel refuses to start processes with some flags, or nil. os.StartProcess leaks
// two descriptors where it is to map users as well and is refused, so this tries without: with a program that does not exist.
func mayClone(flags uintptr) error {
	if cloned.Load() {
		return nil
	}
	_, err := os.StartProcess("/proc/self/none", []string{Arg0}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: flags}})
	if errors.Is(err, unix.ENOENT) {
		cloned.Store(true)
		return nil
	}
	return err
}

// cloned says that the kernel has let this process start others in namespaces.
var cloned atomic.Bool

// ready waits until the tree's process has made the tree.
func (t *Tree) ready() error {
	buf, oob := make([]byte, replySize+maxText), make([]byte, unix.CmsgSpace(4))
	n, files, err := t.receive(buf, oob)
	if err != nil {
		return err
	}
	var r reply
	if err := r.decode(buf[:n]); err != nil {
		return err
	}
	if r.errno != 0 {
		err := &childError{r.text, syscall.Errno(r.errno)}
		switch {
		case r.unanswered:
			return fmt.Errorf("%w: %w", ErrUnanswered, err)
		case r.right:
			return noRight("", err)
		}
		return err
	}
	if len(files) != 1 {
		return errors.New("the tree's process sent no root")
	}
	t.root, t.measures = files[0], r.measures
	if t.group != nil && t.group.Limited() {
		t.measures |= sandbox.Cgroup
	}
	if t.marks != nil && t.uid != 0 {
		t.measures |= sandbox.User
	}
	if r.text != "" {
		t.lacks = strings.Split(r.text, "\n")
	}
	return nil
}

// childError is an error of the tree's process.
type childError struct {
	text  string
	errno syscall.Errno
}

func (e *childError) Error() string { return e.text }
func (e *childError) Unwrap() error { return e.errno }
