package compile

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// finish decides, once all words are known.
func (p *parser) finish(getenv func(string) (string, bool)) {
	local := func(reason string, turn Turn) { p.Local, p.Reason, p.Turn = true, reason, turn }
	if p.Language == langHeader && p.modules.on && p.Driver.Family == GCC {
		p.headerUnit(getenv)
	}
	if p.Language == langHeader && p.Driver.Family == Clang && (p.modules.asked || p.modules.only && p.modules.way != "") {
		p.clangUnit(getenv)
	}
	p.takeObject()
	switch {
	case p.query:
		local(reason.Query, TurnNone)
	case p.cppOnly && !p.toFile():
		local(reason.Preprocess, TurnCPP)
	case p.depOnly:
		local(reason.Dependencies, TurnCPP)
	case p.sources == 0 && p.stdin:
		local(reason.Stdin, TurnLocal)
	case p.sources == 0 && p.inputs > 0 && !p.compile && !p.assembly && !p.Syntax:
		local(p.links(), TurnLocal)
	case p.sources == 0:
		local(reason.NoSource, TurnLocal)
	case p.stdin:
		local(reason.Stdin, TurnLocal)
	case p.Language == langHeader:
		local(reason.NotReproducible+"pch", TurnLocal)
		p.Makes = p.makes(getenv)
	case p.emits:
		local(reason.NotReproducible+"pch", TurnLocal)
	case p.modules.only && !p.modules.header && (p.Language != langModule || p.sources > 1 || p.inputs > 0):
		local(reason.NotReproducible+hereOf[herePCH], TurnLocal)
	case p.Language == langModule && p.sources == 1 && !p.modules.only && (p.modules.writes == 0 || !p.compile && !p.assembly):
		local(reason.NotReproducible+hereOf[hereModules], TurnLocal) // the object would have the name of a temporary file
	case p.Syntax && (p.extra.made != 0 || p.usage || p.extra.log || p.extra.traces != "" || p.modules.on):
		local(reason.NotReproducible+textOf[modeSyntax], TurnLocal) // compilers differ in how they name side files then
	case !p.compile && !p.assembly && !p.Syntax && !p.cppOnly && !p.modules.only && !p.modules.unit:
		p.Several = !p.modules.on // a source may import what an earlier one exports
		local(p.links(), TurnLocal)
	case (p.sources > 1 || p.inputs > 0) && strings.HasPrefix(p.reason, reason.UnknownOption):
		local(p.reason, TurnLocal) // one of the files may be the option's argument
	case p.sources > 1 || p.inputs > 0:
		p.Several = p.inputs == 0 && !p.modules.on
		local(reason.NotReproducible+"several-sources", TurnLocal)
	case p.assembles() && (!p.compile || p.assembly || p.Syntax || p.extra.profile || len(p.extra.files) > 0 || p.oddSides()):
		local(reason.Assembler, TurnLocal) // further files, or text instead of an object
	case (p.Language == langLTO || p.ltrans) && p.extra.wants(splitDwarf):
		local(reason.NotReproducible+textOf[splitDwarf], TurnLocal) // gcc 11 and 12 write another identifier each time (dwo_id)
	case p.Language == langOther, p.Language == langIR && p.unfitIR(), (p.Language == langLTO || p.ltrans) && !p.partition():
		local(reason.NotReproducible+"language", TurnLocal)
	case p.index != "" && p.Language != langIR:
		local(reason.NotReproducible+hereOf[hereInputFile], TurnLocal) // the driver refuses
	case isProbe(p.Source):
		local(reason.Probe, TurnLocal)
	case p.extra.elsewhere && (p.extra.profile || p.removesCounts()):
		local(reason.NotReproducible+"profile", TurnLocal) // the name of what is read or removed contains that of this directory
	case p.dump && !p.cppOnly, p.dumpNames && p.Language != langLTO:
		local(reason.NotReproducible+hereOf[hereDumps], TurnLocal)
	case p.pending != "":
		local(reason.UnknownOption+"-Wp", TurnLocal)
	case p.names != "":
		local(reason.UnknownOption+p.names, TurnLocal)
	case p.symbol:
		local(reason.UnknownOption+"-Wa,--defsym", TurnLocal)
	case p.reason != "":
		local(p.reason, TurnLocal)
	case p.temporary() != "":
		local(p.temporary(), TurnLocal)
	default:
		if p.asDebug {
			p.sourcesOnly(debugText)
			p.debug = true
		}
		if p.Expand = p.cppOnly; p.Expand {
			p.sourcesOnly(reason.Preprocess)
		}
		if p.assembles() {
			p.sourcesOnly(reason.Assembler)
			p.plain = true // for the list too
			p.usage = false
			p.extra.forget(stackUsage) // nothing tells of these then
			p.extra.forget(coverage)
		}
		if p.Language == langIR || p.Language == langLTO {
			p.sourcesOnly("language")
		}
		if what := p.unfit(getenv); what != "" {
			local(reason.NotReproducible+what, TurnLocal)
			return
		}
		p.Sources = p.rootedWhole()
		if p.Text = p.untextual(); p.Text != "" && p.Sources != "" {
			local(reason.NotReproducible+p.Text, TurnLocal)
			return
		}
		if p.Text == "" && p.symbols {
			// gcc records the option by which it takes the text; columns are those of the text; and clang leaves out
			// the digests of files.
			p.Text, p.Inexact = debugText, true
		}
		p.Raw = raw(p.Language) || p.Language == langAsm || p.Language == langCompiled || p.Language == langIR || p.Language == langLTO
		p.places = !p.quiet && !p.Raw && (p.misled > 0 || p.misled == 0 && (p.wall || p.Driver.Family == Clang))
		if p.name(); len(p.Outputs) > job.MaxOutputs || sameTwice(p.Outputs) {
			p.Outputs, p.Inputs = nil, nil
			local(reason.NotReproducible+"several-outputs", TurnLocal)
		}
	}
}

