package compile

import "strings"

// form is how an option takes its argument.
type form uint8

const (
	alone    form = iota // -c
	joined               // -std=c11, -O2, -O: all that begin so
	separate             // -MF FILE
	either               // -DX, -D X
)

// spec is one row of the option table.
type spec struct {
	name       string
	form       form
	gcc, clang class
	value      value // what the argument may be
}

func (s *spec) class(f Family) class {
	if f == Clang {
		return s.clang
	}
	return s.gcc
}

// takes reports whether word is this option.
func (s *spec) takes(word string) bool {
	switch s.form {
	case joined, either:
		return strings.HasPrefix(word, s.name)
	}
	return word == s.name
}

// lookup returns how family f reads a word: the row, nil for an unknown option, and the
// argument that is part of the word. more says that the next word is the argument.
func lookup(word string, f Family) (row *spec, arg string, more bool) {
	row = find(word)
	if (row == nil || row.class(f) == unknown) && strings.HasPrefix(word, "--") && (f == GCC || strings.HasPrefix(word, "--warn-")) {
		if word = translated(word); word != "" {
			row = find(word)
		}
	}
	if row == nil || row.class(f) == unknown {
		return nil, "", false
	}
	arg = word[len(row.name):]
	return row, arg, row.form == separate || row.form == either && arg == ""
}

// find looks up a word: the longest row that takes it, then the generic flags of
// -f, -m and -W. It returns nil for an unknown option.
//
// Rows are sorted by name, so all prefixes of word lie before it. Each step shortens
// word to the prefix that it shares with its neighbour, until a row takes it.
func find(word string) *spec {
	rows := table[:]
	if strings.HasPrefix(word, "--") {
		rows = longTable[:]
	}
	for key := word; key != ""; {
		lo, hi := 0, len(rows)
		for lo < hi {
			if mid := int(uint(lo+hi) >> 1); rows[mid].name <= key {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		if lo == 0 {
			break
		}
		row := &rows[lo-1]
		if strings.HasPrefix(key, row.name) {
			if row.takes(word) {
				return row
			}
			key = row.name[:len(row.name)-1]
			continue
		}
		n := 0
		for n < len(key) && n < len(row.name) && key[n] == row.name[n] {
			n++
		}
		key = key[:n]
	}
	if len(word) < 3 || word[0] != '-' {
		return nil
	}
	switch word[1] {
	case 'W':
		return &anyWarning
	case 'f':
		if isFlag(fFlags, word[2:]) {
			return &anyFlag
		}
		if rest, ok := strings.CutPrefix(word, "-fno-"); ok {
			return negated(rest)
		}
	case 'm':
		if isFlag(mFlags, word[2:]) {
			return &anyFlag
		}
	}
	return nil
}

var (
	anyWarning = spec{"-W", joined, warning, both, warningName} // clang has errors that go by names of warnings
	anyFlag    = spec{"-f", joined, both, both, flagValue}
)

// isFlag looks name up in one of the lists of flags.go.
func isFlag(list, name string) bool {
	if i := strings.IndexByte(name, '='); i >= 0 {
		name = name[:i+1]
	}
	if inList(list, name) {
		return true
	}
	name, ok := strings.CutPrefix(name, "no-")
	return ok && inList(list, name)
}

// inList searches a sorted list of words, each with a blank before and after it.
func inList(list, name string) bool {
	for lo, hi := 0, len(list)-1; lo < hi; { // both at blanks
		start := lo + strings.LastIndexByte(list[lo:lo+(hi-lo+1)/2], ' ')
		end := start + 1 + strings.IndexByte(list[start+1:], ' ')
		switch word := list[start+1 : end]; {
		case word == name:
			return true
		case word < name:
			lo = end
		default:
			hi = start
		}
	}
	return false
}

// negated finds -fno-NAME by the row of -fNAME: whatever NAME would write or read, its
// opposite does not.
func negated(name string) *spec {
	if strings.IndexByte(name, '=') >= 0 {
		return nil
	}
	row := find("-f" + name)
	if row == nil || row.gcc == hereComments || row.gcc == herePCH {
		return nil // it would undo what our own half requests
	}
	if row.gcc == isQuery {
		return nil // gcc answers -fno-version like -fversion, and compiles nothing
	}
	if row.form != alone && row.name != "-f"+name && !isListed("f"+name) && !inList(negatives, name) {
		return nil // the row takes everything with this prefix
	}
	return &anyFlag
}

// negatives lists, for options that a row takes by their prefix, the names that -fno- may
// precede, sorted. They come from the help of gcc 11 and 12 and clang 13 to 19.
const negatives = "" +
	" coverage-mapping coverage-mcdc dbg-cnt-list dump-core dump-d-original dump-fortran-global dump-fortran-optimized" +
	" dump-fortran-original dump-internal-locations dump-noaddr dump-parse-tree dump-passes dump-system-exports" +
	" dump-unnumbered dump-unnumbered-links implicit-module-maps implicit-modules lang-info-include-translate" +
	" lang-info-include-translate-not lang-info-module-cmi lto-odr-type-merging lto-report lto-report-wpa lto-unit" +
	" mem-report-wpa module-file-deps module-implicit-inline module-lazy module-private module-version-ignore" +
	" modules-check-relocated modules-decluse modules-error-recovery modules-global-index" +
	" modules-prune-non-affecting-module-map-files modules-search-all modules-share-filemanager modules-ts" +
	" modules-validate-system-headers modules-validate-textual-header-includes prebuilt-implicit-modules profile-report" +
	" profile-sample-use time-report-details vtv-counts vtv-debug" + " "
