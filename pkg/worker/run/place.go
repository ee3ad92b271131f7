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

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox"
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

// Program is a command that is not a job's.
type Program struct {
	ExecFD int // the program, open
	Argv   []string
	Env    []string // beside PATH, LC_ALL and TMPDIR
	Limit  time.Duration
}

// Try runs a program in the tree, which is open, confined as a compile is but for the memory that it may map. It returns
// how that ended, and what it wrote to its standard output and error. Clean follows.
func (p *Place) Try(proc *Process, x *Program) (o Outcome, stdout, stderr []byte, err error) {
	p.used = true
	for _, d := range []string{textSource, textTemp} {
		if err := p.tree.Mkdirs(d); err != nil {
			return o, nil, nil, err
		}
	}
	out, err := p.newCapture()
	if err != nil {
		return o, nil, nil, err
	}
	defer out.Close()
	env := append([]string{"PATH=" + SearchPath, "LC_ALL=C", "TMPDIR=" + p.temporary()}, x.Env...)
	c := p.command(env, p.tree.Path(textSource), out, x.Limit)
	c.ExecFD, c.Argv = x.ExecFD, x.Argv
	c.Limits.Memory = 0 // Go's runtime maps much, and holds little
	if o, err = proc.runIn(p.tree, c, x.Limit); err != nil {
		return o, nil, nil, err
	}
	var words [2][]byte
	for i := range words {
		w, werr := out.Written(i)
		words[i], err = append([]byte(nil), w...), errors.Join(err, werr)
	}
	return o, words[0], words[1], err
}

// roomLeft tells a compiler that had no room for its files from one that said no:
// that is this host's fault, and another one may have room. A file system with
// more room than the jobs together may take was not full.
func (p *Place) roomLeft(out *capture.Capture, inTree bool) error {
	if words, err := out.Written(1); err != nil || !containsAny(words, []string{"No space left on device"}) {
		return err
	}
	dir := p.h.WorkDir
	switch {
	case !inTree:
		dir = p.out.Path
	case !p.Bare:
		p.h.Denied(deniedDisk)
		return job.Refuse(job.CauseTooBig, "the compile needs more than the %d bytes that a job may write", p.h.TreeRoom())
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if st.Bavail*uint64(st.Bsize) >= uint64(p.h.Places)*uint64(p.h.File) {
		return nil
	}
	return fmt.Errorf("compile in %s: %w", dir, unix.ENOSPC)
}

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