// Linked returns the file, as typed, that a command for the linker makes.
func (p *Plan) Linked() string {
	if p.output == "" {
		return "a.out"
	}
	return p.output
}

// TellsMemory reports whether the compiler writes into its assembly how much memory it may use.
func (p *Plan) TellsMemory() bool {
	return p.Driver.Family == GCC && slices.ContainsFunc(p.options, func(o option) bool { return o.words[0] == "-fverbose-asm" })
}

// sameTwice reports whether two outputs have one name: then the order in which the compiler writes them decides, and a host
// has one file for both.
func sameTwice(outputs []unit.Output) bool {
	for i := 1; i < len(outputs); i++ {
		for j := range i {
			if strings.TrimPrefix(outputs[i].Name, "./") == strings.TrimPrefix(outputs[j].Name, "./") {
				return true
			}
		}
	}
	return false
}

// isProbe reports whether a source is a configure test: such a source asks about this machine,
// and gets its answer sooner here.
func isProbe(source string) bool {
	file := base(source)
	return strings.HasPrefix(file, "conftest.") || strings.HasPrefix(file, "tmp.conftest.")
}

// unfit returns the reason why the command cannot run on another machine, or "".
func (p *parser) unfit(getenv func(string) (string, bool)) string {
	switch {
	case strings.HasPrefix(base(p.Source), "@") || strings.HasPrefix(base(p.output), "@"):
		// The driver derives words from base names, such as -dumpbase @x.c, and the programs that it
		// starts take a word beginning with @ for a file with words.
		return "source-name"
	case p.outputs > 0 && p.output == "":
		return "output"
	case p.output == "-":
		return "stdout"
	case p.outputs > 0 && p.output == p.Source:
		return "output" // the driver refuses
	case p.outputs == 0 && stem(p.Source) == "":
		return "output"
	case p.outputs > 0 && isDevice(p.output) && p.output != "/dev/null":
		return "stdout"
	}
	if p.changedByEnvironment(getenv) || getenv != nil && p.specsAmongLibraries(getenv) {
		return "environment"
	}
	if p.extra.traces != "" && p.ownAs() != clangAs {
		return "side-file" // named after a temporary file
	}
	if p.Driver.Family == GCC && p.extra.wants(coverage) && p.coversMore() && !p.testsCoverage() && p.seeded() {
		return textOf[coverage] // gcc 16 removes a program's counts (removesCounts), earlier ones do not
	}
	if p.mapsByLinks() {
		return "directory"
	}
	if p.tellsNoPlugin() {
		return hereOf[herePlugin]
	}
	if p.unfitModules(getenv) {
		return hereOf[hereModules]
	}
	if p.Driver.Family == Clang && p.Language == langAsmCpp && p.debug && p.ownAs() == laterAs && temporaryElsewhere(getenv) {
		return "directory" // that of the text between preprocessor and assembler, if there is no code
	}
	p.envDirs = headerDirs(getenv)
	return ""
}

