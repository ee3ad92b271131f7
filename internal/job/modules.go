package job

import (
	"bytes"
	"slices"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// Modules returns the outputs that a host puts into the store of its tenant, because a link may bring them back as files of jobs: what
// clang has made for ThinLTO. r is the host's result of b, and content what its segments lie in, which must reach as far.
func (b *Body) Modules(r *Result, content []byte) (all [][]byte) {
	if r.Status != StatusRan || r.Exit != 0 || r.Signal != 0 || !slices.Contains(b.Args, "-flto=thin") {
		return nil
	}
	for i := range r.Files {
		f := &r.Files[i]
		if out := content[f.Off:][:f.Len]; b.Outputs[f.Index].Kind == unit.OutputObject && bitcode(out) {
			all = append(all, out)
		}
	}
	return all
}

// bitcode reports whether a file is LLVM's IR, bare or behind a header.
func bitcode(b []byte) bool {
	return bytes.HasPrefix(b, []byte("BC\xc0\xde")) || bytes.HasPrefix(b, []byte("\xde\xc0\x17\x0b"))
}
