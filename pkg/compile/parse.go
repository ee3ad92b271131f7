package compile

import (
	"strings"

	"github.com/rdistcc/rdistcc/pkg/job"
)

// Parse reads argv, the words behind the compiler's name, as the driver d would.
// getenv tells the environment's variables; nil means that none is set.
//
// It never fails: what it does not know for certain is a Local plan.
func Parse(argv []string, d Driver, getenv func(string) (string, bool)) Plan {
	p := parser{Plan: Plan{Driver: d}}
	p.options = make([]option, 0, len(argv)+4)
	for i := 0; i < len(argv); {
		i += p.word(argv[i:])
	}
	p.finish(getenv)
	return p.Plan
}

// parser is a Plan in the making.
type parser struct {
	Plan
	x        string // language that -x set for the files behind it, or ""
	sources  int
	inputs   int // further files: objects, libraries
	compile  bool
	assembly bool
	outputs  int // times -o was given
	usage    bool
	late     bool // -x behind the source
	named    bool // clang: the object holds the source's name as it was typed
	misled   int8 // -Wmisleading-indentation or -Wempty-body, by its own name: 1 on, -1 off
	wall     bool
	quiet    bool
	query    bool
	cppOnly  bool
	depOnly  bool
	stdin    bool
	reason   string // the first word's that must stay here
}

// word takes one option with its arguments, or one file, and returns how many
// words that was.
func (p *parser) word(argv []string) int {
	w := argv[0]
	if w == "" || w[0] != '-' || w == "-" {
		p.file(w)
		return 1
	}
	row := find(w)
	c := unknown
	if row != nil {
		c = row.class(p.Driver.Family)
	}
	if c == unknown {
		p.refuse(ReasonUnknownOption + optionName(w))
		p.add(both, w)
		return 1
	}
	words, arg := argv[:1], w[len(row.name):]
	if row.form == separate || row.form == either && arg == "" {
		if len(argv) < 2 {
			// The driver's own error; it is the one to say so.
			p.refuse(ReasonUnknownOption + optionName(w))
			p.add(both, w)
			return 1
		}
		words, arg = argv[:2], argv[1]
	}
	if row == &anyWarning || w == "-w" {
		p.warning(w)
	}
	p.option(c, words, arg)
	return len(words)
}

// warning notes what bears on the warnings that the other half cannot give.
func (p *parser) warning(w string) {
	switch w {
	case "-w", "-Wno-everything":
		p.quiet = w == "-w" || p.Driver.Family == Clang
	case "-Wall":
		p.wall = true
	case "-Wmisleading-indentation", "-Werror=misleading-indentation":
		if p.Driver.Family == GCC {
			p.misled = 1
		}
	case "-Wno-misleading-indentation":
		if p.Driver.Family == GCC {
			p.misled = -1
		}
	case "-Wempty-body", "-Werror=empty-body":
		if p.Driver.Family == Clang {
			p.misled, p.quiet = 1, false
		}
	case "-Wno-empty-body":
		if p.Driver.Family == Clang {
			p.misled = -1
		}
	}
}

