// Package tree shows commands a root directory of their own: exactly the files
// of a toolchain, read-only, and what the caller writes for one job, all of them
// under the names that they have elsewhere.
//
// A Tree is a small process, this program again, that is the first one of a mount,
// pid and IPC namespace (and of a user namespace when the caller has no right to
// mount). Its root is a tmpfs with the toolchain bind-mounted into it. The
// process then starts one command at a time for the caller, and kills and reaps all
// that a command leaves. When the caller ends, however it ends, the process
// ends, and the kernel takes everything in the namespaces with it.
//
// The caller writes the job's files itself, through a descriptor of the tree's root.
// No name and no symbolic link leads it out of the tree.
package tree

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Arg0 is how the program is called when it is to be a tree's process: main, and a
// test's main, look at os.Args[0] and hand over to Main.
const Arg0 = "rdistccd-tree"

var (
	// ErrNoRight means that this process may not make namespaces or mounts. The
	// message has the step that failed, why, and what would permit it.
	ErrNoRight = errors.New("no right to make private trees")

	// ErrTaken means that a name of the job is one of the toolchain's, with other
	// content, or lies in a directory of the toolchain that is shown whole.
	ErrTaken = errors.New("name is taken by the toolchain")

	// ErrSpoiled means that a tree is not as it was: close it and make a new one.
	ErrSpoiled = errors.New("tree is spoiled")

	// ErrGone means that the tree's process has ended: close the tree.
	ErrGone = errors.New("tree's process has ended")
)

// Spec says what a tree shows.
type Spec struct {
	// Files and Dirs are absolute names on this host: regular files, and directories
	// that are shown whole. They are read-only and have their own names, with the
	// symbolic links and directories that lead to them. A file system
	// mounted somewhere below one of Dirs need not show. /dev/null, zero, full and
	// urandom, /proc and an empty /tmp are always there.
	Files, Dirs []string

	Size int64 // bytes that a job may write, its sources included; 0: 1 GiB

	// UID and GID own what jobs write, and their commands run as them. Zero is the
	// caller's own; another one needs root. Commands have no capabilities, as root too.
	UID, GID int
}

// Command is one process to run in a tree.
type Command struct {
	Path   string   // the program, a name in the tree; "": Argv[0]
	Argv   []string // with the program's own name first
	Env    []string
	Dir    string // working directory, a name in the tree
	Stdin  int    // descriptors of the caller: they may lead out of the tree
	Stdout int
	Stderr int

	Nice    int   // is added to the caller's
	FileMax int64 // bytes that a file may have; past it SIGXFSZ ends the command; 0: no limit
}

// Outcome is how a command ended.
type Outcome struct {
	Exit   int           // its status, if no signal ended it
	Signal int           // 0: none
	CPU    time.Duration // of the command and of all whom it waited for
	MaxRSS uint64        // bytes, of the largest of them
	Killed bool          // Run.Kill came before the end
}

// File is a regular file of the tree, open for reading. The caller closes FD.
type File struct {
	FD   int
	Size int64 // bytes
	Exec bool  // its owner may execute it
}

const defaultSize = 1 << 30 // bytes

// Tree is a root directory with a process that runs commands in it. Run.Kill
// and Close may be called by any goroutine; all else is one goroutine's at a time.
type Tree struct {
	// set once in New
	proc     *os.Process
	conn     *os.File // the socket
	sock     syscall.RawConn
	block    int // memfd
	root     int
	uid, gid int // that own what jobs write; 0: the caller
	lacks    []string
	standing *standing            // the root directory, as it is between jobs
	byIno    map[uint64]*standing // it and those below
	close    func() error

	// owned by the goroutine that uses the tree
	seq uint64
	buf []byte
	in  [replySize]byte
	big bool // the block is larger than it needs to be
	job job

	dirents []byte // for list
}

// New starts a tree's process and returns when the tree is there. ErrNoRight is not worth
// another try on this host; other errors come from the names in s. Cancelling ctx
// ends the making only.
func New(ctx context.Context, s Spec) (*Tree, error) {
	if (s.UID != 0 || s.GID != 0) && !mayMount() {
		return nil, fmt.Errorf("%w: run commands as user %d: only root can", ErrNoRight, s.UID)
	}
	if s.Size == 0 {
		s.Size = defaultSize
	}
	t := &Tree{root: -1, block: -1, uid: s.UID, gid: s.GID}
	t.job.begin()
	t.close = sync.OnceValue(t.end)
	if err := t.start(&s); err != nil {
		t.Close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = t.proc.Kill() })
	err := t.ready()
	if !stop() {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = t.snapshot()
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("make a private tree: %w", err)
	}
	return t, nil
}

// start starts the process and sends it the specification.
func (t *Tree) start(s *Spec) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a private tree: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "tree")
	defer theirs.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil { // for the netpoller
		unix.Close(pair[0])
		return fmt.Errorf("make a private tree: %w", err)
	}
	t.conn = os.NewFile(uintptr(pair[0]), "tree")
	if t.sock, err = t.conn.SyscallConn(); err != nil {
		return fmt.Errorf("make a private tree: %w", err)
	}
	if t.block, err = unix.MemfdCreate("tree", unix.MFD_CLOEXEC); err != nil {
		return fmt.Errorf("make a private tree: %w", err)
	}
	if t.proc, err = startChild(theirs, t.block); err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(s.UID))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.GID))
	b = appendStrings(b, s.Files...)
	b = appendStrings(b, s.Dirs...)
	if err := writeBlock(t.block, b); err != nil {
		return fmt.Errorf("make a private tree: %w", err)
	}
	t.big = len(b) > blockKeep
	return t.send(&request{block: uint64(len(b)), fileMax: s.Size}, nil)
}

// startChild re-executes this program in new namespaces.
func startChild(sock *os.File, block int) (*os.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("make a private tree: %w", err)
	}
	defer null.Close()
	// os.StartProcess takes files; the descriptor stays the caller's.
	dup, err := unix.FcntlInt(uintptr(block), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a private tree: %w", err)
	}
	mem := os.NewFile(uintptr(dup), "tree")
	defer mem.Close()
	sys := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
		Setsid:     true, // the terminal's signals are for the caller
	}
	if !mayMount() {
		sys.Cloneflags |= unix.CLONE_NEWUSER
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	p, err := os.StartProcess("/proc/self/exe", []string{Arg0}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"GOMAXPROCS=1"},
		Files: []*os.File{null, null, os.Stderr, sock, mem},
		Sys:   sys,
	})
	if err != nil {
		return nil, noRight("start a process in new namespaces", err)
	}
	return p, nil
}

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
		if r.right {
			return noRight("", err)
		}
		return err
	}
	if len(files) != 1 {
		return errors.New("the tree's process sent no root")
	}
	t.root = files[0]
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

// Root is a descriptor (O_PATH) of the tree's root directory, for openat2 with
// RESOLVE_IN_ROOT. It stays the tree's.
func (t *Tree) Root() int { return t.root }

// Lacks says what this host could not give the tree, one line each.
func (t *Tree) Lacks() []string { return t.lacks }

// Close kills all that runs in the tree, waits until it is dead, and frees the tree.
func (t *Tree) Close() error { return t.close() }

func (t *Tree) end() error {
	var err error
	if t.proc != nil {
		// The end of a namespace's first process waits for all others.
		_ = t.proc.Kill() // it may have ended already
		_, err = t.proc.Wait()
	}
	t.job.end()
	if t.conn != nil {
		t.conn.Close()
	}
	for _, fd := range []int{t.block, t.root} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if err != nil {
		return fmt.Errorf("close a private tree: %w", err)
	}
	return nil
}
