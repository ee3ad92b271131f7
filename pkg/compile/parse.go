package compile

import (
	pathname "path" // path is a kind of value here
	"strings"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Parse reads argv, the words after the compiler's name, as the driver d would.
// getenv returns the environment's variables; nil means that none is set.
//
// It never fails: what it does not know for certain becomes a Local plan. The plan
// keeps argv.
func Parse(argv []string, d Driver, getenv func(string) (string, bool)) Plan {
	return parse(argv, d, getenv, false)
}

func parse(argv []string, d Driver, getenv func(string) (string, bool), ask bool) Plan {
	if d.Tidy {
		return parseTidy(argv, d, getenv)
	}
	p := parser{Plan: Plan{Driver: d, argv: argv}, ask: ask}
	p.options = make([]option, 0, len(argv)+4)
	for i := 0; i < len(argv); {
		i += p.word(argv[i:])
	}
	p.finish(getenv)
	return p.Plan
}

// parser is a Plan being built.
type parser struct {
	Plan
	ask       bool   // words that the compiler may know are left to it
	value     value  // of the current option
	x         string // language that -x set for the files that follow, or ""
	sources   int
	spoken    bool // the previous word, not counting options, was -x
	inputs    int  // further files: objects, libraries
	compile   bool
	assembly  bool
	outputs   int  // how often -o was given
	late      bool // -x after the source
	named     bool // clang: the object records the source's name as it was typed
	misled    int8 // -Wmisleading-indentation or -Wempty-body by name: 1 on, -1 off
	wall      bool
	quiet     bool
	query     bool
	cppOnly   bool
	dump      bool // -dM and the like
	dumpNames bool // -dumpdir and the like
	ltrans    bool // gcc: -fltrans
	depOnly   bool
	stdin     bool
	filesOnly bool   // clang: after "--"
	llvm      bool   // clang: -emit-llvm
	feature   bool   // the next word after -Xclang is a feature's name
	names     string // the option after -Xclang whose argument the next such word is; "": none
	emits     bool   // -Xclang -emit-pch
	headerIn  string // language of the header that is compiled; "": none, or one whose image no host makes
	symbol    bool   // --defsym waits for its argument
	asDeps    bool   // so does the assembler's --MD
	asRules   bool   // the assembler writes rules for make
	asDebug   bool   // the assembler describes its own text
	pending   string // a preprocessor option that waits for its argument
	reason    string // the first reason to stay here
	extra     sides
}

// word reads one option with its arguments, or one file, and returns how many words that was.
func (p *parser) word(argv []string) int {
	w := argv[0]
	if w == "" || w[0] != '-' || w == "-" || p.filesOnly {
		p.file(argv[:1])
		return 1
	}
	if w == "--" && p.Driver.Family == Clang {
		p.filesOnly = true
		p.value = none
		p.add(preproc, argv[:1], "")
		return 1
	}
	row, arg, more := lookup(w, p.Driver.Family)
	if row == nil && p.ask && Askable(w) {
		p.Unlisted = append(p.Unlisted, w)
		p.value = flagValue
		p.add(both, argv[:1], "")
		return 1
	}
	if row == nil || more && len(argv) < 2 {
		// A missing argument is an error that the driver reports itself.
		p.refuse(reason.UnknownOption + optionName(w))
		p.value = never
		p.add(both, argv[:1], "")
		return 1
	}
	words := argv[:1]
	if more {
		words, arg = argv[:2], argv[1]
	}
	full := w
	if strings.HasPrefix(w, "--") && !strings.HasPrefix(row.name, "--") {
		full = translated(w)
	}
	p.value = row.value
	// "@FILE" is a response file wherever it stands, and joined arguments reach cc1 as words of their own.
	if !row.value.fits(full, arg) || arg != "" && arg[0] == '@' {
		p.refuse(reason.UnknownOption + optionName(w))
	}
	if row == &anyWarning || w == "-w" {
		p.warning(w)
	} else if strings.HasPrefix(w, "--") {
		p.warning(shortWarning(w))
	}
	c := row.class(p.Driver.Family)
	p.option(c, words, p.shared(c, arg))
	return len(words)
}

// shortWarning returns the short form of a warning option with two hyphens.
func shortWarning(w string) string {
	switch w {
	case "--all-warnings":
		return "-Wall"
	case "--no-warnings":
		return "-w"
	}
	return translated(w)
}

// warning records what concerns warnings that the other half cannot give.
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
	case modeAssembly:
		p.assembly = true
	case modeSyntax:
		p.Syntax = true
	case modePrecompile:
		p.modules.only = true
	case output:
		p.outputs++
		p.output = arg
	case language:
		p.late = p.late || p.sources > 0
		p.spoken = true
		p.x = arg
		if arg == "none" {
			p.x = ""
		}
	case isQuery:
		p.query = true
	case isDump:
		p.dump = true
	case dumpName:
		p.dumpNames = true
	case ltrans:
		p.ltrans = true
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
	case searchGCC:
		p.rooted = true
		if strings.HasPrefix(words[0], "--gcc") { // it is also where programs are looked for
			p.Sources = "toolchain"
		}
	case specFile:
		if isDevice(arg) {
			p.refuse(reason.NotReproducible + hereOf[hereSpecs])
		}
	case plugin:
		if !PluginName(arg) {
			p.refuse(reason.NotReproducible + hereOf[herePlugin])
		}
	case inputFile:
		p.input(arg)
		if strings.HasPrefix(words[0], "-fprofile-use") {
			p.input(arg + "/default.profdata") // if it is a directory
		}
	case preproc, include:
		if isDevice(arg) && (c != include || arg != noFile) {
			p.refuse(reason.Stdin)
		}
	case both:
		if strings.HasPrefix(words[0], "-fopenmp") || strings.HasPrefix(words[0], "-fopenacc") {
			p.pragmas = true
		}
	case debug:
		p.debug = true
		p.symbols = !noSymbols(words[0]) && (p.symbols || !aboutSymbols(words[0]))
	case compDir, debugRoot:
		p.compDir = true
		p.extra.root = arg
	case plainText:
		p.plain = true
	case sanitize:
		p.sanitize(arg)
	case lto:
		p.lto, p.macros = true, true
	case arch:
		switch {
		case strings.HasPrefix(arg, "native+"), arg == "native" && strings.HasPrefix(words[0], "--"),
			arg == "native" && words[0] == "-mcpu=native" && x86: // its replacement is silent, but -mcpu=native is warned about
			p.refuse(reason.Native)
		case arg == "native":
			p.native = true
		}
	case wp:
		p.preprocessorWords(arg)
	case xpre:
		p.preprocessorWord(arg)
	case wa:
		p.assemblerWords(arg)
	case xasm:
		p.assemblerWord(arg)
	case xclang:
		switch {
		case p.feature: // +avx2, -egpr
			p.feature = false
			if !onlyOf(arg, wordBytes, maxWord) {
				p.refuse(reason.UnknownOption + "-target-feature")
			}
		case p.names != "":
			p.forwardedName(arg)
		case arg == "-include", arg == "-include-pch", arg == "-mllvm", arg == "-fdebug-compilation-dir":
			p.names = arg
		case arg == "-emit-pch":
			p.emits = true
		case arg == "-target-feature":
			p.feature = true
		case !forwarded(arg):
			p.refuse(reason.UnknownOption + optionName(arg))
		}
	case moduleOn, moduleMapper, moduleFile, moduleDir, moduleTo, moduleHeader:
		p.moduleOption(c, arg)
	case image:
		p.image(arg)
	case llvm:
		if !codeOnly(arg) {
			p.refuse(reason.UnknownOption + "-mllvm," + optionName(arg))
		}
	default:
		p.side(c, arg)
	}
	if what := textOf[c]; what != "" {
		p.sourcesOnly(what)
	}
	if c > notHere {
		p.refuse(reason.NotReproducible + hereOf[c])
	}
	p.add(c, words, arg)
}

