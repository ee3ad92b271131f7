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

// Place is where one job runs at a time. Jobs of the sources form, and all that are confined, run in its tree; jobs of the
// text form that are not confined run in directories of the host. It belongs to one goroutine.
type Place struct {
	Confine bool   // the tree's commands are confined
	Bare    bool   // the tree is Dir; else it has namespaces
	User    int    // that commands in the tree run as; 0: this process's
	Cgroup  string // directory of control groups that is delegated to us; "": none
	Dir     string // the place's own directory

	h      *Host
	tree   *privatetree.Tree // nil: to be made
	spec   *privatetree.Spec // that it was made of
	layout layout
	kept   int64 // bytes of Host.kept that are this tree's

	src, out, tmp *workdir.Dir   // of the text form, where compiles are not confined: the text, outputs, temporary files
	pipes         *capture.Pipes // for words of confined commands
	used          bool           // the tree, since the last Clean
	undone        bool           // a program failed without its driver, which would remove the main output
	scratch       Scratch
}

// layout is what a place's tree has kept of the last job: files that its lists named. The next job mostly names the
// same ones, and writing and removing them takes longer than all else that the host does for it, its compiler
// aside. A job sees all the same what its own lists name, and nothing else: what
// was kept beyond that is dropped before.
type layout struct {
	owner   *store.Tenant    // to whom they belong; nil: nothing is kept
	lists   []unit.ContentID // that named them; nil: not all that they name is there
	rest    []int            // indices, among the files of a job with them, of those that are not kept
	forgets uint64           // Host.Forgets when the owner's files began to be kept
}

// NewPlace makes a place, and its directory.
func (h *Host) NewPlace(dir string) (*Place, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make work directory: %w", err)
	}
	return &Place{h: h, Dir: dir, pipes: capture.NewPipes(h.Output)}, nil
}

// Settle gives the place what it needs, once the host knows how compiles are confined.
func (p *Place) Settle() error {
	p.Confine, p.Bare = p.h.Confined, p.h.Bare
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

// Close ends the place and all that runs there.
func (p *Place) Close() error {
	for _, d := range []*workdir.Dir{p.src, p.out, p.tmp} {
		if d != nil {
			d.Close()
		}
	}
	p.pipes.Close()
	return p.closeTree()
}

// Open makes sure that there is a tree of spec: it is made anew when other toolchains are offered than it shows, or
// after it was spoiled.
func (p *Place) Open(ctx context.Context, spec *privatetree.Spec) error {
	if p.tree != nil && p.spec == spec {
		return nil
	}
	if err := p.closeTree(); err != nil {
		return err
	}
	own := *spec
	own.Confine, own.UID, own.GID, own.Cgroup = p.Confine, p.User, p.User, p.Cgroup
	if p.Bare {
		own.Bare = p.Dir
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

// Measures returns what confines commands in the tree, which is open.
func (p *Place) Measures() sandbox.Set { return p.tree.Measures() }

// Lacks returns what the system does not let the tree have, which is open.
func (p *Place) Lacks() []string { return p.tree.Lacks() }

// sweep makes the bare directory as it was, whatever a tree before has left there.
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
	// Gone: with its job, of which that was told.
	if errors.Is(err, privatetree.ErrGone) || errors.Is(err, privatetree.ErrLittered) {
		return p.closeTree()
	}
	if err != nil {
		return errors.Join(err, p.closeTree())
	}
	return nil
}

// Abandon ends the tree, whatever state it is in. The next Open makes another one.
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

// count brings the sum of what trees keep up to date.
func (p *Place) count() {
	n := int64(0)
	if p.tree != nil {
		n = p.tree.KeptBytes()
	}
	p.h.kept.Add(n - p.kept)
	p.kept = n
}

// newCapture makes what takes a command's words. A confined command's go to pipes, so that a
// flood has no say in how the compile ends.
func (p *Place) newCapture() (*capture.Capture, error) {
	if p.h.Confined {
		return p.pipes.Capture()
	}
	return capture.InMemory(p.h.Context, p.h.outputs, p.h.Output)
}

// command makes one for the tree, without its words.
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

// temporary is where commands in the tree have their temporary files.
func (p *Place) temporary() string { return p.tree.Path("/tmp") }

// hidden is held while this process can be looked into, which is while it starts the process of a
// tree: the kernel gives the files in /proc by which a user namespace is set up only to those who may.
var hidden sync.Mutex

// unhidden runs f while this process is dumpable. What is confined already can neither see it nor
// ask for its memory.
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