// untextual returns the reason why the command cannot travel as preprocessed text, or "".
func (p *parser) untextual() string {
	switch {
	case p.Text != "":
		return p.Text
	case p.outputs > 1:
		return "several-outputs"
	case strings.HasPrefix(base(p.Source), "-") || strings.HasPrefix(base(p.Source), "@"):
		return "source-name"
	case p.rooted && p.fastMath():
		return "toolchain"
	case raw(p.Language) && (p.late || p.Driver.Family == Clang && p.unused()):
		return "messages" // the driver reports a word without effect; the other half does not have that word
	case raw(p.Language) && p.Driver.Family == GCC && (p.debug || p.lto):
		// The object names the working directory, which only text from our own preprocessor carries.
		return "directory"
	case p.rewrite && (p.named || p.lto) && p.Source != base(p.Source):
		return "directory"
	case p.symbols && p.assembly:
		return debugText // assembly shows the options of the producer, and columns
	case p.symbols && p.lto && p.Driver.Family == Clang:
		return "lto" // so does bitcode
	}
	return ""
}

// debugText is why text would give another object, or other assembly, with debug information.
const debugText = "debug"

// toFile reports whether -E is all that the command asks for, of one source and to a file.
func (p *parser) toFile() bool {
	switch p.Language {
	case langC, langCXX, langObjC, langObjCXX:
		return p.output != "" && !isDevice(p.output) && p.sources == 1 && p.inputs == 0 && !p.stdin && !p.depOnly && !p.Syntax && !p.modules.on &&
			p.extra.made == 0 && !p.usage && len(p.extra.files) == 0 && p.extra.traces == "" && !p.extra.profile && !isProbe(p.Source) &&
			!strings.Contains(base(p.output), "cpp_stdout") // ccache asks, and waits for the answer
	}
	return false
}

// assembles reports whether the source is assembly.
func (p *Plan) assembles() bool { return p.Language == langAsm || p.Language == langAsmCpp }

// oddSides reports whether the command asks for a further file of an assembly source whose name is not derived here.
func (p *parser) oddSides() bool {
	if p.extra.wants(callGraph) || p.extra.wants(optRecord) || p.extra.wants(timeTrace) || p.extra.wants(diagFormat) {
		return true
	}
	// gcc would have to write the assembly into its own source.
	return p.extra.wants(saveTemps) && p.Language == langAsmCpp && strings.HasSuffix(p.Source, ".s")
}

// unused reports whether clang's driver, when given preprocessed text, would report a word
// as unused.
func (p *parser) unused() bool {
	for _, o := range p.options {
		switch o.class {
		case preproc, incDir, search, searchGCC, include, macro, wp, xpre, depend, dependAuto, dependFile, dependTo, linker, plainText:
			return true
		}
	}
	return false
}