// noSymbols reports whether an option of class debug takes back earlier ones that ask for debug information.
func noSymbols(w string) bool { return w == "-g0" || w == "-ggdb0" }

// aboutSymbols reports whether an option of class debug only says what debug information is like, if there is any.
func aboutSymbols(w string) bool {
	switch w {
	case "-gcolumn-info", "-grecord-gcc-switches", "-gstrict-dwarf":
		return true
	}
	return strings.HasPrefix(w, "-gno-") || strings.HasPrefix(w, "-gz")
}

// sourcesOnly records why the command cannot travel as preprocessed text.
func (p *parser) sourcesOnly(what string) {
	if p.Text == "" {
		p.Text = what
	}
}

// isDevice reports whether a file may be readable only once: a command that starts on a host
// and is repeated here would find it empty.
func isDevice(name string) bool {
	if strings.HasPrefix(name, "/") {
		name = pathname.Clean(name)
	}
	return name == "-" || strings.HasPrefix(name, "/dev/") || strings.HasPrefix(name, "/proc/")
}

// noFile is a device that is the same on all machines, and empty.
const noFile = "/dev/null"

// shared returns an option's argument as other processes may use it, if it is a path. A directory for headers may be named by
// way of /proc/self/cwd, which the compiler on a host has too; otherwise a path that only one process can follow keeps the
// command here.
func (p *parser) shared(c class, arg string) string {
	switch p.value {
	case path:
		name, ok := unit.Shared(arg)
		switch {
		case c == include || c == preproc || c == output || c == dependFile: // which have a reason of their own
			return arg
		case !ok || name != arg && c != incDir:
			p.refuse(reason.Paths)
		}
		return name
	case judged:
		for _, dir := range [...]string{"/proc/", "/dev/fd/"} {
			if strings.Contains(arg, dir) {
				p.refuse(reason.Paths)
			}
		}
	}
	return arg
}

