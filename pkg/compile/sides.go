package compile

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// sides holds what a command asks for besides its main output.
type sides struct {
	made      uint32   // one bit for each class of side outputs
	files     []string // written, under names that the command gives
	deps      []string // dependency files that the command names
	root      string   // directory for debug information
	record    string   // format of clang's optimization record
	format    string   // of diagnostics
	profile   bool     // gcc: -fprofile-use or -fauto-profile without a file
	log       bool     // clang: -MJ
	traces    string   // clang: directory for the time trace
	elsewhere bool     // gcc: profile data have a directory of their own
}

func (s *sides) wants(c class) bool { return s.made&(1<<(c-stackUsage)) != 0 }

func (s *sides) forget(c class) { s.made &^= 1 << (c - stackUsage) }

// side records what an option makes and reads.
func (p *parser) side(c class, arg string) {
	switch c {
	case stackUsage:
		p.usage = p.Driver.Family == GCC
		if p.Driver.Family == Clang {
			p.sourcesOnly("side-file")
		}
	case callGraph, coverage, splitDwarf, saveTemps, timeTrace, depsFormat:
	case optRecord:
		p.extra.record = strings.TrimPrefix(arg, "=")
	case optInfo:
		// -fopt-info-loop-missed=FILE; without a file it prints.
		_, name, _ := strings.Cut(arg, "=")
		if name != "" && name != "stderr" && name != "stdout" {
			p.sideFile(name)
		}
		return
	case sideFile:
		p.sideFile(arg)
		return
	case dumpFile:
		if arg == "stdout" || arg == "stderr" {
			p.refuse(reason.NotReproducible + hereOf[hereDumps])
		}
		p.sideFile(arg)
		return
	case commandLog:
		p.extra.log = true
		p.sideFile(arg)
		return
	case traceFile:
		if strings.HasSuffix(arg, "/") {
			p.extra.traces = arg
		} else {
			p.sideFile(arg)
		}
		return
	case diagFormat:
		p.extra.format = arg
		if strings.HasSuffix(arg, "-file") {
			p.sourcesOnly("side-file")
		}
	case thinIndex:
		p.index = arg
		p.input(arg)
		return
	case inputBlocks:
		if name := strings.TrimPrefix(arg, "list="); name != "all" && name != "labels" && name != "none" {
			p.input(name)
		}
		return
	case inputProfile:
		if p.Driver.Family == GCC {
			p.extra.profile = true
		} else {
			p.input("default.profdata")
		}
		return
	case profileDir:
		p.extra.elsewhere = true
		return
	case emitLLVM:
		p.llvm = true
		return
	default:
		return
	}
	p.extra.made |= 1 << (c - stackUsage)
}

// sideFile records a file that the command names and the compiler writes.
func (p *parser) sideFile(name string) {
	switch {
	case name == "/dev/null":
	case name == "" || isDevice(name):
		p.refuse(reason.NotReproducible + "stdout")
	default:
		p.extra.files = append(p.extra.files, name)
	}
}

// TraceFile returns the file that the command names for a time trace (-ftime-trace=), as typed, or "" if it names none, or
// a directory by a slash. If there is a directory of that name, the trace is written into it, under another name than the Plan has.
func (p *Plan) TraceFile() (name string) {
	for _, o := range p.options {
		if o.class == traceFile {
			name = o.arg
		}
	}
	if strings.HasSuffix(name, "/") {
		return ""
	}
	return name
}

// input records a file that the command names and the compiler reads.
func (p *parser) input(name string) {
	switch {
	case name == noFile, strings.HasPrefix(name, noFile+"/"):
		return
	case name == "" || isDevice(name):
		p.refuse(reason.Stdin)
		return
	}
	p.Inputs = append(p.Inputs, name)
}

