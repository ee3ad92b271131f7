package modules

import "slices"

// Search says where a compiler looks for headers, as far as a module that clang compiles records that. The driver gives
// the compiler no directories of its own that do not exist, except some.
type Search struct {
	Given   int      // how many directories the command and the environment name
	Own     []string // of the compiler's, in order
	Missing []string // that it would have if they existed, in any order
}

// What Differs reads of the block that counts for no signature.
const (
	searchPaths = 4 // names of all directories, unless they are left out
	searchUsage = 6 // a bit for each directory: whether a module map was found in it
)

// Differs returns in some words what a compiled module says of the directories for headers that is not so, or "". Some versions of
// clang record only how many there are.
func (s *Search) Differs(module []byte) string {
	count, paths, ok := Directories(module)
	switch {
	case !ok:
		return "an unknown format"
	case count != s.Given+len(s.Own)+len(s.Missing), paths != nil && !s.agrees(paths):
		return "other directories for headers"
	}
	return ""
}

// Directories returns how many directories for headers a compiled module records, and their names, or nil.
func Directories(module []byte) (count int, paths []string, ok bool) {
	tells, bad := false, false
	r := stream{blocks: []uint64{controlBlock, unhashedBlock}, end: uint64(len(module)) * 8, read: func(b []byte, off int64) bool { return copy(b, module[off:]) == len(b) }}
	r.record = func(block uint64, ops []uint64, _ string) {
		switch {
		case block == unhashedBlock && ops[0] == searchUsage && len(ops) > 1:
			bad, tells, count = bad || tells || ops[1] > maxDirs, true, int(min(ops[1], maxDirs))
		case block == unhashedBlock && ops[0] == searchPaths && paths == nil:
			paths, bad = pathsOf(ops[1:])
		}
	}
	if len(module) < 8 || r.fixed(32) != 'C'|'P'<<8|'C'<<16|'H'<<24 {
		return 0, nil, false
	}
	for r.at+32 <= r.end && !r.bad {
		if r.fixed(2) != enterBlock {
			return 0, nil, false
		}
		r.block(0)
	}
	return count, paths, tells && !r.bad && !bad
}

// maxDirs is the most directories for headers of a command.
const maxDirs = 1 << 16

// pathsOf returns the names in a record of directories. Behind it there are others, for modules of headers.
func pathsOf(ops []uint64) (paths []string, bad bool) {
	if len(ops) == 0 {
		return nil, true
	}
	n := ops[0]
	for ops = ops[1:]; n > 0; n-- {
		if len(ops) == 0 || ops[0] > maxName || ops[0]+4 > uint64(len(ops)) { // the name, its group, and two flags
			return nil, true
		}
		b := make([]byte, ops[0])
		for i := range b {
			b[i] = byte(ops[1+i])
		}
		paths, ops = append(paths, string(b)), ops[len(b)+4:]
	}
	return paths, false
}

// agrees reports whether a list of all directories ends with the compiler's own.
func (s *Search) agrees(paths []string) bool {
	if len(paths) != s.Given+len(s.Own)+len(s.Missing) {
		return false
	}
	own, missing := s.Own, slices.Clone(s.Missing)
	for _, p := range paths[s.Given:] {
		if len(own) > 0 && own[0] == p {
			own = own[1:]
			continue
		}
		i := slices.Index(missing, p)
		if i < 0 {
			return false
		}
		missing = slices.Delete(missing, i, i+1)
	}
	return len(own)+len(missing) == 0
}
