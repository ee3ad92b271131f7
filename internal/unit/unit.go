// Package unit has the types that describe the compile of one translation unit: the files that it reads, its
// outputs, and the IDs of contents and toolchains. It serves packages that know compiles but not how they
// travel; package job puts these types into messages.
package unit

import (
	"path"
	"strings"
)

// Languages of what links leave to be compiled, by the names that -x takes.
const (
	LanguageIR  = "ir"  // clang: LLVM's, as bitcode or as text
	LanguageLTO = "lto" // gcc: an object with one partition of a link
)

// File is a file that a compile reads.
type File struct {
	Name  string
	Len   uint64 // bytes
	MTime int64  // nanoseconds since 1970
	Same  uint32 // 0, or 1 + the index of an earlier file with the same inode: a hard link, and Len is 0
	Exec  bool
}

// Link is a symbolic link, such as a PWD that is not the real working directory.
type Link struct {
	Name   string // absolute
	Target string // absolute
}

// Output names a file that the compile writes and the host returns.
type Output struct {
	Kind     OutputKind
	Name     string // path as the compiler on the build host would have used it
	Optional bool   // the compiler does not always write it
}

// OutputKind is the kind of an output.
type OutputKind uint8

// Output kinds.
const (
	OutputObject OutputKind = iota
	OutputAssembly
	OutputStackUsage
	OutputSide       // any other file written beside the object
	OutputDependency // a .d file with rules for make
	OutputModule     // a compiled C++ module; gcc makes the directories that lead to it
)

// Known reports whether k is one of the kinds above.
func (k OutputKind) Known() bool { return k <= OutputModule }

// ContentID names a content by its SHA-256. A host recomputes it for every content that it receives.
type ContentID = [32]byte

// ToolchainID is the first 16 bytes of a SHA-256 over a toolchain's content
// (package toolchain).
type ToolchainID [16]byte

// IsSystemFile reports whether name is a system file: a clean absolute path below /usr/include or /usr/lib.
// Hosts usually have these headers themselves, so a job may name such a file without sending it.
func IsSystemFile(name string) bool {
	return (strings.HasPrefix(name, "/usr/include/") || strings.HasPrefix(name, "/usr/lib/")) && path.Clean(name) == name
}
