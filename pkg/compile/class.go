package compile

// class is what an option is to a compile that is split in two.
type class uint8

const (
	unknown class = iota // not in this family: the command runs here

	// Options that a split compile can honour.
	both       // preprocessor and compiler need it
	debug      // as both; asks for debug information
	preproc    // the preprocessor alone: its effect is in the text
	macro      // as preproc; the compiler too where the text leaves conditionals standing
	compileOn  // the compiler alone: it would change or spoil the text
	linker     // without effect as nothing is linked; clang says so
	drop       // no effect on any file
	depend     // -MP, -MG and the like: the preprocessor writes the file
	dependAuto // -MD, -MMD
	dependFile // -MF
	dependTo   // -MT, -MQ
	plainText  // preprocessor's; needs the plain form of the text
	compDir    // names the directory for debug information

	compDirWord // the same as a word of its own

	// Words that steer the driver.
	modeCompile  // -c
	modeAssembly // -S
	output       // -o
	language     // -x
	wp           // -Wp,...
	wa           // -Wa,...
	xpre         // -Xpreprocessor
	xasm         // -Xassembler
	xclang       // -Xclang
	arch         // -march=, -mtune=, -mcpu=: not native
	sanitize     // -fsanitize=
	lto          // -flto
	stackUsage   // -fstack-usage
	source       // the file to compile, in its place

	// Commands that are no compile.
	isQuery
	isPreprocess
	isDependencies

	// What another machine could not reproduce; whatOf has their words.
	notHere
	hereComments
	hereCommandLine
	hereCoverage
	hereDumps
	hereEmitLLVM
	hereMessages
	hereModules
	herePCH
	herePlugin
	hereProfile
	hereSaveTemps
	hereSideFile
	hereSpecs
	hereSplitDwarf
	hereSyntaxOnly
	hereToolPath
	hereInputFile
)

// whatOf is the word behind "not-reproducible:".
func whatOf(c class) string {
	switch c {
	case hereComments:
		return "comments" // -C, -CC: only with -E
	case hereCommandLine:
		return "command-line" // the object records the words that made it
	case hereCoverage:
		return "coverage" // .gcno files, and paths in the object
	case hereDumps:
		return "dumps"
	case hereEmitLLVM:
		return "emit-llvm"
	case hereMessages:
		return "messages" // the command prints timings, commands, headers
	case hereModules:
		return "modules"
	case herePCH:
		return "pch"
	case herePlugin:
		return "plugin"
	case hereProfile:
		return "profile"
	case hereSaveTemps:
		return "save-temps"
	case hereSideFile:
		return "side-file" // writes a further file
	case hereSpecs:
		return "specs"
	case hereSplitDwarf:
		return "split-dwarf"
	case hereSyntaxOnly:
		return "syntax-only"
	case hereToolPath:
		return "tool-path" // chooses the programs that compile
	case hereInputFile:
		return "input-file" // the compiler proper reads a further file
	}
	return "option"
}
