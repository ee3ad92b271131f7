// Package move lets builds of the same files in different directories share results: a checkout in /home/a/p
// and one in /home/b/p, each of which names its own as the base.
//
//	Base.Command   whether a command could have the same result below another base, and the command without its base
//	Base.Outputs   whether a result would be the same below another base
//	Object         an object with debug information as it would be in another directory
//	Base.Rules     rules for make that name files below one base, as the compiler would have written them for another
//
// A result is shared only where it would have been equal, byte for byte. A compiler puts names into its outputs as
// they are, or with letters replaced, unless it is told to map them; so it is enough that the base is nowhere in the
// outputs, if nothing can have been computed from it. Names in the source's text (__FILE__) could be: a command that
// names files below its base absolutely has to map them (-ffile-prefix-map or -fmacro-prefix-map).
//
// Of gcc's objects, those differ as well that have the working directory in their debug information and nowhere else: Object makes
// one of the other.
package move

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Base is a directory below which a build's files are: an absolute path, clean, without the characters that make
// and compilers treat in some way of their own.
type Base string

// Of returns a directory as a Base. ok is false if it cannot be one.
func Of(dir string) (b Base, ok bool) {
	dir = strings.TrimRight(dir, "/")
	if len(dir) < 2 || dir[0] != '/' || strings.Contains(dir, "//") || strings.Contains(dir+"/", "/./") || strings.Contains(dir+"/", "/../") {
		return "", false
	}
	for i := range len(dir) {
		switch c := dir[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', strings.IndexByte("/_-.+@,~", c) >= 0:
		default:
			return "", false
		}
	}
	return Base(dir), true
}

// hidden stands for the base in what a name is made of. No command can contain it.
const hidden = "\x00base"

// Hide returns s with each occurrence of the base as a whole directory replaced.
func (b Base) Hide(s string) string { return b.replace(s, hidden) }

func (b Base) replace(s, by string) string {
	if !strings.Contains(s, string(b)) {
		return s
	}
	var out strings.Builder
	done := 0
	for {
		i := strings.Index(s[done:], string(b))
		if i < 0 {
			break
		}
		i += done
		out.WriteString(s[done:i])
		done = i + len(b)
		if b.whole(s, i) {
			out.WriteString(by)
		} else {
			out.WriteString(s[i:done])
		}
	}
	out.WriteString(s[done:])
	return out.String()
}

// whole reports whether the base at s[i:] is a whole directory's name, and not part of a longer one.
func (b Base) whole(s string, i int) bool {
	end := i + len(b)
	return (i == 0 || !part(s[i-1]) || slices.Contains(attached, s[:i])) && (end == len(s) || s[end] == '/' || !part(s[end]))
}

// attached are options that a name can follow at once.
var attached = []string{"-I", "-L", "-B", "-F", "-isystem", "-iquote", "-idirafter", "-include", "-imacros", "-isysroot", "-iprefix", "-iwithprefix",
	"-iwithprefixbefore", "-imultilib", "-o", "-MF", "-MT", "-MQ"}

// part reports whether c can be part of a file's name.
func part(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80 || strings.IndexByte("_-.+@~", c) >= 0
}

// Options by which something else than a name can be computed from the base, or whose outputs are not known here
// to have names as they are.
var barred = []string{"-gsplit-dwarf", "-funique", "-fuse-cuid", "-fprofile", "-ftest-coverage", "--coverage", "-coverage", "-flto", "-save-temps", "--save-temps",
	"-fdump", "-fmodules", "-fcoverage", "-fbranch", "-fauto-profile", "-gz", "-gmodules", "-fsave-optimization-record", "-foptimization-record",
	"-fembed-bitcode", "-emit-llvm", "-fcanon-prefix-map", "-frandom-seed", "-fdebug-types-section", "-gcodeview", "-fcallgraph-info", "-grecord", "-frecord", "-gcommand"}

// matching are options by which the result depends on parts of the names of files: on whether they match a pattern, or on
// how many directories they have. No map applies to that.
var matching = []string{"-finstrument-functions-exclude-file-list", "-fsanitize-undefined-strip-path-components", "-fsanitize-ignorelist", "-fsanitize-blacklist",
	"-fsanitize-system", "-fsanitize-coverage-", "-fexperimental-sanitize-metadata", "-fxray-", "-fbasic-block-sections=", "--warning-suppression-mappings",
	"-mllvm", "-Xclang"}

func begins(w string, list []string) bool {
	return slices.ContainsFunc(list, func(o string) bool { return strings.HasPrefix(w, o) })
}

