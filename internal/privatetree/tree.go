// Package privatetree shows commands a root directory of their own: exactly the files
// of a toolchain, read-only, and what the caller writes for one job, all of them
// under the names that they have elsewhere.
//
// A Tree is a small process, running this program again, that is the first one of a mount,
// pid, IPC and network namespace (and of a user namespace if the caller has no right
// to mount). Its root is a tmpfs with the toolchain bind-mounted into it. The
// process starts one command at a time for the caller, and kills and reaps everything
// that a command leaves. When the caller ends, in whatever way, the process
// ends, and the kernel ends everything in the namespaces with it.
//
// The caller writes the job's files itself, through a descriptor of the tree's root.
// No name and no symbolic link leads it out of the tree. Nothing that it writes can be
// executed, whatever its mode.
package privatetree

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// Arg0 is the name by which the program is called to become a tree's process: main, and a
// test's main, check os.Args[0] and hand over to Main.
const Arg0 = "rdistccd-tree"

var (
	// ErrNoRight means that this process may not make namespaces or mounts. The message says
	// which step failed, why, and what would permit it.
	ErrNoRight = errors.New("no right to make namespaces")

	// ErrUnanswered means that calls of commands cannot be answered here. The message says why.
	ErrUnanswered = errors.New("calls that name files cannot be answered")

	// ErrTaken means that a name of the job is one of the toolchain's with other content, or is in a
	// directory of the toolchain that is shown whole.
	ErrTaken = errors.New("name is taken by the toolchain")

	// ErrSpoiled means that a tree is no longer as it was: close it and make a new one.
	ErrSpoiled = errors.New("tree is spoiled")

	// ErrLittered means that so much was left in a tree that making a new one costs less than removing it:
	// close the tree.
	ErrLittered = errors.New("tree is littered")

	// ErrGone means that the tree's process has ended: close the tree.
	ErrGone = errors.New("tree's process has ended")
)

// Spec says what a tree shows.
type Spec struct {
	// Files and Dirs are absolute names on this host: regular files, and directories
	// that are shown whole. They are read-only and have their own names, with the
	// symbolic links and directories that lead to them. A file system
	// mounted below one of Dirs may be missing. A file stays the one that it
	// was when the tree was made, even if another one takes its name. /dev/null, zero,
	// full and urandom, /proc and an empty /tmp are always there.
	Files, Dirs []string

	// Root, if it is not empty, is a directory of this host, absolute and without links, in which Files and Dirs are
	// found as if it were the root. Links there lead to names below it. It cannot be combined with Bare.
	Root string

	Size int64 // bytes that a job may write, including its sources; 0: 1 GiB
	Keep int64 // bytes in addition to Size for files that stay from one job to the next; 0: none stay

	// UID and GID own what jobs write, and the jobs' commands run as them. Zero means the
	// caller's own; others require root. Commands have no capabilities, even as root.
	UID, GID int

	// Confine takes more from commands, through package sandbox: files, programs and system
	// calls that are not needed.
	Confine bool

	// Bare, if it is not empty, is an empty private directory of this host that replaces the root where
	// namespaces are not available: names of the job are below it (Path), and those of the toolchain are the
	// host's own.
	Bare string

	// Answered has this tree's process answer the calls of commands that name files, so that names of a bare tree are those that they are in
	// other trees: only the toolchain's and the job's are there. It needs Confine and Bare, and that the kernel reports calls to this process and
	// lets it read a command's memory: ErrUnanswered otherwise. /proc is empty.
	Answered bool

	// Cgroup is a directory of control groups, version 2, with the controllers memory and pids, in
	// which the caller may make others; "" means none.
	Cgroup string
}

// Command is what to run in a tree: one process, or several one after the other.
type Command struct {
	Path   string    // the program, a name in the tree; "": Argv[0]
	Argv   []string  // including the program's own name
	Then   []Program // each runs if the one before has ended with status 0 (but see Between)
	Env    []string
	Dir    string // working directory, a name in the tree
	Stdin  int    // descriptors of the caller, which may lead out of the tree
	Stdout int
	Stderr int

	Nice   int            // niceness; 0: the caller's
	Limits sandbox.Limits // exceeding that of a file's bytes ends the command with SIGXFSZ

	// ExecFD is the program if it is not a file of the tree: a descriptor of the caller, which must be a memfd if the
	// tree is confined. 0 means none, and Path counts. Then applies only to files.
	ExecFD int

	// Between is the name in the tree of a file that only passes data from the first program to the second
	// one; "" means none. The two may then run at the same time, with a FIFO of that name between them
	// (fifo.go).
	Between string
}

