package modules

import "strings"

// Compiled is what a module compiled by clang says of itself. All names are absolute.
type Compiled struct {
	Files   []string // what it was made of; clang opens these files where it needs their text, as for debug information
	Imports []string // files of modules that it imports; clang 17 and later leave out those that it finds by their names
}

// maxName is the size of the longest name of a file, in bytes.
const maxName = 4096

// What Clang reads of the format of clang's compiled modules, beside that of LLVM's bitstreams.
const (
	astBlock       = 8 // has most of the content
	submoduleBlock = 13
	controlBlock   = 15
	inputsBlock    = 16
	optionsBlock   = 17
	unhashedBlock  = 19

	controlMetadata     = 1 // in the control block: the compiler's version
	controlImports      = 2
	inputsFile          = 1 // in the block of inputs: a file
	submoduleDefinition = 1 // in the block of submodules: name and kind of what is compiled
)

// named reports whether a version of clang means by kind a module that begins with "module NAME", or a part of one:
// not a header, and not a module of a module map.
func named(version, kind uint64) bool {
	switch version {
	case 16:
		return kind == 1 || 3 <= kind && kind <= 6
	case 19:
		return 2 <= kind && kind <= 8
	}
	return false
}

// Clang reads what a module compiled by clang says of itself, without most of the content. read fills b from an
// offset of the file of size bytes, and reports whether it could.
//
// ok is false if the file is no such module, if a version of clang made it whose modules are not known here, or if
// it is a compiled header: which one a source that imports it means depends on files that are not read.
func Clang(read func(b []byte, off int64) bool, size int64) (c Compiled, ok bool) {
	r := stream{read: read, end: uint64(size) * 8, blocks: []uint64{astBlock, submoduleBlock, controlBlock, inputsBlock, unhashedBlock}}
	if size < 8 || r.fixed(32) != 'C'|'P'<<8|'C'<<16|'H'<<24 {
		return Compiled{}, false
	}
	seen := make(map[string]struct{})
	name := func(list *[]string, s string) {
		if _, known := seen[s]; known || len(s) < 2 || len(s) > maxName || s[0] != '/' || strings.IndexByte(s, 0) >= 0 {
			return
		}
		seen[s] = struct{}{}
		*list = append(*list, s)
	}
	version, defined, odd := uint64(0), false, false
	r.record = func(block uint64, ops []uint64, blob string) {
		switch {
		case block == controlBlock && ops[0] == controlMetadata && len(ops) > 3:
			version = ops[3]
		case block == controlBlock && ops[0] == controlImports:
			names(ops[1:], func(s string) { name(&c.Imports, s) })
		case block == inputsBlock && ops[0] == inputsFile:
			rest := ""
			if n := ops[len(ops)-1]; version > 16 && 0 < n && n < uint64(len(blob)) { // the name as it was asked for, and the real one
				blob, rest = blob[:n], blob[n:]
			}
			odd = odd || !strings.HasPrefix(blob, "/") || rest != "" && rest[0] != '/'
			name(&c.Files, blob)
			name(&c.Files, rest)
		case block == submoduleBlock && ops[0] == submoduleDefinition && len(ops) > 3:
			defined = true
			odd = odd || !named(version, ops[3])
		}
	}
	for r.at+32 <= r.end && !r.bad {
		if r.fixed(2) != enterBlock {
			return Compiled{}, false
		}
		r.block(0)
	}
	return c, !r.bad && defined && !odd
}

// names calls found for each absolute name of a file among the numbers of a record: its length, and its bytes.
func names(ops []uint64, found func(string)) {
	for i, n := range ops {
		if n < 2 || n > maxName || n >= uint64(len(ops)-i) || ops[i+1] != '/' {
			continue
		}
		b := make([]byte, n)
		text := true
		for j := range b {
			v := ops[i+1+j]
			b[j], text = byte(v), text && 0 < v && v < 256
		}
		if text {
			found(string(b))
		}
	}
}
