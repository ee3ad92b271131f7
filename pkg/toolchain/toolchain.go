// Package toolchain tells compilers apart by content: two machines have the same
// toolchain when every program and library that decides the object is equal.
package toolchain

import "github.com/rdistcc/rdistcc/pkg/job"

// Toolchain is an identified compiler.
type Toolchain struct {
	ID      job.ToolchainID
	Path    string // absolute, links resolved
	Family  string // "gcc" or "clang"
	Major   int
	Version string // full, say "12.2.0"
	Target  string // say "x86_64-linux-gnu"
}
