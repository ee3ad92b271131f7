package compile

import (
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
	return r, true
}

// otherReads are beginnings of options that change what is read, or how it is named: modules and precompiled
// headers, source texts that are not as they are compiled, rules in other forms.
var otherReads = [...]string{"-fmodule", "-fno-module", "-fimplicit-module", "-fno-implicit-module", "-fcxx-module", "-fprebuilt", "--precompile", "-fpch", "-include-pch",
	"-finput-charset", "-traditional", "-fpreprocessed", "-fdirectives-only", "-remap", "-fdeps", "-MV", "-MG", "-MJ", "-fplugin", "-ivfsoverlay", "-working-directory", "--working-directory", "-fdepfile", "@"}