// name derives the outputs as the driver does. A side file whose name varies between versions
// is listed under all its names: only one of them will exist.
func (p *parser) name() {
	kind, suffix := unit.OutputObject, ".o"
	switch {
	case p.assembly && p.llvm: // -S takes precedence over -c in either order
		kind, suffix = unit.OutputAssembly, ".ll"
	case p.assembly:
		kind, suffix = unit.OutputAssembly, ".s"
	case p.llvm:
		suffix = ".bc"
	}
	switch {
	case p.Expand:
		kind = unit.OutputAssembly // text, too
	case p.modules.only:
		kind = unit.OutputModule
	}
	main := p.output
	if main == "" {
		main = stem(p.Source) + suffix
	}
	switch {
	case p.Syntax: // which takes precedence over -c and -S
	case p.modules.unit: // gcc throws the assembly away
		p.Outputs = append(make([]unit.Output, 0, 2), unit.Output{Kind: unit.OutputModule, Name: unnamedUnit})
	default:
		p.Outputs = append(make([]unit.Output, 0, 4), unit.Output{Kind: kind, Name: main})
	}
	if p.usage {
		p.Outputs = append(p.Outputs, unit.Output{Kind: unit.OutputStackUsage, Name: p.aux(main, ".su")})
	}
	if p.extra.profile {
		p.Inputs = append(p.Inputs, p.aux(main, ".gcda"), "fbdata.afdo")
	}
	p.dependencies(main)
	if p.modules.makes && !p.modules.only {
		p.Outputs = append(p.Outputs, unit.Output{Kind: unit.OutputModule, Name: p.modules.to})
	}
	for _, name := range p.extra.files {
		p.made(name)
	}
	if p.extra.traces != "" {
		p.made(p.extra.traces + swapSuffix(base(main), ".json"))
	}
	if p.extra.made != 0 {
		p.derived(main)
	}
}

// made declares a side file, unless it has been declared already.
func (p *parser) made(name string) {
	for i := range p.Outputs {
		if p.Outputs[i].Name == name {
			return
		}
	}
	p.Outputs = append(p.Outputs, unit.Output{Kind: unit.OutputSide, Name: name, Optional: true})
}

// dependencies declares the dependency files.
func (p *parser) dependencies(main string) {
	if p.deps && !p.depFile {
		p.extra.deps = append(p.extra.deps, swapSuffix(main, ".d"))
		if p.Driver.Family == GCC && p.output == "" && !p.compile && !p.assembly {
			// The driver has a program in mind, a.out, whose name it leaves out for a.c.
			p.extra.deps = append(p.extra.deps, "a-"+swapSuffix(main, ".d"))
		}
	}
	for _, name := range p.extra.deps {
		// Of several, only the last one is written, and only the driver knows which one that is.
		sure := len(p.extra.deps) == 1 && p.deps && !p.Raw && name != main && !p.assembles()
		p.Outputs = append(p.Outputs, unit.Output{Kind: unit.OutputDependency, Name: name, Optional: !sure})
	}
}

// derived declares the side files whose names are derived from the main output or the source.
func (p *parser) derived(main string) {
	e, d := &p.extra, p.Driver.Family
	for _, s := range [...]struct {
		class  class
		suffix string
	}{{stackUsage, ".su"}, {callGraph, ".ci"}, {coverage, ".gcno"}, {splitDwarf, ".dwo"}, {timeTrace, ".json"}} {
		if e.wants(s.class) {
			p.made(p.aux(main, s.suffix))
		}
	}
	if p.removesCounts() {
		p.stale = p.aux(main, ".gcda")
	}
	dir := main[:len(main)-len(base(main))]
	source := stem(p.Source)
	if e.wants(splitDwarf) && d == Clang && e.root != "" {
		p.made(e.root + source + ".dwo")
	}
	if e.wants(depsFormat) { // which modules the source has and wants, as P1689 has it
		p.made(swapSuffix(main, ".ddi"))
	}
	if e.wants(saveTemps) {
		for _, stem := range [...]string{p.aux(main, ""), base(p.aux(main, "")), source, dir + source} {
			if p.Language == langAsm {
				break // no step before the last
			}
			if p.Language != langAsmCpp {
				p.made(stem + textSuffix(p.Language))
			}
			p.made(stem + ".s")
			if d == Clang && p.Language != langAsmCpp {
				p.made(stem + ".bc")
			}
			if p.llvm {
				p.made(stem + ".tmp.bc")
			}
		}
	}
	if e.wants(optRecord) && d == Clang {
		if e.record == "" {
			e.record = "yaml"
		}
		p.made(swapSuffix(main, ".opt."+e.record))
		if p.output == "" {
			p.made(swapSuffix(source, ".opt."+e.record))
		}
	}
	if e.wants(optRecord) && d == GCC {
		p.dumpBase(main, ".opt-record.json.gz")
	}
	switch {
	case e.format == "json-file":
		p.dumpBase(main, ".gcc.json")
	case e.format == "sarif-file":
		p.dumpBase(main, ".sarif")
	}
}