// dependencyFile records the name of a dependency file. Neither half has the command's own
// standard output.
func (p *parser) dependencyFile(name string) {
	switch {
	case name == "/dev/null":
	case name == "" || isDevice(name):
		p.refuse(reason.NotReproducible + "stdout")
	default:
		p.extra.deps = append(p.extra.deps, name)
	}
}

// sanitize records what an instrumented object needs.
func (p *parser) sanitize(kinds string) {
	p.macros = true
	if p.Driver.Family == Clang {
		// The reports contain lines and columns, including those within macros.
		p.rewrite = true
		p.named = p.named || strings.Contains(kinds, "address")
	}
}

// file reads an input, in a word of its own.
func (p *parser) file(words []string) {
	name := words[0]
	p.value = path
	if len(name) > maxPath {
		p.refuse(reason.NotReproducible + "source-name")
	}
	if strings.HasPrefix(name, "@") {
		p.refuse(reason.NotReproducible + "response-file")
		p.add(source, words, name)
		return
	}
	var lang string
	switch {
	case p.x != "":
		lang = byName(p.x)
	case name == "-":
		p.stdin = true
		p.add(source, words, name)
		return
	default:
		d := p.Driver
		if p.spoken && d.Family == GCC {
			d.CXX = false // for the files after a -x, even -x none, g++ acts as gcc
		}
		lang = bySuffix(name, d)
	}
	p.spoken = false
	if name == "-" || isDevice(name) {
		p.stdin = true
	}
	if lang == langLink {
		p.inputs++
		p.add(source, words, name)
		return
	}
	p.sources++
	p.Source, p.Language = name, lang
	if lang == langCompiled {
		p.modules.on = true
		p.sourcesOnly(hereOf[hereModules])
	}
	if lang == langHeader {
		p.headerIn, p.modules.way = ofHeader(p.x, name, p.Driver), wayOf(p.x)
	}
	p.add(source, words, name)
}

// add appends what was read, so that the words of all options add up to the command.
func (p *parser) add(c class, words []string, arg string) {
	p.options = append(p.options, option{words: words, arg: arg, class: c, value: p.value})
}

// refuse records the reason why an option stays here; the first one counts.
func (p *parser) refuse(reason string) {
	if p.reason == "" {
		p.reason = reason
	}
}

// optionName returns a word up to its value, for reports.
func optionName(w string) string {
	if i := strings.IndexAny(w, "= \t\n"); i > 0 {
		w = w[:i]
	}
	if len(w) > 64 {
		w = w[:64]
	}
	return w
}
