package outputs

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/modules"
)

// What gcc appends to the name of a module in make's rules, and the variable that it sets.
const (
	importsLine = "CXX_IMPORTS += "
	unitSuffix  = ".c++-header-unit" // gcc 15 and later: of the name of a header, as it was asked for
)

// moduleSuffixes are of gcc up to 14, and of later ones.
var moduleSuffixes = [...]string{".c++m", ".c++-module"}

// Lines about modules, in the order in which gcc writes them, after all others and each at most once.
const (
	lineImports  = iota + 1 // TARGETS FILE: IMPORTS
	lineModule              // MODULE: FILE
	linePhony               // .PHONY: MODULE
	lineOrder               // FILE:| TARGET
	lineVariable            // CXX_IMPORTS += IMPORTS
)

// moduleLines checks the lines that gcc adds for modules. Its words are quoted for make.
type moduleLines struct {
	module, file string // "": none; the module without a suffix
	imports      map[string]bool
	last         int // the kind of the last line
}

// newModuleLines returns a check of lines with names of m.
func newModuleLines(m *modules.Rules) *moduleLines {
	l := &moduleLines{}
	if m.Module != "" && m.File != "" {
		l.module, l.file = quote(m.Module), quote(m.File)
	}
	if len(m.Imports) > 0 {
		l.imports = make(map[string]bool, len(m.Imports))
		for _, name := range m.Imports {
			for _, suffix := range moduleSuffixes {
				l.imports[quote(name)+suffix] = true
			}
		}
	}
	return l
}

// special checks a line that is no rule of the usual form. is reports whether it is one of gcc's.
func (l *moduleLines) special(line string, target func(string) bool) (is bool, err error) {
	if rest, ok := strings.CutPrefix(line, importsLine); ok && len(l.imports) > 0 {
		words, err := names(rest)
		if err != nil {
			return true, err
		}
		return true, l.step(lineVariable, l.imported(words))
	}
	if rest, ok := strings.CutPrefix(line, l.file+":| "); ok && l.file != "" {
		words, err := names(rest)
		if err != nil {
			return true, err
		}
		return true, l.step(lineOrder, len(words) == 1 && target(words[0]))
	}
	return false, nil
}

// rule checks a rule that is not the first one. is reports whether it is about modules.
func (l *moduleLines) rule(targets, files []string, target func(string) bool) (is bool, err error) {
	only := func(words []string, w string) bool { return w != "" && len(words) == 1 && words[0] == w }
	switch {
	case l.module != "" && only(targets, ".PHONY"):
		return true, l.step(linePhony, l.own(files))
	case l.own(targets):
		return true, l.step(lineModule, only(files, l.file))
	case l.imported(files):
		targets = l.others(targets)
		return true, l.step(lineImports, !slices.ContainsFunc(targets, func(w string) bool { return !target(w) }))
	case l.last > 0:
		return true, doubt("a rule behind those about modules")
	}
	return false, nil
}

// own reports whether words are the compiled module's name, and perhaps behind it that of the header that it is made of: the end of the
// module's name.
func (l *moduleLines) own(words []string) bool {
	if l.module == "" || len(words) == 0 || len(words) > 2 ||
		!slices.ContainsFunc(moduleSuffixes[:], func(suffix string) bool { return words[0] == l.module+suffix }) {
		return false
	}
	if len(words) == 1 {
		return true
	}
	header, is := strings.CutSuffix(words[1], unitSuffix)
	return is && header != "" && strings.HasSuffix(l.module, header)
}

// step takes a line if it is good, and none of its kind, or of one that comes later, was before it.
func (l *moduleLines) step(kind int, good bool) error {
	if !good || kind <= l.last {
		return doubt("a line about modules that are not the command's")
	}
	l.last = kind
	return nil
}

// imported reports whether there are words, and all are imports.
func (l *moduleLines) imported(words []string) bool {
	return len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return !l.imports[w] })
}

// others returns the targets of a rule without the compiled module, which is the last one.
func (l *moduleLines) others(targets []string) []string {
	if n := len(targets) - 1; n > 0 && l.file != "" && targets[n] == l.file {
		return targets[:n]
	}
	return targets
}

// names splits what follows the colon of a rule.
func names(text string) ([]string, error) {
	words, _, err := ruleWords(": " + text)
	return words, err
}

// quote returns a name as gcc writes it for make. It is the inverse of unquote.
func quote(name string) string {
	b := make([]byte, 0, len(name))
	slashes := 0 // right before name[i]
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch c {
		case '$':
			b = append(b, '$')
		case ' ', '\t':
			for range slashes + 1 {
				b = append(b, '\\')
			}
		case '#':
			b = append(b, '\\')
		}
		if slashes++; c != '\\' {
			slashes = 0
		}
		b = append(b, c)
	}
	return string(b)
}

// SameRules reports whether two files of make's rules differ only in the order of imports, which gcc takes from
// where its memory lies.
func SameRules(x, y []byte) bool {
	a, b := string(x), string(y)
	for a != "" && b != "" {
		var one, two string
		one, a = logicalLine(a)
		two, b = logicalLine(b)
		if one != two && !slices.Equal(sorted(one), sorted(two)) {
			return false
		}
	}
	return a == b
}

// sorted splits a line at unquoted spaces, and sorts the imports at its end.
func sorted(line string) (words []string) {
	from := -1
	for i := 0; i <= len(line); i++ {
		space := i == len(line) || line[i] == ' ' && (i == 0 || line[i-1] != '\\')
		switch {
		case space && from >= 0:
			words, from = append(words, line[from:i]), -1
		case !space && from < 0:
			from = i
		}
	}
	n := len(words)
	for n > 0 && slices.ContainsFunc(moduleSuffixes[:], func(suffix string) bool { return strings.HasSuffix(words[n-1], suffix) }) {
		n--
	}
	slices.Sort(words[n:])
	return words
}
