package compile

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// Rules are the rules for make that a compile writes beside its output, where they name all files that the
// preprocessor reads.
type Rules struct {
	Output int  // index in Outputs
	All    bool // otherwise they leave out system headers
}

// Rules returns the rules for make that the compile writes. ok is false if it writes none, or if they may
// leave out more than system headers.
func (p *Plan) Rules() (r Rules, ok bool) {
	r = Rules{Output: -1, All: true}
	for i := range p.Outputs {
		if p.Outputs[i].Kind != unit.OutputDependency {
			continue
		}
		if r.Output >= 0 {
			return r, false // which of them is written depends on the compiler
		}
		r.Output = i
	}
	if r.Output < 0 || p.Language == langAsm { // the assembler is not told
		return r, false
	}
	for _, w := range p.argv {
		for _, o := range otherReads {
			if strings.HasPrefix(w, o) {
				return r, false
			}
		}
	}
	for i := range p.options {
		switch o := &p.options[i]; o.class {
		case dependAuto:
			r.All = r.All && (o.words[0] == "-MD" || o.words[0] == "--write-dependencies")
		case depend:
			if o.words[0] != "-MP" {
				return r, false
			}
		case wp: // clang may take -Wp,-MD for -MMD
			r.All = false
		case xpre, xclang:
			return r, false
		}
	}
	return r, r.All || !p.marksHeaders()
}

// marksHeaders reports whether the command may say otherwise than by the directories of its search which headers
// are the system's.
func (p *Plan) marksHeaders() bool {
	for i := range p.options {
		o := &p.options[i]
		w := o.words[0]
		switch o.class {
		case macro, wp:
			// A macro can have a _Pragma as its value.
			if slices.ContainsFunc(o.words, func(w string) bool { return strings.Contains(w, "_Pragma") || strings.Contains(w, "system_header") }) {
				return true
			}
		case both:
			if !slices.ContainsFunc(codeWords[:], func(known string) bool { return strings.HasPrefix(w, known) }) {
				return true
			}
		}
	}
	return false
}

// codeWords are beginnings of the options of class both that tell a compiler nothing about headers.
var codeWords = [...]string{"-f", "-m", "-O", "-W", "-w", "-p", "-std=", "--std=", "-ansi", "--ansi", "-trigraphs", "--trigraphs", "-target", "--target=", "--param",
	"-Q", "-no-p", "--optimize", "--pedantic", "--no-pedantic", "--no-warnings", "--all-warnings", "--extra-warnings", "--pipe", "-undef",
	"-integrated-as", "-no-integrated-as", "--start-no-unused-arguments", "--end-no-unused-arguments"}

// otherReads are beginnings of options that change what is read, or how it is named: modules and precompiled
// headers, source texts that are not as they are compiled, rules in other forms.
var otherReads = [...]string{"-fmodule", "-fno-module", "-fimplicit-module", "-fno-implicit-module", "-fcxx-module", "-fprebuilt", "--precompile", "-fpch", "-include-pch",
	"-finput-charset", "-traditional", "-fpreprocessed", "-fdirectives-only", "-remap", "-fdeps", "-MV", "-MG", "-MJ", "-fplugin", "-ivfsoverlay", "-working-directory", "--working-directory", "-fdepfile", "@"}
