package worker

import (
	"context"
	"fmt"
	"slices"

	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// show makes runners replace their trees, before they use them again, by ones that show all toolchains of the
// list.
func (s *Server) show(list []toolchain.Toolchain) {
	spec := &privatetree.Spec{Size: s.places.TreeRoom() + s.o.Source}
	if !s.o.NoStore {
		spec.Keep = run.KeepEach(s.o.Store.Memory, s.o.Jobs)
	}
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

// tryTrees finds out whether the system allows trees with namespaces, by making that of the first place.
func (s *Server) tryTrees(ctx context.Context, first *run.Place) error {
	switch s.o.Tree {
	case TreeOff:
		return nil
	case TreeAnswered: // see openBare
		if !s.places.Confined {
			s.noTree = "\"daemon.tree: answered\" needs the sandbox"
		}
		return nil
	}
	err := first.Open(ctx, s.shown.Load().spec)
	if err == nil {
		s.places.Trees = true
		for _, what := range first.Lacks() {
			s.o.Log.Warn("private trees lack something", "what", what)
		}
		return nil
	}
	if s.places.Confined && run.Scarce(err) {
		// The shortage passes, so it must not make the daemon run less confined for good.
		return err
	}
	s.noTree = err.Error()
	return nil
}

// needTrees says that there are no private trees, and why. That is an error where they are required.
func (s *Server) needTrees() error {
	switch {
	case s.places.Trees || s.o.Tree == TreeOff:
		return nil
	case s.o.Tree == TreeRequire:
		return fmt.Errorf("daemon.tree is \"require\": %s", s.noTree)
	}
	s.o.Log.Warn("compiles that depend on paths stay with the clients; \"daemon.tree: off\" in the configuration accepts that", "err", s.noTree)
	return nil
}
