package worker

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/rdistcc/rdistcc/internal/privatetree"
)

// ownHeaders are patterns for the directories of this machine's own headers, which clients of other protocols take for granted.
var ownHeaders = []string{
	"/usr/include", "/usr/local/include", "/usr/*-linux-*/include",
	"/usr/lib/gcc/*/*/include", "/usr/lib/gcc/*/*/include-fixed", "/usr/lib/gcc-cross/*/*/include", "/usr/lib/gcc-cross/*/*/include-fixed",
	"/usr/lib/clang/*/include", "/usr/lib/llvm-*/lib/clang/*/include",
}

// headers is what trees show for jobs that expect this machine's own headers.
type headers struct {
	of   *privatetree.Spec // what trees show for other jobs
	spec *privatetree.Spec
	dirs []string // of headers, which are among those of spec
}

// OwnHeaders returns the directories of this machine's own headers that trees show to jobs of clients of other protocols that
// send files. Such jobs must bring nothing that lies in them.
func (s *Server) OwnHeaders() []string { return s.withHeaders(s.shown.Load().spec).dirs }

// withHeaders returns what trees show in place of spec for such jobs.
func (s *Server) withHeaders(spec *privatetree.Spec) headers {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.headers.of == spec {
		return s.headers
	}
	s.headers = headers{of: spec}
	for _, pattern := range ownHeaders {
		names, _ := filepath.Glob(pattern) // the patterns are right
		for _, name := range names {
			if st, err := os.Stat(name); err == nil && st.IsDir() {
				s.headers.dirs = append(s.headers.dirs, name)
			}
		}
	}
	own := *spec
	own.Dirs = slices.Concat(spec.Dirs, s.headers.dirs)
	slices.Sort(own.Dirs)
	own.Dirs = slices.Compact(own.Dirs)
	s.headers.spec = &own
	return s.headers
}

// prepareOnBehalf makes the place ready for a job of a client of another protocol. Files that it sends are compiled with this
// machine's own headers. No canary runs in a tree that shows these: others test the same measures.
func (r *runner) prepareOnBehalf(ctx context.Context, t *task) error {
	if t.files == 0 {
		return r.prepare(ctx)
	}
	spec := r.s.shown.Load().spec
	if r.s.o.Sandbox == SandboxStrict {
		r.s.mu.Lock()
		tested := r.s.cage.tested[r.i] == spec
		r.s.mu.Unlock()
		if !tested {
			if err := r.prepare(ctx); err != nil {
				return err
			}
		}
	}
	if err := r.place.Open(ctx, r.s.withHeaders(spec).spec); err != nil {
		return err
	}
	if !r.s.places.Confined {
		return nil
	}
	return r.s.holds(r, r.place.Measures())
}
