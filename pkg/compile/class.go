package compile

// class says what an option means for a compile that may run elsewhere.
type class uint8

const (
	unknown class = iota // not known for this family: the command runs here

	// Options whose effect is known in both forms of a job.
	both       // preprocessor and compiler need it
	warning    // as both; left out when files are listed
	debug      // as both; asks for debug information
	preproc    // the preprocessor alone: its effect is in the text
	incDir     // as preproc; a directory for headers
	search     // as preproc; the header search path is then uncertain
	searchGCC  // as search; clang looks below for a gcc, at files that no list names
	driverFile // as both; the driver reads a file of the toolchain's for it, which may add words
	include    // as preproc; -include, -imacros
	macro      // as preproc; also for the compiler where the text keeps conditionals
	compileOn  // the compiler alone: it would change or spoil the preprocessed text
	linker     // without effect, as nothing is linked; clang says so
	drop       // no effect on any file
	depend     // -MP, -MG and the like: the preprocessor writes the file
	dependAuto // -MD, -MMD
	dependFile // -MF
	dependTo   // -MT, -MQ
	plainText  // preprocessor's; needs the plain form of the text
	compDir    // names the directory for debug information
	debugRoot  // the same, in a word of its own

	// Words that control the driver.
	modeCompile    // -c
	modeAssembly   // -S
	modeSyntax     // -fsyntax-only
	modePrecompile // --precompile
	output         // -o
	language       // -x
	wp             // -Wp,...
	wa             // -Wa,...
	xpre           // -Xpreprocessor
	xasm           // -Xassembler
	xclang         // -Xclang
	llvm           // -mllvm
	arch           // -march=, -mtune=, -mcpu=: not native
	sanitize       // -fsanitize=
	lto            // -flto
	source         // the file to compile
	toolDir        // -B: programs are looked for there first; DropTools takes it away
	specFile       // -specs: a file of rules for the driver; Respelt takes it away
	plugin         // -fplugin=: code of gcc's that is part of the toolchain where it may travel
	pluginArg      // -fplugin-arg-: what a plugin is told

	// Further files that come back; sides.go derives their names.
	stackUsage // -fstack-usage
	callGraph  // -fcallgraph-info
	coverage   // -ftest-coverage, --coverage
	splitDwarf // -gsplit-dwarf
	saveTemps  // -save-temps
	optRecord  // -fsave-optimization-record
	optInfo    // -fopt-info
	timeTrace  // -ftime-trace
	diagFormat // -fdiagnostics-format=
	depsFormat // -fdeps-format=
	sideFile   // its argument is a file that the compiler writes
	dumpFile   // -fdump-tree-gimple=: a file that the compiler writes, or standard output
	commandLog // -MJ: the same, with the command in it
	traceFile  // -ftime-trace=: the same, or a directory for it if it ends with a slash

	// C++ modules.
	moduleOn     // -fmodules-ts
	moduleMapper // -fmodule-mapper=
	moduleFile   // clang: -fmodule-file=
	moduleDir    // clang: -fprebuilt-module-path=
	moduleTo     // clang: -fmodule-output=, or without a file
	moduleHeader // -fmodule-header, or with the way in which the header is looked for

	// Further files that the compiler reads.
	inputFile    // its argument is a file
	inputProfile // reads profile data under a name that the compiler chooses
	inputBlocks  // -fbasic-block-sections=
	thinIndex    // -fthinlto-index=
	ltrans       // gcc: -fltrans
	dumpName     // gcc: what dumps and other further files are named after
	profileDir   // where profile data will lie when the program has run
	emitLLVM     // -emit-llvm
	image        // clang: a precompiled header

	// Options whose effect preprocessed text does not reproduce: textOf has the reasons.
	textCommandLine
	textComments
	textCoverage
	textDirectory
	textMessages
	textProfile
	textSideFile

	// Commands that do not compile.
	isQuery
	isPreprocess
	isDump // -dM: with -E, what is written
	isDependencies

	// Options that another machine could not reproduce in any form: hereOf has the reasons.
	notHere
	hereComments
	hereDumps
	hereInputFile
	hereLanguage
	hereMessages
	hereModules
	herePCH
	herePlugin
	hereProfile
	hereSideFile
	hereSpecs
	hereToolPath

	numClasses
)