// Program is a further process, which shares everything but these fields with the one before.
type Program struct {
	Path string
	Argv []string
}

// Outcome says how a command ended.
type Outcome struct {
	Exit   int            // status of the last process that ran, if no signal ended it
	Signal int            // 0: none
	CPU    time.Duration  // of all processes of the command and all that they waited for
	MaxRSS uint64         // bytes, of the largest of them
	Killed bool           // Run.Kill came before the end
	Excess sandbox.Excess // why it was ended: one of Limits, or something that the sandbox forbids

	// Apart means that two programs ran at the same time, and that it is not known whether the result would have
	// been the same one after the other: drop what they wrote, and run the command again without Between.
	Apart bool
}

// File is a regular file of the tree, open for reading. The caller closes FD.
type File struct {
	FD   int
	Size int64 // bytes
	Exec bool  // executable by its owner
}

// Tree is a root directory with a process that runs commands in it. Run.Kill and Close may be called by any
// goroutine; everything else by one goroutine at a time.
type Tree struct {
	// set once in New
	proc     *os.Process
	conn     *os.File // the socket
	sock     syscall.RawConn
	block    int // memfd
	root     int
	dev      uint64 // of the tmpfs: mounts in it have another one
	uid, gid int    // owners of what jobs write; 0: the caller
	lacks    []string
	measures sandbox.Set
	bare     string               // Spec.Bare
	marks    *marks               // nil: the tree is not answered
	group    *sandbox.Group       // nil: none
	standing *standing            // the root directory, as it is between jobs
	byIno    map[uint64]*standing // standing and those below it
	named    map[string]*standing // the same by standing.key, but for those that stand for one of the host
	fine     bool                 // each change after a look has a stamp of its own
	close    func() error

	// owned by the goroutine that uses the tree
	seq  uint64
	busy bool // a command was started and not waited for
	gone bool // the process has ended, together with a command
	left int  // entries that Clean may still remove one by one
	buf  []byte
	in   [replySize]byte
	big  bool // the block is larger than necessary
	job  job
	kept kept
	// What stands is as it is known to be: nothing has run since Clean.
	sure      bool
	touched   []*standing // those that this package has changed since
	surveyed  bool        // survey was called since the last command
	surveys   uint64      // how many there were
	displaced error       // the last one's
	fresh     int         // bytes of the names of a new directory's extended attributes; -1: not known yet
	// began is when the job's first command started, by the clock of the kernel's stamps.
	began unix.Timespec

	dirents []byte // for list
}

// Lacks returns what this host could not give the tree, one line each.
func (t *Tree) Lacks() []string { return t.lacks }

// HasProc reports whether the tree has a procfs.
func (t *Tree) HasProc() bool {
	return t.marks == nil && !slices.ContainsFunc(t.lacks, func(what string) bool { return strings.HasPrefix(what, noProc) })
}

// noProc begins what Lacks has of a tree without a procfs.
const noProc = "/proc: "

// Measures returns the measures that apply to all commands in the tree.
func (t *Tree) Measures() sandbox.Set { return t.measures }

// Path returns the name, absolute in the tree, by which commands know a file of the job.
func (t *Tree) Path(name string) string {
	if t.marks != nil {
		return path.Join("/", name)
	}
	return path.Join("/", t.bare, name)
}

// Close kills everything that runs in the tree, waits until it is dead, and frees the tree.
func (t *Tree) Close() error { return t.close() }

func (t *Tree) end() error {
	var err error
	if t.proc != nil {
		// The end of a namespace's first process waits for all others.
		_ = t.proc.Kill() // it may have ended already
		if t.bare != "" {
			err = sandbox.KillSession(t.proc.Pid) // not waited for: no other process can have its number
		}
		_, werr := t.proc.Wait()
		err = errors.Join(err, werr)
	}
	if t.group != nil {
		_ = t.group.Kill() // nothing in it is alive, unless we have a bug
		err = errors.Join(err, t.group.Remove())
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