func (p *parser) option(c class, words []string, arg string) {
	switch c {
	case modeCompile:
		p.compile = true
		return
	case modeAssembly:
		p.assembly = true
		return
	case output:
		p.outputs++
		p.output = arg
		return
	case language:
		p.late = p.late || p.sources > 0
		p.x = arg
		if arg == "none" {
			p.x = ""
		}
	case isQuery:
		p.query = true
	case isPreprocess:
		p.cppOnly = true
	case isDependencies:
		p.depOnly = true
	case dependAuto:
		p.deps = true
	case dependFile:
		p.depFile = true
		p.dependencyFile(arg)
	case dependTo:
		p.target = true
	case preproc:
		if isDevice(arg) {
			p.refuse(ReasonStdin)
		}
	case debug:
		p.debug = true
	case compDirWord:
		// One spelling is enough for the other half.
		p.compDir = true
		p.add(compDir, "-fdebug-compilation-dir="+arg)
		return
	case compDir:
		p.compDir = true
	case plainText:
		p.plain = true
	case sanitize:
		p.sanitize(arg)
		c = both
	case lto:
		p.lto, p.macros = true, true
		c = both
	case stackUsage:
		p.usage = true
		c = both
	case arch:
		if arg == "native" || strings.HasPrefix(arg, "native+") {
			p.refuse(ReasonNotReproducible + "native")
		}
		c = both
	case wp:
		p.preprocessorWords(arg)
		c = depend
	case xpre:
		p.preprocessorWords(arg)
		c = depend
	case wa:
		p.assemblerWords(arg)
		c = compileOn
	case xasm:
		p.assemblerWord(arg)
		p.add(compileOn, "-Wa,"+arg)
		return
	case xclang:
		if !forwarded(arg) {
			p.refuse(ReasonUnknownOption + optionName(arg))
		}
		c = both
	}
	if c > notHere {
		p.refuse(ReasonNotReproducible + whatOf(c))
	}
	p.add(c, words...)
}

// isDevice reports whether a file may be one that can be read but once: a
// command that is begun and done again here would find it empty.
func isDevice(name string) bool {
	return name == "-" || strings.HasPrefix(name, "/dev/") || strings.HasPrefix(name, "/proc/")
}

// dependencyFile looks at the name of a dependency file: our half has another
// standard output than the command.
func (p *parser) dependencyFile(name string) {
	if isDevice(name) && name != "/dev/null" {
		p.refuse(ReasonNotReproducible + "stdout")
	}
}

// sanitize notes what an instrumented object needs.
func (p *parser) sanitize(kinds string) {
	p.macros = true
	if p.Driver.Family == Clang {
		// The reports name lines and columns, those within macros too.
		p.rewrite = true
		p.named = p.named || strings.Contains(kinds, "address")
	}
}

// file takes an input.
func (p *parser) file(name string) {
	if strings.HasPrefix(name, "@") {
		p.refuse(ReasonNotReproducible + "response-file")
		return
	}
	var lang string
	switch {
	case p.x != "":
		lang = byName(p.x)
	case name == "-":
		p.stdin = true
		return
	default:
		lang = bySuffix(name, p.Driver)
	}
	if name == "-" || isDevice(name) {
		p.stdin = true
	}
	if lang == langLink {
		p.inputs++
		return
	}
	p.sources++
	p.Source, p.Language = name, lang
	p.add(source, name)
}

func (p *parser) add(c class, words ...string) {
	p.options = append(p.options, option{words: words, class: c})
}

// refuse notes the first reason that an option gives for staying here.
func (p *parser) refuse(reason string) {
	if p.reason == "" {
		p.reason = reason
	}
}

// optionName is a word up to its value, for reports.
func optionName(w string) string {
	if i := strings.IndexAny(w, "= \t\n"); i > 0 {
		w = w[:i]
	}
	if len(w) > 64 {
		w = w[:64]
	}
	return w
}