// The halves to which a word of a command can go.
const (
	toText   = 1 << iota // text form: the preprocessor here
	toObject             // text form: the compiler there
	toList               // sources form: the run that lists the files
)

// goes says which halves get an option of each class.
var goes = [numClasses]uint8{
	both: toText | toObject | toList, arch: toText | toObject | toList, sanitize: toText | toObject | toList,
	lto: toText | toObject | toList, stackUsage: toText | toObject | toList, xclang: toText | toObject | toList, llvm: toObject,
	warning: toText | toObject, debug: toText | toObject, compDir: toText | toObject, debugRoot: toText | toObject,
	preproc: toText | toList, incDir: toText | toList, search: toText | toList, searchGCC: toText | toList, driverFile: toText | toObject | toList, include: toText | toList,
	macro: toText | toList, plainText: toText | toList, source: toText | toList, language: toText | toList,
	depend: toText, dependAuto: toText, dependFile: toText, dependTo: toText, wp: toText, xpre: toText,
	linker:     toText, // clang says that they are unused
	diagFormat: toText | toObject, compileOn: toObject, ltrans: toObject, dumpName: toObject, wa: toObject, xasm: toObject,
	moduleFile: toList, moduleDir: toList, image: toList, plugin: toList, pluginArg: toList,
	// Some of these define macros.
	coverage: toList, inputProfile: toList, inputFile: toList, inputBlocks: toList, profileDir: toList, textProfile: toList, textCoverage: toList,
}

// textOf has, for each class that preprocessed text would give another object, other files or
// other messages for, the word after "not-reproducible:".
var textOf = [numClasses]string{
	plugin:          "plugin",
	pluginArg:       "plugin",
	callGraph:       "side-file",
	modeSyntax:      "syntax-only", // there is no object
	modePrecompile:  "modules",
	coverage:        "coverage", // paths in the object
	splitDwarf:      "split-dwarf",
	saveTemps:       "save-temps",
	optRecord:       "side-file",
	optInfo:         "messages",
	timeTrace:       "side-file",
	depsFormat:      "side-file",
	sideFile:        "side-file",
	dumpFile:        "side-file",
	commandLog:      "side-file",
	traceFile:       "side-file",
	inputFile:       "input-file",
	inputProfile:    "profile",
	inputBlocks:     "input-file",
	thinIndex:       "input-file",
	profileDir:      "profile",
	emitLLVM:        "emit-llvm",
	moduleOn:        "modules",
	moduleMapper:    "modules",
	moduleFile:      "modules",
	moduleDir:       "modules",
	moduleTo:        "modules",
	moduleHeader:    "modules",
	image:           "pch",
	textCommandLine: "command-line", // the object records its command line
	textComments:    "comments",
	textCoverage:    "coverage",
	textDirectory:   "directory", // the object names files by where their links lead
	textMessages:    "messages",
	textProfile:     "profile",
	textSideFile:    "side-file",
}

// hereOf has, for each class that keeps a command here, the word after "not-reproducible:".
var hereOf = [numClasses]string{
	hereComments:  "comments", // -C, -CC: only with -E
	hereDumps:     "dumps",    // dumps whose file names cannot be predicted
	hereInputFile: "input-file",
	hereLanguage:  "language",
	hereMessages:  "messages", // the command prints timings, memory, commands
	hereModules:   "modules",
	herePCH:       "pch",
	herePlugin:    "plugin",
	hereProfile:   "profile",
	hereSideFile:  "side-file",
	hereSpecs:     "specs",
	hereToolPath:  "tool-path", // chooses the programs that compile
}
