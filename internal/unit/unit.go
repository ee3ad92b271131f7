// Package unit has the words for one compile of one translation unit: the files that it reads, the outputs that are to
// come of it, and the names of contents and compilers. It is for packages that know compiles and nothing of how
// they travel; package job puts these into messages.
package unit

import (
	"path"
	"strings"
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

// Output names a file to be brought back.
type Output struct {
	Kind     OutputKind
	Name     string // path as the client's compiler would have used it
	Optional bool   // the compiler may not write it
}

// OutputKind is the kind of an output.
type OutputKind uint8

// Output kinds.
const (
	OutputObject OutputKind = iota
	OutputAssembly
	OutputStackUsage
	OutputSide       // any other file beside
	OutputDependency // make's rules: a .d file
)

// Known reports whether k is one of these.
func (k OutputKind) Known() bool { return k <= OutputDependency }

// ContentID names a content by its SHA-256. The host recomputes it for everything that arrives.
type ContentID = [32]byte

// ToolchainID is the first 16 bytes of a SHA-256 over a toolchain's content
// (package toolchain).
type ToolchainID [16]byte

// IsSystemFile reports whether name is one of the system's headers, which hosts usually have themselves: a
// job may name such a file without having sent it. Its name is absolute and has no dots to resolve.
func IsSystemFile(name string) bool {
	return (strings.HasPrefix(name, "/usr/include/") || strings.HasPrefix(name, "/usr/lib/")) && path.Clean(name) == name
}
