package honest

import (
	"path"
	"slices"
	"strings"
)

// Options with the name of a file or directory: Shape keeps its place for the first ones, its extension for
// the others.
var (
	dirOptions  = []string{"-I", "-isystem", "-iquote", "-idirafter", "-L", "-include", "-imacros"}
	fileOptions = []string{"-o", "-MF", "-MT", "-MQ"}
)

// Shape returns what is left of a list when names are removed: directories are reduced to whether they are
// absolute, below or beside, macros to the kind of their value, and several of one kind in a row count as
// one. Lists of one shape ask the same of a daemon.
func (l List) Shape() string {
	var shape []string
	add := func(s string) {
		if len(shape) == 0 || shape[len(shape)-1] != s || !strings.HasPrefix(s, "*") {
			shape = append(shape, s)
		}
	}
	words := l.Expanded()
	for i := 0; i < len(words); i++ {
		w := words[i]
		if i+1 < len(words) && (slices.Contains(dirOptions, w) || slices.Contains(fileOptions, w) || w == "-D" || w == "-U") {
			i++
			switch {
			case slices.Contains(dirOptions, w):
				add("*" + w + " " + place(words[i]))
			case w[1] == 'D' || w[1] == 'U':
				add("*" + w + " " + value(words[i]))
			default:
				add(w + " *" + path.Ext(words[i]))
			}
			continue
		}
		j := slices.IndexFunc(dirOptions, func(o string) bool { return strings.HasPrefix(w, o) && w != o })
		switch {
		case strings.HasPrefix(w, "-D"), strings.HasPrefix(w, "-U"):
			add("*" + w[:2] + value(w[2:]))
		case j >= 0:
			add("*" + dirOptions[j] + place(w[len(dirOptions[j]):]))
		case strings.HasPrefix(w, "-Wp,-M"):
			add(strings.Join(strings.Split(w, ",")[:2], ","))
		case i > 0 && IsSource(w):
			add("*" + place(w) + path.Ext(w))
		default:
			add(w)
		}
	}
	return strings.Join(shape, " ")
}

func place(name string) string {
	switch {
	case strings.HasPrefix(name, "/"):
		return "/"
	case strings.HasPrefix(name, "../"), name == "..":
		return ".."
	}
	return "."
}

// value returns the kind of a macro's value.
func value(macro string) string {
	name, v, ok := strings.Cut(macro, "=")
	kind := ""
	switch {
	case !ok:
	case v == "":
		kind = "="
	case strings.Trim(v, "0123456789.xXuUlL") == "":
		kind = "=1"
	case strings.ContainsAny(v, `"'`) && strings.Contains(v, "/"):
		kind = `="/"`
	case strings.ContainsAny(v, `"'`):
		kind = `=""`
	case strings.Contains(v, "/"):
		kind = "=/"
	case strings.ContainsAny(v, " (),<>"):
		kind = "=()"
	default:
		kind = "=x"
	}
	if strings.Contains(name, "(") {
		kind = "()" + kind
	}
	return kind
}

// IsSource reports whether a word names a file that compilers compile.
func IsSource(w string) bool {
	switch path.Ext(w) {
	case ".c", ".cc", ".cpp", ".cxx", ".c++", ".C", ".cp", ".CPP", ".i", ".ii", ".m", ".mm", ".s", ".S", ".sx", ".h", ".hh", ".hpp":
		return !strings.HasPrefix(w, "-")
	}
	return false
}
