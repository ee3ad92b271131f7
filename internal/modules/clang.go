package modules

import "strings"

// Compiled is what a module compiled by clang says of itself. All names are absolute, except perhaps Header.
type Compiled struct {
	Files   []string // what it was made of; clang opens these files where it needs their text, as for debug information
	Header  string   // the name of the header that it is made of, as clang has found it; "": it is no header unit
	Main    string   // the file that it is made of
	Imports []string // files of modules that it imports; clang 17 and later leave out those that it finds by their names
	Newer   bool     // than what this was tried with: only its compiler can show that it is read as it is meant (recipes.ModuleCache)
}

// newest is the newest version of clang whose modules were read in tests.
const newest = 22

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
	controlImports      = 2 // all of them; clang 20 and later: one, with its strings behind the record
	controlMain         = 3 // the file that it is made of
	inputsFile          = 1 // in the block of inputs: a file
	submoduleDefinition = 1 // in the block of submodules: name and kind of what is compiled
)

// named reports whether a version of clang means by kind a module that begins with "module NAME", or a part of one:
// not a header, and not a module of a module map.
func named(version, kind uint64) bool {
	if version == 16 {
		return kind == 1 || 3 <= kind && kind <= 6
	}
	return 2 <= kind && kind <= 8
}

// header reports whether a version of clang means by kind a header unit.
func header(version, kind uint64) bool {
	return kind == 2 && version == 16 || kind == 1 && version > 16
}

// Clang reads what a module compiled by clang says of itself, without most of the content. read fills b from an
// offset of the file of size bytes, and reports whether it could.
//
// ok is false if the file is no such module, or says something that is not understood here. A version of clang that is newer than
// this code may mean something else by what it writes.
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
	version, defined, units, odd := uint64(0), false, 0, false
	r.record = func(block uint64, ops []uint64, blob string) {
		switch {
		case block == controlBlock && ops[0] == controlMetadata && len(ops) > 3:
			version = ops[3]
			c.Newer, odd = version > newest, odd || version < 16
		case block == controlBlock && ops[0] == controlMain:
			c.Main = blob
		case block == controlBlock && ops[0] == controlImports:
			odd = !imported(version, ops[1:], blob, func(s string) { name(&c.Imports, s) }) || odd
		case block == inputsBlock && ops[0] == inputsFile:
			rest := ""
			if n := ops[len(ops)-1]; len(ops) > 8 && 0 < n && n < uint64(len(blob)) { // the name as it was asked for, and the real one
				blob, rest = blob[:n], blob[n:]
			}
			odd = odd || !strings.HasPrefix(blob, "/") || rest != "" && rest[0] != '/'
			name(&c.Files, blob)
			name(&c.Files, rest)
		case block == submoduleBlock && ops[0] == submoduleDefinition && len(ops) > 3:
			defined = true
			if header(version, ops[3]) {
				c.Header = blob
				units++
				odd = odd || blob == ""
			} else {
				odd = odd || !named(version, ops[3])
			}
		}
	}
	for r.at+32 <= r.end && !r.bad {
		if r.fixed(2) != enterBlock {
			return Compiled{}, false
		}
		r.block(0)
	}
	return c, !r.bad && !odd && defined && (units == 0 || units == 1 && len(c.Main) > 1 && c.Main[0] == '/')
}

// signatureLen is the length of the signature of an imported module, in numbers.
const signatureLen = 20

// imported calls found for the file of each imported module in a record of them: kind, place of the import, size, time and
// signature, the module's name, and the file. Clang 17 and later put behind the kind whether it is a module with a name; if so, clang
// 18 and later write only that name behind the place. In clang 20 and later a record is about one module: kind, place, length of the
// name, whether the module has one, size, time, length of the file's name, and then blob with name, signature, and file. It reports
// whether the record is of one of these forms.
func imported(version uint64, ops []uint64, blob string, found func(string)) bool {
	if blob != "" {
		if len(ops) != 7 || ops[2] > maxName || ops[6] > maxName {
			return false
		}
		if ops[3] != 0 {
			return uint64(len(blob)) == ops[2] && ops[6] == 0
		}
		if uint64(len(blob)) != ops[2]+signatureLen+ops[6] || ops[6] == 0 {
			return false
		}
		found(blob[ops[2]+signatureLen:])
		return true
	}
	for len(ops) > 0 {
		before, byName := 4+signatureLen, false
		if version > 16 {
			if len(ops) < 3 {
				return false
			}
			before++
			if byName = version > 17 && ops[1] != 0; byName {
				before = 3
			}
		}
		if len(ops) < before {
			return false
		}
		_, rest, ok := stringAt(ops[before:])
		if ops = rest; ok && !byName {
			var file string
			if file, ops, ok = stringAt(ops); ok {
				found(file)
			}
		}
		if !ok {
			return false
		}
	}
	return true
}

// stringAt reads a string that numbers begin with, behind its length.
func stringAt(ops []uint64) (s string, rest []uint64, ok bool) {
	if len(ops) == 0 || ops[0] > maxName || ops[0] >= uint64(len(ops)) {
		return "", nil, false
	}
	b, text := characters(nil, ops[1:1+ops[0]])
	return string(b), ops[1+ops[0]:], text
}
