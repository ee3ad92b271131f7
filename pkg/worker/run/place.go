package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

// Place runs one job at a time. Jobs of the sources form, and all confined jobs, run in its tree; jobs of the
// text form that are not confined run in directories of the host. A Place belongs to one goroutine.
type Place struct {
	Confine bool   // the tree's commands are confined
	User    int    // the user that commands in the tree run as; 0: this process's own
	Cgroup  string // a control group directory that is delegated to us; "": none
	Dir     string // the place's own directory

	h      *Host
	tree   *privatetree.Tree // nil: to be made
	spec   *privatetree.Spec // that the tree was made from
	layout layout
	kept   int64 // this tree's part of Host.kept, in bytes

	src, out, tmp *workdir.Dir   // of unconfined jobs of the text form: text, outputs, temporary files
	pipes         *capture.Pipes // for stdout and stderr of confined commands
	used          bool           // the tree was used since the last Clean
	undone        bool           // a program failed without its driver, which would have removed the main output
	unlisted      []string       // the job's words that no table has, which its compiler must know
	scratch       Scratch
}

// layout is what a place's tree has kept of the last job: files that the job's lists named. The next job
// mostly names the same ones, and writing and removing them takes longer than anything else that the host
// does for a job, apart from the compiler. A job still sees what its own lists name and nothing else: other
// kept files are dropped first.
type layout struct {
	owner   *store.Tenant               // the tenant whose files they are; nil: nothing is kept
	lists   []unit.ContentID            // the lists that name them; nil: not all files of the lists are there
	images  map[string]privatetree.Kept // precompiled headers that may be among the kept files, by name
	dirs    []string                    // the directories that are kept for their own sake (dirsOf)
	rest    []int                       // indices of the files, in a job with these lists, that are not kept
	forgets uint64                      // Host.Forgets when the tree began to keep the owner's files
}

// NewPlace makes a place and its directory dir. Close ends the place.
func (h *Host) NewPlace(dir string) (*Place, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make work directory: %w", err)
	}
	return &Place{h: h, Dir: dir, pipes: capture.NewPipes(h.Output)}, nil
}

// Settle adopts the host's decision on how compiles are confined, and makes the directories that unconfined
// jobs use. It is called once, before the first job.
func (p *Place) Settle() error {
	p.Confine = p.h.Confined
	if p.h.Confined {
		return nil
	}
	for name, d := range map[string]**workdir.Dir{"src": &p.src, "out": &p.out, "tmp": &p.tmp} {
		var err error
		if *d, err = workdir.NewDir(filepath.Join(p.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the place and everything that runs in it.
func (p *Place) Close() error {
	for _, d := range []*workdir.Dir{p.src, p.out, p.tmp} {
		if d != nil {
			d.Close()
		}
	}
	p.pipes.Close()
	return p.closeTree()
}

// Open makes sure that the place has a tree made from spec, compared by pointer. It replaces a tree that
// shows other toolchains than those now offered, and makes one if the last was closed because of an error.
func (p *Place) Open(ctx context.Context, spec *privatetree.Spec) error {
	if p.tree != nil && p.spec == spec {
		return nil
	}
	if err := p.closeTree(); err != nil {
		return err
	}
	own := *spec
	own.Confine, own.UID, own.GID, own.Cgroup = p.Confine, p.User, p.User, p.Cgroup
	if p.h.Bare { // the tree is Dir itself; otherwise it has namespaces
		own.Bare, own.Answered = p.Dir, p.h.Answered
		if err := p.sweep(); err != nil {
			return err
		}
	}
	t, err := openTree(ctx, own)
	if err != nil {
		return err
	}
	p.tree, p.spec = t, spec
	return nil
}

// Measures returns what confines commands in the tree, which must be open.
func (p *Place) Measures() sandbox.Set { return p.tree.Measures() }

// Lacks returns what the system does not let the tree have. The tree must be open.
func (p *Place) Lacks() []string { return p.tree.Lacks() }

// sweep empties the directory of a bare tree and restores its mode and owner, whatever an earlier tree left
// there.
func (p *Place) sweep() error {
	entries, err := os.ReadDir(p.Dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(p.Dir, e.Name())))
	}
	if err == nil {
		err = os.Chmod(p.Dir, 0o700)
	}
	if err == nil && p.User != 0 {
		err = os.Chown(p.Dir, p.User, p.User)
	}
	return err
}

// Clean makes the place ready for the next job.
func (p *Place) Clean() error {
	if p.used {
		p.used = false
		return p.cleanTree()
	}
	var errs error
	for _, dir := range []*workdir.Dir{p.src, p.out, p.tmp} {
		if dir != nil {
			errs = errors.Join(errs, dir.Empty())
		}
	}
	return errs
}

func (p *Place) cleanTree() error {
	if p.tree == nil {
		return nil
	}
	defer p.count()
	err := p.tree.Clean()
	// Not errors here: the job's outcome has reported that the process ended, or there is too much to clean up.
	if errors.Is(err, privatetree.ErrGone) || errors.Is(err, privatetree.ErrLittered) {
		return p.closeTree()
	}
	if err != nil {
		return errors.Join(err, p.closeTree())
	}
	return nil
}

// Abandon ends the tree, whatever state it is in. The next Open makes a new one.
func (p *Place) Abandon() error {
	p.used = false
	return p.closeTree()
}

func (p *Place) closeTree() error {
	if p.tree == nil {
		return nil
	}
	err := p.tree.Close()
	p.tree, p.spec, p.layout = nil, nil, layout{}
	p.count()
	return err
}

// count updates this tree's part of Host.kept.
func (p *Place) count() {
	n := int64(0)
	if p.tree != nil {
		n = p.tree.KeptBytes()
	}
	p.h.kept.Add(n - p.kept)
	p.kept = n
}

// newCapture returns what takes a command's stdout and stderr. A confined command writes to pipes, so that a
// flood of output does not change how the compile ends.
func (p *Place) newCapture() (*capture.Capture, error) {
	if p.h.Confined {
		return p.pipes.Capture()
	}
	return capture.InMemory(p.h.Context, p.h.outputs, p.h.Output)
}

// command returns a command for the tree that has everything but its arguments.
func (p *Place) command(env []string, dir string, out *capture.Capture, wall time.Duration) *privatetree.Command {
	c := &privatetree.Command{
		Env: env, Dir: dir, Stdin: int(p.h.devNull.Fd()), Stdout: out.FD(0), Stderr: out.FD(1),
		Nice: p.h.Nice(),
	}
	c.Limits.File, c.Limits.Memory = p.h.File, p.h.Memory
	if p.h.Confined {
		c.Limits = p.h.limits(wall)
	}
	return c
}

// temporary returns the directory for temporary files of commands in the tree.
func (p *Place) temporary() string { return p.tree.Path("/tmp") }

// hidden is held while this process is dumpable, that is, while it starts the process of a tree. The kernel
// makes the /proc files that set up a user namespace writable only for a process that is dumpable.
var hidden sync.Mutex

// unhidden runs f while this process is dumpable. Commands that are already confined can neither see this
// process nor read its memory.
func unhidden(f func() error) error {
	hidden.Lock()
	defer hidden.Unlock()
	d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil || d != 0 || os.Geteuid() == 0 {
		return f()
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return f()
	}
	return errors.Join(f(), unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// openTree makes a place's tree.
func openTree(ctx context.Context, spec privatetree.Spec) (t *privatetree.Tree, err error) {
	err = unhidden(func() (err error) {
		t, err = privatetree.New(ctx, spec)
		return err
	})
	return t, err
}
