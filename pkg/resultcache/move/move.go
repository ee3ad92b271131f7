// Package move lets builds of the same files in different directories share results: a checkout in /home/a/p
// and one in /home/b/p, each of which names its own as the base.
//
//	Base.Command   whether a command could have the same result below another base, and the command without its base
//	Base.Outputs   whether a result would be the same below another base
//	Base.Rules     rules for make that name files below one base, as the compiler would have written them for another
//
// A result is shared only where it would have been equal, byte for byte. A compiler puts names into its outputs as
// they are, or with letters replaced, unless it is told to map them; so it is enough that the base is nowhere in the
// outputs, if nothing can have been computed from it. Names in the source's text (__FILE__) could be: a command that
// names files below its base absolutely has to map them (-ffile-prefix-map or -fmacro-prefix-map).
package move

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
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
var barred = []string{"-gsplit-dwarf", "-funique-internal-linkage-names", "-fprofile", "-ftest-coverage", "--coverage", "-coverage", "-flto", "-save-temps",
	"-fdump", "-fmodules", "-fcoverage", "-fbranch", "-fauto-profile", "-gz", "-gmodules", "-fsave-optimization-record", "-foptimization-record",
	"-fembed-bitcode", "-frandom-seed", "-fdebug-types-section", "-gcodeview", "-fcallgraph-info", "-grecord", "-frecord", "-gcommand"}

// Command returns the command of a job without its base, for a resultcache.Key. ok is false if its result may
// depend on where the base is, whatever its outputs look like.
func (b Base) Command(body *job.Body) (c *job.Body, ok bool) {
	if body.Cwd != string(b) && !strings.HasPrefix(body.Cwd, string(b)+"/") {
		return nil, false
	}
	if strings.HasPrefix(path.Base(body.Compiler), "clang-tidy") { // what it finds may depend on letters of names, and name none
		return nil, false
	}
	named, mapped := false, false // files below the base are named absolutely; such names are mapped
	for i, w := range body.Args {
		for _, o := range barred {
			if strings.HasPrefix(w, o) {
				return nil, false
			}
		}
		if old, isMap := prefixMap(w); isMap {
			covers := old != "" && (string(b) == old || strings.HasPrefix(string(b)+"/", strings.TrimRight(old, "/")+"/"))
			mapped = mapped || covers && !strings.HasPrefix(w, "-fdebug")
			continue
		}
		output := i > 0 && (body.Args[i-1] == "-o" || body.Args[i-1] == "-MF" || body.Args[i-1] == "-MT" || body.Args[i-1] == "-MQ")
		named = named || !output && b.Hide(w) != w
	}
	for _, kv := range body.Env {
		if name, _, _ := strings.Cut(kv, "="); name != "PWD" {
			named = named || b.Hide(kv) != kv
		}
	}
	if named && !mapped {
		return nil, false
	}
	d := *body
	d.Argv0, d.Compiler, d.Cwd = b.Hide(body.Argv0), b.Hide(body.Compiler), b.Hide(body.Cwd)
	d.Args, d.Env = b.all(body.Args), b.all(body.Env)
	d.Outputs = slices.Clone(body.Outputs)
	for i := range d.Outputs {
		d.Outputs[i].Name = b.Hide(d.Outputs[i].Name)
	}
	return &d, true
}

func (b Base) all(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = b.Hide(w)
	}
	return out
}

// prefixMap returns the old prefix of an option that maps names.
func prefixMap(w string) (old string, ok bool) {
	for _, o := range [...]string{"-ffile-prefix-map=", "-fmacro-prefix-map=", "-fdebug-prefix-map="} {
		if rest, is := strings.CutPrefix(w, o); is {
			if i := strings.LastIndexByte(rest, '='); i >= 0 {
				return rest[:i], true
			}
			return "", true
		}
	}
	return "", false
}

// Output is an output of a compile.
type Output struct {
	Kind unit.OutputKind
	Data []byte
}

// Outputs reports whether all outputs and messages of a result would be the same below any base; rules for make
// may differ in a way that Rules knows.
func (b Base) Outputs(stdout, stderr []byte, files []Output) bool {
	if b.in(stdout) || b.in(stderr) {
		return false
	}
	for _, f := range files {
		if f.Kind == unit.OutputDependency {
			if _, ok := b.Rules(f.Data, b); !ok {
				return false
			}
		} else if b.in(f.Data) {
			return false
		}
	}
	return true
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
