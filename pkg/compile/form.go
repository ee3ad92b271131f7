package compile

import (
	"strings"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// List returns the arguments of the dependency run of the sources form. It makes the compiler
// write the files that this compile reads to standard output, as a rule for make. The run
// writes nothing else and does not warn. Its errors, say a missing header, are errors of the
// compile too. major is the compiler's major version; 0 when it is not known.
//
// Precompiled headers are ignored: the header itself is in the list. For a Raw
// plan, whose one file is the source, List returns nil.
func (p *Plan) List(major int) []string {
	switch {
	case p.Local, p.Raw:
		return nil
	case p.Driver.Tidy:
		return p.tidyLooks()
	}
	argv := p.listForm(make([]string, 0, len(p.argv)+4), major)
	var f forwardFilter
	for _, o := range p.options {
		switch {
		case o.class == wp:
			if w := f.joined(o.words[0]); w != "" {
				argv = append(argv, w)
			}
		case o.class == xpre:
			if f.keep(o.words[1]) {
				argv = append(argv, o.words...)
			}
		case goes[o.class]&toList != 0:
			argv = append(argv, o.words...)
		}
	}
	return argv
}

// listForm adds the words that make the driver write the list. gcc's -M tokenizes all text.
// Where directives alone will do, it is a sixth cheaper to have the text written to nowhere
// and the list beside it. A header that is a link is listed under the link's name: the compiler
// on the host makes of that name what the compiler here does.
func (p *Plan) listForm(argv []string, major int) []string {
	switch {
	case p.Driver.Family == Clang:
		// The driver on the host will report the words it does not use.
		return append(argv, "-M", "-w", "-Qunused-arguments")
	case p.directivesOnly(major):
		return append(argv, "-E", "-fdirectives-only", "-fno-canonical-system-headers", "-w", "-MD", "-MF", "-", "-o", "/dev/null")
	}
	return append(argv, "-M", "-fno-canonical-system-headers")
}

// forwardFilter removes the options for dependency files from the words for the preprocessor.
type forwardFilter struct{ argument bool }

// keep reports whether w, the next word for the preprocessor, goes to the run that lists the
// files.
func (f *forwardFilter) keep(w string) bool {
	if f.argument {
		f.argument = false
		return false
	}
	switch w {
	case "-MD", "-MMD", "-MF", "-MT", "-MQ":
		f.argument = true
		return false
	case "-MP", "-MG":
		return false
	}
	return true
}

// joined applies keep to all words of -Wp,A,B and returns the word that is left, or "".
func (f *forwardFilter) joined(word string) string {
	var b strings.Builder
	for w := range strings.SplitSeq(word[len("-Wp,"):], ",") {
		if f.keep(w) {
			if b.Len() == 0 {
				b.WriteString("-Wp")
			}
			b.WriteByte(',')
			b.WriteString(w)
		}
	}
	return b.String()
}

// Whole returns the command of the sources form: the words after the compiler's name as Parse
// was given them. The caller must not change them.
func (p *Plan) Whole() []string { return p.argv }

// TextOutputs returns the outputs of the text form, whose dependency files are written here:
// the main one, then the stack usage if requested.
func (p *Plan) TextOutputs() []unit.Output {
	if p.usage {
		return p.Outputs[:2]
	}
	return p.Outputs[:1]
}

// IncludeDirs returns the header directories that the command names, in order, followed by
// those of the environment; names are as typed. known is false where an option makes the list
// uncertain, as --sysroot and -iprefix do. The compiler's own directories are not included.
func (p *Plan) IncludeDirs() (dirs []string, known bool) {
	known = true
	for _, o := range p.options {
		switch o.class {
		case incDir:
			dir := o.arg
			if dir == "-" || strings.HasPrefix(dir, "=") || strings.HasPrefix(dir, "$SYSROOT") {
				known = false // -I-, or below the sysroot
				continue
			}
			dirs = append(dirs, dir)
		case search, searchGCC:
			known = false
		case wp, xpre:
			known = known && !strings.Contains(o.words[len(o.words)-1], "-I")
		}
	}
	return append(dirs, p.envDirs...), known
}