// Holes returns the directory that an object of the job may name in its debug information, and nowhere else, so that Object knows what it
// would be elsewhere; "": none. The job's texts must have no line directive with an absolute name.
func Holes(family string, major int, body *job.Body) (dir string) {
	// These have one hash table for the strings in question, whose size and order are known (TestObject).
	if family != "gcc" || major < 11 || major > 15 {
		return ""
	}
	for _, kv := range body.Env {
		if dir, set := strings.CutPrefix(kv, "PWD="); set && dir != body.Cwd {
			return "" // gcc takes it for the directory, if it leads there
		}
	}
	debug := false
	for _, w := range body.Args {
		switch {
		case strings.HasPrefix(w, "-gdwarf") && w != "-gdwarf-5", strings.HasPrefix(w, "-gstabs"), strings.HasPrefix(w, "-Wp,"), strings.HasPrefix(w, "-Wa,"), strings.HasPrefix(w, "-X"):
			return ""
		case strings.HasPrefix(w, "-g"):
			debug = true
		}
	}
	if !debug {
		return ""
	}
	return body.Cwd
}

// NamesTypes reports whether a compiler calls types without a name after the place where they are, with no regard to maps: clang
// before 19 does, as in __PRETTY_FUNCTION__ of a template whose argument is a lambda. The program can compute the length of that.
// In C, only a function whose parameter is such a type, which no other can call, would show one.
func NamesTypes(family string, major int, language string) bool {
	return family == "clang" && major < 19 && strings.Contains(language, "++")
}

// Command returns the command of a job without its base, for a resultcache.Key. ok is false if its result may
// depend on where the base is, whatever its outputs look like. namesTypes is what NamesTypes says of the compiler, hole what Holes says of
// the job.
func (b Base) Command(body *job.Body, namesTypes bool, hole string) (c *job.Body, ok bool) {
	if body.Cwd != string(b) && !strings.HasPrefix(body.Cwd, string(b)+"/") {
		return nil, false
	}
	if strings.HasPrefix(path.Base(body.Compiler), "clang-tidy") { // what it finds may depend on letters of names, and name none
		return nil, false
	}
	named := b.Hide(body.Argv0) != body.Argv0 || b.Hide(body.Compiler) != body.Compiler // files below the base are named absolutely
	mapped, matched := false, false                                                     // such names are mapped; or matched with patterns
	for i, w := range body.Args {
		if begins(w, barred) {
			return nil, false
		}
		matched = matched || begins(w, matching)
		if old, by, isMap := prefixMap(w); isMap {
			if b.shows(old, by) {
				return nil, false
			}
			mapped = mapped || strings.TrimRight(old, "/") == string(b) && !strings.HasPrefix(w, "-fdebug")
			continue
		}
		switch before := body.Args[max(0, i-1)]; {
		case !strings.Contains(w, string(b)):
		case i > 0 && slices.Contains(written, before):
		case !b.names(w, before, body.Name):
			return nil, false // such as -DROOT="/base", which a compiler can take to pieces
		default:
			named = named || b.Hide(w) != w
		}
	}
	for _, kv := range body.Env {
		if name, _, _ := strings.Cut(kv, "="); name != "PWD" {
			named = named || b.Hide(kv) != kv
		}
	}
	if named && (!mapped || matched || namesTypes) || hole == "" && b.debugged(body) {
		return nil, false
	}
	d := *body
	d.Argv0, d.Compiler, d.Cwd = b.Hide(body.Argv0), b.Hide(body.Compiler), b.Hide(body.Cwd)
	d.Args, d.Env = b.all(body.Args), b.all(body.Env)
	if hole != "" { // whoever looks for the result must know that it has to be changed
		d.Env = append(d.Env, hidden+" in debug information")
	}
	d.Outputs = slices.Clone(body.Outputs)
	for i := range d.Outputs {
		d.Outputs[i].Name = b.Hide(d.Outputs[i].Name)
	}
	return &d, true
}

// debugged reports whether the compiler writes the job's directory into debug information for certain: no result of such a command
// can be shared, so none is looked for. It takes the directory from PWD, if that leads there.
func (b Base) debugged(body *job.Body) (is bool) {
	for _, w := range body.Args {
		switch {
		case strings.Contains(w, "prefix-map"), strings.Contains(w, "compilation-dir"), strings.HasPrefix(w, "-Wp,"), strings.HasPrefix(w, "-Wa,"):
			return false
		case slices.Contains(debugging, w):
			is = true
		case strings.HasPrefix(w, "-g"): // -g0, or another form of which this knows nothing
			is = false
		}
	}
	for _, kv := range body.Env {
		if dir, set := strings.CutPrefix(kv, "PWD="); set && b.Hide(dir) == dir {
			return false
		}
	}
	return is && slices.ContainsFunc(body.Outputs, func(o unit.Output) bool { return o.Kind == unit.OutputObject })
}