// removesCounts reports whether the compiler removes the counts of a program's earlier runs: gcc does, if the command chooses what
// is random in an object. The object then has no stamp of its own, so the program could not tell other counts from its own. A compile
// that uses counts leaves them alone.
func (p *parser) removesCounts() bool {
	return p.Driver.Family == GCC && p.testsCoverage() && !p.usesCounts() && p.seeded()
}

// testsCoverage reports whether gcc writes what a program's counts mean, by an option that makes every version do so.
func (p *Plan) testsCoverage() (tests bool) {
	for _, o := range p.options {
		switch o.words[0] {
		case "--coverage", "-coverage":
			return true // the driver says so after all other flags
		case "-ftest-coverage", "--test-coverage":
			tests = true
		case "-fno-test-coverage", "--no-test-coverage":
			tests = false
		}
	}
	return tests
}

// coversMore reports whether gcc counts conditions or paths. gcc 16 then writes what the counts mean as well.
func (p *Plan) coversMore() bool {
	return slices.ContainsFunc(p.options, func(o option) bool {
		return o.class == coverage && (strings.Contains(o.words[0], "condition") || strings.Contains(o.words[0], "path"))
	})
}

// usesCounts reports whether gcc compiles with the counts of an earlier run, or with samples of it.
func (p *Plan) usesCounts() bool {
	implied, said, uses := false, false, false
	for _, o := range p.options {
		name, _, _ := strings.Cut(o.words[0], "=")
		switch name {
		case "-fprofile-use", "-fauto-profile", "--profile-use", "--auto-profile":
			implied = true
		case "-fno-profile-use", "-fno-auto-profile", "--no-profile-use", "--no-auto-profile":
			implied = false
		case "-fbranch-probabilities", "--branch-probabilities":
			said, uses = true, true
		case "-fno-branch-probabilities", "--no-branch-probabilities":
			said, uses = true, false
		}
	}
	return said && uses || !said && implied
}

// seeded reports whether the command chooses what is random in an object of gcc's.
func (p *Plan) seeded() (is bool) {
	for _, o := range p.options {
		switch w, _, value := strings.Cut(o.words[0], "="); w {
		case "-frandom-seed", "--random-seed":
			is = is || value
		case "-fno-random-seed", "--no-random-seed":
			is = false
		}
	}
	return is
}

// aux returns the name of a file beside the main output, with another suffix. To gcc a name
// that is all suffix has none.
func (p *parser) aux(main, suffix string) string {
	if p.Driver.Family == GCC && strings.LastIndexByte(base(main), '.') == 0 {
		return main + suffix
	}
	return swapSuffix(main, suffix)
}

// dumpBase declares the files that gcc names by the dump base: the output with the source's
// suffix, or before gcc 11 the source.
func (p *parser) dumpBase(main, suffix string) {
	dir, file := main[:len(main)-len(base(main))], base(p.Source)
	named := p.aux(main, file[len(stem(file)):])
	for _, name := range [...]string{named, base(named), file, dir + file} {
		p.made(name + suffix)
	}
}

// textSuffix returns the suffix of preprocessed text.
func textSuffix(lang string) string {
	switch lang {
	case langCXX:
		return ".ii"
	case langObjC:
		return ".mi"
	case langObjCXX:
		return ".mii"
	}
	return ".i"
}

// Stem returns the name from which a compiler derives others: a file's base name without its
// last suffix.
func Stem(path string) string { return stem(path) }

// stem returns a file's base name without its last suffix, or "" where drivers differ.
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