// finish decides, now that all words are known.
func (p *parser) finish(getenv func(string) (string, bool)) {
	local := func(reason string, gate Gate) { p.Local, p.Reason, p.Gate = true, reason, gate }
	switch {
	case p.query:
		local(ReasonQuery, GateNone)
	case p.cppOnly:
		local(ReasonPreprocess, GateCPP)
	case p.depOnly:
		local(ReasonDependencies, GateCPP)
	case p.sources == 0 && p.stdin:
		local(ReasonStdin, GateLocal)
	case p.sources == 0 && p.inputs > 0:
		local(ReasonLink, GateLocal)
	case p.sources == 0:
		local(ReasonNoSource, GateLocal)
	case p.stdin:
		local(ReasonStdin, GateLocal)
	case p.Language == langHeader:
		local(ReasonNotReproducible+"pch", GateLocal)
	case !p.compile && !p.assembly:
		local(ReasonLink, GateLocal)
	case (p.sources > 1 || p.inputs > 0) && strings.HasPrefix(p.reason, ReasonUnknownOption):
		local(p.reason, GateLocal) // one of the files may be its argument
	case p.sources > 1 || p.inputs > 0:
		local(ReasonNotReproducible+"several-sources", GateLocal)
	case p.Language == langAsm || p.Language == langAsmCpp:
		local(ReasonAssembler, GateLocal)
	case p.Language == langOther:
		local(ReasonNotReproducible+"language", GateLocal)
	case isProbe(p.Source):
		local(ReasonProbe, GateLocal)
	case p.reason != "":
		local(p.reason, GateLocal)
	default:
		if what := p.unfit(getenv); what != "" {
			local(ReasonNotReproducible+what, GateLocal)
			return
		}
		p.Raw = raw(p.Language)
		p.places = !p.quiet && !p.Raw && (p.misled > 0 || p.misled == 0 && (p.wall || p.Driver.Family == Clang))
		p.name()
	}
}

// isProbe reports whether a source is a question of configure's: it asks about
// this machine, and is answered sooner here.
func isProbe(source string) bool {
	file := base(source)
	return strings.HasPrefix(file, "conftest.") || strings.HasPrefix(file, "tmp.conftest.")
}

// unfit names what else speaks against another machine, or "".
func (p *parser) unfit(getenv func(string) (string, bool)) string {
	switch {
	case p.outputs > 1 || p.outputs == 1 && p.output == "":
		return "several-outputs"
	case p.output == "-":
		return "stdout"
	case p.outputs == 1 && p.output == p.Source:
		return "output" // the driver refuses
	case p.outputs == 0 && stem(p.Source) == "":
		return "output"
	case strings.HasPrefix(base(p.Source), "-") || strings.HasPrefix(base(p.Source), "@"):
		return "source-name"
	case raw(p.Language) && (p.late || p.Driver.Family == Clang && p.unused()):
		return "messages" // the driver says that a word has no effect; the other half has not that word
	case raw(p.Language) && p.Driver.Family == GCC && (p.debug || p.lto):
		// The object names the working directory; only text that we make says which.
		return "directory"
	case p.rewrite && (p.named || p.lto) && p.Source != base(p.Source):
		return "directory"
	case p.debug && p.assembly:
		// Debug information lies open there: the producer's options, the columns.
		return "debug"
	case p.debug && p.lto && p.Driver.Family == Clang:
		return "lto" // bitcode does too
	}
	if changedByEnvironment(p.Driver.Family, getenv) {
		return "environment"
	}
	return ""
}

// unused reports whether clang's driver, given text that is preprocessed
// already, would say that it does not use a word.
func (p *parser) unused() bool {
	for _, o := range p.options {
		switch o.class {
		case preproc, macro, depend, dependAuto, dependFile, dependTo, linker, plainText:
			return true
		}
	}
	return false
}

// name derives the outputs as the driver does.
func (p *parser) name() {
	kind, suffix := job.OutputObject, ".o"
	if p.assembly { // wins over -c in either order
		kind, suffix = job.OutputAssembly, ".s"
	}
	main := p.output
	if main == "" {
		main = stem(p.Source) + suffix
	}
	p.Outputs = append(make([]job.Output, 0, 2), job.Output{Kind: kind, Name: main})
	if p.usage {
		p.Outputs = append(p.Outputs, job.Output{Kind: job.OutputStackUsage, Name: swapSuffix(main, ".su")})
	}
}

// stem is a file's base name without its last suffix; "" where drivers differ.
func stem(path string) string {
	file := base(path)
	if i := strings.LastIndexByte(file, '.'); i >= 0 {
		return file[:i]
	}
	return file
}

// swapSuffix replaces the last suffix of a path's base name, or adds one.
func swapSuffix(path, suffix string) string {
	if i := strings.LastIndexByte(path, '.'); i > strings.LastIndexByte(path, '/') {
		path = path[:i]
	}
	return path + suffix
}