// debugging are options that turn debug information on.
var debugging = []string{"-g", "-g1", "-g2", "-g3", "-ggdb", "-ggdb3", "-gdwarf-4", "-gdwarf-5"}

// written are options whose argument names an output, or stands in rules for make.
var written = []string{"-o", "-MF", "-MT", "-MQ"}

// names reports whether a word with the base in it, behind the word before, does nothing but name a file or a directory, so
// that maps apply to what a compiler makes of it. source is the base name of the source.
func (b Base) names(w, before, source string) bool {
	name, option := w, ""
	for _, o := range attached {
		if rest, is := strings.CutPrefix(w, o); is && len(o) > len(option) {
			name, option = strings.TrimPrefix(rest, "="), o
		}
	}
	if rest, is := strings.CutPrefix(w, "--sysroot="); is {
		name, option = rest, "--sysroot="
	}
	if !strings.HasPrefix(name, string(b)) || strings.HasPrefix(before, "-X") || strings.Count(name, string(b)) > 1 {
		return false
	}
	return option != "" || slices.Contains(attached, before) || before == "--sysroot" || path.Base(w) == source && before != "-D" && before != "-U"
}

// shows reports whether a map of names that begin with old leaves a part of the base in them, so that it looks different
// below another base. Compilers compare letters, not directories: /home/an stands for a part of /home/anna.
func (b Base) shows(old, by string) bool {
	return old != string(b) && strings.HasPrefix(string(b), old) || strings.Contains(by, string(b))
}

func (b Base) all(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = b.Hide(w)
	}
	return out
}

// prefixMap returns the old prefix of an option that maps names, and the new one.
func prefixMap(w string) (old, by string, ok bool) {
	for _, o := range [...]string{"-ffile-prefix-map=", "-fmacro-prefix-map=", "-fdebug-prefix-map="} {
		if rest, is := strings.CutPrefix(w, o); is {
			// gcc parts it at the first sign, clang at the last one or the first, by version.
			if old, by, is = strings.Cut(rest, "="); !is || strings.Contains(by, "=") {
				return "", "", true
			}
			return old, by, true
		}
	}
	return "", "", false
}

// Output is an output of a compile.
type Output struct {
	Kind unit.OutputKind
	Data []byte
}

// Outputs reports whether all outputs and messages of a result would be the same below any base; rules for make
// may differ in a way that Rules knows, and objects in that they name the directory hole, which is below b, in a way that Object knows.
// hole may be empty.
func (b Base) Outputs(stdout, stderr []byte, files []Output, hole string) bool {
	if b.in(stdout) || b.in(stderr) {
		return false
	}
	for _, f := range files {
		if f.Kind == unit.OutputDependency {
			if _, ok := b.Rules(f.Data, b); !ok {
				return false
			}
		} else if f.Kind == unit.OutputModule || outputs.Sealed(f.Data) || b.in(f.Data) && !b.onlyIn(hole, f) {
			return false
		}
	}
	return true
}

// elsewhere is a directory that no base is above or below.
const elsewhere = "/?/elsewhere"

// onlyIn reports whether an output has the base in it only as Object can change that.
func (b Base) onlyIn(hole string, f Output) bool {
	if hole == "" || f.Kind != unit.OutputObject {
		return false
	}
	moved, ok := Object(f.Data, hole, elsewhere)
	return ok && !b.in(moved)
}

// Move returns an output of a job in the directory dir below b, whose result Outputs has accepted, as it is below to.
func (b Base) Move(f Output, dir string, to Base) (moved []byte, ok bool) {
	switch {
	case b == to:
		return f.Data, true
	case f.Kind == unit.OutputDependency:
		return b.Rules(f.Data, to)
	case !b.in(f.Data):
		return f.Data, true
	}
	return Object(f.Data, dir, string(to)+strings.TrimPrefix(dir, string(b)))
}

// in reports whether data has the base in it, as it is, or with other letters as a symbol has it.
func (b Base) in(data []byte) bool {
	symbol := strings.Map(func(r rune) rune {
		if part(byte(r)) && r != '-' && r != '+' && r != '@' && r != '~' && r != '.' {
			return r
		}
		return '_'
	}, string(b))
	dotted := strings.NewReplacer("/", "_", "-", "_", "+", "_", "@", "_", "~", "_", ",", "_").Replace(string(b))
	return bytes.Contains(data, []byte(b)) || bytes.Contains(data, []byte(symbol)) || bytes.Contains(data, []byte(dotted))
}
