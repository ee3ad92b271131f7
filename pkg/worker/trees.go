package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/toolchain"
)

// TreeMode says whether jobs of the sources form are taken.
type TreeMode uint8

// Modes.
const (
	TreeAuto    TreeMode = iota // where the system lets us make trees
	TreeOff                     // nowhere
	TreeRequire                 // New fails where it cannot
)

// display is what trees have to show, and the toolchains for which that is. It does not change.
type display struct {
	spec *privatetree.Spec
	list []toolchain.Toolchain
}

// show makes runners replace their trees, before they use them again, by ones
// that show every toolchain of the list.
func (s *Server) show(list []toolchain.Toolchain) {
	spec := &privatetree.Spec{Size: s.treeRoom() + s.o.Source, Keep: s.keepsEach()}
	for i := range list {
		spec.Files = append(spec.Files, list[i].Files...)
		spec.Dirs = append(spec.Dirs, list[i].Dirs...)
	}
	if len(list) > 0 && s.o.Sandbox != SandboxOff {
		spec.Files = append(spec.Files, ownLibraries()...)
	}
	slices.Sort(spec.Files)
	spec.Files = slices.Compact(spec.Files)
	slices.Sort(spec.Dirs)
	spec.Dirs = slices.Compact(spec.Dirs)
	s.shown.Store(&display{spec, list})
}

// tryTrees finds out whether there can be trees, by making the first runner's.
func (s *Server) tryTrees(ctx context.Context, first *stand) error {
	if s.o.Tree == TreeOff {
		return nil
	}
	err := first.open(ctx, s.shown.Load().spec)
	if err == nil {
		s.trees = true
		for _, what := range first.tree.Lacks() {
			s.o.Log.Warn("private trees lack something", "what", what)
		}
		return nil
	}
	if s.confined && scarce(err) {
		// This passes: to be less confined for good because of it is no answer.
		return err
	}
	if s.o.Tree == TreeRequire {
		return fmt.Errorf("daemon.tree is \"require\": %w", err)
	}
	s.o.Log.Warn("compiles that depend on paths stay with the clients; \"daemon.tree: off\" in the configuration accepts that", "err", err)
	return nil
}

// stand is where a runner's jobs run, those of the sources form and all that are
// confined: a tree, which is made anew when other toolchains are offered than it shows, or when
// it is spoiled.
type stand struct {
	confine bool
	bare    string // directory that takes the place of a root; "": there are namespaces
	user    int    // that commands run as; 0: this process's
	cgroup  string

	tree   *privatetree.Tree // nil: to be made
	spec   *privatetree.Spec // that it was made of
	layout layout
	total  *atomic.Int64 // bytes that all stands' trees keep
	kept   int64         // of these, what this one's does
}

// open makes sure that there is a tree of spec.
func (d *stand) open(ctx context.Context, spec *privatetree.Spec) error {
	if d.tree != nil && d.spec == spec {
		return nil
	}
	if err := d.close(); err != nil {
		return err
	}
	own := *spec
	own.Confine, own.Bare, own.UID, own.GID, own.Cgroup = d.confine, d.bare, d.user, d.user, d.cgroup
	if d.bare != "" {
		if err := d.sweep(); err != nil {
			return err
		}
	}
	t, err := openTree(ctx, own)
	if err != nil {
		return err
	}
	d.tree, d.spec = t, spec
	return nil
}

// sweep makes the bare directory as it was, whatever a tree before has left there.
func (d *stand) sweep() error {
	entries, err := os.ReadDir(d.bare)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(d.bare, e.Name())))
	}
	if err == nil {
		err = os.Chmod(d.bare, 0o700)
	}
	if err == nil && d.user != 0 {
		err = os.Chown(d.bare, d.user, d.user)
	}
	return err
}

// clean makes it ready for the next job.
func (d *stand) clean() error {
	if d.tree == nil {
		return nil
	}
	defer d.count()
	err := d.tree.Clean()
	// Gone: with its job, of which that was told.
	if errors.Is(err, privatetree.ErrGone) || errors.Is(err, privatetree.ErrLittered) {
		return d.close()
	}
	if err != nil {
		return errors.Join(err, d.close())
	}
	return nil
}

func (d *stand) close() error {
	if d.tree == nil {
		return nil
	}
	err := d.tree.Close()
	d.tree, d.spec, d.layout = nil, nil, layout{}
	d.count()
	return err
}
